"""The SQLite journal: damage, permissions, locks, group commit, sizes and indexes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import (
    JournalDamaged,
    JournalError,
    JournalUnavailable,
    OwnershipLost,
    RunLocked,
    RunNotFound,
)
from loopwright.journal import Entry, RunInfo
from loopwright.records import Evaluation, Iteration
from loopwright.stores.sqlite import Clocks, SqliteJournal, schema
from loopwright.stores.sqlite.encoding import FILE, content_digest
from loopwright.stores.sqlite.faults import as_damage, journal_error
from loopwright.stores.sqlite.files import SideLock, refuse_network, write_content
from loopwright.stores.sqlite.owners import Owner, place, register, started
from loopwright.stores.sqlite.ownership import rewind_row
from loopwright.stores.sqlite.reader import STATEMENTS, runs_query
from loopwright.stores.sqlite.schema import VERSION
from loopwright.stores.sqlite.writer import Order

from .contract import LONG, info, record, recorded, rounds, rounds_seen, settle, shown

LATE = Clocks(wall=lambda: time.time() + 3600)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal in a fresh folder."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        yield made


async def filled(path: Path, count: int = 6) -> list[Any]:
    """Make a journal with one ended run; return its entries as JSON."""
    async with SqliteJournal(path, synchronous="normal") as made:
        entries = [*rounds(count), Entry("ended", "", 9.0, {"output": LONG, "steps": {"a": LONG}})]
        log = await made.open(info(input=LONG))
        for entry in entries:
            log.append(entry)
            if entry.kind == "iteration":
                await settle(log)
        await log.close(replace(info(input=LONG), epoch=1))
    return shown(rounds_seen(entries))


def query(path: Path, statement: str, *values: Any) -> list[Any]:
    """Do something to the file that no journal would."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


async def read_all(path: Path) -> list[Any]:
    """Open the one run of a journal for writing, as a resume does, and return what it holds."""
    async with SqliteJournal(path, synchronous="normal", clocks=LATE) as made:
        log = await made.open(info(), resume=True)
        assert log.info.input == LONG
        return shown(log.recorded)


# Damage.


async def test_a_flipped_byte_is_found_or_does_no_harm(tmp_path: Path) -> None:
    """Whichever byte of the file is flipped, a resume reads what was written or is refused."""
    expected = await filled(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    chance = random.Random(7)
    refused = 0
    for place_of_flip in sorted(chance.sample(range(len(good)), 60)):
        bad = bytearray(good)
        bad[place_of_flip] ^= 1 << chance.randrange(8)
        path = tmp_path / f"{place_of_flip}.db"
        path.write_bytes(bad)
        try:
            found = await read_all(path)
        except (JournalError, RunNotFound):
            refused += 1
        else:
            assert found == expected, place_of_flip
    assert refused > 20


async def test_a_torn_wal_is_a_prefix(tmp_path: Path) -> None:
    """Wherever the write-ahead log is cut off, the entries left are the first ones, all whole."""
    made = SqliteJournal(tmp_path / "runs.db", synchronous="normal")
    log = await made.open(info(input=LONG))
    for entry in rounds(4):
        await record(log, [entry])
    whole = (tmp_path / "runs.db-wal").read_bytes()
    (tmp_path / "copy").mkdir()
    path = tmp_path / "copy" / "runs.db"
    expected, lengths = shown(rounds_seen(rounds(4))), set()
    frame = schema.PAGE_SIZE + 24
    for end in range(32 + 20 * frame, len(whole), 6 * frame):
        for cut in (end - 1, end, end + 1):
            shutil.copy(tmp_path / "runs.db", path)
            (tmp_path / "copy" / "runs.db-wal").write_bytes(whole[:cut])
            with contextlib.suppress(RunNotFound):
                found = await read_all(path)
                assert found == expected[: len(found)], cut
                lengths.add(len(found))
    assert len(lengths) > 3
    await made.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "UPDATE entries SET body=replace(body,'f3','f4') WHERE first=7",
            "run-1: entry 7 does not match its checksum; restore the journal from a backup",
        ),
        (
            "DELETE FROM entries WHERE first=4",
            "run-1: entry 4 does not match its checksum; restore the journal from a backup",
        ),
        (
            "DELETE FROM entries WHERE first>=16",
            "run-1: entry 19 is missing; restore the journal from a backup",
        ),
        (
            "UPDATE contents SET body=body||'x' WHERE body LIKE 'output 2%'",
            (
                "run-1: entry 5 has a value that is damaged or gone; "
                "restore the journal from a backup"
            ),
        ),
        (
            "DELETE FROM contents WHERE body LIKE 'output 3%'",
            "run-1: entry 8 has a value that is gone; restore the journal from a backup",
        ),
        (
            "DELETE FROM contents WHERE body LIKE 'a line%'",
            (
                "run-1: its input or source has a value that is gone; "
                "restore the journal from a backup"
            ),
        ),
        (
            "UPDATE runs SET active=1e6",
            (
                "run-1: the row of this run does not match its checksum; "
                "restore the journal from a backup"
            ),
        ),
        (
            "UPDATE owners SET until=1e12",
            "owner 1: this row does not match its checksum; restore the journal from a backup",
        ),
        (
            "UPDATE runs SET usage=x'ff'||usage",
            (
                "run-1: the row of this run does not match its checksum; "
                "restore the journal from a backup"
            ),
        ),
    ],
)
async def test_damage_is_named_before_it_is_used(tmp_path: Path, change: str, message: str) -> None:
    """A row that was changed, a row or value that is gone: the error names the run and entry."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, change)
    with pytest.raises(JournalDamaged) as caught:
        await read_all(path)
    assert str(caught.value) == message


async def test_a_damaged_run_is_not_left_locked(tmp_path: Path) -> None:
    """A run that cannot be opened for damage keeps its status and belongs to nobody."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "DELETE FROM entries WHERE first=4")
    async with SqliteJournal(path) as made:
        for _ in range(2):
            with pytest.raises(JournalDamaged):
                await made.open(info())
        assert (await made.find("run-1")).status == "satisfied"


