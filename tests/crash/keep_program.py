"""The program that is killed: a loop that keeps changes that improve a noisy metric and reverts the others.

    python -m crash.keep_program FOLDER ITERATIONS [POSITION:K …]     each point is a child that dies, and one that resumes
    python -m crash.keep_program FOLDER ITERATIONS kills:N            one run that dies N times at random points

With `confirm` before these, as in `confirm kills:N`, better values are confirmed, and measurements may end early.

POSITION is `git` (before the K-th call of git), or `before`, `in_txn` or `after` of the K-th commit of the journal
of a process.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from loopwright import Context, Metric, Workspace, keep_or_revert_loop, run
from loopwright.engine.confirmation import Confirm
from loopwright.engine.early import Early
from loopwright.journal.sqlite import SqliteJournal

from .kills import POSITIONS, Ended, Point, in_child, killed_and_resumed, repository, watch_git

FILES = {"loss.txt": "1.0\n"}


Work = tuple[int, bool]  # the iterations, and whether better values are confirmed


async def once(folder: Path, work: Work, position: str = "", number: int = 0) -> None:
    """Run or resume the loop; write its accepted chain to a file."""
    iterations, confirms = work
    point = Point(position, number)
    watch_git(point)

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
        loss = float((ctx.folder / "loss.txt").read_text())
        with (folder / "measured").open("a") as measured:
            measured.write(f"{ctx.path} {loss:g}\n")
        for step in range(3 if confirms else 0):
            ctx.interim(2 * loss / (step + 1), step, Early(from_=1, earlier=2))
        # Each measurement has noise of its own, the same in every process.
        noise = random.Random(f"noise {ctx.path if confirms else ctx.iteration}").gauss(0, 0.02)
        return {"metrics": {"loss": loss + noise}}

    journal = SqliteJournal(str(folder / "runs.db"), on_point=point.reach)
    loop = keep_or_revert_loop(
        change,
        measure,
        {"loss": Metric("minimise", min_delta=0.01)},
        max_iterations=iterations,
        workspace=Workspace(folder / "project", home=folder / "home", branch="done"),
        confirm=Confirm(stages=(2, 4), baseline=3) if confirms else None,
    )
    result = await run(loop, None, journal=journal, run_id="r")
    await journal.close()
    assert result.workspace is not None, result.detail
    log = ["git", "log", "--reverse", "--format=%T %s %(trailers)", "done"]
    chain = subprocess.run(
        log, cwd=folder / "project", capture_output=True, text=True, check=True
    ).stdout
    rows = [(item.number, item.accepted, item.evaluation.to_json()) for item in result.history]
    files = (Path(result.workspace["folder"]) / "loss.txt").read_text()
    (folder / "result.json").write_text(json.dumps([result.reason.value, rows, chain, files]))


def killed_once(root: Path, work: Work, point: tuple[str, int], expected: Ended) -> str | None:
    """Kill at a point and resume; return "" or what differs, None if there is no such point."""
    folder = repository(root / "{}-{}".format(*point), FILES)
    wrong = killed_and_resumed(
        folder, lambda *point: in_child(once, folder, work, *point), point, lambda: True
    )
    if wrong is None:
        return None
    wrong = wrong or expected.difference(folder, 1)
    again = _measured(folder) - _measured(root / "reference")
    # The measurement in flight was made twice.
    if not wrong and again.total() > 1:
        wrong = f"measured again: {dict(again)}"
    return wrong and "{} {}: {}".format(*point, wrong)


def _measured(folder: Path) -> Counter[str]:
    return Counter((folder / "measured").read_text().splitlines())


def killed_often(root: Path, work: Work, kills: int, expected: Ended) -> str:
    """Kill one run several times at random points; return "" or what differs."""
    folder, chance, done = repository(root / "often", FILES), random.Random(work[0]), 0
    while done < kills:
        # Each process runs about a part of the iterations; an iteration has about eight commits, or twelve.
        number = chance.randint(1, (12 if work[1] else 8) * work[0] // kills)
        if in_child(once, folder, work, chance.choice(POSITIONS), number) == 0:
            return f"it ended after {done} kills"
        done += 1
    if in_child(once, folder, work) != 0:
        return "the resume failed"
    wrong = expected.difference(folder, kills)
    return wrong and f"{kills} kills: {wrong}"


def main(root: Path, work: Work, points: list[tuple[str, int]]) -> int:
    """Try the points, by default all; print a line for each that differs."""
    folder = repository(root / "reference", FILES)
    assert in_child(once, folder, work) == 0
    expected = Ended.read(folder)
    failures, ended, tried = [], set(), 0
    for name, k in points or [(name, k) for name in POSITIONS for k in range(1, 1000)]:
        if name in ended:
            continue
        if name == "kills":
            wrong: str | None = killed_often(root, work, k, expected)
        else:
            wrong = killed_once(root, work, (name, k), expected)
        if wrong is None:
            ended.add(name)
        else:
            tried += 1
            failures += [wrong] if wrong else []
    print("\n".join([f"{tried} points", *failures]))
    return bool(failures)


if __name__ == "__main__":
    words = sys.argv[3:]
    pairs = [text.split(":") for text in words if text != "confirm"]
    kind = (int(sys.argv[2]), "confirm" in words)
    sys.exit(main(Path(sys.argv[1]), kind, [(name, int(k)) for name, k in pairs]))
