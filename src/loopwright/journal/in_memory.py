"""A journal in memory, which lasts as long as its process."""

from __future__ import annotations

import copy
import functools
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import OwnershipLost, RunLocked
from ..memory import InMemory
from ..records import Iteration, Result, own
from .events import Event, EventTables, OpenWait, Signalled, events_in_memory
from .protocol import (
    Entry,
    FileStore,
    Posted,
    Rewind,
    RunInfo,
    existing_run,
    missing_run,
    surviving,
    with_tags,
)
from .questions import cancel_waiting, schedule_of
from .replay import UNASKED, recorded_result
from .rewinding import rewind_entry, rewind_of
from .views import (
    EntriesView,
    EntriesWatch,
    RunPage,
    RunView,
    Wanted,
    Watch,
    entries_page,
    mentions,
    tags_text,
)

if TYPE_CHECKING:
    from .call_cache import CallCache

T = TypeVar("T")


def _owner() -> str:
    """Return the name of this process, as the other journals and the list of workers write it."""
    return f"{socket.gethostname()}:{os.getpid()}"


class _MemoryRun:
    __slots__ = ("entries", "inbox", "info", "owner")

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.entries: list[Entry] = []
        self.owner: MemoryLog | None = None
        self.inbox: dict[tuple[int, str], Posted] = {}

    def shown(self) -> RunInfo:
        """Return the row with its owner."""
        return self.info if self.owner is None else replace(self.info, owner=_owner())


class MemoryLog:
    """The open run of a MemoryJournal."""

    keeps_values = False
    silent = False
    grown = True  # entries go to its list without its knowledge

    def __init__(self, run: _MemoryRun, epoch: int) -> None:
        run.info = replace(run.info, epoch=epoch, status="running")
        self.info = run.info
        self.recorded: Sequence[Entry] = surviving(_numbered(run.entries))
        self.posted = sum(asked == 0 for asked, _ in run.inbox)
        self.on_cancel: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.on_posted: Callable[[], None] | None = None
        self._run = run
        # A new list, so that later appends of a replaced owner have no effect.
        run.entries = list(run.entries)
        # The method of the list itself: an append is on the path of every effect.
        self.append = run.entries.append
        # Replaced before `on_lost` is called: the former owner must not close the run of the new one.
        former, run.owner = run.owner, self
        if former is not None and former.on_lost is not None:
            former.on_lost()

    def sync(self) -> None:
        """Check that the run is still owned. Raises OwnershipLost."""
        if self._run.owner is not self:
            raise OwnershipLost(f"{self.info.run_id}: another owner took this run over")

    async def close(self, info: RunInfo) -> None:
        """Write the row of the run and release it; see RunLog.close."""
        if self._run.owner is self:
            # What workers changed meanwhile stays.
            before = self._run.info
            self._run.info = replace(
                info, wake_at=before.wake_at, deliveries=before.deliveries, tags=before.tags
            )
            self._run.owner = None


