"""One owner writes a run; a store that fails is no failure of a step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, MemoryJournal, Result, run, step
from loopwright.errors import JournalUnavailable, OwnershipLost
from loopwright.journal import MemoryLog
from loopwright.testing import run_virtual

from .support import (
    echo,
    entries_of,
    play,
)

# Ownership and stores.


def test_a_second_owner_stops_the_first() -> None:
    """I39: after a takeover the first owner performs and writes nothing more."""
    journal = MemoryJournal()
    performed: list[str] = []

    def made(name: str) -> Loop:
        async def act(value: Any) -> str:
            performed.append(name)
            await asyncio.sleep(2)
            return "x"

        return Loop(step(act, name="act"), name="l", until=MaxIterations(3))

    async def work() -> Result:
        first = asyncio.ensure_future(run(made("one"), journal=journal, run_id="r"))
        await asyncio.sleep(3)
        second = await run(made("two"), journal=journal, run_id="r", takeover=True)
        with pytest.raises(OwnershipLost, match="r: another owner took this run over"):
            await first
        return second

    result = run_virtual(work())
    assert result.iterations == 3
    assert performed == ["one", "one", "two", "two"]
    ended = [e.path for e in entries_of(journal, "r") if e.kind == "ended"]
    assert ended == ["l", ""]


def test_a_store_that_fails_is_an_error_of_the_journal() -> None:
    """A full disk raises JournalUnavailable at the caller; it is no failure of a step."""

    class Full(MemoryJournal):
        async def open(self, *args: Any, **options: Any) -> MemoryLog:
            log = await super().open(*args, **options)
            sync = log.sync

            def fails_later() -> None:
                if len(log._run.entries) > 4:
                    raise JournalUnavailable("disk full")
                sync()

            log.sync = fails_later  # type: ignore[method-assign]
            return log

    journal = Full()
    with pytest.raises(JournalUnavailable, match="disk full"):
        play(Loop(echo, name="l"), journal=journal, run_id="r")
    assert run_virtual(journal.find("r")).status == "interrupted"
