"""The SQLite journal, damaged: what was changed, torn off or lost is found before it is used."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from loopwright.errors import JournalDamaged, JournalError, RunNotFound
from loopwright.journal.recorded.rows import as_damage
from loopwright.journal.sqlite import SqliteJournal, tables

from .recording import LONG, info, record, rounds, rounds_seen, shown
from .sqlite_files import filled, query, read_all


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
    frame = tables.PAGE_SIZE + 24
    for end in range(32 + 20 * frame, len(whole), 6 * frame):
        for cut in (end - 1, end, end + 1):
            shutil.copy(tmp_path / "runs.db", path)
            (tmp_path / "copy" / "runs.db-wal").write_bytes(whole[:cut])
            with contextlib.suppress(RunNotFound):
                found = await read_all(path, takeover=True)
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


async def test_a_half_or_blanked_file_is_refused(tmp_path: Path) -> None:
    """A file of which half is gone, or whose header is blank, gives an error and no traceback."""
    await filled(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    for name, bad in (("half", good[: len(good) // 2]), ("blank", bytes(200) + good[200:])):
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(JournalDamaged):
            await read_all(tmp_path / name)


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


@pytest.mark.parametrize("error", [AttributeError(), KeyError(), TypeError(), UnicodeError()])
def test_values_of_a_wrong_shape_are_damage(error: Exception) -> None:
    """What damage makes of a value is refused in one sentence."""
    with pytest.raises(JournalDamaged) as caught, as_damage("run-1: entry 2"):
        raise error
    assert str(caught.value) == (
        "run-1: entry 2 cannot be decoded; restore the journal from a backup"
    )
