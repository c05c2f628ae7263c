"""Workspaces: captures, restores and copies of 10,000 files, as ratios to `git status` in the same folder.

python -m benchmarks.workspace [FOLDER]     FOLDER is on the file system to measure

Without FOLDER, edits are measured in the temporary folder, and copies on a file system in memory.

The files are edited more than a second before a capture, as by an agent that still writes its answer. The
copy is the second of its folder: the first one also makes the store and reads each file once.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from loopwright import Workspace
from loopwright.coding.sealed.clean_copy import CleanCopy
from loopwright.coding.workspace.workspace import Files

from .measuring import Row, wall

FILES = 10_000
EDITED = 10  # files of one iteration
TURNS = 9
ITERATIONS = 100
_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def project(folder: Path) -> Path:
    """Make a packed repository of 10,000 files and 40 MB."""
    chosen = random.Random(1)
    for number in range(FILES):
        place = folder / f"package{number // 500}" / f"module{number // 25 % 20}"
        place.mkdir(parents=True, exist_ok=True)
        lines = (
            f"value_{chosen.randrange(10**6)} = {chosen.randrange(10**9)}\n" for _ in range(170)
        )
        (place / f"file{number}.py").write_text("".join(lines)[:4000])
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    for words in (["init", "-q"], ["add", "-A"], [*_IDENTITY, "commit", "-qm", "x"], ["gc", "-q"]):
        git(folder, *words)
    return folder


class Measured:
    """One workspace of the project, and `git status` beside it."""

    def __init__(self, top: Path) -> None:
        self.source = project(top / "project")
        # The files must be older than the index, for git as for us.
        time.sleep(3)
        self.top, self.home, self.count = top, top / "home", 0
        self.status()
        self.first = wall(self.copy)
        self.files = self.copy()
        self.paths = sorted(self.files.folder.rglob("*.py"))

    def status(self) -> float:
        """Return the seconds of `git status` in the user's folder."""
        return wall(lambda: git(self.source, "status", "--porcelain"))

    def copy(self) -> Files:
        """Make a workspace."""
        self.count += 1
        files = Files(Workspace(self.source, home=self.home), f"run{self.count}", "loop")
        files._open(None)
        self.base = files._begin()["commit"]
        return files

    def edit(self, number: int) -> None:
        """Change some files, and wait as long as an agent does before it ends."""
        for path in random.Random(number).sample(self.paths, EDITED):
            path.write_text(f"{path.read_text()}edit = {number}\n")

    def ratio(self, work: Callable[[], object], before: Callable[[], object]) -> tuple[float, str]:
        """Return the ratio of some work to `git status`, and that of the processor time as a note.

        Each is at its fastest of several turns: other programs on the machine only add time.
        """
        ours, plain = [], []
        for _ in range(TURNS):
            before()
            plain += [timed(self.status), timed(self.status)]
            ours.append(timed(work))
        (seconds, processor), (status, least) = (
            (min(first for first, _ in all_), min(second for _, second in all_))
            for all_ in (ours, plain)
        )
        return seconds / status, f"{processor / least:.1f} x in processor time"


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of some work, and the processor time of this process and its children."""

    def used() -> float:
        both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        found = [resource.getrusage(who) for who in both]
        return sum(one.ru_utime + one.ru_stime for one in found)

    start = used()
    seconds = wall(work)
    return seconds, used() - start


def size(folder: Path) -> int:
    """Return the bytes of a folder on the disk."""
    places = (Path(base) / name for base, _, names in os.walk(folder) for name in names)
    return sum(place.stat().st_blocks * 512 for place in places)


def rows(folder: str = "") -> Iterator[Row]:
    """Measure each figure."""
    with tempfile.TemporaryDirectory(dir=folder or None) as name:
        measured = Measured(Path(name))
        yield from edits(measured)
        yield from growth(measured)
    # The time of 10,000 new files on a disk is that of its journal, and says little about us.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder or memory) as name:
        # A clean copy is in the temporary folder, which may be on another file system.
        before, tempfile.tempdir = tempfile.tempdir, name
        try:
            yield from copies(Measured(Path(name)))
        finally:
            tempfile.tempdir = before


def edits(measured: Measured) -> Iterator[Row]:
    """Measure captures and restores of ten changed files."""
    tree, commits = measured.files.tree, [measured.base]

    def change() -> None:
        measured.edit(len(commits))
        time.sleep(1.2)

    def capture() -> None:
        commits.append(str(tree.capture(str(len(commits)), commits[-1])["commit"]))

    value, note = measured.ratio(capture, change)
    yield Row("capture of ten changed files", value, 2.5, note=note)

    def restore() -> None:
        commits.reverse()
        measured.files._restore(commits[0], True, "adopt")

    value, note = measured.ratio(restore, lambda: time.sleep(1.2))
    yield Row("restore of another iteration", value, 2.5, note=note)
    value, note = measured.ratio(lambda: tree.restore(commits[0]), int)
    yield Row("restore without a change", value, 2.5, note=note)


def copies(measured: Measured) -> Iterator[Row]:
    """Measure copies of the project and clean copies of a snapshot."""
    made: list[Files] = []

    def remove() -> None:
        for files in made:
            files.tree.unlock()
            shutil.rmtree(files.tree.folder)
        made.clear()

    value, note = measured.ratio(lambda: made.append(measured.copy()), remove)
    first = f"the first, with the store: {measured.first / measured.status():.1f} x"
    yield Row("copy", value, 15, note=f"{note}; {first}")
    remove()
    yield from clean_copies(measured)


def clean_copies(measured: Measured) -> Iterator[Row]:
    """Measure the folder of a sealed check, for two snapshots by turns."""
    tree = measured.files.tree
    measured.edit(1)
    edited = str(tree.capture("edited", measured.base)["commit"])
    commits = [measured.base, edited]
    copy = CleanCopy(tree.store, "", (), measured.source)

    def put() -> None:
        commits.reverse()
        asyncio.run(copy.put(commits[0], measured.base))

    floor, plain = measured.ratio(lambda: duplicate(measured), lambda: forget(measured))
    value, note = measured.ratio(put, copy.close)
    note += f"; cp -a of the same files: {floor:.1f} x, {plain}"
    yield Row("clean copy, the first of a run", value, 12, note=note)
    put()
    value, note = measured.ratio(put, int)
    yield Row("clean copy, used again", value, 12, note=note)
    copy.close()


def duplicate(measured: Measured) -> None:
    """Copy the project without any work of ours."""
    command = ["cp", "-a", str(measured.source), str(measured.top / "duplicate")]
    subprocess.run(command, check=True)


def forget(measured: Measured) -> None:
    """Remove the copy of the project."""
    shutil.rmtree(measured.top / "duplicate", ignore_errors=True)


def growth(measured: Measured) -> Iterator[Row]:
    """Measure the store and the time over 100 iterations."""
    files = measured.copy()
    measured.paths = sorted(files.folder.rglob("*.py"))
    store, parent, times = files.tree.store, measured.base, []
    before = size(store.folder)
    for number in range(1, ITERATIONS + 1):
        measured.edit(number)

        def iterate(number: int = number) -> None:
            nonlocal parent
            parent = str(files.tree.capture(str(number), parent)["commit"])
            files._restore(parent, False, "adopt")

        times.append(wall(iterate))
    files.tree.pack()
    grown = size(store.folder) - before
    wanted = f"{parent}\n^{measured.base}\n"
    words = ["git", "-C", str(store.folder), "pack-objects", "--revs", "--quiet", "--stdout"]
    packed = len(
        subprocess.run(words, input=wanted.encode(), capture_output=True, check=True).stdout
    )
    note = f"{grown // 1024} KB of {packed // 1024} KB after {ITERATIONS} iterations"
    yield Row("growth of the store to the packed changes", grown / packed, 1.3, note=note)
    tenth = ITERATIONS // 10
    flat = statistics.median(times[-tenth:]) / statistics.median(times[:tenth])
    yield Row("time of an iteration: last tenth to first tenth", flat, 1.2)


def main() -> int:
    over = 0
    for row in rows(*sys.argv[1:2]):
        print(row, flush=True)
        over += not row.holds
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
