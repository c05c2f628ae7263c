"""What every journal must do with events from outside and with the waits of runs."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from loopwright import signal
from loopwright.errors import ConfigurationError
from loopwright.journal import events
from loopwright.journal.events import Event, OpenWait

from .recording import Store


class EventsContract:
    """An event is stored first, each run takes it once and in order, and none falls between a look and a sleep."""

    async def test_an_event_before_and_after_its_wait(self, store: Store) -> None:
        """A look finds the first event after the last one that was taken, in the order of the signals."""
        journal = store.journal
        first = await signal("built", {"n": 1}, key="k", journal=journal)
        assert (first.repeated, first.waiting) == (False, 0)
        wait = OpenWait("run-1", "a/wait", "built", "k")
        now, found = await journal.look_for([wait])
        assert found == [first.event]
        assert now >= first.event.at
        after = OpenWait("run-1", "a/wait", "built", "k", after=first.event.number)
        assert (await journal.look_for([after]))[1] == [None]
        second = await signal("built", [2.5, "ü"], key="k", journal=journal)
        assert second.waiting == 1
        await signal("built", 3, key="k", journal=journal)
        assert (await journal.look_for([after]))[1] == [second.event]
        late = OpenWait("run-1", "a/wait", "built", "k", since=second.event.at + 3600)
        early = OpenWait("run-1", "a/wait", "built", "k", until=first.event.at - 1)
        assert (await journal.look_for([late]))[1] == (await journal.look_for([early]))[1] == [None]

    async def test_one_id_is_one_event(self, store: Store) -> None:
        """A repetition changes nothing; another key, another name and no ID are events of their own."""
        journal = store.journal
        one = await signal("built", 1, key="k", id="x", journal=journal)
        again = await signal("built", 2, key="k", id="x", journal=journal)
        assert (again.repeated, again.event) == (True, one.event)
        others = [
            await signal("built", 1, key="other", id="x", journal=journal),
            await signal("pushed", 1, key="k", id="x", journal=journal),
            await signal("built", 1, key="k", journal=journal),
            await signal("built", 1, key="k", journal=journal),
        ]
        assert [one.repeated for one in others] == [False] * 4

    async def test_a_signal_makes_its_waits_due(self, store: Store) -> None:
        """Whoever continues runs finds those that an event or a time makes due, and no others."""
        journal, later = store.journal, time.time() + 3600
        await journal.look_for([OpenWait("a", "p", "built", "k", due=later)])
        await journal.look_for(
            [OpenWait("b", "p", "built", "other", due=later), OpenWait("b", "p")]
        )
        await journal.look_for([OpenWait("c", "p", due=1.0)])
        assert [row.run for row in await journal.waits(due=time.time())] == ["c"]
        await signal("built", key="k", journal=journal)
        assert [row.run for row in await journal.waits(due=time.time() + 60)] == ["c", "a"]
        assert [row.due for row in await journal.waits("b")] == [later, math.inf]
        await journal.end_wait("b", "p")
        await journal.end_wait("c")
        assert [row.run for row in await journal.waits()] == ["a"]

    async def test_an_event_for_one_run_is_nothing_to_others(self, store: Store) -> None:
        """Only that run finds it and becomes due; one that is for every run comes to both."""
        journal = store.journal
        mine, other = OpenWait("a", "p", "built", "k"), OpenWait("b", "p", "built", "k")
        await journal.look_for([mine])
        await journal.look_for([other])
        told = await journal.signal(Event("built", "k", 1, "url-1", "a URL", run="a"))
        assert (told.event.run, told.waiting) == ("a", 1)
        assert [row.run for row in await journal.waits(due=time.time() + 60)] == ["a"]
        shared = await signal("built", 2, key="k", journal=journal)
        assert (await journal.look_for([mine]))[1] == [told.event]
        assert (await journal.look_for([other]))[1] == [shared.event]
        assert (await journal.signal(Event("built", "k", 3, "url-1", run="a"))).repeated

    async def test_a_look_leaves_due_what_it_has_found(self, store: Store) -> None:
        """Who looks may end before it takes the event, and whoever continues runs finds that it is there."""
        journal, wait = store.journal, OpenWait("a", "p", "built", "k", due=time.time() + 3600)
        sent = await signal("built", key="k", journal=journal)
        for _ in range(2):
            assert (await journal.look_for([wait]))[1] == [sent.event]
            assert [row.run for row in await journal.waits(due=time.time() + 60)] == ["a"]

    async def test_signals_and_looks_at_the_same_time(self, store: Store) -> None:
        """Whichever is first, a look finds the event, or the signal finds the wait."""
        journal = store.journal
        for number in range(20):
            wait = OpenWait(f"run-{number}", "p", "built", str(number))
            looks, told = await asyncio.gather(
                journal.look_for([wait]), signal("built", key=str(number), journal=journal)
            )
            assert looks[1] != [None] or told.waiting == 1

    @pytest.mark.parametrize(
        ("event", "said"),
        [
            (Event("not a name", "k"), "is not a name"),
            (Event("", "k"), "is not a name"),
            (Event("built", "k" * 201), "key"),
            (Event("built", "k", math.nan), "nan"),
            (Event("built", "k", "x" * events.LARGEST), "at most 262,144"),
        ],
    )
    async def test_an_event_that_no_store_takes(
        self, store: Store, event: Event, said: str
    ) -> None:
        """It is refused with the reason, and nothing is stored."""
        with pytest.raises(ConfigurationError, match=said):
            await signal(event.name, event.value, key=event.key, journal=store.journal)

    async def test_events_that_nobody_takes_are_refused(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beyond the limit nothing is dropped; taking one makes room."""
        monkeypatch.setattr(events, "MOST", 3)
        sent = [await signal("built", n, key="k", journal=store.journal) for n in range(3)]
        with pytest.raises(
            ConfigurationError, match="3 events of the key 'k' were taken by no run"
        ):
            await signal("built", 3, key="k", journal=store.journal)
        await store.journal.end_wait("run-1", "p", [sent[0].event.number])
        assert not (await signal("built", 3, key="k", journal=store.journal)).repeated

    async def test_a_refused_event_fails_nothing_beside_it(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the same process writes at the same time is stored: it may share the transaction."""
        monkeypatch.setattr(events, "MOST", 1)
        await signal("built", 0, key="k", journal=store.journal)
        done = await asyncio.gather(
            *(signal("built", n, key="k", journal=store.journal) for n in range(10)),
            *(store.journal.look_for([OpenWait(f"run-{n}", "p")]) for n in range(10)),
            return_exceptions=True,
        )
        assert [type(one) for one in done] == [ConfigurationError] * 10 + [tuple] * 10
        assert len(await store.journal.waits()) == 10
