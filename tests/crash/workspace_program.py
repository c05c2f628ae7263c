"""The program that is killed: loops whose commands edit files in workspaces.

    python -m crash.workspace_program FOLDER KIND ENDING [POSITION:PART …]

POSITION is `git` (before a call of git), `before`, `in_txn` or `after` (of a commit of the journal), and PART
the thousandths of the way to its last point; without points, all are tried. Each point is a child that dies
by SIGKILL, and one that resumes. With the ending `trees`, the run has three loops at the same time, each with
a tree of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

from loopwright import Context, Loop, MaxIterations, ScoreAtLeast, Workspace, parallel, run, shell
from loopwright.journal.sqlite import SqliteJournal

from .kills import Ended, Point, in_child, killed_and_resumed, repository, watch_git

# The second iteration is best; each is paid for in a file outside the workspace. A command that is killed may
# leave an empty folder, which no snapshot has.
EDIT = """
n=$(cat n.txt); n=$((n+1)); echo $n > n.txt; echo "$n" >> "$BILL"
rm -rf "dir$((n-1))"; mkdir -p "dir$n"; echo x > "dir$n/f"; ln -sf "dir$n" link; chmod +x n.txt
test "$n" != "$FAILS"
cat n.txt
"""
TREES = 3  # loops at the same time with the ending `trees`
SCORES = {"1": 0.2, "2": 0.6, "3": 0.4, "4": 0.95}


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
    watch_git(point)
    journal = SqliteJournal(str(folder / "runs.db"), on_point=point.reach)
    count = TREES if ending == "trees" else 1
    loops = {f"fix{n}": loop_of(folder, kind, ending, f"fix{n}") for n in range(count)}
    target = parallel(**loops) if ending == "trees" else loops["fix0"]
    result = await run(target, None, journal=journal, run_id="r")
    shown: list[object] = [result.status.value]
    ends = result.loops if ending == "trees" else {"fix0": result}
    for name, ended in sorted(ends.items()):  # otherwise in the order in which they ended
        if ended.workspace is None:
            raise SystemExit(f"{name}: {ended.detail}")
        history = [(i.number, i.score, i.files["tree"]) for i in ended.history if i.files]
        place = Path(ended.workspace["folder"])
        shown += [name, history, ended.workspace["tree"], files_of(place)]
    (folder / "result.json").write_text(json.dumps(shown, sort_keys=True))
    (folder / "points.json").write_text(json.dumps(point.passed))
    await journal.close()


def made(folder: Path, kind: str) -> Path:
    """Make the user's repository, with uncommitted changes unless the loop edits it."""
    repository(folder, {"n.txt": "0\n", ".gitignore": "*.log\n"})
    (folder / "project" / "kept.log").write_text("mine")
    if kind != "here":
        (folder / "project" / "dirty").write_text("dirty")
    return folder


def problem(
    root: Path, case: tuple[str, str], point: tuple[str, int], expected: Ended
) -> str | None:
    """Kill at a point and resume; return "" or what differs, None if there is no such point."""
    (kind, ending), (position, number) = case, point
    folder = made(root / f"{position}-{number}", kind)
    project = folder / "project"
    mine = user_files(project, kind)
    wrong = killed_and_resumed(
        folder,
        lambda *point: in_child(once, folder, kind, ending, *point),
        point,
        lambda: user_files(project, kind) == mine,
    )
    if wrong is None:
        return None
    # Each loop has one command in flight.
    wrong = wrong or expected.difference(folder, TREES if ending == "trees" else 1)
    if not wrong:
        shutil.rmtree(folder)
    return wrong and f"{kind} {ending} {position}:{number}: {wrong}"


def main(words: list[str]) -> int:
    """Try the named points, or all; print a line for each that differs."""
    root, kind, ending = Path(words[0]), words[1], words[2]
    folder = made(root / "undisturbed", kind)
    assert in_child(once, folder, kind, ending) == 0
    expected, counts = Ended.read(folder), json.loads((folder / "points.json").read_text())
    # A sample names parts of a thousand: how many points there are is known only now. Two may be the same.
    named = (text.split(":") for text in words[3:])
    sample = [(name, 1 + int(part) * counts[name] // 1000) for name, part in named]
    points = list(dict.fromkeys(sample))
    if not points:
        points = [(name, k) for name in counts for k in range(1, counts[name] + 1)]
    results = [problem(root, (kind, ending), point, expected) for point in points]
    failures = [result for result in results if result]
    # How many commits there are depends on which of them share one, so a run may end before the last point.
    print("\n".join([f"{len(points)} points, {results.count(None)} not reached", *failures]))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
