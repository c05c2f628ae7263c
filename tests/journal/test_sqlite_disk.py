"""The SQLite journal and the disk: modes and sizes of its files, and what the disk refuses."""

from __future__ import annotations

import asyncio
import errno
import random
import sqlite3
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.errors import JournalDamaged, JournalUnavailable
from loopwright.journal import Entry
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.tables import FILE, journal_error, refuse_network
from loopwright.records import Iteration

from .recording import info, record, recorded, rounds, rounds_seen, settle, shown
from .sqlite_files import child, filled

# Files and their modes.


async def test_files_are_private(tmp_path: Path) -> None:
    """Files are made 0600 and folders 0700; a folder that was there keeps its mode."""
    tmp_path.chmod(0o755)
    path = tmp_path / "deep" / "folder" / "runs.db"
    made = SqliteJournal(path)
    log = await made.open(info())
    await record(log, [Entry("finished", "a", 1.0, "x" * (FILE + 1))])
    modes = {}
    for found in (tmp_path / "deep").rglob("*"):
        modes[found.name] = stat.S_IMODE(found.stat().st_mode)
        assert modes[found.name] == (0o700 if found.is_dir() else 0o600), found
    assert {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-lock", "runs.db.files"} <= set(modes)
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    await made.close()


@pytest.mark.parametrize("count", [10, 50])
async def test_a_journal_grows_by_what_is_produced(tmp_path: Path, count: int) -> None:
    """With outputs of 4 KB the file grows by at most 1.3 bytes for each byte produced."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path) as made:
        await recorded(made, info("empty"), [])
    empty = path.stat().st_size
    chance = random.Random(1)
    async with SqliteJournal(path) as made:
        log = await made.open(info(input="write a text about loops"))
        for i in range(1, count + 1):
            output = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=4096))
            for stage, value in (("execute", output), ("evaluate", {"score": 0.5})):
                step = f"refine/{i}/{stage}"
                of = f"541ad38a42815cc3:{i:032x}"
                log.append(Entry("started", step, i, fingerprint=of))
                await settle(log)
                log.append(Entry("finished", step, i, value, of, seconds=0.5))
            log.append(Entry("iteration", "refine", i, Iteration(i, "an input", output)))
        await settle(log)
        await log.close(log.info)
    module_path_of = [p.name for p in tmp_path.iterdir() if p.stat().st_size and p.is_file()]
    assert module_path_of == ["runs.db"]
    assert path.stat().st_size - empty <= 1.3 * 4096 * count


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """A journal below a network mount is refused by the kind of file system."""
    mounts = tmp_path / "mounts"
    near = str(tmp_path).replace(" ", "\\040")
    mounts.write_text(
        f"/dev/a / ext4 rw 0 0\nhost:/x {near} nfs4 rw 0 0\n/dev/b {near}/in ext4 rw\n"
    )
    with pytest.raises(JournalUnavailable, match=r"network file system \(nfs4\), where SQLite's"):
        refuse_network(tmp_path / "runs.db", mounts)
    refuse_network(tmp_path / "in" / "runs.db", mounts)
    refuse_network(Path("/elsewhere/runs.db"), mounts)
    refuse_network(tmp_path / "runs.db", tmp_path / "no such file")


# What the disk refuses.


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (OSError(errno.ENOSPC, "x"), JournalUnavailable, "the disk is full; free some space"),
        (OSError(errno.EDQUOT, "x"), JournalUnavailable, "the disk is full; free some space"),
        (OSError(errno.EROFS, "x"), JournalUnavailable, "it is read-only; allow your user"),
        (OSError(errno.EACCES, "x"), JournalUnavailable, "permission was denied; allow your user"),
        (OSError(errno.EIO, "x"), JournalUnavailable, "the disk refused to read or write; check"),
        (OSError(errno.ENOTDIR, "x"), JournalUnavailable, "it cannot be opened; check that its"),
        (KeyError("x"), JournalUnavailable, "KeyError: 'x'; report this"),
        (sqlite3.DataError("x"), JournalDamaged, "it cannot be read as a journal \\(x\\); restore"),
        (JournalDamaged("as it is"), JournalDamaged, "as it is"),
    ],
)
def test_each_fault_is_one_sentence(fault: Exception, kind: type, words: str) -> None:
    """A fault of the system or SQLite is an error of the journal that says what to do."""
    error = journal_error(fault, "runs.db")
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


FULL = """
import asyncio, resource, sys
from loopwright.errors import JournalUnavailable
from loopwright.journal import Entry, RunInfo
from loopwright.journal.sqlite import SqliteJournal

async def main():
    journal = SqliteJournal(sys.argv[1])
    log = await journal.open(RunInfo("run-1", "refine"))
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    kept = 0
    try:
        for i in range(200):
            log.append(Entry("finished", f"step-{i}", i, "x" * int(sys.argv[3])))
            if (pending := log.sync()) is not None:
                await pending
            kept += 1
    except JournalUnavailable as error:
        print(kept, error)
    for again in (log.sync, log.sync):
        try:
            again()
        except JournalUnavailable:
            pass
        else:
            print("went on")
    try:
        await log.close(log.info)
    except JournalUnavailable:
        pass
    await journal.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "size"), [(60_000, 200), (90_001, 3000), (1_500_000, 2 << 20)])
