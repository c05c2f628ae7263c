"""The program that is killed: loops whose commands edit files in workspaces.

    workspace_program.py FOLDER KIND ENDING [POSITION:PART …]

POSITION is `git` (before a call of git), `before`, `in_txn` or `after` (of a commit of the journal), and PART
the thousandths of the way to its last point; without points, all are tried. Each point is a child that dies
by SIGKILL, and one that resumes. With the ending `trees`, the run has two loops at the same time, each with
a tree of its own.
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

from loopwright import Context, Loop, MaxIterations, ScoreAtLeast, Workflow, Workspace, run, shell
from loopwright.coding.workspace.git import Git
from loopwright.journal.sqlite import SqliteJournal

KINDS = ("copy", "worktree", "snapshot", "here")
ENDINGS = ("satisfied", "exhausted", "failed", "cancelled")
# The second iteration is best; each is paid for in a file outside the workspace.
EDIT = """
n=$(cat n.txt); n=$((n+1)); echo $n > n.txt; echo "$n" >> "$BILL"
rm -rf "dir$((n-1))"; mkdir "dir$n"; echo x > "dir$n/f"; ln -sf "dir$n" link; chmod +x n.txt
test "$n" != "$FAILS"
cat n.txt
"""
SCORES = {"1": 0.2, "2": 0.6, "3": 0.4, "4": 0.95}


class Point:
    """The point at which the process dies, and the number of points that it passed."""

    def __init__(self, position: str = "", number: int = 0) -> None:
        self.position, self.number = position, number
        self.passed = dict.fromkeys(("git", "before", "in_txn", "after"), 0)

    def reach(self, position: str, number: int) -> None:
        self.passed[position] = number
        if (position, number) == (self.position, self.number):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_git(self) -> None:
        original = Git.start

        def counted(git: Git, *words: str) -> Any:
            self.reach("git", self.passed["git"] + 1)
            return original(git, *words)

        Git.start = counted  # type: ignore[method-assign]


def files_of(folder: Path) -> dict[str, str]:
    """The files of a folder with their links and executable bits."""
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


def user_files(folder: Path, kind: str) -> dict[str, object]:
    """The user's files, and his repository without objects and the branches of a merge."""
    found: dict[str, object] = {} if kind == "here" else dict(files_of(folder))
    for place in sorted((folder / ".git").rglob("*")):
        name = str(place.relative_to(folder))
        own = "objects/" in name or "/done" in name or (kind == "worktree" and "/worktrees" in name)
        if place.is_file() and not own:
            found[name] = place.read_bytes()
    return found


def loop_of(folder: Path, kind: str, ending: str, name: str) -> Loop:
    """Return a loop that ends in one of the ways."""

    async def judge(output: str, ctx: Context) -> float:
        if ending == "cancelled" and output == "3":
            ctx.run.cancel()
            await asyncio.sleep(30)
        return SCORES[output]

    bill = {"BILL": str(folder / "bill"), "FAILS": "3" if ending == "failed" else ""}
    return Loop(
        shell(EDIT, name="edit", env=bill),
        evaluate=judge,
        until=ScoreAtLeast(0.9 if ending == "satisfied" else 0.99) | MaxIterations(4),
        name=name,
        workspace=Workspace(
            folder / "project", kind=kind, home=folder / "home", branch=f"done-{name}"
        ),
    )


async def once(folder: Path, kind: str, ending: str, position: str = "", number: int = 0) -> None:
    """Run or resume the loops; write what they returned to a file."""
    point = Point(position, number)
    point.watch_git()
    journal = SqliteJournal(str(folder / "runs.db"), on_point=point.reach)
    loops = {name: loop_of(folder, kind, ending, name) for name in ("fix", "other")}
    one = ending != "trees"
    target = loops["fix"] if one else Workflow("both", loops)
    result = await run(target, None, journal=journal, run_id="r")
    shown = [result.status.value]
    for name, ended in ({"fix": result} if one else result.loops).items():
        if ended.workspace is None:
            raise SystemExit(f"{name}: {ended.detail}")
        history = [(i.number, i.score, i.files["tree"]) for i in ended.history if i.files]
        place = Path(ended.workspace["folder"])
        shown += [name, history, ended.workspace["tree"], files_of(place)]
    (folder / "result.json").write_text(json.dumps(shown, sort_keys=True))
    (folder / "points.json").write_text(json.dumps(point.passed))
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


def made(folder: Path, kind: str) -> Path:
    """Make the user's repository, with uncommitted changes unless the loop edits it."""
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "n.txt").write_text("0\n")
    (project / ".gitignore").write_text("*.log\n")
    (project / "kept.log").write_text("mine")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"],
                  ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    if kind != "here":
        (project / "dirty").write_text("dirty")
    return folder


def undisturbed(root: Path, kind: str, ending: str) -> tuple[str, int, dict[str, int]]:
    """Return the result without a kill, how often commands ran, and the number of points by position."""
    folder = made(root / f"{kind}-{ending}", kind)
    assert in_child(folder, kind, ending) == 0
    points = json.loads((folder / "points.json").read_text())
    return (folder / "result.json").read_text(), len((folder / "bill").read_text().split()), points


def problem(
    root: Path, case: tuple[str, str], point: tuple[str, int], expected: tuple[str, int]
) -> str:
    """Kill at a point and resume; return "" or what differs."""
    (kind, ending), (position, number) = case, point
    where = f"{kind} {ending} {position}:{number}"
    folder = made(root / where.replace(" ", "-").replace(":", "-"), kind)
    mine = user_files(folder / "project", kind)
    code = in_child(folder, kind, ending, position, number)
    if code == 0:
        return ""  # how many commits there are depends on which of them share one
    if code != -signal.SIGKILL:
        return f"{where}: died of itself"
    if user_files(folder / "project", kind) != mine:
        return f"{where}: the user's files changed"
    if in_child(folder, kind, ending) != 0:
        return f"{where}: the resume failed"
    found = (folder / "result.json").read_text()
    if found != expected[0]:
        return f"{where}: {found} is not {expected[0]}"
    if user_files(folder / "project", kind) != mine:
        return f"{where}: the user's files changed after the resume"
    again = len((folder / "bill").read_text().split()) - expected[1]
    # Two loops at the same time have two commands in flight.
    limit = 2 if ending == "trees" else 1
    return f"{where}: {again} commands ran again" if again > limit else ""


def main(words: list[str]) -> int:
    """Try the named points, or all; print a line for each that differs."""
    root, kind, ending = Path(words[0]), words[1], words[2]
    result, commands, counts = undisturbed(root, kind, ending)
    # A sample names parts of a thousand: how many points there are is known only now. Two may be the same.
    named = (text.split(":") for text in words[3:])
    sample = [(name, 1 + int(part) * counts[name] // 1000) for name, part in named]
    points = list(dict.fromkeys(sample))
    if not points:
        points = [(name, k) for name in counts for k in range(1, counts[name] + 1)]
    failures = [problem(root, (kind, ending), point, (result, commands)) for point in points]
    failures = [one for one in failures if one]
    print("\n".join([f"{len(points)} points", *failures]))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
