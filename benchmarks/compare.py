"""Two versions of the package: CPU time of an iteration of untyped code, by turns, with an interval.

    git worktree add --detach /tmp/before COMMIT
    .venv/bin/python -m benchmarks.compare /tmp/before/src

Each turn starts one process per version, in alternating order. A process measures each case seven times
and prints the least. The interval is that of the median ratio (order statistics, about 95 %); a
difference inside it is none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TURNS = 21
_MEASURED = """
import asyncio, gc, json, time
from typing import Any
from loopwright import Loop, MaxIterations, MemoryJournal, ScoreAtLeast, run

async def plain(value): return value
async def plain_score(output): return 0.5
async def plain_adapt(last): return None
async def named(value: Any) -> Any: return value
async def named_score(output: Any) -> float: return 0.5
async def named_adapt(last: Any) -> Any: return None
async def text(value: str) -> str: return value

DRAFT = {"title": "draft", "parts": [{"name": f"part {n}", "size": n} for n in range(10)]}
UNTIL = ScoreAtLeast(0.9) | MaxIterations(500)
PLAIN = Loop(plain, plain_score, plain_adapt, UNTIL, name="plain")
NAMED = Loop(named, named_score, named_adapt, UNTIL, name="named")
TEXT = Loop(text, named_score, until=UNTIL, name="text")
CASES = {
    "no annotations": (PLAIN, 1, None),
    "Any and float": (NAMED, 1, None),
    "text": (TEXT, "draft", None),
    "objects of JSON": (PLAIN, DRAFT, None),
    "no annotations, journal": (PLAIN, 1, MemoryJournal),
    "Any and float, journal": (NAMED, 1, MemoryJournal),
}

def seconds(loop, value, journal):
    gc.collect()
    start = time.process_time()
    asyncio.run(run(loop, value, journal=journal and journal()))
    return time.process_time() - start

print(json.dumps({
    name: min(seconds(*case) for _ in range(7)) / 500 * 1e6 for name, case in CASES.items()
}))
"""


def measure(source: Path) -> dict[str, float]:
    """Return the microseconds of an iteration by case, with the package in a source folder."""
    variables = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", _MEASURED]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the bounds of the median at about 95 %: the order statistics at n/2 -+ 0.98 sqrt(n)."""
    ordered = sorted(ratios)
    reach = round(0.98 * len(ordered) ** 0.5)
    middle = len(ordered) // 2
    return ordered[max(0, middle - reach)], ordered[min(len(ordered) - 1, middle + reach)]


def main() -> None:
    """Print a row per case: microseconds of both versions, the ratio and its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="the `src` folder of the other version")
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    sources = {"before": options.before, "now": Path(__file__).resolve().parent.parent / "src"}
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    for turn in range(options.turns):
        for name in list(sources)[:: 1 if turn % 2 else -1]:
            samples[name].append(measure(sources[name]))
    for case in samples["now"][0]:
        pairs = [(b[case], n[case]) for b, n in zip(samples["before"], samples["now"], strict=True)]
        low, high = interval([now / before for before, now in pairs])
        middle = statistics.median(now / before for before, now in pairs)
        before, now = (statistics.median(values) for values in zip(*pairs, strict=True))
        print(
            f"{case:<24} {before:6.2f} us {now:6.2f} us  x {middle:.3f} ({low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
