"""Evaluations of many cases: time and memory of 100,000 cases and of their resume, and `kill -9` at random moments.

    python -m benchmarks.search.cases [KILLS]

1. 100,000 cases of a JSONL file, a task and an evaluator of 0 ms, 64 at a time, on SQLite: at most 0.4 ms a case and
   150 MB. The process is killed in the last tenth, and its resume takes at most 3 s until the next case, and 150 MB.
   Times are those of the processor, so that other programs have no effect.
2. 2,000 cases, 16 at a time: after each kill (default: 4) at most the calls in flight are repeated, and the scores are
   those of 1 case at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from loopwright import Context, Dataset, evaluate
from loopwright.journal import open_journal

MANY, SOME = 100_000, 2_000
MOST_MB, MOST_MS, MOST_RESUME = 150, 0.4, 3.0


async def child(folder: Path, count: int, at_once: int, kill_at: int, name: str) -> None:
    """Evaluate `count` cases, die at the start of the task number `kill_at`, and print figures."""
    calls, begun = 0, 0.0
    bill = os.open(folder / f"{name}.bill", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def task(text: str, ctx: Context) -> str:
        nonlocal calls, begun
        calls += 1
        begun = begun or time.process_time()
        if calls == kill_at:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"mb": peak, "seconds": time.process_time() - start}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if count == SOME:
            os.write(bill, f"{ctx.path}\n".encode())
        return text[-1]

    async def graded(output: str, ctx: Context) -> float:
        return int(output) / 9 if ctx.case is not None else 0.0

    data = Dataset.load(folder / f"{count}.jsonl")
    start = time.process_time()
    async with open_journal(f"sqlite:{folder / name}.db") as journal:
        result = await evaluate(task, data, graded, at_once=at_once, journal=journal, run_id="r")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "mb": peak, "seconds": time.process_time() - start, "first": (begun or time.process_time()) - start,
        "score": result.score, "worst": result.worst, "calls": calls,
    }  # fmt: skip
    print(json.dumps(figures), flush=True)


def started(folder: Path, count: int, at_once: int, kill_at: int, name: str) -> dict[str, object]:
    """Run a child process, and return what it printed."""
    words = ["child", str(folder), str(count), str(at_once), str(kill_at), name]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.search.cases", *words], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    figures: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return figures


def many(folder: Path) -> bool:
    """Measure 100,000 cases; return whether all bounds are kept."""
    at = MANY * 9 // 10
    killed = started(folder, MANY, 64, at, "many")
    resumed = started(folder, MANY, 64, 0, "many")
    per_case = 1000 * float(str(killed["seconds"])) / at
    print(
        f"{MANY:,} cases, 64 at a time: {per_case:.2f} ms a case (at most {MOST_MS}), {killed['mb']:.0f} MB"
    )
    print(
        f"resume after a kill: {resumed['first']:.2f} s until the next case (at most {MOST_RESUME:g}), "
        f"{resumed['mb']:.0f} MB (at most {MOST_MB})"
    )
    memory = max(float(str(killed["mb"])), float(str(resumed["mb"])))
    first = float(str(resumed["first"]))
    return per_case <= MOST_MS and first <= MOST_RESUME and memory <= MOST_MB


def some(folder: Path, kills: int) -> bool:
    """Kill an evaluation at random moments; return whether nothing finished is scored again."""
    alone = started(folder, SOME, 1, 0, "alone")
    chances = random.Random(27)
    for _ in range(kills):
        started(folder, SOME, 16, chances.randint(10, SOME // (kills + 1)), "killed")
    end = started(folder, SOME, 16, 0, "killed")
    bill = Counter((folder / "killed.bill").read_text(encoding="utf-8").split())
    again = bill.total() - len(bill)
    same = (end["score"], end["worst"]) == (alone["score"], alone["worst"])
    print(
        f"{SOME:,} cases, 16 at a time, {kills} kills: {again} of {SOME} tasks twice (at most {16 * kills})"
    )
    print(f"scores and worst cases are those of one at a time: {'yes' if same else 'NO'}")
    return same and len(bill) == SOME and again <= 16 * kills


def main(kills: int) -> int:
    """Print the figures, and return 1 if a bound is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in (MANY, SOME):
            with (folder / f"{count}.jsonl").open("w", encoding="utf-8") as file:
                for n in range(count):
                    case = {"id": f"c{n}", "inputs": f"What is {n} + {n}?", "expected": str(2 * n)}
                    case["inputs"] += f" {2 * n}"
                    file.write(json.dumps(case) + "\n")
        kept = [many(folder), some(folder, kills)]
    return int(not all(kept))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        place, count, at_once, kill_at, name = sys.argv[2:]
        asyncio.run(child(Path(place), int(count), int(at_once), int(kill_at), name))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
