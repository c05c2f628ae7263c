"""`kill -9` after random numbers of calls of a search: `optimise` with 500 iterations of 4 candidates and a hand-over, GEPA with 400 calls.

A child process runs the search on a journal and writes a line for each call that it pays. It is killed and started
again, until it ends. The result must be that of a run that nobody disturbed, and nothing that had finished is paid again.

    python -m benchmarks.search.kills [KILLS]
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from loopwright import Context, Evaluation, Loop, OnStall, Optimise, Result, gepa, run, step
from loopwright.datasets import Case

SIZES = {"optimise": (500, 4), "gepa": (400, 1)}
WORDS = [f"w{number}" for number in range(40)]


def searched(paid: Any) -> Any:
    """Return a loop with 500 iterations of 4 candidates: tpe hands over to cma, and cma to random."""

    @step(fingerprint="train/1", inline=True)
    def train(value: Any, ctx: Context) -> float:
        paid(ctx.path)
        x, y = value["x"] - 1.7, value["y"] + 0.4
        return x * x + 3 * y * y + 0.2 * abs(value["n"] - 5) + (x * y) ** 2

    @step(fingerprint="loss/1", inline=True)
    def measured(loss: float) -> Evaluation:
        return Evaluation(metrics={"loss": loss})

    space = {"x": {"float": [-5.0, 5.0]}, "y": {"float": [-5.0, 5.0]}, "n": {"int": [1, 9]}}
    return Loop(
        train, measured, name="search", metrics={"loss": "minimise"}, candidates=SIZES["optimise"][1],
        optimise=Optimise(space, by=["tpe", "cma", "random"]), on_stall=OnStall("best", patience=10, restarts=1000),
        max_iterations=SIZES["optimise"][0],
    )  # fmt: skip


def improved(paid: Any) -> Any:
    """Return a step in which GEPA improves a prompt by a scripted reflection, with 400 cases."""

    @step(fingerprint="task/1", inline=True)
    def task(value: Any, ctx: Context) -> Any:
        paid(ctx.path)
        return sorted(set(value["prompt"].split()) & set(value["inputs"]))

    @step(fingerprint="judge/1", inline=True)
    def judge(output: Any, ctx: Context) -> Evaluation:
        missing = [word for word in ctx.case.expected if word not in output]
        return Evaluation(1 - len(missing) / 5, feedback=f"missing: {' '.join(missing)}")

    @step(fingerprint="reflect/1", inline=True)
    def reflect(text: str, ctx: Context) -> str:
        paid(ctx.path)
        number = int(hashlib.sha256(text.encode()).hexdigest()[:6], 16)
        missing, words = re.findall(r"missing: (\w+)", text), text.split("```")[1].split()
        words = [*words, missing[number % len(missing)]] if missing and number % 4 else words[:-1]
        return f"```\n{' '.join(words)}\n```"

    words = [[WORDS[(nth * 7 + place) % 40] for place in range(5)] for nth in range(20)]
    cases = [Case(item, item, id=f"c{nth}") for nth, item in enumerate(words)]
    return gepa(
        {"prompt": "start"}, task, cases, judge, max_metric_calls=400, patience=100, model=reflect
    )


async def child(kind: str, folder: Path) -> Result:
    """Run or resume a search, and write each call that is paid to a file."""
    bill = os.open(folder / "bill", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    made = {"optimise": searched, "gepa": improved}[kind](
        lambda path: os.write(bill, f"{path}\n".encode())
    )
    journal = f"sqlite:{folder / 'runs.db'}"
    return await run(made, None, journal=journal, run_id="r", seed=11, takeover=True)


def shown(result: Result) -> Any:
    """Return what must be the same: the iterations with their candidates, and the output."""
    rows = [
        [
            item.number, item.input, item.output, item.parent, item.chain, item.strategy, item.candidate,
            [[row.state, row.metrics] for row in item.candidates],
        ]
        for item in result.history
    ]  # fmt: skip
    return {"output": result.output, "detail": result.detail, "rows": rows}


def start(kind: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.search.kills", "--child", kind, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def bill_of(folder: Path) -> Counter[str]:
    """Return how often each call was paid."""
    bill = folder / "bill"
    return Counter(bill.read_text().split() if bill.exists() else ())


def measure(kind: str, kills: int, chance: random.Random) -> bool:
    """Kill a search after random numbers of calls, and compare it with the undisturbed run; print a row."""
    with tempfile.TemporaryDirectory() as name:
        whole, folder = Path(name, "whole"), Path(name, "killed")
        whole.mkdir(), folder.mkdir()
        began = time.monotonic()
        process = start(kind, whole)
        expected, error = process.communicate()
        assert process.returncode == 0, error
        seconds, killed, calls = time.monotonic() - began, 0, bill_of(whole)
        while True:
            before = bill_of(folder)
            more = chance.randint(1, 2 * len(calls) // kills)
            process = start(kind, folder)
            if killed == kills or more >= len(calls.keys() - before.keys()):
                found, error = process.communicate()
                break
            while process.poll() is None and bill_of(folder).total() < before.total() + more:
                time.sleep(0.002)
            process.kill()
            process.communicate()
            killed += 1
        assert process.returncode == 0, error
        paid = calls, bill_of(folder)
        again = paid[1].total() - len(paid[1])
        same = found == expected and set(paid[0]) == set(paid[1])
        flight = 8 * killed
        strategies = Counter(row[5] for row in json.loads(expected)["rows"])
        print(
            f"{kind}: {paid[0].total()} calls, {killed} kills, {again} paid again (in flight ≤ {flight}), "
            f"{'same result' if same else 'ANOTHER RESULT'}, {seconds:.0f} s undisturbed, {dict(strategies)}"
        )
        return same and again <= flight and killed > 0


def main(words: list[str]) -> int:
    """Measure both searches, or run one as a child."""
    if words[:1] == ["--child"]:
        print(json.dumps(shown(asyncio.run(child(words[1], Path(words[2]))))))
        return 0
    chance = random.Random(5)
    kills = int(words[0]) if words else 20
    kept = [measure(kind, kills, chance) for kind in SIZES]  # each of them, also after a miss
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