async def test_pages_are_checked_too(tmp_path: Path) -> None:
    """A page of entries or iterations checks the rows that it shows."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "UPDATE entries SET body=replace(body,'f3','f4') WHERE first=7")
    async with SqliteJournal(path) as made:
        assert len(await made.entries("run-1", limit=6)) == 6
        assert len(await made.iterations("run-1", limit=2)) == 2
        for page in (made.entries("run-1", after=6, limit=1), made.iterations("run-1", offset=2)):
            with pytest.raises(JournalDamaged, match=r"^run-1: entry 7 does not match"):
                await page


@pytest.mark.parametrize(
    ("contents", "kind", "message"),
    [
        (b"", JournalDamaged, "it is empty, so there are no runs; restore it from a backup"),
        (
            b"a text that somebody wrote, long enough to be taken for a database" * 9,
            JournalDamaged,
            "it is not an SQLite file; name another, or restore it from a backup",
        ),
    ],
)
async def test_a_file_that_is_no_journal_is_refused(
    tmp_path: Path, contents: bytes, kind: type[JournalError], message: str
) -> None:
    """An empty file where runs are expected, or a file of another kind, is an error."""
    path = tmp_path / "runs.db"
    path.write_bytes(contents)
    made = SqliteJournal(path)
    calls: list[Callable[[], Any]] = [
        lambda: made.find("run-1"),
        lambda: made.runs(),
        lambda: made.open(info(), resume=True),
        lambda: made.entries("run-1"),
        lambda: made.cancel("run-1"),
    ]
    for call in calls:
        with pytest.raises(kind) as caught:
            await call()
        assert str(caught.value) == f"{path}: {message}"
    await made.close()
    assert path.read_bytes() == contents


async def test_a_half_or_blanked_file_is_refused(tmp_path: Path) -> None:
    """A file of which half is gone, or whose header is blank, gives an error and no traceback."""
    await filled(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    for name, bad in (("half", good[: len(good) // 2]), ("blank", bytes(200) + good[200:])):
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(JournalDamaged):
            await read_all(tmp_path / name)


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """An SQLite file that some other program made is neither read nor written."""
    path = tmp_path / "other.db"
    query(path, "CREATE TABLE notes(text)")
    before = path.read_bytes()
    made = SqliteJournal(path)
    for call in (made.open(info()), made.find("run-1")):
        with pytest.raises(JournalUnavailable) as caught:
            await call
        assert str(caught.value) == f"{path}: it belongs to another program; name another file"
    await made.close()
    assert path.read_bytes() == before


async def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    """A journal of a newer version of the program is neither read nor written."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "PRAGMA user_version=99")
    made = SqliteJournal(path)
    for call in (made.open(info()), made.find("run-1")):
        with pytest.raises(JournalUnavailable) as caught:
            await call
        assert str(caught.value) == (
            f"{path}: a newer version of this program wrote it (format 99, this one knows {VERSION}); "
            "upgrade"
        )
    await made.close()


def test_an_older_journal_is_brought_forward(tmp_path: Path) -> None:
    """Tables go through every version that they lack, in one transaction or not at all."""
    db = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    schema.bring_forward(db, 0)
    known = [("x",)] * VERSION
    broken = (*known, ("CREATE TABLE more(a)",), ("CREATE TABLE more(a)",))
    with pytest.raises(sqlite3.OperationalError, match=r"already exists"):
        schema.bring_forward(db, VERSION, broken)
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    schema.bring_forward(db, VERSION, broken[:-1])
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    assert db.execute("SELECT count(*) FROM more").fetchone() == (0,)
    db.close()


