"""Candidates: `kill -9` at random moments of 12 iterations of 8, for each way to choose, and what many candidates cost.

A child process runs the loop on a journal and writes a line for each effect that it performs. It is killed and started
again, until it ends. The result must be that of a run that nobody disturbed. What is performed twice was in flight at a
kill, and nothing that had finished is performed again. `files` is `score` in a workspace, of 4 iterations of 4.

    python -m benchmarks.search.candidates [KILLS]
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loopwright import (
    Candidates,
    Combine,
    Context,
    Duel,
    Evaluation,
    Loop,
    MaxIterations,
    Result,
    Workspace,
    resume,
    run,
    run_sync,
    step,
)
from loopwright.journal import open_journal
from loopwright.journal.questions import answer, pending

PICKS = ("score", "duel", "first_pass", "combine", "ask", "python", "files")
ITERATIONS, NUMBER = 12, 8
KILLS = 6
WORDS = "word " * 800  # an output has about 4 kB
MOST_MS, MOST_SIZE = 1.0, 1.3  # of CPU for each candidate; of the journal in what was produced


def declared(pick: str, paid: Callable[[str], object], folder: Path) -> Loop:
    """Return the loop of a pick; each effect takes some milliseconds."""
    chance = random.Random(pick)
    pauses = [0.002 + chance.random() * 0.02 for _ in range(97)]

    async def act(ctx: Context, work: Callable[[], Any]) -> Any:
        paid(ctx.path)
        await asyncio.sleep(pauses[hash_of(ctx.path) % len(pauses)])
        return work()

    @step(fingerprint="write/1")
    async def write(value: str, ctx: Context) -> str:
        def work() -> str:
            if ctx.folder is not None:
                (ctx.folder / f"{ctx.iteration}.txt").write_text(f"{value} {ctx.candidate}")
            return f"{value[-40:]} {ctx.candidate}"

        return str(await act(ctx, work))

    @step(fingerprint="rate/1")
    async def rate(output: str, ctx: Context) -> Evaluation:
        def work() -> Evaluation:
            # Of `first_pass` one candidate passes, so that the choice does not depend on the speed.
            passed = (
                ctx.candidate == ctx.iteration * 5 % NUMBER + 1 if pick == "first_pass" else None
            )
            return Evaluation(hash_of(output) % 997 / 997, passed=passed)

        judged: Evaluation = await act(ctx, work)
        return judged

    @step(fingerprint="longer/1")
    async def longer(pair: dict[str, str], ctx: Context) -> str:
        first = hash_of(pair["first"]) > hash_of(pair["second"])
        return str(await act(ctx, lambda: "first" if first else "second"))

    @step(fingerprint="join/1")
    async def join(parts: list[dict[str, Any]], ctx: Context) -> str:
        return str(await act(ctx, lambda: f"{parts[0]['output'][-30:]} + {parts[1]['number']}"))

    @step(fingerprint="adapt/1")
    async def adapt(last: Any, ctx: Context) -> str:
        return str(await act(ctx, lambda: last.output))

    picks: dict[str, Any] = {
        "duel": Duel(longer), "combine": Combine(join), "files": "score",
        "python": lambda rows: min(rows, key=lambda row: hash_of(row.path)).number,
    }  # fmt: skip
    files = pick == "files"
    space = Workspace(folder / "source", home=folder / "home", merge="none") if files else None
    return Loop(
        write, rate, adapt, name="search", until=MaxIterations(4 if files else ITERATIONS), min_iterations=4 if files else ITERATIONS,
        candidates=Candidates(4 if files else NUMBER, pick=picks.get(pick, pick)), workspace=space,
    )  # fmt: skip


def hash_of(text: str) -> int:
    """Return a number that is the same in each process."""
    return sum(place * ord(letter) for place, letter in enumerate(text, start=1))


async def child(pick: str, folder: Path) -> Result:
    """Run or resume the loop, and answer its questions with the best candidate."""
    bill = os.open(folder / "bill", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    loop = declared(pick, lambda path: os.write(bill, f"{path}\n".encode()), folder)
    url = f"sqlite:{folder / 'runs.db'}"
    result = await run(loop, "in", journal=url, run_id="r", takeover=True)
    while result.status.value == "suspended":
        async with open_journal(url) as journal:
            for question in await pending(journal, "r"):
                await answer(journal, "r", question.path, {"pick": question.request["best"]})
        result = await resume(loop, "r", journal=url, takeover=True)
    return result


def shown(result: Result, pick: str) -> Any:
    """Return what must be the same. With `first_pass`, whether another one was stopped depends on the speed."""
    return [
        [
            item.number, item.input, item.output, item.score, item.candidate,
            [] if pick == "first_pass" else [[row.number, row.state, row.score] for row in item.candidates],
            item.files and item.files["tree"],
        ]
        for item in result.history
    ]  # fmt: skip


def start(pick: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.search.candidates", "--child", pick, str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def in_flight(folder: Path) -> tuple[set[str], set[str]]:
    """Return the paths of effects that had begun and have no outcome on record, and of those that have one."""
    begun, ended = set[str](), set[str]()
    async with open_journal(f"sqlite:{folder / 'runs.db'}") as journal:
        for entry in await journal.entries("r") if await journal.runs() else ():
            (
                begun if entry.kind == "started" else ended if entry.kind == "finished" else set()
            ).add(entry.path)
    return begun - ended, ended


def made(folder: Path) -> Path:
    """Make the folder of a run, with the files of its workspace."""
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "0.txt").write_text("0")
    return folder


def bill_of(folder: Path) -> Counter[str]:
    """Return how often each effect was performed."""
    bill = folder / "bill"
    return Counter(bill.read_text().split() if bill.exists() else ())


def killed(pick: str, kills: int, chance: random.Random) -> bool:
    """Kill a loop at random moments, and compare it with the undisturbed run; print a row."""
    with tempfile.TemporaryDirectory() as name:
        whole, folder = made(Path(name, "whole")), made(Path(name, "killed"))
        process = start(pick, whole)
        expected, error = process.communicate()
        assert process.returncode == 0, error
        whole_bill, doubtful, count = bill_of(whole).total(), 0, 0
        finished: dict[str, int] = {}  # how often what has an outcome was performed until then
        while True:
            process = start(pick, folder)
            before = bill_of(folder).total()
            after = (
                before + chance.randint(1, whole_bill // (kills + 1)) if count < kills else 1 << 30
            )
            while process.poll() is None and bill_of(folder).total() < after:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))
            if process.poll() is not None or count == kills:
                found, error = process.communicate()
                break
            process.kill()
            process.communicate()
            count += 1
            flying, ended = asyncio.run(in_flight(folder))
            doubtful += len(flying)
            bill = bill_of(folder)
            finished |= {path: bill[path] for path in ended & bill.keys()}
        assert process.returncode == 0, error
        bill = bill_of(folder)
        repeated = bill.total() - len(bill)
        same = found == expected and (pick == "first_pass" or bill.keys() == bill_of(whole).keys())
        twice = sum(bill[path] > before for path, before in finished.items())
    ok = same and count > 0 and repeated <= doubtful and not twice
    print(
        f"{pick:<10}  {count} kills  {'the same result' if same else 'ANOTHER RESULT'}  {repeated:3} of {bill.total():3} "
        f"effects again, {doubtful:3} were in flight, {twice} had finished  {'ok' if ok else 'OVER'}",
        flush=True,
    )
    return ok


def costs(iterations: int, number: int) -> bool:
    """Measure what many candidates cost, and print a row."""

    async def write(value: Any, ctx: Context) -> str:
        return f"{ctx.iteration} {ctx.candidate} {WORDS}"

    async def rate(output: str) -> Evaluation:
        return Evaluation(hash_of(output[:12]) % 997 / 997, feedback="shorter")

    loop = Loop(write, rate, candidates=number, until=MaxIterations(iterations), name="many")
    count = iterations * number
    with tempfile.TemporaryDirectory() as name:
        began = time.process_time()
        result = run_sync(loop, "in", journal=f"sqlite:{name}/runs.db", run_id="r")
        each = 1000 * (time.process_time() - began) / count
        size = sum(file.stat().st_size for file in Path(name).rglob("*") if file.is_file())
    whole = sum(len(item.candidates) for item in result.history)
    size_of = size / (count * len(WORDS))
    ok = whole == count and each <= MOST_MS and size_of <= MOST_SIZE
    print(
        f"{iterations} x {number}: {whole} on record, {each:.2f} ms of CPU each (at most {MOST_MS:g}), journal "
        f"{size_of:.2f} of what was produced (at most {MOST_SIZE:g})  {'ok' if ok else 'OVER'}",
        flush=True,
    )
    return ok


def biased() -> bool:
    """Compare the choices of a judge that always says `first` with those of merit; print a row."""
    chance = random.Random(5)
    scores = [chance.random() for _ in range(200 * 4)]

    async def write(value: Any, ctx: Context) -> int:
        return (ctx.iteration - 1) * 4 + ctx.candidate - 1

    def rate(place: int) -> float:
        return scores[place]

    loops = [
        Loop(
            write, step(rate, inline=True), name="duel", max_iterations=200,
            candidates=Candidates(4, pick=pick),
        )
        for pick in (Duel(step(lambda pair: "first", inline=True)), "score")
    ]  # fmt: skip
    duel, merit = (run_sync(loop, "in") for loop in loops)
    same = sum(a.candidate == b.candidate for a, b in zip(duel.history, merit.history, strict=True))
    warned = any("the judge follows the position" in text for text in duel.warnings)
    ok = same == 200 and warned
    print(f"a judge that always says first: {same} of 200 choices are those of merit, {'warned' if warned else 'NOT WARNED'}")  # fmt: skip
    return ok


def main(words: list[str]) -> int:
    """Print a row for each pick, and those of the figures."""
    if words[:1] == ["--child"]:
        _, pick, folder = words
        print(shown(asyncio.run(child(pick, Path(folder))), pick))
        return 0
    kills = int(words[0]) if words else KILLS
    chance = random.Random(27)
    rows = [costs(1, 1000), costs(100, 32), biased()]
    rows += [killed(pick, kills, chance) for pick in PICKS]
    return int(not all(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
