"""What is new in a run or a list, made once and told to every page that is open on it.

While pages listen to a topic, one task looks and makes the news of it. Each telling says from which
number to which it leads, so that a page that came later, or was too slow, notices the gap.

Telling open pages that something was committed, by whichever process.

One look at the journal's commit counter serves every open page; while none is open, nobody looks.
What waits is woken by a beat, so that no page is told more often than that.

What a run is doing, folded from its entries as they come; its open pages share it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...errors import JournalError
from ...journal import Entry, Journal, surviving
from ...journal.sqlite.journal import SqliteJournal
from ...journal.sqlite.views import Wanted, Watch
from ...journal.views import RunView
from ...records.codec import Json
from ..progress import Progress

__all__ = [
    "BEAT",
    "ChangeFeed",
    "Channels",
    "EventChannel",
    "Folds",
    "Listener",
    "RunProgress",
    "ServerEvent",
    "Topic",
]


BEAT = 0.09  # seconds between looks at the counter of a journal that has one
SLOW_BEAT = 0.3  # seconds between looks at a journal that has none: each look asks it for entries

Topic = str | Wanted  # a run by its id, or a page of the list


class _Waiter:
    """Somebody who waits until a topic has another state than the one it knows."""

    def __init__(self, topic: Topic, state: Hashable) -> None:
        self.topic = topic
        self.state = state
        self.fresh = True  # it may have moved before anybody waited
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class ChangeFeed:
    """A journal's commits as states of runs and of lists, which their pages wait for."""

    def __init__(self, journal: Journal) -> None:
        self._watch: Watch | None = journal.watch() if isinstance(journal, SqliteJournal) else None
        self.turn = 0  # another one after each commit that was seen
        self._version = 0
        self._waiting: set[_Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    def state(self, topic: Topic) -> Any:
        """Return what is another value once something was committed of a run, by its id, or a row
        of a page of the list came, went or ended; "" is any commit that was seen."""
        if self._watch is None or not topic:
            return self.turn
        try:
            if isinstance(topic, str):
                return self._watch.state(topic)
            return self._watch.list_state(topic)
        except (sqlite3.Error, OSError, JournalError):
            return object()  # whoever reads now meets the error and tells it

    async def wait_for(self, topic: Topic, state: Any, seconds: float) -> bool:
        """Wait until something has another state; False if it had none in that time."""
        waiter = _Waiter(topic, state)
        self._waiting.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(BEAT if self._watch is not None else SLOW_BEAT)
            try:
                self._beat(self._watch)
            except (sqlite3.Error, OSError, JournalError):
                for waiter in self._waiting:
                    waiter.wake()

    def _beat(self, watch: Watch | None) -> None:
        version = watch.version() if watch is not None else self._version + 1
        committed = version != self._version
        self._version = version
        self.turn += committed
        states: dict[Topic, Any] = {}
        for waiter in self._waiting:
            if not (committed or waiter.fresh):
                continue
            waiter.fresh = False
            if waiter.topic not in states:
                states[waiter.topic] = self.state(waiter.topic)
            if states[waiter.topic] != waiter.state:
                waiter.wake()

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.close()


_KEPT = 64  # tellings that wait for a page that takes them up slowly; older ones are a gap


class ServerEvent(NamedTuple):
    """An event as it is sent: who knows all up to `before` knows all up to `last` by it."""

    before: int
    last: int
    event: bytes


class Listener:
    """An open page: what it was told and has not taken up yet."""

    def __init__(self) -> None:
        self._told: deque[ServerEvent] = deque(maxlen=_KEPT)
        self._news = asyncio.Event()
        self.over = False

    def hear(self, told: ServerEvent) -> None:
        """Take up a telling."""
        self._told.append(told)
        self._news.set()

    def end(self) -> None:
        """Take up that nothing more comes."""
        self.over = True
        self._news.set()

    async def next(self, seconds: float) -> ServerEvent | None:
        """Return the next telling; None if there was none in that time, or nothing more comes."""
        if not self._told and not self.over:
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._told.popleft() if self._told else None


class EventChannel:
    """The pages that listen to one topic; `number` is that of the last telling of a list."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.number = 0

    def tell(self, told: ServerEvent) -> None:
        """Tell all pages something."""
        for listener in self.listeners:
            listener.hear(told)


Making = Callable[[Topic, EventChannel], Awaitable[None]]


class Channels:
    """The topics that somebody listens to; `make` tells a channel what is new, until it is cancelled."""

    def __init__(self, make: Making) -> None:
        self._make = make
        self._open: dict[Topic, tuple[EventChannel, asyncio.Task[None]]] = {}

    @contextmanager
    def joined(self, topic: Topic) -> Iterator[tuple[EventChannel, Listener]]:
        """Listen to a topic."""
        if topic not in self._open:
            made = EventChannel()
            self._open[topic] = made, asyncio.create_task(self._made(topic, made))
        channel, task = self._open[topic]
        listener = Listener()
        channel.listeners.add(listener)
        try:
            yield channel, listener
        finally:
            channel.listeners.discard(listener)
            if not channel.listeners:
                task.cancel()
                self._close(topic, channel)

    async def _made(self, topic: Topic, channel: EventChannel) -> None:
        try:
            await self._make(topic, channel)
        finally:
            self._close(topic, channel)
            for listener in channel.listeners:
                listener.end()

    def _close(self, topic: Topic, channel: EventChannel) -> None:
        if topic in self._open and self._open[topic][0] is channel:
            del self._open[topic]

    def stop(self) -> None:
        """End all streams."""
        for _, task in self._open.values():
            task.cancel()


KEPT = 64  # runs whose fold is kept
_STILL = ("interrupted", "suspended")


class RunProgress:
    """How far a run is: what it is doing and spent, which models it asked, which limits were raised
    (by path, "" for the run), and up to which entry that holds.

    `rewinds` counts how often something was set aside while it was looked at.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.models: dict[str, None] = {}
        self.raised: dict[str, dict[str, Json]] = {}
        self.last = 0
        self.rewinds = 0
        self._latest: list[Entry] = []  # what was taken up last

    def since(self, seq: int, view: RunView) -> list[Entry]:
        """Return the entries after a number, as far as they were taken up."""
        if seq >= self.last:
            return []
        if self._latest and self._latest[0].seq <= seq + 1:
            return [entry for entry in self._latest if entry.seq > seq]
        return view.since(seq)

    def hear(self, view: RunView) -> None:
        """Take up what came since."""
        entries = view.since(self.last)
        if not entries:
            return
        fresh = self.last == 0
        self.last = entries[-1].seq
        self._latest = entries
        if any(entry.kind == "rewound" for entry in entries):
            self.rewinds += not fresh
            self.progress = Progress()
            self.take(surviving(entries if fresh else view.since(0)))
        else:
            self.take(entries)

    def take(self, entries: Iterable[Entry]) -> None:
        """Take up entries that no rewind set aside."""
        for entry in entries:
            self.progress.hear(entry)
            if entry.kind in _STILL or (entry.kind == "ended" and not entry.path):
                self.progress.flying.clear()
            elif entry.kind == "started" and isinstance(entry.value, dict):
                model = entry.value.get("model")
                if isinstance(model, str):
                    self.models[model] = None
            elif entry.kind == "accepted" and isinstance(entry.value, dict):
                self.raised[entry.path] = {**self.raised.get(entry.path, {}), **entry.value}


_OVER = ("satisfied", "exhausted", "failed", "impossible", "cancelled")
_FIRST = 40  # entries in which a run has asked its model


def _brief(view: RunView) -> RunProgress:
    """Return the fold of a run that nobody went on with: its row has all but its models."""
    fold = RunProgress()
    fold.take(view.since(0, _FIRST))
    fold.last = view.last
    return fold


class Folds:
    """The folds of the runs that were looked at last."""

    def __init__(self) -> None:
        self._folds: dict[str, RunProgress] = {}

    def of(self, view: RunView) -> RunProgress:
        """Return the fold of a run, up to date; of one that ended as it began, what is worth telling."""
        info = view.info
        run_id = info.run_id
        if info.epoch == 1 and info.status in _OVER and run_id not in self._folds:
            return _brief(view)
        fold = self._folds.pop(run_id, None) or RunProgress()
        self._folds[run_id] = fold
        while len(self._folds) > KEPT:
            del self._folds[next(iter(self._folds))]
        fold.hear(view)
        return fold