async def test_a_database_without_tables_is_a_new_journal(tmp_path: Path) -> None:
    """What a crash leaves of a journal that was just being made is made anew."""
    path = tmp_path / "runs.db"
    query(path, "PRAGMA journal_mode=WAL")
    assert path.stat().st_size
    async with SqliteJournal(path) as made:
        assert await made.runs() == []
        await recorded(made, info(), rounds(1))
        assert len(await made.entries("run-1")) == 3


async def test_a_gap_in_a_page_is_found(tmp_path: Path) -> None:
    """A page that an index has lost rows of is refused: each iteration and the end are counted."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "UPDATE entries SET loop=NULL, mark=NULL WHERE mark=6")
    async with SqliteJournal(path) as made:
        assert len(await made.iterations("run-1", limit=1)) == 1
        for loop in ("", "refine"):
            with pytest.raises(JournalDamaged) as caught:
                await made.iterations("run-1", loop=loop)
            assert str(caught.value) == (
                "run-1: entry 9 does not follow the iteration before it; "
                "restore the journal from a backup"
            )
    query(path, "DELETE FROM entries WHERE first>=16")
    async with SqliteJournal(path) as made:
        assert len(await made.entries("run-1", after=10, limit=5)) == 5
        for page in (made.entries("run-1"), made.entries("run-1", after=10, limit=6)):
            with pytest.raises(JournalDamaged, match=r"^run-1: entry 16 is missing; restore"):
                await page


# Values.


async def test_text_that_is_no_unicode_is_mended(journal: SqliteJournal) -> None:
    """Half of a surrogate pair becomes U+FFFD wherever it stands, and NUL is kept."""
    half, mended = "a \ud800 b", "a \ufffd b"
    await recorded(
        journal,
        info(detail=half, input=half * 100),
        [Entry("finished", "a", 1.0, half), Entry("finished", half, 1.0, [half * 100])],
    )
    await recorded(journal, info("run-2"), [Entry("finished", "a", 1.0, "x\0y" * 100)])
    first, second = await journal.entries("run-1")
    assert (first.value, second.path, second.value) == (mended, mended, [mended * 100])
    row = await journal.find("run-1")
    assert (row.detail, row.input) == (mended, mended * 100)
    [third] = await journal.entries("run-2")
    assert third.value == "x\0y" * 100


@pytest.mark.parametrize(
    ("value", "evaluation"),
    [
        (0.5, Evaluation(0.5)),
        (True, Evaluation(passed=True)),
        (None, Evaluation()),
        ({"score": 0.5, "feedback": "more"}, Evaluation(0.5, feedback="more")),
        ({"passed": None, "score": 1}, Evaluation(1.0)),
        (Evaluation(0.5, feedback=LONG).to_json(), Evaluation(0.5, feedback=LONG)),
        (Evaluation(votes=({"passed": None, "a": 1},)).to_json(), Evaluation(passed=False)),
        ({"$here": 0}, Evaluation(0.25, True, "enough")),
    ],
)
async def test_an_evaluation_is_kept_once_in_its_row(
    journal: SqliteJournal, value: Any, evaluation: Evaluation
) -> None:
    """Whether or not an effect of the row produced it, an evaluation comes back as it was."""
    log = await journal.open(info())
    entries = [
        Entry("finished", "refine/1/evaluate", 1.0, value),
        Entry("iteration", "refine", 2.0, Iteration(1, evaluation=evaluation)),
    ]
    await record(log, entries)
    assert shown(await journal.entries("run-1")) == shown(rounds_seen(entries))
    [(_, kept)] = await journal.iterations("run-1")
    assert kept.evaluation == evaluation


async def test_a_value_that_is_no_json_leaves_no_trace(journal: SqliteJournal) -> None:
    """An entry that cannot be written is refused where it is appended; the run goes on."""
    log = await journal.open(info())
    await record(log, rounds(1))
    for bad in (
        Entry("finished", "a", 1.0, {1j}),
        Entry("iteration", "a", 1.0, Iteration(1, {1j})),
    ):
        with pytest.raises(TypeError):
            log.append(bad)
    await record(log, rounds(1, start=2))
    assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))
    assert len(await journal.iterations("run-1")) == 2


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


async def test_a_large_value_is_a_file_named_by_its_digest(tmp_path: Path) -> None:
    """A value above 1 MiB is kept once, outside of the database, and checked when it is read."""
    path = tmp_path / "runs.db"
    large = "ü" * (FILE // 2 + 1)
    async with SqliteJournal(path) as made:
        entries = [Entry("finished", f"step-{i}", 1.0, large) for i in range(3)]
        await recorded(made, info("run-1", input=large), entries)
        await recorded(made, info("run-2"), [Entry("finished", "a", 1.0, [large])])
    digest = content_digest(large.encode()).hex()
    kept = [p for p in (tmp_path / "runs.db.files").rglob("*") if p.is_file()]
    assert sorted(p.stat().st_size for p in kept) == [FILE + 2, FILE + 6]
    file = tmp_path / "runs.db.files" / digest[:2] / digest
    assert file.read_text() == large
    assert path.stat().st_size < 40_000
    async with SqliteJournal(path) as made:
        assert [e.value for e in await made.entries("run-1")] == [large] * 3
        assert (await made.find("run-1")).input == large
    file.write_text(large[:-1] + "x")
    async with SqliteJournal(path) as made:
        for call in (made.entries("run-1"), made.open(info("run-1"))):
            with pytest.raises(JournalDamaged, match=r"^run-1: .* is damaged or gone; restore"):
                await call
        assert (await made.entries("run-2"))[0].value == [large]
        await recorded(made, info("run-3"), [Entry("finished", "a", 1.0, large)])
    assert file.read_text() == large


async def test_a_value_is_stored_once_in_a_run(tmp_path: Path) -> None:
    """A long value that many entries carry, in this opening and the next, is one row."""
    path = tmp_path / "runs.db"
    for _ in range(2):
        async with SqliteJournal(path) as made:
            log = await made.open(info(input=LONG))
            value = {"draft": LONG, "numbers": list(range(100))}
            await record(
                log, [Entry("finished", "a", 1.0, LONG), Entry("finished", "b", 1.0, value)]
            )
            record_of = Iteration(1, LONG, value)
            await record(log, [Entry("iteration", "loop", 2.0, record_of)])
            await log.close(log.info)
    assert len(query(path, "SELECT DISTINCT digest FROM contents")) == 2
    assert len(query(path, "SELECT id FROM contents")) <= 3  # the input is folded before the run


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
    beside = [p.name for p in tmp_path.iterdir() if p.stat().st_size and p.is_file()]
    assert beside == ["runs.db"]
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
        (OSError(errno.EROFS, "x"), JournalUnavailable, "it may only be read; make the file"),
        (OSError(errno.EACCES, "x"), JournalUnavailable, "permission was denied; make the file"),
        (OSError(errno.EIO, "x"), JournalUnavailable, "the disk refused to read or write; check"),
        (OSError(errno.ENOTDIR, "x"), JournalUnavailable, "it cannot be opened; check that its"),
        (KeyError("x"), JournalUnavailable, "KeyError: 'x'; report this"),
        (sqlite3.DataError("x"), JournalDamaged, "it does not read as a journal \\(x\\); restore"),
        (JournalDamaged("as it is"), JournalDamaged, "as it is"),
    ],
)
def test_each_fault_is_one_sentence(fault: Exception, kind: type, words: str) -> None:
    """A fault of the system or SQLite is an error of the journal that says what to do."""
    error = journal_error(fault, "runs.db")
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


@pytest.mark.parametrize("error", [AttributeError(), KeyError(), TypeError(), UnicodeError()])
def test_values_of_a_wrong_shape_are_damage(error: Exception) -> None:
    """What damage makes of a value is refused in one sentence."""
    with pytest.raises(JournalDamaged) as caught, as_damage("run-1: entry 2"):
        raise error
    assert str(caught.value) == (
        "run-1: entry 2 does not read as what was written; restore the journal from a backup"
    )


async def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A folder in place of the file, or a file in place of the folder, is an error and no more."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "runs.db"):
        made = SqliteJournal(path)
        with pytest.raises(JournalError):
            await made.open(info())
        with pytest.raises(JournalError):
            await made.find("run-1")
        await made.close()


FULL = """
import asyncio, resource, sys
from loopwright.errors import JournalUnavailable
from loopwright.journal import Entry, RunInfo
from loopwright.stores.sqlite import SqliteJournal

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


