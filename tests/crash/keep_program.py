"""The program that is killed: a loop that keeps changes that improve a noisy metric and reverts the others.

    keep_program.py FOLDER ITERATIONS [POSITION:K …]     each point is a child that dies, and one that resumes
    keep_program.py FOLDER ITERATIONS kills:N            one run that dies N times at random points

POSITION is `before`, `in_txn` or `after` of the K-th commit of the journal of a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from loopwright import Context, Metric, Workspace, keep_or_revert_loop, run
from loopwright.journal.sqlite import SqliteJournal

POSITIONS = ("before", "in_txn", "after")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def once(folder: Path, iterations: int, position: str = "", point: int = 0) -> None:
    """Run or resume the loop; write its accepted chain to a file."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            kill()

    def change(_: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        file = ctx.folder / "loss.txt"
        # The same change of an iteration in every process: halfway to the optimum, or away from it.
        step = random.Random(f"change {ctx.iteration}").uniform(-0.5, 0.4)
        loss = float(file.read_text())
        file.write_text(f"{loss + step * loss}\n")
        (ctx.folder / "IDEA.txt").write_text(f"idea {ctx.iteration}\n")
        with (folder / "bill").open("a") as bill:
            bill.write(f"{ctx.iteration}\n")
        return f"idea {ctx.iteration}"

    def measure(_: Any, ctx: Context) -> dict[str, Any]:
        assert ctx.folder is not None
        noise = random.Random(f"noise {ctx.iteration}").gauss(0, 0.02)
        return {"metrics": {"loss": float((ctx.folder / "loss.txt").read_text()) + noise}}

    journal = SqliteJournal(str(folder / "runs.db"), on_point=on_point)
    loop = keep_or_revert_loop(
        change,
        measure,
        {"loss": Metric("minimise", min_delta=0.01)},
        max_iterations=iterations,
        workspace=Workspace(folder / "project", home=folder / "home", branch="done"),
    )
    result = await run(loop, None, journal=journal, run_id="r")
    await journal.close()
    assert result.workspace is not None, result.detail
    log = ["git", "log", "--reverse", "--format=%T %s %(trailers)", "done"]
    chain = subprocess.run(
        log, cwd=folder / "project", capture_output=True, text=True, check=True
    ).stdout
    rows = [(item.number, item.accepted, item.evaluation.metrics) for item in result.history]
    files = (Path(result.workspace["folder"]) / "loss.txt").read_text()
    (folder / "result.json").write_text(json.dumps([result.reason.value, rows, chain, files]))


def in_child(*arguments: Any) -> int:
    """Run `once` in a child, which has our imports already; return its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(once(*arguments))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def made(folder: Path) -> Path:
    """Make the user's repository."""
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "loss.txt").write_text("1.0\n")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"],
                  ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    return folder


def differs(folder: Path, where: str, expected: tuple[str, int], kills: int) -> str:
    """Return how a resumed run differs from the undisturbed one, or ""."""
    found = (folder / "result.json").read_text()
    if found != expected[0]:
        return f"{where}: {found} is not {expected[0]}"
    again = len((folder / "bill").read_text().split()) - expected[1]
    return f"{where}: {again} changes were made again" if again > kills else ""


def killed_once(
    root: Path, iterations: int, position: str, point: int, expected: tuple[str, int]
) -> str | None:
    """Kill at a point and resume; return "" or what differs, None if there is no such point."""
    folder, where = made(root / f"{position}-{point}"), f"{position} {point}"
    code = in_child(folder, iterations, position, point)
    if code == 0:
        return None
    if code != -signal.SIGKILL or in_child(folder, iterations) != 0:
        return f"{where}: it did not end as expected"
    return differs(folder, where, expected, 1)


def killed_often(root: Path, iterations: int, kills: int, expected: tuple[str, int]) -> str:
    """Kill one run several times at random points; return "" or what differs."""
    folder, chance, done = made(root / "often"), random.Random(iterations), 0
    while done < kills:
        # Each process runs about a part of the iterations; an iteration has about eight commits.
        code = in_child(
            folder, iterations, chance.choice(POSITIONS), chance.randint(1, 8 * iterations // kills)
        )
        if code == 0:
            return f"it ended after {done} kills"
        done += 1
    if in_child(folder, iterations) != 0:
        return "the resume failed"
    return differs(folder, f"{kills} kills", expected, kills)


def main(root: Path, iterations: int, points: list[tuple[str, int]]) -> int:
    """Try the points, by default all; print a line for each that differs."""
    folder = made(root / "reference")
    assert in_child(folder, iterations) == 0
    expected = (
        (folder / "result.json").read_text(),
        len((folder / "bill").read_text().split()),
    )
    failures, ended, tried = [], set(), 0
    for name, k in points or [(name, k) for name in POSITIONS for k in range(1, 200)]:
        if name in ended:
            continue
        found = (
            killed_often(root, iterations, k, expected)
            if name == "kills"
            else killed_once(root, iterations, name, k, expected)
        )
        if found is None:
            ended.add(name)
        else:
            tried += 1
            failures += [found] if found else []
    print("\n".join([f"{tried} points", *failures]))
    return bool(failures)


if __name__ == "__main__":
    pairs = [text.split(":") for text in sys.argv[3:]]
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), [(name, int(k)) for name, k in pairs]))