class MemoryJournal:
    """A journal in memory, which lasts as long as its process. Use it in tests.

    `memory` is the memory of its runs. `crash()` drops every owner, as the end of a process does, so
    that a test can resume a run.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> journal = MemoryJournal()
        >>> loop = Loop(lambda n: n + 1, lambda n: 0.5, until=MaxIterations(2), name="count")
        >>> run_sync(loop, 1, journal=journal).reason.value
        'max_iterations'
    """

    def __init__(self) -> None:
        self._runs: dict[str, _MemoryRun] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @functools.cached_property
    def _events(self) -> EventTables:
        return events_in_memory()

    @functools.cached_property
    def call_cache(self) -> CallCache:
        """The replies of model calls that it keeps."""
        from .call_cache import cache_in_memory  # for the few runs that keep replies

        return cache_in_memory(self._events)

    @functools.cached_property
    def memory(self) -> InMemory:
        """The memory of its runs."""
        return InMemory()

    @functools.cached_property
    def files(self) -> FileStore:
        """The files of its runs."""
        return FileStore()

    def crash(self) -> None:
        """Drop every owner, as if the process had ended."""
        for run in self._runs.values():
            run.owner = None
            run.entries = list(run.entries)  # later appends of the old owners have no effect

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> MemoryLog:
        """Open a run for writing; see Journal.open."""
        run = self._runs.get(info.run_id)
        if run is None:
            if resume:
                raise missing_run(info.run_id)
            run = self._runs[info.run_id] = _MemoryRun(info)
        if run.owner is not None and not takeover:
            raise RunLocked(
                f"{info.run_id}: another owner is running it; wait, or cancel it first",
                owner=_owner(),
            )
        return MemoryLog(run, run.info.epoch + 1)

    async def create(self, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs that no process has opened yet; see Journal.create."""
        created = []
        for info in runs:
            if info.run_id not in self._runs:
                self._runs[info.run_id] = _MemoryRun(replace(info, status="queued", epoch=0))
                created.append(info.run_id)
        return created

    def change(self, info: RunInfo) -> None:
        """Replace the row of a run; of one that a process has open, only what workers share."""
        run = self._find(info.run_id)
        if run.owner is not None:
            info = replace(run.info, wake_at=info.wake_at, deliveries=info.deliveries)
        run.info = info

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run; see Journal.find."""
        return self._find(run_id).shown().view()

    def _find(self, run_id: str) -> _MemoryRun:
        if run_id in self._runs:
            return self._runs[run_id]
        matches = [run for key, run in self._runs.items() if run_id and key.startswith(run_id)]
        if len(matches) != 1:
            raise missing_run(run_id, len(matches))
        return matches[0]

    async def runs(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        name: str = "",
        status: str = "",
        text: str = "",
        queue: str = "",
        worker: str = "",
        schedule: str = "",
        since: float = 0.0,
        tags: Sequence[str] = (),
        sort: str = "",
    ) -> list[RunInfo]:
        """Return the rows of runs; see Journal.runs."""
        wanted = Wanted(name, status, tags=tuple(tags), sort=sort)
        rows = [run.shown() for run in reversed(self._runs.values())]
        rows = [
            row
            for row in rows
            if (not name or row.name == name)
            and (not status or row.status in wanted.statuses)
            and (not queue or row.queue == queue)
            and (not worker or row.owner == worker)
            and (not schedule or schedule_of(row) == schedule)
            and row.created >= since
            and all(mark in tags_text(row.tags) for mark in wanted.marks)
            and (not text or mentions(row, self._runs[row.run_id].entries, text))
        ]
        if not wanted.by_key:
            rows = _sorted(rows, wanted)
        return [row.view() for row in rows[offset : offset + limit]]

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        """Return the entries of a run after a number; see Journal.entries."""
        # Numbered at each read, because an append only adds to the list.
        entries = _numbered(self._find(run_id).entries)[after:]
        return [entry.view() for entry in (entries[:limit] if limit else entries)]

    async def iterations(
        self, run_id: str, *, loop: str = "", offset: int = 0, limit: int = 100
    ) -> list[tuple[str, Iteration]]:
        """Return (loop path, iteration) pairs by page; see Journal.iterations."""
        rows = [
            (entry.path, entry.value.view())
            for entry in surviving(self._find(run_id).entries)
            if entry.kind == "iteration" and (not loop or entry.path == loop)
        ]
        return rows[offset : offset + limit]

    async def result(self, run_id: str) -> Result:
        """Return the recorded result of a run; see Journal.result."""
        info = await self.find(run_id)
        return recorded_result(info, await self.entries(info.run_id))

    async def cancel(self, run_id: str) -> bool:
        """Request the cancellation of a run; see Journal.cancel."""
        owner = self._find(run_id).owner
        if owner is None:
            return await cancel_waiting(self, run_id)
        if owner.on_cancel is not None:
            owner.on_cancel()
        return True

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run; see Journal.post."""
        # A copy, because the caller may change its answer later.
        mine = replace(answer, value=own(answer.value))
        run = self._find(run_id)
        first = run.inbox.setdefault((answer.asked, answer.path), mine)
        if answer.asked == UNASKED and run.owner is not None and run.owner.on_posted is not None:
            run.owner.on_posted()
        return first

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers in the inbox of a run; see Journal.inbox."""
        answers = sorted(self._find(run_id).inbox.items(), key=lambda item: item[0])
        return [replace(answer, value=own(answer.value)) for _, answer in answers]

    async def signal(self, event: Event) -> Signalled:
        """Store an event for the runs that wait for it; see Journal.signal."""
        return self._events.signal(event)

    async def look_for(self, waits: Sequence[OpenWait]) -> tuple[float, list[Event | None]]:
        """Register waits, and return the time and the first event for each; see Journal.look_for."""
        return self._events.look(waits)

    async def end_wait(self, run_id: str, path: str = "", taken: Sequence[int] = ()) -> int:
        """Remove the waits of a run; see Journal.end_wait."""
        return self._events.end(run_id, path, taken)

    async def waits(
        self, run_id: str = "", *, due: float = math.inf, limit: int = 1000
    ) -> list[OpenWait]:
        """Return the open waits; see Journal.waits."""
        return self._events.waits(run_id, due, limit)

    async def tag(self, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Add tags to a run; see Journal.tag."""
        run = self._find(run_id)
        run.info = replace(run.info, tags=with_tags(run.info.tags, tags))
        return dict(run.info.tags)

    async def fork(self, origin: str, info: RunInfo, entries: Sequence[Entry]) -> None:
        """Create a run that begins with entries of another one; see Journal.fork."""
        self._find(origin)
        if info.run_id in self._runs:
            raise existing_run(info.run_id)
        run = self._runs[info.run_id] = _MemoryRun(replace(info, status="interrupted", epoch=1))
        run.entries = _numbered([copy.copy(entry) for entry in entries])

    async def rewind(
        self, run_id: str, path: str = "", *, only: Sequence[str] = (), undo: bool = False
    ) -> Rewind:
        """Discard the recorded results from `path` onward; see Journal.rewind."""
        run = self._find(run_id)
        if run.owner is not None:
            raise RunLocked(f"{run_id}: it is running; cancel it before you rewind it")
        # Before the entry is appended: an unknown path leaves the run unchanged.
        how = rewind_entry(path, only, undo)
        run.info, done, _ = rewind_of(run.info, _numbered(run.entries), how)
        how.at = run.info.active
        run.entries.append(how)
        return done

    async def view(self, run_id: str, work: Callable[[RunView], T]) -> T:
        """Return the result of `work` on the view of a run; see Journal.view."""
        info = await self.find(run_id)
        return work(EntriesView(info, await self.entries(info.run_id)))

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list; see Journal.listing."""
        return work(await entries_page(self, wanted))

    def watch(self) -> Watch:
        """Return a detector of changes; each look reads all entries."""
        return EntriesWatch(self)

    async def close(self) -> None:
        """Do nothing: the journal stays usable."""


def _sorted(rows: list[RunInfo], wanted: Wanted) -> list[RunInfo]:
    """Return rows, newest first, in another order; those without a value are the last ones."""

    def value(row: RunInfo) -> Any:
        return row.usage.usd if wanted.order == "cost" else getattr(row, wanted.order)

    if wanted.order == "started":
        return rows[::-1]
    valued = [row for row in rows if value(row) is not None]
    valued.sort(key=value, reverse=wanted.descending)
    return valued + [row for row in rows if value(row) is None]


def _numbered(entries: list[Entry]) -> list[Entry]:
    for number, entry in enumerate(entries, start=1):
        entry.seq = number
    return entries
