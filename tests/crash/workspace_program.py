"""The program that is killed: a loop whose commands edit files in a workspace.

    workspace_program.py FOLDER KIND ENDING [POSITION:K …]

POSITION is `git` (before the K-th call of git), `before`, `in_txn` or `after`
(of the K-th commit of the journal). Each point is a child that dies by SIGKILL, and one that resumes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, ScoreAtLeast, Workspace, run, shell
from loopwright.coding.workspace.git import Git
from loopwright.journal.sqlite import SqliteJournal

# The second iteration is best; each is paid for in a file outside the workspace.
EDIT = """
n=$(cat n.txt); n=$((n+1)); echo $n > n.txt; echo "$n" >> "$BILL"
rm -rf "dir$((n-1))"; mkdir "dir$n"; echo x > "dir$n/f"; ln -sf "dir$n" link; chmod +x n.txt
test "$n" != "$FAILS"
cat n.txt
"""
SCORES = {"1": 0.2, "2": 0.6, "3": 0.4, "4": 0.95}


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_git(point: int) -> None:
    calls = 0
    original = Git.run

    def counted(self: Git, *words: str, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == point:
            kill()
        return original(self, *words, **options)

    Git.run = counted  # type: ignore[method-assign]


def files_of(folder: Path) -> dict[str, str]:
    found = {}
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*names, *folders]:
            if name == ".git":  # of a work tree, with a path
                continue
            place = Path(base) / name
            key = str(place.relative_to(folder))
            if place.is_symlink():
                found[key] = f"link {place.readlink()}"
            elif place.is_file():
                found[key] = f"{place.stat().st_mode & 0o111:o} {place.read_text()}"
    return found


async def once(folder: Path, kind: str, ending: str, position: str = "", point: int = 0) -> None:
    """Run or resume the loop; write its result to a file."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            kill()

    if position == "git":
        kill_at_git(point)
    goal = 0.9 if ending == "satisfied" else 0.99
    fails = "3" if ending == "failed" else ""
    journal = SqliteJournal(str(folder / "runs.db"), on_point=on_point)
    loop = Loop(
        shell(EDIT, name="edit", env={"BILL": str(folder / "bill"), "FAILS": fails}),
        evaluate=lambda output: SCORES[output],
        until=ScoreAtLeast(goal) | MaxIterations(4),
        name="fix",
        workspace=Workspace(folder / "project", kind=kind, home=folder / "home", branch="done"),
    )
    result = await run(loop, None, journal=journal, run_id="r")
    if result.workspace is None:
        raise SystemExit(f"{result.detail}")
    place = Path(result.workspace["folder"])
    history = [(i.number, i.score, i.files["tree"]) for i in result.history if i.files]
    shown = [result.status.value, history, result.workspace["tree"], files_of(place)]
    (folder / "result.json").write_text(json.dumps(shown, sort_keys=True))
    await journal.close()


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
    (project / "n.txt").write_text("0\n")
    (project / ".gitignore").write_text("*.log\n")
    (project / "kept.log").write_text("mine")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"],
                  ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    (project / "dirty").write_text("dirty")
    return folder


def undisturbed(root: Path, kind: str, ending: str) -> tuple[str, int]:
    """Return the result without a kill, and how often commands ran."""
    folder = made(root / "reference")
    assert in_child(folder, kind, ending) == 0
    return (folder / "result.json").read_text(), len((folder / "bill").read_text().split())


def problem(
    root: Path, kind: str, ending: str, position: str, point: int, expected: tuple[str, int]
) -> str | None:
    """Kill at a point and resume; return "" or what differs, None if there is no such point."""
    folder = made(root / f"{kind}-{ending}-{position}-{point}")
    where = f"{kind} {ending} {position} {point}"
    mine = files_of(folder / "project")
    code = in_child(folder, kind, ending, position, point)
    if code == 0:
        return None
    if code != -signal.SIGKILL:
        return f"{where}: died of itself"
    if kind != "here" and files_of(folder / "project") != mine:
        return f"{where}: the user's files changed"
    if in_child(folder, kind, ending) != 0:
        return f"{where}: the resume failed"
    found = (folder / "result.json").read_text()
    if found != expected[0]:
        return f"{where}: {found} is not {expected[0]}"
    again = len((folder / "bill").read_text().split()) - expected[1]
    return f"{where}: {again} commands ran again" if again > 1 else ""


if __name__ == "__main__":
    # ROOT KIND ENDING [POSITION:K …]: prints a line for each point that differs; without points, all.
    root, kind, ending = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    expected = undisturbed(root, kind, ending)
    points = [(name, int(k)) for name, k in (text.split(":") for text in sys.argv[4:])]
    tried, failures = 0, []
    for name in () if points else ("git", "before", "in_txn", "after"):
        points += [(name, k) for k in range(1, 200)]
    ended: set[str] = set()
    for name, k in points:
        if name in ended:
            continue
        found = problem(root, kind, ending, name, k, expected)
        if found is None:
            ended.add(name)
        else:
            tried += 1
            failures += [found] if found else []
    print("\n".join([f"{tried} points", *failures]))
    sys.exit(bool(failures))
