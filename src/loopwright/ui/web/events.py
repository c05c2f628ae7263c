"""Changes of runs and lists, for open pages.

Rules:

1. One task per topic (a run, or a page of the list) renders its changes for all open pages. An event
   has the numbers before and after it, so that a late or slow page detects a gap.
2. One read of the journal's commit counter serves all pages; without open pages nothing is read. The lines
   of a running agent change without a commit, so a run that an open page shows has a counter of its own.
3. The progress of a run is computed once, and its open pages share it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...errors import JournalError
from ...journal import Entry, Journal, surviving
from ...journal.replay import TunedLimits
from ...journal.views import LiveLines, RunView, Wanted, Watch
from ...records.codec import Json
from ..rows import Progress

POLL_SECONDS = (
    0.09  # seconds between reads of the commit counter: below 0.1 s a change seems immediate
)

Topic = str | Wanted  # a run by its ID, or a page of the list


class _Waiter:
    """Waits until the state of a topic differs from a known one."""

    def __init__(self, topic: Topic, state: object) -> None:
        self.topic = topic
        self.state = state
        self.unchecked = True  # the state may have changed before the wait
        self.lines = -1  # the number of the agents' lines at the last check
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class ChangeFeed:
    """The states of runs and lists, which change with the commits of a journal."""

    def __init__(self, journal: Journal, live: LiveLines | None = None) -> None:
        self._watch: Watch = journal.watch()
        self._live = live or LiveLines()
        self.turn = 0  # changes with each commit
        self._version = 0
        self._waiting: set[_Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    async def state(self, topic: Topic) -> object:
        """Return a value that changes with a commit to a run, with the rows of a page of the list, or for
        "" with any commit."""
        if not topic:
            return self.turn
        try:
            if isinstance(topic, str):
                return self._live.version(topic), await self._watch.state(topic)
            return await self._watch.list_state(topic)
        except JournalError:
            return object()  # a new state: the next read reports the error

    async def wait_for(self, topic: Topic, state: object, seconds: float) -> bool:
        """Wait until a topic has another state; return False after `seconds`."""
        waiter = _Waiter(topic, state)
        self._waiting.add(waiter)
        # The task ends with the last waiting page, so that an unused server reads nothing.
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True

    async def _poll(self) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._compare_states()
            except JournalError:
                # The pages read the journal themselves, and report its error.
                for waiter in self._waiting:
                    waiter.wake()

    async def _compare_states(self) -> None:
        version = self._watch.version()
        committed = version != self._version
        self._version = version
        self.turn += committed
        states: dict[Topic, object] = {}
        for waiter in list(self._waiting):
            lines = (
                self._live.version(waiter.topic)
                if waiter.topic and isinstance(waiter.topic, str)
                else 0
            )
            if not (committed or waiter.unchecked or lines != waiter.lines):
                continue
            waiter.unchecked, waiter.lines = False, lines
            if waiter.topic not in states:
                states[waiter.topic] = await self.state(waiter.topic)
            if states[waiter.topic] != waiter.state:
                waiter.wake()

    def stop(self) -> None:
        """Stop reading the journal."""
        if self._task is not None:
            self._task.cancel()
        self._watch.close()


_QUEUE_SIZE = 64  # events that wait for a slow page; older ones become a gap


class ServerEvent(NamedTuple):
    """An event in bytes; it contains the changes after entry `before` up to entry `last`."""

    before: int
    last: int
    event: bytes


class Listener:
    """The event queue of an open page; `over` is set when no more events follow."""

    def __init__(self) -> None:
        self._events: deque[ServerEvent] = deque(maxlen=_QUEUE_SIZE)
        self._ready = asyncio.Event()
        self.over = False

    def put(self, event: ServerEvent) -> None:
        """Append an event."""
        self._events.append(event)
        self._ready.set()

    def end(self) -> None:
        """End the queue."""
        self.over = True
        self._ready.set()

    async def next(self, seconds: float) -> ServerEvent | None:
        """Return the next event; None after `seconds`, or at the end."""
        if not self._events and not self.over:
            self._ready.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                return None
        return self._events.popleft() if self._events else None


class EventChannel:
    """The open pages of one topic; `number` counts the events of a list."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.number = 0

    def send(self, event: ServerEvent) -> None:
        """Send an event to all pages."""
        for listener in self.listeners:
            listener.put(event)


