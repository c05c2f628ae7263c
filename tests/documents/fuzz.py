"""Hostile documents by the thousand: each loads or is refused with its problems, in a moment.

    python tests/documents/fuzz.py --count 10000 --seed 1

Documents are made from a seed and their number, so each can be made again (`--show NUMBER`). They
are read in batches by worker processes: a document that ends its worker, or that takes longer than
the limit, is named, and the next worker goes on behind it.
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
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from documents.corpus import MODULE, files
from documents.mutations import hostile, mutated

__all__ = ["Report", "document", "fuzz"]

BATCH = 500
LIMIT = 5.0  # seconds for one document, after which it counts as one that hangs


@dataclass
class Report:
    """What became of the documents: how many loaded, were refused or went wrong, and their times."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Return the time in seconds that a share of the documents stays below."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def document(seed: int, number: int, corpus: list[str]) -> str:
    """Return document `number` of a seed."""
    source = random.Random(f"{seed}:{number}")
    return hostile(source) if source.random() < 0.15 else mutated(source, corpus)


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
            report.seconds.append(row["seconds"])
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
    corpus = files()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "document.yaml"
        (Path(folder) / "steps.py").write_text(MODULE)
        for number in range(start, end):
            file.write_bytes(document(seed, number, corpus).encode("utf-8", "surrogatepass"))
            row = {"number": number, **_read(file)}
            print(json.dumps(row), flush=True)


def _read(file: Path) -> dict[str, Any]:
    """Load a document as `check` does, and print its native form if it loads."""
    from loopwright.documents import Settings, load
    from loopwright.documents.convert import to_native_yaml
    from loopwright.errors import DocumentError
    from loopwright.models.endpoints import PROVIDER_NAMES

    began = time.perf_counter()
    outcome, what = "loads", ""
    try:
        loaded = load(file, Settings(execute=False, providers=PROVIDER_NAMES))
        loaded.plan()
        for native in loaded.documents.values():
            to_native_yaml(native)
    except DocumentError as error:
        outcome = "refused"
        if not error.problems or not all(p.message for p in error.problems):
            outcome, what = "traceback", "refused without a problem"
    except Exception as error:  # whatever is not a problem of the document is ours
        import traceback

        outcome, what = "traceback", "".join(traceback.format_exception(error)[-3:])
    return {"seconds": time.perf_counter() - began, "outcome": outcome, "what": what}


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print a document")
    parser.add_argument("--worker", type=int, nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        _work(*given.worker)
        return 0
    if given.show is not None:
        sys.stdout.write(document(given.seed, given.show, files()))
        return 0
    report = fuzz(given.count, given.seed)
    for text in report.wrong:
        print(text)
    print(", ".join(f"{name} {number}" for name, number in sorted(report.outcomes.items())))
    print(
        f"p50 {report.percentile(0.5) * 1000:.1f} ms, p99 {report.percentile(0.99) * 1000:.1f} ms, "
        f"longest {report.percentile(1) * 1000:.1f} ms"
    )
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
