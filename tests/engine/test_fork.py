"""Forks: a new run over the recorded beginning of another one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Result, fork, resume, run
from loopwright.errors import ConfigurationError, ReplayMismatch, RunLocked, RunNotFound
from loopwright.journal import Entry, Journal, surviving
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import SqliteJournal

from .support import KeepingJournal

LONG = "a long output, of which a journal stores one copy: " * 20


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request: Any, tmp_path: Path) -> Any:
    """A journal of each kind."""
    if request.param == "memory":
        return KeepingJournal()
    if request.param == "sqlite":
        return SqliteJournal(tmp_path / "runs.db", synchronous="normal")
    return PostgresJournal(request.getfixturevalue("postgres_url"))


async def write(value: str) -> str:
    """Return a long text that depends on the input."""
    return f"{LONG}{len(value)}"


async def judge(output: str) -> float:
    """Return a score that depends on the output."""
    return (len(output) % 7) / 10


async def shorten(last: Any) -> str:
    """Return the next input."""
    return str(last.output)[: 30 + last.number]


def nested(rounds: int = 5) -> Loop:
    """Return a loop of five iterations with inner loops of three."""
    inner = Loop(write, judge, adapt=shorten, until=MaxIterations(3), name="inner")
    return Loop(inner, judge, adapt=shorten, until=MaxIterations(rounds), name="outer")


def same(result: Result) -> Any:
    """Return what an unchanged fork has in common with its origin."""
    history = [(i.number, i.input, i.output, i.score) for i in result.history]
    return result.output, result.reason, result.detail, result.usage, history


def recorded(entries: list[Entry]) -> list[tuple[str, str, Any]]:
    """Return the results in entries, in order, without times."""
    kinds = ("finished", "iteration", "ended")
    return [
        (e.kind, e.path, e.to_json().get("fingerprint"))
        for e in surviving(entries)
        if e.kind in kinds
    ]


async def test_a_fork_at_every_path_equals_the_original(journal: Journal) -> None:
    """An unchanged fork of a 5 x 3 run, from each path, has the same result and the same entries."""
    async with _open(journal):
        origin = await run(nested(), "start", journal=journal, run_id="a")
        entries = await journal.entries("a")
        paths = list(dict.fromkeys(entry.path for entry in entries if entry.path))
        paths += [f"outer/{number}" for number in range(1, 6)]
        paths += ["outer/3/execute", "outer/ended", "outer/2/record"]
        for number, path in enumerate(paths):
            made = await fork("a", journal=journal, at=path, new_id=f"b{number}")
            result = await resume(nested(), made.run_id, journal=journal)
            assert same(result) == same(origin), path
            again = await journal.entries(made.run_id)
            assert recorded(again) == recorded(entries), path
            assert (again[0].kind, again[0].value["path"]) == ("forked", path)
            row = await journal.find(made.run_id)
            assert row.source["forked"]["run_id"] == "a"


async def test_no_output_is_stored_twice(tmp_path: Path) -> None:
    """Forks refer to the outputs of their origin, also forks of forks."""
    async with SqliteJournal(tmp_path / "runs.db") as journal:
        await run(nested(), "start", journal=journal, run_id="a")
        before = await journal.look(_contents)
        await fork("a", journal=journal, at="outer/5", new_id="b")
        await fork("b", journal=journal, at="outer/4", new_id="c")
        assert await journal.look(_contents) == before
        assert (await resume(nested(), "c", journal=journal)).iterations == 5
        assert [e.value for e in await journal.entries("c")] != []


def _contents(reader: Any) -> int:
    [(count,)] = reader._db.execute(
        "SELECT count(*) FROM contents WHERE body LIKE '%a long output%'"
    ).fetchall()
    return int(count)


def test_a_fork_of_a_fork_outlives_a_cleaned_journal(postgres_url: str) -> None:
    """PostgreSQL keeps the contents of a run for as long as a fork refers to them."""

    async def work() -> None:
        async with PostgresJournal(postgres_url) as journal:
            await run(nested(), "start", journal=journal, run_id="a")
            await fork("a", journal=journal, new_id="b")
            await fork("b", journal=journal, at="outer/3", new_id="c")
            assert await journal.prune(4e9) == 0
            assert (await resume(nested(), "c", journal=journal)).iterations == 5
            assert (await resume(nested(), "b", journal=journal)).iterations == 5
            assert await journal.prune(4e9) == 3

    asyncio.run(work())


async def test_a_changed_step_applies_from_the_path_onward(journal: Journal) -> None:
    """Kept results stay; other code is accepted and recorded, and used from there on."""
    async with _open(journal):
        loop = Loop(write, judge, adapt=shorten, until=MaxIterations(3), name="l")
        origin = await run(loop, "start", journal=journal, run_id="a")
        changed = Loop(_shout, judge, adapt=shorten, until=MaxIterations(4), name="l")
        await fork("a", journal=journal, at="l/3", new_id="b")
        with pytest.raises(ReplayMismatch):
            await resume(changed, "b", journal=journal)
        result = await resume(changed, "b", journal=journal, accept_changes=True)
        assert [i.output for i in result.history][:2] == [i.output for i in origin.history][:2]
        assert [i.output for i in result.history][2:] == ["SHOUTED", "SHOUTED"]


async def _shout(value: str) -> str:
    return "SHOUTED"


async def test_the_default_path_is_the_last_iteration(journal: Journal) -> None:
    """Without a path, the last iteration of the outermost loop runs again, under the name of the run."""
    async with _open(journal):
        await run(nested(2), "start", journal=journal, run_id="a", source={"name": "mine"})
        made = await fork("a", journal=journal, source={})
        assert (made.path, made.origin) == ("outer/2", "a")
        assert made.run_id != "a"
        await resume(nested(2), made.run_id, journal=journal)
        row = await journal.find(made.run_id)
        assert (row.name, row.step) == ("mine", "outer")


async def test_forks_that_are_refused(journal: Journal) -> None:
    """Each names its reason, and no run is created."""
    async with _open(journal):
        await run(nested(2), "start", journal=journal, run_id="a")
        await run(write, "x", journal=journal, run_id="plain")
        for words, error, message in (
            ({"run_id": "none"}, RunNotFound, "there is no run 'none'"),
            ({"run_id": "a", "at": "outer/7"}, RunNotFound, "nothing was recorded at 'outer/7'"),
            ({"run_id": "a", "new_id": "a"}, RunLocked, "a run with this ID exists"),
            ({"run_id": "a", "new_id": "no/slash"}, ConfigurationError, "is not a run ID"),
            ({"run_id": "plain"}, ConfigurationError, "no recorded iteration"),
        ):
            with pytest.raises(error, match=message):
                await fork(journal=journal, **words)
        row = await journal.find("a")
        log = await journal.open(row, resume=True)
        with pytest.raises(RunLocked, match="it is running"):
            await fork("a", journal=journal)
        await log.close(row)
        assert len(await journal.runs()) == 2


def _open(journal: Any) -> Any:
    return journal if hasattr(journal, "__aenter__") else _Open()


class _Open:
    async def __aenter__(self) -> None:
        """Do nothing: a journal in memory is open."""

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""
