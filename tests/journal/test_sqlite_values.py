"""The SQLite journal: values come back as they were, each kept once, large ones in files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import JournalDamaged, JournalUnavailable, RunNotFound
from loopwright.journal import Entry
from loopwright.journal.recorded.rows import content_digest
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.tables import FILE, write_content
from loopwright.records import Evaluation, Iteration

from .recording import LONG, info, record, recorded, rounds, rounds_seen, shown
from .sqlite_files import query


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