def child(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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


async def test_a_value_that_cannot_be_filed_fails_its_run_alone(tmp_path: Path) -> None:
    """Where no file can be made for a large value, its run is refused and the others go on."""
    (tmp_path / "runs.db.files").write_text("in the way")
    large = "x" * (FILE + 1)
    async with SqliteJournal(tmp_path / "runs.db") as made:
        bad, good = await made.open(info("bad")), await made.open(info("good"))
        outcomes = await asyncio.gather(
            record(bad, [Entry("finished", "a", 1.0, large)]),
            record(good, rounds(1)),
            made.open(info("large", input=large)),
            return_exceptions=True,
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [JournalUnavailable, type(None), JournalUnavailable]
        assert len(await made.entries("good")) == 3
        assert await made.entries("bad") == []
        with pytest.raises(RunNotFound):
            await made.find("large")


def test_a_content_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """When a file cannot be finished nothing of it is left behind."""
    digest = content_digest(b"x")
    (tmp_path / digest.hex()[:2] / digest.hex()).mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_content(tmp_path, digest, b"x")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


DENIED = """
import asyncio, concurrent.futures.thread, os, sys
from loopwright.errors import JournalUnavailable
from loopwright.journal import RunInfo
from loopwright.stores.sqlite import SqliteJournal

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
    assert message.endswith("make the file and its folder yours to write")


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


# Locks and leases.


async def test_a_locked_run_names_its_owner(journal: SqliteJournal) -> None:
    """The error for a run that someone runs names the process and how to stop it."""
    await journal.open(info())
    async with SqliteJournal(journal.path) as other:
        with pytest.raises(RunLocked) as caught:
            await other.open(info())
        pid, host = os.getpid(), os.uname().nodename
        assert str(caught.value) == (
            f"run-1: process {pid} on {host} is running it; wait for it, "
            "or stop it with: loopwright cancel run-1"
        )
        assert (await other.find("run-1")).status == "running"


KILLED = """
import asyncio, os, signal, sys
from loopwright.journal import Entry, RunInfo
from loopwright.stores.sqlite import SqliteJournal

position, number = sys.argv[2], int(sys.argv[3])

def point(where, count):
    if where == position and count == number:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    journal = SqliteJournal(sys.argv[1], on_point=point)
    log = await journal.open(RunInfo("run-1", "refine"))
    for i in range(1, 4):
        log.append(Entry("finished", f"step-{i}", i, "x" * 2000))
        log.append(Entry("started", f"step-{i + 1}", i))
        if (pending := log.sync()) is not None:
            await pending
        os.write(1, b"+")
    await journal.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("position", ["before", "in_txn", "after"])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, position: str) -> None:
    """Killed at any point of any commit, a run can be resumed at once with all acknowledged."""

    async def check(path: Path, acknowledged: int) -> None:
        async with SqliteJournal(path) as made:
            rows = await made.runs()
            assert [row.status for row in rows] in ([], ["interrupted"])
            log = await made.open(info())
            count = len(log.recorded)
            assert count in (2 * acknowledged, 2 * acknowledged + 2)
            assert [e.seq for e in log.recorded] == list(range(1, count + 1))
            await record(log, [Entry("finished", "more", 9.0)])

    for number in (1, 3):
        path = tmp_path / f"{number}.db"
        done = child(KILLED, path, position, number)
        assert done.returncode == -signal.SIGKILL, done.stderr
        asyncio.run(check(path, len(done.stdout)))


async def test_a_process_that_is_gone_owns_nothing(tmp_path: Path) -> None:
    """A run of a dead process shows as interrupted, in lists too, and is taken without waiting."""
    path = tmp_path / "runs.db"
    assert child(KILLED, path, "after", 3).returncode == -signal.SIGKILL
    async with SqliteJournal(path) as made:
        other = await made.open(info("run-2"))
        assert (await made.find("run-1")).status == "interrupted"
        assert [r.run_id for r in await made.runs(status="interrupted")] == ["run-1"]
        assert [r.run_id for r in await made.runs(status="running")] == ["run-2"]
        assert await made.cancel("run-1") is False
        assert (await made.open(info())).info.epoch == 2
        await other.close(other.info)


def test_an_owner_lives_while_its_lease_and_process_do() -> None:
    """A lease ends with its time, or with its process if that can be seen from here."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        schema.bring_forward(db, 0)
        me = register(db, 100.0)
    assert me.alive(109.0)
    assert not me.alive(110.0)
    assert not replace(me, started="1").alive(101.0)  # another process got the number
    assert not replace(me, pid=2**22 + 1).alive(101.0)
    assert replace(me, pid=2**22 + 1, place="elsewhere").alive(101.0)
    assert me.place == place()
    assert isinstance(me, Owner)


def test_a_system_without_proc_is_asked_for_signals(tmp_path: Path) -> None:
    """Where the system does not list processes, one lives while it could be signalled."""
    assert started(os.getpid(), tmp_path) == "alive"
    assert started(1, tmp_path) == "alive"
    assert started(2**22 + 1, tmp_path) == ""
    assert started(2**22 + 1) == ""
    assert place(tmp_path) == os.uname().nodename


async def test_the_active_time_of_a_lost_run_counts_to_its_last_beat(tmp_path: Path) -> None:
    """A run whose process ended has been active until its store was last alive."""
    now = [0.0]
    made = SqliteJournal(tmp_path / "runs.db", clocks=Clocks(steady=lambda: now[0]))
    now[0] = 2.0
    log = await made.open(info(active=10.0))
    now[0] = 5.5
    await made.close()
    with pytest.raises(JournalUnavailable, match=r"was closed while this run was open$"):
        await settle(log)
    async with SqliteJournal(tmp_path / "runs.db") as later:
        found = await later.find("run-1")
        assert (found.status, found.active) == ("interrupted", 13.5)
        assert (await later.open(info())).info.active == 13.5


async def test_the_active_time_is_never_before_the_last_entry(tmp_path: Path) -> None:
    """A run that is opened again has been active at least until its last entry."""
    async with SqliteJournal(tmp_path / "runs.db") as made:
        await record(await made.open(info()), [Entry("started", "a", 77.0)])
    async with SqliteJournal(tmp_path / "runs.db") as later:
        assert (await later.open(info())).info.active == 77.0


async def test_a_wish_to_cancel_crosses_processes(journal: SqliteJournal) -> None:
    """A run is cancelled through another opening of the file, before or after it can hear."""
    late, early = await journal.open(info("late")), await journal.open(info("early"))
    heard = asyncio.Event()
    early.on_cancel = heard.set
    async with SqliteJournal(journal.path) as other:
        assert await other.cancel("late") is True
        assert await other.cancel("early") is True
        await asyncio.wait_for(heard.wait(), 5)
        await settle(late)
        calls: list[str] = []
        late.on_cancel = lambda: calls.append("late")
        assert calls == ["late"]
        await early.close(early.info)
        assert await other.cancel("early") is False


async def test_stores_share_a_file(tmp_path: Path) -> None:
    """Several stores write different runs to one file at once, and none misses a takeover."""
    path = tmp_path / "runs.db"
    stores = [SqliteJournal(path, synchronous="normal") for _ in range(3)]

    async def work(made: SqliteJournal, name: str) -> None:
        log = await made.open(info(name))
        for entry in rounds(5, name):
            await record(log, [entry])
        await log.close(log.info)

    names = [f"run-{i}" for i in range(9)]
    await asyncio.gather(*(work(stores[i % 3], name) for i, name in enumerate(names)))
    for name in names:
        expected = shown(rounds_seen(rounds(5, name)))
        assert shown(await stores[0].entries(name)) == expected
    mine, kept = await stores[0].open(info("mine")), await stores[0].open(info("kept"))
    taken = await stores[1].open(info("mine"), takeover=True)
    mine.append(Entry("started", "a", 1.0))
    kept.append(Entry("started", "a", 1.0))
    waiting = [log.sync() for log in (mine, kept)]
    outcomes = await asyncio.gather(*(w for w in waiting if w), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OwnershipLost, type(None)]
    await record(taken, [Entry("started", "b", 1.0)])
    assert [e.path for e in await stores[2].entries("mine")] == ["b"]
    assert [e.path for e in await stores[2].entries("kept")] == ["a"]
    for made in stores:
        await made.close()


def test_the_side_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A lock that another process keeps gives an error that names the lock."""
    held, other = SideLock(tmp_path / "lock"), SideLock(tmp_path / "lock", patience=0.01)
    with held, pytest.raises(JournalUnavailable) as caught, other:
        pass
    assert str(caught.value) == (
        f"{tmp_path / 'lock'}: another process has held this lock for 0.01 seconds; "
        "end that process, or let it go on"
    )
    released = threading.Event()

    def hold() -> None:
        with held:
            released.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    threading.Timer(0.01, released.set).start()
    with SideLock(tmp_path / "lock"):
        pass
    thread.join()


async def test_an_owner_that_missed_a_takeover_changes_nothing(tmp_path: Path) -> None:
    """Closing a run that another store took over meanwhile leaves it to its owner."""
    async with SqliteJournal(tmp_path / "runs.db") as one, SqliteJournal(one.path) as two:
        former = await one.open(info())
        owner = await two.open(info(), takeover=True)
        await former.close(replace(former.info, status="failed"))
        assert (await two.find("run-1")).status == "running"
        await owner.close(replace(owner.info, source={"document": LONG}, status="satisfied"))
        found = await one.find("run-1")
        assert (found.status, found.source) == ("satisfied", {"document": LONG})


async def test_a_rewind_gives_way_to_who_wrote_meanwhile(journal: SqliteJournal) -> None:
    """A rewind that was planned on entries that are no longer the last is refused."""
    await recorded(journal, info(), rounds(1))
    row = await journal._read(lambda reader: reader.row("run-1"))
    stale = Order(lambda db: rewind_row(journal._database, db, row, "refine", (3, b"old"), 1))
    with pytest.raises(RunLocked, match=r"^run-1: it is running; cancel it before you rewind it$"):
        await journal._writer.perform(stale)
    assert len(await journal.entries("run-1")) == 3


async def test_a_beat_that_fails_waits_for_the_next(journal: SqliteJournal) -> None:
    """A lease that cannot be renewed disturbs no run."""
    log = await journal.open(info())
    assert log.on_cancel is None
    query(journal.path, "ALTER TABLE owners RENAME TO kept")
    journal._database.beat()
    query(journal.path, "ALTER TABLE kept RENAME TO owners")
    journal._database.beat()
    await record(log, rounds(1))
    assert len(await journal.entries("run-1")) == 3


async def test_an_opening_that_is_cancelled_locks_nothing(journal: SqliteJournal) -> None:
    """A task that is cancelled while it opens a run leaves the run to others."""
    await recorded(journal, info("known"), rounds(1))
    for name in ("known", "new"):
        for turns in range(4):
            opening = asyncio.ensure_future(journal.open(info(name)))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        log = await journal.open(info(name))
        await record(log, rounds(1))
        asking = asyncio.ensure_future(journal.cancel(name))
        await asyncio.sleep(0)
        asking.cancel()
        await log.close(log.info)


# Commits.


async def test_what_runs_append_at_once_is_one_commit(tmp_path: Path) -> None:
    """Entries that many runs append in one pass of the event loop share one transaction."""
    count = [0]

    def point(position: str, number: int) -> None:
        count[0] = number

    async with SqliteJournal(tmp_path / "runs.db", on_point=point) as made:
        logs = await asyncio.gather(*(made.open(info(f"run-{i}")) for i in range(100)))
        before = count[0]
        await asyncio.gather(*(record(log, rounds(1)) for log in logs))
        assert count[0] == before + 1


@pytest.mark.parametrize("others", [0, 1])
async def test_an_effect_is_one_row_and_one_commit(tmp_path: Path, others: int) -> None:
    """In a sequential run the end of an effect and the beginning of the next are one commit."""
    count = [0]

    def point(position: str, number: int) -> None:
        count[0] = number

    path = tmp_path / "runs.db"
    async with SqliteJournal(path, on_point=point) as made:
        for i in range(others):
            await made.open(info(f"other-{i}"))
        log = await made.open(info())
        before = count[0]
        for i in range(20):
            log.append(Entry("finished", f"step-{i}", i, "x"))
            log.append(Entry("started", f"step-{i + 1}", i))
            await settle(log)
        assert count[0] == before + 20
        assert query(path, "SELECT count(*) FROM entries") == [(20,)]


async def test_batches_are_cut_between_runs(tmp_path: Path) -> None:
    """More runs than a batch holds, and more rows than a transaction, are all kept."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        logs = await asyncio.gather(*(made.open(info(f"run-{i:04}")) for i in range(520)))
        await asyncio.gather(*(record(log, rounds(1, log.info.run_id)) for log in logs))
        await asyncio.gather(*(log.close(log.info) for log in logs))
        for log in (logs[0], logs[511], logs[512], logs[519]):
            name = log.info.run_id
            assert shown(await made.entries(name)) == shown(rounds_seen(rounds(1, name)))


async def test_many_entries_of_one_pass_are_several_rows(journal: SqliteJournal) -> None:
    """A run that appends much without waiting is cut into rows, at most one iteration in each."""
    log = await journal.open(info())
    await record(log, [Entry("started", f"step-{i}", i) for i in range(200)])
    await record(log, rounds(3))
    rows = query(journal.path, "SELECT body, mark FROM entries ORDER BY first")
    assert all(len(json.loads(body)) <= 64 for body, _ in rows)
    assert [mark for _, mark in rows if mark] == [203, 206, 209]
    assert len(await journal.entries("run-1")) == 209


def test_a_journal_outlives_its_event_loop(tmp_path: Path) -> None:
    """One journal serves one event loop after the other, and loops of several threads at once."""
    made = SqliteJournal(tmp_path / "runs.db", synchronous="normal")

    async def work(name: str) -> None:
        await recorded(made, info(name), rounds(2, name))

    asyncio.run(work("run-1"))
    asyncio.run(work("run-2"))
    threads = [threading.Thread(target=asyncio.run, args=(work(f"run-{i}"),)) for i in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def check() -> None:
        for i in range(1, 6):
            name = f"run-{i}"
            assert shown(await made.entries(name)) == shown(rounds_seen(rounds(2, name)))
        await made.close()

    asyncio.run(check())


def test_an_event_loop_that_ends_leaves_its_runs(tmp_path: Path) -> None:
    """A loop that is closed while commits are on their way disturbs nobody."""
    made = SqliteJournal(tmp_path / "runs.db")

    async def leave() -> None:
        log = await made.open(info())
        log.append(Entry("started", "a", 1.0))
        log.sync()

    async def later() -> None:
        assert await made.cancel("run-1") is True
        assert [e.path for e in await made.entries("run-1")] == ["a"]
        await made.close()

    asyncio.run(leave())
    asyncio.run(later())


async def test_a_journal_that_is_dropped_ends_its_thread(tmp_path: Path) -> None:
    """A journal that nobody holds any more closes its database by itself."""
    made = SqliteJournal(tmp_path / "runs.db")
    await recorded(made, info(), rounds(1))
    thread = next(t for t in threading.enumerate() if t.name == "journal runs.db")
    del made
    for _ in range(100):  # until the thread has let go of what it did last
        gc.collect()
        thread.join(0.05)
        if not thread.is_alive():
            break
    assert not thread.is_alive()
    assert not (tmp_path / "runs.db-wal").exists()


async def test_work_after_the_end_is_refused(tmp_path: Path) -> None:
    """What reaches a store after it was closed is refused, not lost in silence."""
    made = SqliteJournal(tmp_path / "runs.db")
    log = await made.open(info())
    writer = made._writer
    writer.stop_soon()
    for _ in range(3):
        with pytest.raises(JournalUnavailable, match=r"the journal was closed; open it again$"):
            await writer.perform(Order(lambda _: None))
    log.append(Entry("started", "a", 1.0))
    with pytest.raises(JournalUnavailable, match=r"was closed while this run was open$"):
        await settle(log)
    with pytest.raises(JournalUnavailable):
        await log.close(log.info)


# Indexes.


def plans(statement: str, values: list[Any]) -> list[str]:
    """How SQLite goes about a statement on empty tables."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        schema.bring_forward(db, 0)
        rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_reading_goes_by_index(name: str) -> None:
    """A timeline, a page of iterations and contents are found by index, never by a scan."""
    statement = STATEMENTS[name]
    for plan in plans(statement, ["1"] * statement.count("?")):
        assert not plan.startswith("SCAN entries"), plan
        assert not plan.startswith("SCAN contents"), plan
        if name != "iterations":  # of all loops: sorts marks that are in the index
            assert "TEMP B-TREE" not in plan, plan


@pytest.mark.parametrize("end", [None, ("running", ""), ("failed", "error")])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", ["", "refine"])
def test_the_run_list_goes_by_index(name: str, end: tuple[str, str] | None, live: bool) -> None:
    """The list of runs is read newest first by row or index, sorts nothing, touches no other table."""
    statement, values = runs_query(name, end, "[1]", live_only=live)
    found = " | ".join(plans(statement, [*values, 50, 0]))
    if name or end:
        assert "SEARCH runs USING INDEX" in found
    else:
        assert found == "SCAN runs"
    for word in ("contents", "entries", "TEMP B-TREE"):
        assert word not in found


@pytest.mark.parametrize("version", range(VERSION))
def test_an_older_journal_gets_the_tables_of_a_new_one(version: int) -> None:
    """Whatever format it begins with, a journal that is brought forward has what a new one has."""
    told = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as new,
        contextlib.closing(sqlite3.connect(":memory:")) as old,
    ):
        schema.bring_forward(new, 0)
        schema.bring_forward(old, 0, schema.STEPS[:version])
        schema.bring_forward(old, version)
        assert old.execute(told).fetchall() == new.execute(told).fetchall()


def test_a_commit_is_as_durable_as_asked(tmp_path: Path) -> None:
    """Commits are synchronous=FULL in WAL mode, NORMAL only on request."""
    for word, level in (("full", 2), ("normal", 1)):
        db = schema.connect_writer(tmp_path / f"{word}.db", word)
        assert db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert db.execute("PRAGMA journal_mode").fetchone() == (b"wal",)
        assert db.execute("PRAGMA page_size").fetchone() == (schema.PAGE_SIZE,)
        db.close()


def test_a_run_needs_no_entries_to_be_listed(tmp_path: Path) -> None:
    """A missing file is a journal without runs, and reading does not make it."""

    async def check() -> None:
        made = SqliteJournal(tmp_path / "runs.db")
        assert await made.runs() == []
        for call in (made.find("a"), made.entries("a"), made.iterations("a"), made.cancel("a")):
            with pytest.raises(RunNotFound):
                await call
        with pytest.raises(RunNotFound):
            await made.rewind("a", "b")
        await made.close()

    asyncio.run(check())
    assert list(tmp_path.iterdir()) == []
    assert RunInfo("a", "b").status == "running"
