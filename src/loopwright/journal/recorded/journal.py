"""The Journal protocol on a database, with pages of the run list, views of single runs, and memories.

It uses the writer, the readers and the rows of runs of a store. Rules of pages:

1. A page of the run list starts after the key of the last row shown, so that every page costs the
   same, however many runs precede it. Other orders and filters read one index to its end.
2. A search for text reads at most `WINDOW` runs of a page, and reports where it stopped. Other readers come in
   between: it reads `PART` runs at a time.
3. Every statement uses an index; a test checks the query plans.

Besides those of RowReader, a store answers these statements: `newest key`, `names` (after),
`next loop` (run, after), `extent of a loop` (run, loop), `extent of a run` (run), `mark` (run, loop,
offset), `outline` (run, loop, mark, limit): mark, first, body, sum, sum of the row before;
`marks` (run, loop, limit, offset), `tried again` (run, first): first, body of the rows with a retry
or a rewind; `latest row` (run): first, body.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import math
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from ...errors import JournalDamaged, JournalError
from ...memory import MemoryEntry
from ...records import Iteration, Result, StepOutcome, as_evaluation, codec
from ...records.codec import Json
from ..events import Event, EventTables, OpenWait, Signalled
from ..protocol import Entry, Posted, Rewind, RunInfo, existing_run, surviving
from ..questions import cancel_waiting
from ..replay import recorded_result
from ..rewinding import rewind_entry, rewind_of
from ..views import (
    ENDING,
    Mark,
    RunPage,
    RunView,
    Wanted,
    Watch,
    directly,
    enclosing,
    ending_of,
    mentions,
    no_iteration,
    retried,
    step_outcomes,
)
from .log import CommitQueue, DurableLog, OpenedRun
from .ownership import RewindPlan, running
from .rows import (
    NullContents,
    RowReader,
    RunRow,
    Value,
    as_damage,
    chain_start,
    chained,
    damaged,
    decode_entry,
    decode_row,
    listed_row,
    unfold,
    utf8,
    value_of,
)
from .writer import Connection, Store, Transaction, Writer

if TYPE_CHECKING:
    from ..call_cache import CallCache

WINDOW = 2_000  # runs that one search for text reads
PART = 100  # runs that it reads before others may read
FIRST = 1 << 62  # a key above all keys
_REFERENCE = re.compile(r'"\$(?:text|json)":(\d+)')
MAX_ITERATIONS = 20_000  # iterations cached for the next request
MAX_ROWS = 300  # rows of runs cached for the next request


def _cache(cached: dict[int, T], key: int, value: T) -> None:
    # Emptied at once: simpler than an order of use, and rows are cheap to read again.
    if len(cached) >= MAX_ROWS:
        cached.clear()
    cached[key] = value


class PageReader(RowReader):
    """A reader that also answers the queries of pages.

    `light_iterations` caches iterations without their values by the keys of their run and entry, which never
    change. Rows and completed runs are cached as they were read.
    """

    def __init__(self) -> None:
        self.light_iterations: dict[tuple[int, int], Iteration] = {}
        self._rows_read: dict[int, tuple[tuple[Json, ...], RunRow]] = {}
        self._completed: dict[int, tuple[tuple[str, str], RunInfo]] = {}

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def moment(self) -> AbstractContextManager[None]:
        """Read everything inside at one moment."""

    @abstractmethod
    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""

    @abstractmethod
    def row(self, run_id: str) -> RunRow:
        """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""

    @abstractmethod
    def events(self) -> EventTables:
        """Return the events and waits."""

    @abstractmethod
    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""

    def find(self, run_id: str) -> RunInfo:
        """Return a run in its present state. Raises RunNotFound."""
        return self.complete(*self.shown(run_id))

    @abstractmethod
    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        """Return the rows and present states of a page of runs, whatever their text.

        In the order of the list if it is slow, else in any order.
        """

    @abstractmethod
    def rows(self, keys: Sequence[int]) -> list[tuple[RunRow, RunInfo]]:
        """Return the rows with these keys and their present states, in this order; a missing one is left out."""

    @abstractmethod
    def total(self, wanted: Wanted) -> int:
        """Return the number of runs that match, whatever their text."""

    def paged(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        """Return a page of runs in the order of the list, whatever their text."""
        rows = self.page(wanted)
        if wanted.by_key:
            # Several ends are merged, so each had the rows up to the end of the page.
            rows.sort(key=lambda item: item[0].key, reverse=not wanted.after)
            rows = sorted(rows[: wanted.limit], key=lambda item: -item[0].key)
        return rows

    def runs(self, wanted: Wanted) -> list[RunInfo]:
        """Return a page of runs with their inputs and sources, whatever their text."""
        return [self.in_list(row, info) for row, info in self.paged(wanted)]

    def mentions(self, row: RunRow, info: RunInfo, text: str) -> bool:
        """Return whether a run has a text; see `views.mentions`."""
        try:
            info = self.complete(row, info)
            if mentions(info, (), text):
                return True
            # What no row and no content has need not be decoded.
            rows = self.select("timeline", row.key, 1, -1)
            bodies = [body.decode("utf-8", "replace") for _, body, _ in rows]
            ids = {int(found): 0 for body in bodies for found in _REFERENCE.findall(body)}
            escaped = codec.encode(text)[1:-1].lower()
            if not any(escaped in body.lower() for body in bodies):
                contents = self.contents(ids, row)[0].values()
                if not any(
                    text.lower() in one.lower() or escaped in one.lower() for one in contents
                ):
                    return False
            return mentions(info, self.entries(row, 0, 0), text)
        except JournalDamaged:  # its text cannot be known
            return False

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        texts = row.input, row.source
        cached = self._completed.get(row.key)
        if cached is None or cached[0] != texts:
            cached = texts, super().complete(row, info)
            _cache(self._completed, row.key, cached)
        return replace(info, input=cached[1].input, source=cached[1].source)

    def checked(self, values: tuple[Json, ...]) -> RunRow:
        """Return a row, checked unless it is the same as when it was last checked."""
        cached = self._rows_read.get(values[0])
        if cached is None or cached[0] != values:
            cached = values, listed_row(values)
            _cache(self._rows_read, values[0], cached)
        return cached[1]

    def newest(self) -> int:
        """Return the key of the newest run: the number of runs, unless some were deleted."""
        [(key,)] = self.select("newest key")
        return key or 0

    def names(self, limit: int = 100) -> list[str]:
        """Return the names of runs, each once."""
        names: list[str] = []
        name = ""
        while len(names) < limit:
            [(raw,)] = self.select("names", name)
            if raw is None:
                break
            name = raw.decode("utf-8", "replace")
            names.append(name)
        return names

    def listed(self, wanted: Wanted) -> list[tuple[int, RunView]]:
        """Return a page of runs with their keys, whatever their text, without input and source."""
        return [(row.key, RecordedView(self, row, info)) for row, info in self.paged(wanted)]

    def of_keys(self, keys: Sequence[int]) -> list[tuple[int, RunView]]:
        """Return the runs with these keys, in this order."""
        found = {row.key: RecordedView(self, row, info) for row, info in self.rows(keys)}
        return [(key, found[key]) for key in keys if key in found]

    def view(self, run_id: str) -> RunView:
        """Return the view of a run. Raises RunNotFound."""
        row, info = self.shown(run_id)
        return RecordedView(self, row, self.complete(row, info))

    def evaluations(self, row: RunRow, raws: Sequence[tuple[int, Json]]) -> dict[int, str]:
        """Return the contents that the evaluations of iterations refer to."""
        ids = {}
        for seq, raw in raws:
            value = value_of(raw)
            evaluation = value.get("evaluation") if isinstance(value, dict) else None
            if isinstance(evaluation, dict) and len(evaluation) == 1 and "$json" in evaluation:
                ids[evaluation["$json"]] = seq
        return self.contents(ids, row)[0]


class RecordedView:
    """A run of a durable journal, read by index; see RunView."""

    def __init__(self, pages: PageReader, row: RunRow, info: RunInfo) -> None:
        self.info = info
        self._pages = pages
        self._row = row
        self._outlines: dict[str, list[Mark]] = {}  # complete outlines, by loop

    @property
    def last(self) -> int:
        """The number of the last entry."""
        rows = self._pages.select("latest row", self._row.key)
        return int(rows[0][0]) + len(json.loads(rows[0][1])) - 1 if rows else 0

    def loops(self, under: str = "") -> list[str]:
        paths: list[str] = []
        at = f"{under}/" if under else ""
        while len(paths) < 200:
            [(raw,)] = self._pages.select("next loop", self._row.key, at)
            path = raw.decode() if raw is not None else ""
            if not path or (under and not path.startswith(f"{under}/")):
                break
            paths.append(path)
            at = f"{path}0"  # "0" follows "/": every path below this one lies between
        return paths

    def count(self, loop: str) -> int:
        return int(self._pages.select("extent of a loop", self._row.key, loop)[0][0])

    def total(self) -> int:
        return int(self._pages.select("extent of a run", self._row.key)[0][0])

    def steps(self) -> list[StepOutcome]:
        return step_outcomes(self.info, self.between(0, 0))

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        page = self._pages.iterations(self._row, loop, offset, limit)
        return [(item.number, item.input) for _, item in page]

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        if offset == 0 and limit < 0:
            if loop not in self._outlines:
                self._outlines[loop] = self._outline(loop, 0, -1)
            return self._outlines[loop]
        if offset < 0:
            offset = max(0, self.count(loop) + offset)
        return self._outline(loop, offset, limit)

    def _outline(self, loop: str, offset: int, limit: int) -> list[Mark]:
        key, light_iterations = self._row.key, self._pages.light_iterations
        marks = [mark for (mark,) in self._pages.select("marks", key, loop, limit, offset)]
        missing = [place for place, mark in enumerate(marks) if (key, mark) not in light_iterations]
        if missing:
            if len(light_iterations) > MAX_ITERATIONS:
                light_iterations.clear()
                missing = [0]
            raws = self._outlined(loop, marks[missing[0]], len(marks) - missing[0])
            bodies = NullContents(self._pages.evaluations(self._row, raws))
            light_iterations.update(((key, mark), _light(raw, bodies)) for mark, raw in raws)
        return [(mark, light_iterations[key, mark]) for mark in marks]

    def _outlined(self, loop: str, start: int, limit: int) -> list[tuple[int, Json]]:
        run_id, raws = self._row.info.run_id, []
        with as_damage(f"{run_id}: {loop}"):
            for mark, first, body, total, before in self._pages.select(
                "outline", self._row.key, loop, start, limit
            ):
                head = chain_start(run_id) if before is None else before
                if chained(head, first, body) != total:
                    raise damaged(run_id, first, "does not match its checksum")
                raws.append((mark, decode_row(body)[mark - first]))
        return raws

    def iteration(self, loop: str, number: int) -> Iteration:
        if number > 0:
            for _, item in self._pages.iterations(self._row, loop, number - 1, 1):
                return item
        raise no_iteration(self.info.run_id, loop, number)

    def effects(self, loop: str, number: int) -> list[Entry]:
        begin, end = self._begin(loop, number), self._mark(loop, number)
        entries = self._pages.entries(self._row, begin, end - begin if end else 0)
        return directly(surviving(entries), loop, number)

    def _begin(self, loop: str, number: int) -> int:
        """Return the number of an entry that precedes every entry of an iteration."""
        if number > 1:
            return self._mark(loop, number - 1)
        around = enclosing(loop)
        return self._begin(*around) if around is not None else 0

    def _mark(self, loop: str, number: int) -> int:
        # The entries of iteration 0, a baseline, precede the mark of the first one.
        rows = self._pages.select("mark", self._row.key, loop, max(number, 1) - 1)
        return int(rows[0][0]) if rows else 0

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        # The pattern preselects rows in the database, so that a long run is not decoded for a few
        # retries.
        rows = self._pages.select("tried again", self._row.key, after + 1)
        raws = [raw for _, body in rows for raw in decode_row(body)]
        if not any(raw[0] == "r" for raw in raws):
            return retried((raw[1] for raw in raws if raw[0] == "s"), loop)
        entries = surviving(self.since(0))  # only all entries together show what a rewind discarded
        return retried((e.path for e in entries if e.kind == "started" and e.seq > after), loop)

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        return self._pages.light_entries(self._row, seq, limit)

    def between(self, seq: int, limit: int) -> list[Entry]:
        return self._pages.entries(self._row, seq, limit)

    def ending(self) -> dict[str, Json] | None:
        return ending_of(self.between(max(0, self.last - ENDING), 0))


def _light(raw: Json, bodies: dict[int, str]) -> Iteration:
    """Return the iteration of an element without its input and output."""
    value = dict(value_of(raw))
    evaluation = value.pop("evaluation", None)
    value.pop("input", None)
    value.pop("output", None)
    light: Iteration = decode_entry([*raw[:5], value], 0, bodies, {}).value
    if evaluation is None:
        return light
    return replace(light, evaluation=as_evaluation(unfold(evaluation, bodies)))


T = TypeVar("T")
Reader = TypeVar("Reader", bound=PageReader)


class OwningStore(Store[Connection], Protocol[Connection]):
    """A database with the rows of runs; methods with a connection work in a transaction."""

    def new_content(self) -> int:
        """Return a content id that no other store uses."""

    def hold(self, log: DurableLog) -> None:
        """Register a run that was opened; an older log of the same run loses it."""

    def release(self, log: DurableLog) -> None:
        """Remove a run that was given back."""

    def take(self, db: Connection, info: RunInfo, *, resume: bool, takeover: bool) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""

    def create(self, db: Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""

    def give_back(self, log: DurableLog, info: RunInfo, db: Connection) -> DurableLog:
        """Write the row of a run and release it, if the log still owns it; return the log."""

    def leave(self, log: DurableLog, status: str, db: Connection) -> DurableLog:
        """Release a run with a status and no other change; return the log."""

    def request_cancel(self, db: Connection, run_id: str) -> bool:
        """Ask the owner of a run to cancel it; return whether it has a live owner."""

    def rewind(self, db: Connection, plan: RewindPlan) -> None:
        """Record a rewind of a run without an owner. Raises RunLocked."""

    def share(self, db: Connection, origin: int, run: int) -> None:
        """Let a run refer to the contents of another one, by their keys."""

    def tag(self, db: Connection, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Change the tags of a run, and return all of them. Raises RunNotFound, ConfigurationError."""

    def events(self, db: Connection) -> EventTables:
        """Return the events and waits of the database, inside a transaction."""

    def post(self, db: Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; return the answer that is stored."""


class RecordedJournal(ABC, Generic[Connection, Reader]):
    """A journal in a database; a store adds its connections and statements."""

    def __init__(self, new_database: Callable[[], OwningStore[Connection]], beat: float) -> None:
        self._new_database = new_database
        self._beat = beat  # seconds between renewals of the leases
        self._queues: dict[asyncio.AbstractEventLoop, CommitQueue] = {}
        self._readers: list[Reader] = []  # one, after the first read
        # One connection for all readers, because a connection is for one thread at a time.
        self._reading = threading.Lock()
        self._begin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _begin(self) -> None:
        """Use a new database and writer from now on; nothing is opened before the first use."""
        self._database = self._new_database()
        self._writer = Writer(self._database, self._beat)
        # A journal that is dropped without `close` still releases its leases.
        self._finalizer = weakref.finalize(self, _release, self._writer, self._readers)

    @abstractmethod
    async def _read(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader, in a thread, once all entries appended here are written."""

    @abstractmethod
    async def _time(self) -> float:
        """Return the time of the store, in seconds since the epoch."""

    def _expect(self, run_id: str) -> None:
        """Raise RunNotFound if this journal does not exist yet."""

    def _queue(self) -> CommitQueue:
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            # Each `run_sync` has another event loop; those that ended are dropped here.
            self._queues = {k: queue for k, queue in self._queues.items() if not k.is_closed()}
            queue = self._queues[loop] = CommitQueue(loop, self._writer.put)
        return queue

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> DurableLog:
        """Open a run for writing and take its lease; see Journal.open."""
        if resume:
            self._expect(info.run_id)
        database, writer, queue = self._database, self._writer, self._queue()
        give_back = partial(writer.give_back, database.give_back, database.release)

        def work(db: Connection) -> DurableLog:
            opened = database.take(db, info, resume=resume, takeover=takeover)
            return DurableLog(opened, queue, database.new_content, give_back)

        def leave(log: DurableLog) -> Transaction[Connection, DurableLog]:
            status = log.before or "interrupted"
            return Transaction(
                partial(database.leave, log, status), database.release, releasing=True
            )

        def undo(taken: asyncio.Future[DurableLog]) -> None:
            if not taken.cancelled() and taken.exception() is None:
                writer.put(leave(taken.result()))

        taken = writer.perform(
            Transaction(work, database.hold, opening=None if resume else info, owning=True)
        )
        # Shielded: the transaction cannot be taken back, so a run that was taken must be released.
        try:
            log = await asyncio.shield(taken)
        except asyncio.CancelledError:
            taken.add_done_callback(undo)
            await asyncio.wait({taken})
            raise
        if log.before and not log.begin():
            # A run whose entries cannot be read is released, or it would stay locked by a live process.
            try:
                await self._restore(log)
            except BaseException:
                with suppress(JournalError):
                    await writer.perform(leave(log))
                raise
        return log

    async def _restore(self, log: DurableLog) -> None:
        row = log.row
        info, recorded = await self._read(
            lambda r: (r.complete(row, row.info), r.recorded(row, folded=True))
        )
        entries = recorded.entries
        if entries:
            # A process that was killed did not write its row, but its entries have the time.
            info = replace(info, active=max(info.active, entries[-1].at))
        log.restore(info, recorded, surviving(entries))

    async def create(self, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs that no process has opened yet; see Journal.create."""
        database = self._database
        return await self._perform(Transaction(lambda db: database.create(db, runs)))

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run; see Journal.find."""
        self._expect(run_id)
        return (await self._read(lambda reader: reader.find(run_id))).view()

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
        wanted = Wanted(
            name, status, text=text, limit=limit, queue=queue, worker=worker, schedule=schedule, since=since,
            tags=tuple(tags), sort=sort, offset=offset,
        )  # fmt: skip
        return [row.view() for row in await self._listed(wanted)]

    async def _listed(self, wanted: Wanted) -> list[RunInfo]:
        if not wanted.text:
            return await self.look(lambda reader: reader.runs(wanted))
        keys, _ = await self._searched(
            replace(wanted, limit=wanted.offset + wanted.limit, offset=0), FIRST
        )
        keys = keys[wanted.offset :]
        return await self.look(lambda reader: [reader.in_list(*item) for item in reader.rows(keys)])

    async def _searched(self, wanted: Wanted, most: int) -> tuple[list[int], int]:
        """Return the keys of the first runs that have a text, among `most` runs, and where the search stopped."""
        found: list[int] = []
        part = replace(wanted, text="", limit=PART)
        for _ in range(0, most, PART):

            def read(reader: PageReader, part: Wanted = part) -> tuple[list[int], list[int]]:
                rows = reader.paged(part)
                text = wanted.text
                return [row.key for row, _ in rows], [
                    row.key for row, info in rows if reader.mentions(row, info, text)
                ]

            keys, matching = await self.look(read)
            room = wanted.limit - len(found)
            if wanted.after and wanted.by_key:  # from the oldest of them on
                found = matching[-room:] + found
            else:
                found += matching[:room]
            if len(found) == wanted.limit and not wanted.by_key:
                return found, part.offset + keys.index(found[-1]) + 1
            if len(keys) < PART or len(found) == wanted.limit:
                return found, 0
            if not wanted.by_key:
                part = replace(part, offset=part.offset + PART)
            elif wanted.after:
                part = replace(part, after=keys[0])
            else:
                part = replace(part, before=keys[-1])
        return found, part.before if wanted.by_key else part.offset

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        """Return the entries of a run after a number; see Journal.entries."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.entries(reader.row(run_id), after, limit))

    async def iterations(
        self, run_id: str, *, loop: str = "", offset: int = 0, limit: int = 100
    ) -> list[tuple[str, Iteration]]:
        """Return (loop path, iteration) pairs by page; see Journal.iterations."""
        self._expect(run_id)
        return await self._read(
            lambda reader: reader.iterations(reader.row(run_id), loop, offset, limit)
        )

    async def result(self, run_id: str) -> Result:
        """Return the recorded result of a run; see Journal.result."""
        info = await self.find(run_id)
        return recorded_result(info, await self.entries(info.run_id))

    async def cancel(self, run_id: str) -> bool:
        """Request the cancellation of a run; see Journal.cancel."""
        self._expect(run_id)
        database = self._database
        requested = await self._perform(Transaction(lambda db: database.request_cancel(db, run_id)))
        return requested or await cancel_waiting(self, run_id)

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run; see Journal.post."""
        self._expect(run_id)
        database = self._database

        def announce(_: Posted) -> None:
            # The owner may be this store, whose own commits it does not look for.
            for log in database.logs.values():
                if log.info.run_id == run_id:
                    log.announce_posted()

        return await self._perform(
            Transaction(lambda db: database.post(db, run_id, answer), announce)
        )

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers in the inbox of a run; see Journal.inbox."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.inbox(reader.row(run_id)))

    async def tag(self, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Add tags to a run; see Journal.tag."""
        self._expect(run_id)
        database = self._database
        return await self._perform(Transaction(lambda db: database.tag(db, run_id, tags)))

    async def signal(self, event: Event) -> Signalled:
        """Store an event for the runs that wait for it; see Journal.signal."""
        database = self._database
        return await self._perform(Transaction(lambda db: database.events(db).signal(event)))

    @property
    def call_cache(self) -> CallCache:
        """The replies of model calls that it keeps."""
        from ..call_cache import CallCache  # for the few runs that keep replies

        database = self._database
        return CallCache(
            lambda work: self._read(lambda reader: work(reader.events())),
            lambda work: self._perform(Transaction(lambda db: work(database.events(db)))),
        )

    async def look_for(self, waits: Sequence[OpenWait]) -> tuple[float, list[Event | None]]:
        """Register waits, and return the time and the first event for each; see Journal.look_for."""
        if not waits:
            return await self._time(), []
        database = self._database
        return await self._perform(Transaction(lambda db: database.events(db).look(waits)))

    async def end_wait(self, run_id: str, path: str = "", taken: Sequence[int] = ()) -> int:
        """Remove the waits of a run; see Journal.end_wait."""
        database = self._database
        return await self._perform(
            Transaction(lambda db: database.events(db).end(run_id, path, taken))
        )

    async def waits(
        self, run_id: str = "", *, due: float = math.inf, limit: int = 1000
    ) -> list[OpenWait]:
        """Return the open waits; see Journal.waits."""
        return await self._read(lambda reader: reader.events().waits(run_id, due, limit))

    async def fork(self, origin: str, info: RunInfo, entries: Sequence[Entry]) -> None:
        """Create a run that begins with entries of another one; see Journal.fork."""
        self._expect(origin)
        database = self._database
        if not await self._perform(Transaction(lambda db: database.create(db, [info]))):
            raise existing_run(info.run_id)
        row, recorded = await self._read(lambda r: (r.row(origin), r.recorded(r.row(origin))))
        log = await self.open(info, resume=True)
        await self._perform(Transaction(lambda db: database.share(db, row.key, log.key)))
        # The texts of long values are recognised by their digests, and only referred to.
        log.share(recorded.contents)
        # In one pass of the event loop, and so in one transaction: a fork has all its entries or none.
        for entry in entries:
            log.append(copy.copy(entry))
        await log.close(replace(info, epoch=log.info.epoch, status="interrupted", owner=""))

    async def rewind(
        self, run_id: str, path: str = "", *, only: Sequence[str] = (), undo: bool = False
    ) -> Rewind:
        """Discard the recorded results from `path` onward; see Journal.rewind."""
        self._expect(run_id)
        database = self._database

        def read(reader: PageReader) -> tuple[RewindPlan, Rewind]:
            row, info = reader.shown(run_id)
            if info.status == "running":
                raise running(info.run_id)
            recorded = reader.recorded(row)
            how = rewind_entry(path, only, undo)
            after, done, kept = rewind_of(info, recorded.entries, how)
            shown, before = (
                {e.seq: e.path for e in some if e.kind == "iteration"}
                for some in (kept, surviving(recorded.entries))
            )
            aside = [seq for seq in before if seq not in shown]
            back = [(loop, seq) for seq, loop in shown.items() if seq not in before]
            return RewindPlan(row, how, after, recorded.last, recorded.head, aside, back), done

        # Read outside the transaction, which is short; `OwningStore.rewind` refuses a run that changed
        # meanwhile.
        plan, done = await self._read(read)
        await self._perform(Transaction(lambda db: database.rewind(db, plan)))
        return done

    async def look(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader that reads at one moment, in a thread."""

        def read(reader: PageReader) -> T:
            with reader.moment():
                return work(reader)

        return await self._read(read)

    async def view(self, run_id: str, work: Callable[[RunView], T]) -> T:
        """Return the result of `work` on the view of a run; see Journal.view."""
        return await self.look(lambda reader: work(reader.view(run_id)))

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list; see Journal.listing."""
        if not wanted.text:
            return await self.look(
                lambda r: work(RunPage(r.listed(wanted), r.names(), r.total(wanted)))
            )
        keys, stopped = await self._searched(wanted, WINDOW)
        return await self.look(lambda r: work(RunPage(r.of_keys(keys), r.names(), None, stopped)))

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the tables."""

    async def prepare(self) -> int:
        """Create or migrate the tables, and return their version."""
        await self._perform(Transaction(lambda _: None))
        return self.version

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""
        return []

    @abstractmethod
    def watch(self) -> Watch:
        """Return a detector of commits by any process; see Journal.watch."""

    async def close(self) -> None:
        """Write all waiting entries, release all runs and close the connections.

        An open run is left as interrupted. The next use of the journal opens it again.
        """
        queue = self._queues.get(asyncio.get_running_loop())
        if queue is not None and queue.batch.logs:
            queue.flush()
        if self._readers or self._reading.locked():
            await asyncio.to_thread(self._close_reader)
        self._finalizer.detach()
        # Renewed before the old one ends, so that a use meanwhile opens the journal again.
        writer, self._queues = self._writer, {}
        self._begin()
        await writer.stop()

    def _close_reader(self) -> None:
        with self._reading:
            self._drop_reader()

    def _drop_reader(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _perform(self, transaction: Transaction[Connection, T]) -> asyncio.Future[T]:
        return self._writer.perform(transaction)


def _release(writer: Writer[Connection], readers: Sequence[PageReader]) -> None:
    # Readers first: the last connection to SQLite removes the write-ahead log.
    for reader in readers:
        reader.close()
    writer.stop_soon()


_SUM = 8  # bytes of a checksum: it detects accidental damage, not forgery

MemoryRow = tuple[Value, ...]
Numbers = list[int]
Perform = Callable[[Transaction[Connection, Numbers]], Awaitable[Numbers]]
Waiting = list[tuple[list[MemoryRow], asyncio.Future[list[int]]]]


def memory_row(item: MemoryEntry) -> MemoryRow:
    """Return the values of an entry: space, kind, at, run, key, value, checksum."""
    texts = (item.space, item.kind, item.run, item.key, codec.encode(item.value))
    space, kind, run, key, value = (utf8(text)[0] for text in texts)
    row = (space, kind, item.at, run, key, value)
    return (*row, _sum(row))


def _sum(row: MemoryRow) -> bytes:
    # NUL cannot be in a text, so no two rows have the same data.
    data = "\0".join(map(str, row)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_SUM).digest()


class AppendQueue(Generic[Connection]):
    """Collects the appends of one pass of an event loop into one transaction; one for each journal.

    `append` inserts rows within a transaction and returns their numbers.
    """

    def __init__(self, append: Callable[[Connection, Sequence[MemoryRow]], Numbers]) -> None:
        self._append = append
        self._waiting: dict[asyncio.AbstractEventLoop, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(
        self, rows: list[MemoryRow], perform: Perform[Connection]
    ) -> asyncio.Future[list[int]]:
        """Return a future for the numbers of rows."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[int]] = loop.create_future()
        if loop not in self._waiting:
            self._waiting = {
                other: waiting for other, waiting in self._waiting.items() if not other.is_closed()
            }
            self._waiting[loop] = []
            # At the end of the pass, so that the appends of all runs share one transaction.
            loop.call_soon(self._flush, loop, perform)
        self._waiting[loop].append((rows, waiter))
        return waiter

    def _flush(self, loop: asyncio.AbstractEventLoop, perform: Perform[Connection]) -> None:
        waiting = self._waiting.pop(loop)
        task = loop.create_task(self._commit(waiting, perform))
        # The event loop holds tasks by weak references only.
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for _, waiter in waiting:  # those of a task that was cancelled before it began
                waiter.cancel()

        task.add_done_callback(ended)

    async def _commit(self, waiting: Waiting, perform: Perform[Connection]) -> None:
        rows = [row for mine, _ in waiting for row in mine]

        try:
            numbers = await perform(Transaction(lambda db: self._append(db, rows)))
        except BaseException as error:
            for _, waiter in waiting:
                if not waiter.done() and not isinstance(error, asyncio.CancelledError):
                    waiter.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for mine, waiter in waiting:
            own, numbers = numbers[: len(mine)], numbers[len(mine) :]
            if not waiter.done():  # the caller may have been cancelled
                waiter.set_result(own)


def memory_entry(row: tuple[Json, ...]) -> MemoryEntry:
    """Return a row as an entry; a row that does not match its checksum is unreadable."""
    seq, *stored, checksum = row
    # A damaged entry does not prevent the others from being read.
    try:
        values: list[Json] = [item.decode() if isinstance(item, bytes) else item for item in stored]
        if _sum(tuple(values)) == checksum:
            space, kind, at, run, key, value = values
            decoded = codec.decode(value)
            return MemoryEntry(space, kind, value=decoded, at=at, key=key, run=run, seq=seq)
    except (ValueError, RecursionError):
        pass
    space = stored[0].decode("utf-8", "replace")
    return MemoryEntry(space, "unreadable", None, 0.0, seq=seq)
