"""Record runs, replay them with other limits, apply the suggestion, and measure what it saves.

    python examples/learn_from_runs/learn_from_runs.py

The runs are in `.loopwright/learn_from_runs/runs.db` of the working folder. A second start reads them.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright import Result, run
from loopwright.documents import Loaded, load
from loopwright.insight import LeftOut, Recording, Recordings, Replay, loop_named, recordings_of
from loopwright.insight import replay as replayed
from loopwright.journal import Journal, open_journal

RUNS = 60
HERE = Path(__file__).parent
HOME = Path.cwd() / ".loopwright" / "learn_from_runs"
URL = "sqlite:.loopwright/learn_from_runs/runs.db"
JOBS = HERE.parent / "job_matching"

sys.path.insert(0, str(JOBS))
from catalogue import CITIES, FIELDS, LEVELS  # noqa: E402


def person(seed: int) -> dict[str, Any]:
    """Return the request of an invented person: skills of one field, and narrow filters at first."""
    chance = random.Random(f"person {seed}")
    skills = chance.choice(list(FIELDS.values()))
    locations = chance.sample(CITIES, k=chance.randint(2, 5))
    levels = chance.sample(list(LEVELS), k=chance.randint(1, 3))
    floor = chance.randrange(30_000, 60_000, 5_000)
    return {
        "person": {
            "skills": chance.sample(skills, k=min(5, len(skills))),
            "locations": locations,
            "levels": levels,
            "salary_floor": floor,
        },
        "filters": {
            "locations": locations[:1],
            "levels": levels[:1],
            "salary_from": floor + 15_000,
            "relevance_from": 0.4,
        },
        "pause": 0,
    }


@dataclass(frozen=True)
class Case:
    """A document, the input of each run, and the unit of its cost."""

    document: Path
    input_of: Callable[[int], dict[str, Any]]
    unit: str

    @property
    def name(self) -> str:
        return self.document.stem


CASES = (
    Case(JOBS / "job_matching.yaml", person, "searches"),
    Case(HERE / "writing.yaml", lambda seed: {"seed": seed}, "calls"),
)


async def record(journal: Journal, loaded: Loaded, case: Case, group: str, seeds: range) -> None:
    """Run the document once for each seed. Runs that are on record are returned, and do not run again."""
    # At the same time, because the runs then share the writes to the disk.
    results: list[Result] = await asyncio.gather(
        *(
            run(
                loaded,
                case.input_of(seed),
                journal=journal,
                run_id=f"{case.name}-{group}-{seed:03}",
            )
            for seed in seeds
        )
    )
    for result in results:
        if result.status == "failed":
            raise SystemExit(f"{result.run_id}: {result.detail}")


async def recordings(journal: Journal, loaded: Loaded, prefix: str) -> Recordings:
    """Return the recorded loops of the runs whose IDs begin with a prefix."""
    loop = loop_named(loaded.step)
    items: list[Recording] = []
    left_out: list[LeftOut] = []
    # Sorted by ID, because the runs of a group are created at the same time.
    for info in sorted(await journal.runs(limit=1_000), key=lambda row: row.run_id):
        if info.run_id.startswith(prefix):
            for one in recordings_of(info, await journal.entries(info.run_id), loop):
                (left_out if isinstance(one, LeftOut) else items).append(one)  # type: ignore[arg-type]
    return Recordings(loop.name, items, left_out)


def with_limit(case: Case, limit: int) -> Path:
    """Return a copy of the document with another iteration limit, beside copies of its functions."""
    folder = HOME / f"{case.name}-{limit}"
    ignored = shutil.ignore_patterns("__pycache__", ".loopwright")
    shutil.copytree(case.document.parent, folder, ignore=ignored, dirs_exist_ok=True)
    changed = folder / case.document.name
    text = re.sub(r"max_iterations: \d+", f"max_iterations: {limit}", changed.read_text("utf-8"))
    changed.write_text(text, "utf-8")
    return changed


def cost(report: Replay) -> float:
    """Return the calls of all runs, or their iterations if they make no calls."""
    row = report.policies[0]
    return (row.calls or row.iterations or 0.0) * len(report.recordings.items)


def quality(report: Replay) -> float:
    """Return the mean quality of the outputs of all runs."""
    estimate = report.policies[0].quality
    return estimate.value if estimate is not None else 0.0


def line(case: Case, name: str, report: Replay) -> str:
    """Return a line with the cost and the quality of a group of runs."""
    return f"  {name:24} {cost(report):5.0f} {case.unit:8}  {report.recordings.quality} {quality(report):.3f}"


async def learn(journal: Journal, case: Case) -> list[str]:
    """Record, replay, apply the suggestion to new inputs, and return the lines to print."""
    loaded = load(case.document)
    await record(journal, loaded, case, "before", range(RUNS))
    report = replayed(await recordings(journal, loaded, f"{case.name}-before"))
    lines = [
        f"{case.name}: {RUNS} runs, recorded stops reproduced: {report.recordings.reproduced}",
        line(case, "recorded", report),
    ]
    if not report.suggestions:
        return [*lines, "  no lower limit keeps the quality"]
    suggestion = report.suggestions[0]
    lines.append(
        f"  suggestion: {suggestion.key} {suggestion.old} to {suggestion.new} ({suggestion.why})"
    )

    # Other inputs than those that suggested it: on these, the limit was not chosen by the result.
    seeds = range(RUNS, 2 * RUNS)
    lower = load(with_limit(case, suggestion.new))
    await record(journal, loaded, case, "old", seeds)
    await record(journal, lower, case, "new", seeds)
    old = replayed(await recordings(journal, loaded, f"{case.name}-old"))
    new = replayed(await recordings(journal, lower, f"{case.name}-new"))
    saved, change = 1 - cost(new) / cost(old), quality(new) - quality(old)
    lines += [
        f"  {RUNS} new inputs:",
        line(case, f"max_iterations {suggestion.old}", old),
        line(case, f"max_iterations {suggestion.new}", new),
        f"  saved: {saved:.0%} of {case.unit}, change of quality: {change:+.3f}",
    ]
    return lines


async def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    journal = open_journal(URL)
    try:
        for case in CASES:
            print("\n".join(await learn(journal, case)))
    finally:
        await journal.close()


if __name__ == "__main__":
    asyncio.run(main())
