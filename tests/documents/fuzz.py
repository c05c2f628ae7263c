"""Hostile documents by the thousand: each loads or is refused with its problems, in a moment.

    python tests/documents/fuzz.py --count 10000 --seed 1

Documents are made from a seed and their number, so each can be made again (`--show NUMBER`): of
every twenty, nine are edited as their author might, eight are broken in a few places, and three are
hostile. They are read in batches by worker processes, beside the files that they need: a document
that ends its worker, or that takes longer than the limit, is named, and the next worker goes on
behind it. Times are CPU times of what `check` does; wall times are shown too.
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.corpus import Project, files, projects
from documents.mutations import edited, hostile, mutated

__all__ = ["Report", "document", "fuzz"]

BATCH = 500
LIMIT = 5.0  # seconds for one document, after which it counts as one that hangs


@dataclass
class Report:
    """What became of the documents: how many loaded, were refused or went wrong, and their times."""

    outcomes: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return how many documents of each kind load, and how long reading one takes."""
        lines = ["kind      documents  load    CPU p50    p99   longest   wall p99  (ms)"]
        for kind in ("edited", "broken", "hostile", ""):
            rows = [row for row in self.rows if kind in ("", row["kind"])]
            if rows:
                loads = sum(row["outcome"] == "loads" for row in rows) / len(rows)
                cpu, wall = ([row[clock] * 1000 for row in rows] for clock in ("cpu", "seconds"))
                times = [
                    percentile(cpu, 0.5),
                    percentile(cpu, 0.99),
                    max(cpu),
                    percentile(wall, 0.99),
                ]
                shown = "".join(f"{time:9.1f}" for time in times)
                lines.append(f"{kind or 'all':8}  {len(rows):9}  {loads:4.0%}  {shown}")
        return "\n".join(lines)


def percentile(values: list[float], share: float) -> float:
    """Return what a share of the values stays below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Document(NamedTuple):
    """A text that is read, its kind, and which project it belongs to."""

    text: str
    kind: str
    project: int


def document(seed: int, number: int, corpus: list[str]) -> Document:
    """Return document `number` of a seed."""
    source = random.Random(f"{seed}:{number}")
    project, kind = source.randrange(len(corpus)), source.random()
    if kind < 0.15:
        return Document(hostile(source), "hostile", project)
    if kind < 0.55:
        return Document(mutated(source, corpus[project], corpus), "broken", project)
    return Document(edited(source, corpus[project]), "edited", project)


def fuzz(count: int, seed: int, first: int = 0) -> Report:
    """Read `count` documents in worker processes."""
    report = Report()
    number = first
    while number < first + count:
        number = _batch(seed, number, min(number + BATCH, first + count), report)
    return report


def _batch(seed: int, start: int, end: int, report: Report) -> int:
    """Read documents up to `end`, or up to the one that goes wrong; return the next number."""
    command = [sys.executable, __file__, "--worker", str(seed), str(start), str(end)]
    number = start
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        ) as worker,
        selectors.DefaultSelector() as ready,
    ):
        assert worker.stdout is not None
        assert worker.stderr is not None
        ready.register(worker.stdout, selectors.EVENT_READ)
        while True:
            patience = LIMIT + (30 if number == start else 0)  # the first one waits for the start
            line = worker.stdout.readline() if ready.select(patience) else None
            if not line:
                break
            row = json.loads(line)
            number += 1
            report.rows.append(row)
            report.outcomes[row["outcome"]] += 1
            if row["outcome"] == "traceback":
                report.wrong.append(f"document {row['number']}: {row['what']}")
        worker.kill()
        if number < end:
            kind = "hang" if line is None else "crash"
            report.outcomes[kind] += 1
            report.wrong.append(
                f"document {number}: {kind}: {worker.stderr.read().decode()[-2000:]}"
            )
            number += 1
    return number


def _work(seed: int, start: int, end: int) -> None:
    known = projects()
    corpus = [next(iter(project.values())) for project in known]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(start, end):
            made = document(seed, number, corpus)
            place = Path(folder) / str(made.project)
            if not place.exists():
                _write(place, known[made.project])
            file = place / next(iter(known[made.project]))
            file.write_bytes(made.text.encode("utf-8", "surrogatepass"))
            print(json.dumps({"number": number, "kind": made.kind, **_read(file)}), flush=True)


def _write(folder: Path, project: Project) -> None:
    for name, text in project.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _read(file: Path) -> dict[str, Any]:
    """Load a document as `check` does, and print its native form if it loads."""
    from loopwright.documents import Settings, load
    from loopwright.documents.load import to_native_yaml
    from loopwright.errors import DocumentError
    from loopwright.models.providers.endpoints import PROVIDER_NAMES

    began, cpu = time.perf_counter(), time.process_time()
    outcome, what, times = "loads", "", {}
    try:
        loaded = load(file, Settings(execute=False, providers=PROVIDER_NAMES))
        loaded.plan()
        times = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        for native in loaded.documents.values():
            to_native_yaml(native)
    except DocumentError as error:
        outcome = "refused"
        if not error.problems or not all(p.message for p in error.problems):
            outcome, what = "traceback", "refused without a problem"
    except Exception as error:  # whatever is not a problem of the document is ours
        import traceback

        outcome, what = "traceback", "".join(traceback.format_exception(error)[-3:])
    times = times or {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return {**times, "outcome": outcome, "what": what}


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print a document")
    parser.add_argument("--slowest", type=int, default=0, help="name so many of the slowest")
    parser.add_argument("--worker", type=int, nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        _work(*given.worker)
        return 0
    if given.show is not None:
        sys.stdout.write(document(given.seed, given.show, files()).text)
        return 0
    report = fuzz(given.count, given.seed)
    for text in report.wrong:
        print(text)
    print(", ".join(f"{name} {number}" for name, number in sorted(report.outcomes.items())))
    print(report.table())
    for row in sorted(report.rows, key=lambda row: -row["cpu"])[: given.slowest]:
        print(
            f"document {row['number']}: {row['kind']}, {row['outcome']}, {row['cpu'] * 1000:.0f} ms"
        )
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
