"""What every journal must do with entries: number them, keep them through a crash, give them back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.errors import OwnershipLost
from loopwright.journal import Entry, Journal

from .any_entries import plain_entries, round_entries
from .recording import LONG, Store, info, record, recorded, rounds, rounds_seen, settle, shown


class EntriesContract:
    """Entries are kept as they were, in order; a subclass has `fresh` for tests of many examples."""

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        """Return an empty journal and what ends it."""
        raise NotImplementedError

    async def test_entries_are_numbered_in_order(self, store: Store) -> None:
        """Entries are numbered from 1 over all openings of a run."""
        await recorded(store.journal, info(), rounds(1))
        journal = await store.reopen()
        log = await journal.open(info())
        await record(log, rounds(1, start=2))
        assert [entry.seq for entry in await journal.entries("run-1")] == [1, 2, 3, 4, 5, 6]

    async def test_nothing_appended_means_nothing_to_wait_for(self, store: Store) -> None:
        """`sync` returns None once everything appended is durable."""
        log = await store.journal.open(info())
        assert log.sync() is None
        await record(log, rounds(1))
        assert log.sync() is None

    async def test_what_is_acknowledged_survives_a_crash(self, store: Store) -> None:
        """Entries that were waited for are there when the process died right after."""
        log = await store.journal.open(info(input=LONG))
        await record(log, rounds(3))
        log.append(Entry("started", "refine/4/execute", 4.0))  # may be there or not
        journal = store.crash()
        again = await journal.open(info(), resume=True)
        assert shown(again.recorded)[:9] == shown(rounds_seen(rounds(3)))
        assert len(again.recorded) <= 10
        assert again.info.input == LONG
        assert again.info.epoch == 2

    async def test_a_dead_owner_writes_nothing(self, store: Store) -> None:
        """An owner that was taken for dead and lives on is refused once another has the run."""
        zombie = await store.journal.open(info())
        await record(zombie, rounds(1))
        journal = store.crash()
        owner = await journal.open(info())
        zombie.append(Entry("finished", "refine/2/execute", 5.0, "stale"))
        with pytest.raises(OwnershipLost):
            await settle(zombie)
        await record(owner, rounds(1, start=2))
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))

    async def test_a_page_of_entries_is_a_slice(self, store: Store) -> None:
        """`after` and `limit` cut the same entries out of a run as a slice would."""
        await recorded(store.journal, info(), rounds(4))
        everything = shown(await store.journal.entries("run-1"))
        for after in range(14):
            for limit in (0, 1, 2, 5, 12, 13):
                page = shown(await store.journal.entries("run-1", after=after, limit=limit))
                end = after + limit if limit else len(everything)
                assert page == everything[after:end], (after, limit)

    async def test_a_waiter_that_is_cancelled_cancels_no_commit(self, store: Store) -> None:
        """Cancelling a task that waits for entries to be durable leaves them in the journal."""
        log = await store.journal.open(info())
        waiting = asyncio.ensure_future(record(log, rounds(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await record(log, rounds(1, start=2))
        assert len(await store.journal.entries("run-1")) == 6

    async def test_runs_do_not_mix(self, store: Store) -> None:
        """Many runs at once each keep their own entries, in their own order."""

        async def one(name: str) -> None:
            log = await store.journal.open(info(name))
            for entry in rounds(4, loop=name):
                await record(log, [entry])
            await log.close(log.info)

        names = [f"run-{i:03}" for i in range(40)]
        await asyncio.gather(*map(one, names))
        journal = await store.reopen()
        for name in names:
            expected = shown(rounds_seen(rounds(4, loop=name)))
            assert shown(await journal.entries(name)) == expected

    def test_values_come_back_as_they_were(self) -> None:
        """Whatever JSON a step produces, its entry comes back equal, live and when reopened."""
        journal, end = self.fresh()
        numbers = itertools.count()

        @given(st.lists(plain_entries | round_entries, max_size=6))
        @settings(max_examples=30)
        def comes_back(entries: list[Entry]) -> None:
            asyncio.run(self._compare(journal, f"run-{next(numbers)}", entries))

        comes_back()
        asyncio.run(end())

    async def _compare(self, journal: Journal, name: str, entries: list[Entry]) -> None:
        log = await journal.open(info(name))
        for i, entry in enumerate(entries):
            log.append(entry)
            if i % 2:
                await settle(log)
        await log.close(log.info)
        expected = shown(rounds_seen(entries))
        assert shown(await journal.entries(name, limit=100)) == expected
        assert shown((await journal.open(info(name))).recorded) == expected
        marks = [(e.path, e.value) for e in entries if e.kind == "iteration"]
        assert await journal.iterations(name) == marks