def test_a_full_disk_loses_nothing_acknowledged(tmp_path: Path, limit: int, size: int) -> None:
    """When a file may not grow, the run ends in one clear error and what was acknowledged stays."""
    path = tmp_path / "runs.db"
    done = child(FULL, path, limit, size)
    assert done.returncode == 0, done.stderr
    kept, _, message = done.stdout.partition(" ")
    assert message.startswith(str(path))
    assert message.endswith(("resume\n", "resume the run\n"))
    assert done.stdout.count("\n") == 1

    async def check() -> None:
        async with SqliteJournal(path) as made:
            log = await made.open(info(), resume=True)
            assert len(log.recorded) >= int(kept)
            await record(log, [Entry("finished", "more", 1.0, "x" * size)])

    asyncio.run(check())


async def test_a_failed_commit_fails_its_runs_alone(tmp_path: Path) -> None:
    """Runs whose commit failed are told at every sync; the others go on, and all can be resumed."""
    failing = []

    def point(position: str, _: int) -> None:
        if position == "in_txn" and failing:
            raise failing.pop()

    path = tmp_path / "runs.db"
    made = SqliteJournal(path, on_point=point)
    bad, good = await made.open(info("bad")), await made.open(info("good"))
    await record(bad, rounds(1))
    failing.append(OSError(errno.ENOSPC, "no space"))
    with pytest.raises(JournalUnavailable) as caught:
        await record(bad, rounds(1, start=2))
    message = f"{path}: the disk is full; free some space, then resume the run"
    assert str(caught.value) == message
    await record(good, rounds(2))
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            await record(bad, rounds(1, start=2))
    with pytest.raises(JournalUnavailable):
        await bad.close(replace(bad.info, status="satisfied"))
    assert (await made.find("bad")).status == "interrupted"
    again = await made.open(info("bad"))
    assert shown(again.recorded) == shown(rounds_seen(rounds(1)))
    await record(again, rounds(1, start=2))
    await good.close(good.info)
    assert len(await made.entries("good")) == 6
    await made.close()


DENIED = """
import asyncio, concurrent.futures.thread, os, sys
from loopwright.errors import JournalUnavailable
from loopwright.journal import RunInfo
from loopwright.journal.sqlite import SqliteJournal

async def main():
    journal = SqliteJournal(sys.argv[1])
    print(len(await journal.entries("run-1")))
    try:
        await journal.open(RunInfo("run-2", "refine"))
    except JournalUnavailable as error:
        print(error)
    await journal.close()

if os.getuid() == 0:
    os.setuid(65534)
asyncio.run(main())
"""


async def test_a_journal_that_may_only_be_read_is_read() -> None:
    """Where nothing may be written runs can be read, and opening one says what to do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "runs.db"
        await filled(path)
        (folder / "runs.db-lock").chmod(0o666)
        path.chmod(0o444)
        folder.chmod(0o555)
        done = child(DENIED, path)
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    count, message = done.stdout.splitlines()
    assert count == "19"
    assert message.startswith(f"{path}: ")
    assert message.endswith("allow your user to write the file and its folder")


async def test_a_failed_opening_is_no_opening(tmp_path: Path) -> None:
    """When the commit of an opening fails there is no run, and opening it again is the first."""
    failing: list[Exception] = [OSError(errno.EIO, "x"), sqlite3.OperationalError("x")]

    def point(position: str, _: int) -> None:
        if position == "before" and failing:
            raise failing.pop()

    async with SqliteJournal(tmp_path / "runs.db", on_point=point) as made:
        for kind in (JournalDamaged, JournalUnavailable):
            with pytest.raises(kind):
                await made.open(info())
        assert await made.runs() == []
        assert (await made.open(info())).info.epoch == 1