SendChanges = Callable[[Topic, EventChannel], Awaitable[None]]


class Channels:
    """The topics with open pages; `make` sends changes to a channel until it is cancelled."""

    def __init__(self, make: SendChanges) -> None:
        self._send_changes = make
        self._open: dict[Topic, tuple[EventChannel, asyncio.Task[None]]] = {}

    @contextmanager
    def joined(self, topic: Topic) -> Iterator[tuple[EventChannel, Listener]]:
        """Listen to a topic."""
        if topic not in self._open:
            new = EventChannel()
            self._open[topic] = new, asyncio.create_task(self._run(topic, new))
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

    async def _run(self, topic: Topic, channel: EventChannel) -> None:
        try:
            await self._send_changes(topic, channel)
        finally:
            self._close(topic, channel)
            for listener in channel.listeners:
                listener.end()

    def _close(self, topic: Topic, channel: EventChannel) -> None:
        # A new page may have opened the topic again while the old task was ending.
        if topic in self._open and self._open[topic][0] is channel:
            del self._open[topic]

    def stop(self) -> None:
        """End all streams."""
        for _, task in self._open.values():
            task.cancel()


MAX_RUNS = 64  # runs whose progress is cached
_STOPPED = ("interrupted", "suspended")


class RunProgress:
    """The progress of a run up to entry `last`: usage, models, and raised limits by path ("" for the run).

    `rewinds` counts the rewinds since the page was opened.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.models: dict[str, None] = {}
        self.raised: dict[str, dict[str, Json]] = {}
        self.tuned = TunedLimits()
        self.noise: dict[str, Json] = {}
        self.last = 0
        self.rewinds = 0
        self._latest: list[Entry] = []  # the entries of the last update

    def since(self, seq: int, view: RunView) -> list[Entry]:
        """Return the applied entries after a number."""
        if seq >= self.last:
            return []
        if self._latest and self._latest[0].seq <= seq + 1:
            return [entry for entry in self._latest if entry.seq > seq]
        return view.since(seq)

    def update(self, view: RunView) -> None:
        """Apply the new entries of a run."""
        entries = view.since(self.last)
        if not entries:
            return
        unchecked = self.last == 0
        self.last = entries[-1].seq
        self._latest = entries
        if any(entry.kind == "rewound" for entry in entries):
            self.rewinds += not unchecked
            self.progress = Progress()
            self.apply(surviving(entries if unchecked else view.since(0)))
        else:
            self.apply(entries)

    def changed(self, loop: str) -> dict[str, Json]:
        """Return the limits of the loop at a path that people raised or tuned; "" is the run."""
        return {**self.raised.get(loop, {}), **self.tuned.of(loop)}

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply entries that no rewind discarded."""
        for entry in entries:
            self.progress.apply(entry)
            # Effects that were in flight ended with their process.
            if entry.kind in _STOPPED or (entry.kind == "ended" and not entry.path):
                self.progress.in_flight.clear()
            elif entry.kind == "started" and isinstance(entry.value, dict):
                model = entry.value.get("model")
                if isinstance(model, str):
                    self.models[model] = None
            elif entry.kind == "accepted" and isinstance(entry.value, dict):
                self.raised[entry.path] = {**self.raised.get(entry.path, {}), **entry.value}
            elif entry.kind == "tuned":
                self.tuned.add(entry)
            elif entry.kind == "noise":
                self.noise.update(entry.value)


_OVER = ("satisfied", "exhausted", "failed", "impossible", "cancelled")
_FIRST = 40  # entries, among which is the first model call of a run


class RunProgressCache:
    """The progress of the runs that were opened last."""

    def __init__(self) -> None:
        self._cached: dict[str, RunProgress] = {}

    def of(self, view: RunView) -> RunProgress:
        """Return the current progress of a run."""
        info = view.info
        run_id = info.run_id
        # The row of such a run is complete, and its entries may be many: only the models are read.
        if info.epoch == 1 and info.status in _OVER and run_id not in self._cached:
            ended = RunProgress()
            ended.apply(view.since(0, _FIRST))
            ended.last = view.last
            return ended
        # Removed and added at the end, so that the first of the dict is the one used longest ago.
        run_progress = self._cached.pop(run_id, None) or RunProgress()
        self._cached[run_id] = run_progress
        while len(self._cached) > MAX_RUNS:
            del self._cached[next(iter(self._cached))]
        run_progress.update(view)
        return run_progress
