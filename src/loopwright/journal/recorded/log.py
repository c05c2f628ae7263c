"""The open runs of a durable journal, whose entries become rows, and the rows batches.

Entries that all runs of an event loop append within one pass of the loop become one batch, which is
handed to the writer at the end of the pass. The entries of one run in a batch become one row: the
"finished" of an effect and the "started" of the next share it. An entry is encoded when it is appended,
so that a value that no journal can hold is refused there; `rows` describes the format.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...errors import JournalError, LoopwrightError, OwnershipLost
from ...records import NOTHING, Evaluation, Iteration, Usage
from ...records.codec import Json, encode
from ..protocol import Entry, RunInfo
from .rows import (
    DEPTHS,
    KINDS,
    RecordedEntries,
    RunRow,
    Value,
    chain_start,
    chained,
    content_digest,
    references,
    utf8,
)

GiveBack = Callable[["DurableLog", RunInfo], Awaitable["DurableLog"]]
WIDTH = 6  # values of a row: run, first, loop, mark, body, sum
INLINE = 256  # characters of JSON; a longer value becomes a content
Content = tuple[int, bytes, int, str | None]  # id, digest, size in bytes, body unless it is a file
# A batch with this many runs is passed on early, so that the writer need not wait.
BATCH_RUNS = 512
_BLANK = ("", "", "", "0", "0", "null", "0", "0", "null")  # the text of an empty field
_ROW_ENTRIES = 64  # a bound on the size of a row, which a reader decodes as a unit


class Batch:
    """Rows of one event loop that are committed together; row i has values from WIDTH * i on."""

    __slots__ = ("contents", "done", "logs", "loop", "owners", "values", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.logs: list[DurableLog] = []
        self.values: list[Value] = []
        self.owners: list[DurableLog] = []
        self.contents: list[tuple[DurableLog, list[Content]]] = []
        self.waiters: list[tuple[asyncio.Future[None], DurableLog | None]] = []
        self.done = False

    def refuse(self, error: LoopwrightError) -> None:
        """Let every run of the batch fail with an error."""
        for log in self.logs:
            if log.failure is None:
                log.fail(error)

    def resolve(self) -> None:
        """Resolve the futures of the callers; runs in the event loop."""
        self.done = True
        for waiter, log in self.waiters:
            if waiter.done():  # the caller was cancelled
                continue
            if log is None or log.failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(log.failure())


class CommitQueue:
    """Collects the appends of one event loop and hands them to the writer in batches."""

    __slots__ = ("batch", "last", "loop", "put", "scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Batch], None]) -> None:
        self.loop = loop
        self.put = put
        self.batch = Batch(loop)
        self.last: Batch | None = None
        self.scheduled = False

    def join(self, log: DurableLog) -> Batch:
        """Return the batch to which a run may add in this pass."""
        if len(self.batch.logs) >= BATCH_RUNS:
            self.flush()
        if not self.scheduled:
            self.scheduled = True
            # At the end of the pass, so that all runs that resume in it share one transaction.
            self.loop.call_soon(self._end_pass)
        self.batch.logs.append(log)
        return self.batch

    def _end_pass(self) -> None:
        self.scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand the current batch to the writer."""
        batch = self.batch
        if not batch.logs:
            return
        self.batch = Batch(self.loop)
        for log in batch.logs:
            log.end_row(batch)
        self.last = batch
        self.put(batch)

    async def settled(self) -> None:
        """Wait until every entry appended so far is committed or refused."""
        self.flush()
        if self.last is not None and not self.last.done:
            waiter = self.loop.create_future()
            self.last.waiters.append((waiter, None))
            await waiter


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose lease was taken: its row now, its status before ("" for a new run), and the new limits in its inbox."""

    row: RunRow
    before: str
    posted: int = 0


class Contents:
    """The long values of one open run: those already stored, and those waiting to be stored.

    `waiting` collects new contents until `take`. `here` has the values of the row in progress,
    `intents` the fingerprints of effects in flight by path, `ranks` the iterations so far by loop
    ("" for all loops).
    """

    __slots__ = ("_ids", "_next", "here", "intents", "ranks", "waiting")

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next = next_id
        self._ids: dict[bytes, int] = {}
        self.here: list[str] = []
        self.intents: dict[str, str] = {}
        self.ranks: dict[str, int] = {}
        self.waiting: list[Content] = []

    def add_stored(self, stored: Mapping[bytes, int]) -> None:
        """Add contents that are already stored, by digest."""
        self._ids.update(stored)

    def rank(self, loop: str) -> tuple[int, int]:
        """Count an iteration of a loop; return its rank in the run and in the loop."""
        ranks = self.ranks
        ranks[loop] = in_loop = ranks.get(loop, 0) + 1
        if loop:
            ranks[""] = ranks.get("", 0) + 1
        return ranks[""], in_loop

    def take(self) -> list[Content]:
        """Return the waiting contents and clear the list."""
        contents, self.waiting = self.waiting, []
        return contents

    def fold(self, value: Json) -> str:
        """Return the JSON text of a value, or of a reference to a long value."""
        # A long text is stored without quotes, so that its digest is that of the text.
        if type(value) is str:
            return self._refer(value, value) if len(value) > INLINE else encode(value)
        text = encode(value)
        if len(text) <= INLINE and '"$' not in text:
            return text
        return self._refer(value, text)

    def fold_fields(self, value: Json, depth: int) -> str:
        """Return the JSON text of an object with references down to `depth` levels of fields."""
        if not depth or type(value) is not dict or any(key.startswith("$") for key in value):
            return self.fold(value)
        text = encode(value)
        if len(text) <= INLINE and '"$' not in text:  # then so is each field
            return text
        fields = [f"{encode(k)}:{self.fold_fields(v, depth - 1)}" for k, v in value.items()]
        return "{" + ",".join(fields) + "}"

    def fold_evaluation(self, value: Evaluation) -> str:
        """Return the JSON text of an evaluation, or the place in this row of the value it was read from."""
        # An evaluation is usually the output of `evaluate`, which is in the same row: a number, or an object.
        if value.passed is None and value.has_only_score:
            number = repr(value.score)
            if number in self.here:
                return self._reference(number)
        text = self.fold(value.to_json())
        forms = [text]
        if value.passed is None:
            forms.append(text.replace('"passed":null,', "", 1))
        return next((self._reference(form) for form in forms if form in self.here), text)

    def _reference(self, text: str) -> str:
        return f'{{"$here":{self.here.index(text)}}}'

    def _refer(self, value: Json, body: str) -> str:
        kind = "$text" if value is body else "$json"
        if "\0" in body:  # SQLite's tools end a text at NUL
            kind, body = "$json", encode(value)
        body, data = utf8(body)
        # The same text is stored once: the output of one iteration is often the input of the next.
        digest = content_digest(data)
        content_id = self._ids.get(digest)
        if content_id is None:
            content_id = self._ids[digest] = self._next()
            self.waiting.append((content_id, digest, len(data), body))
        return f'{{"{kind}":{content_id}}}'


def new_row(info: RunInfo, contents: Contents, *, opened: float, owner: int | None) -> RunRow:
    """Return the row of a new run; its large values become `contents`, which the store writes."""
    return RunRow(
        key=0,
        info=info,
        input=contents.fold(info.input),
        source=contents.fold(info.source),
        opened=opened,
        last=0,
        head=chain_start(info.run_id),
        owner=owner,
    )


class DurableLog:
    """The open run of a durable journal; see RunLog. `before` is its status until it was opened."""

    __slots__ = (
        "_batch",
        "_cancelled",
        "_contents",
        "_first",
        "_give_back",
        "_loop",
        "_mark",
        "_on_cancel",
        "_on_lost",
        "_on_posted",
        "_pending",
        "_posted",
        "_queue",
        "_restored",
        "_seq",
        "_sum",
        "_taken",
        "before",
        "failure",
        "info",
        "key",
        "posted",
        "recorded",
        "row",
        "verified",
    )  # fmt: skip
    keeps_values = True
    silent = False

    def __init__(
        self,
        opened: OpenedRun,
        queue: CommitQueue,
        new_content: Callable[[], int],
        give_back: GiveBack,
    ) -> None:
        self.row = row = opened.row
        self.before = opened.before
        self.key = row.key
        self.info = row.info
        self.recorded: Sequence[Entry] = []
        self.failure: Callable[[], BaseException] | None = None
        self.verified = 0  # the state of the database in which the epoch was compared
        self._queue = queue
        self._contents = Contents(new_content)
        self._give_back = give_back
        self._on_cancel: Callable[[], None] | None = None
        self._cancelled = False
        self._on_lost: Callable[[], None] | None = None
        self._taken = False
        self._on_posted: Callable[[], None] | None = None
        self._posted = False
        self.posted = opened.posted
        self._batch: Batch | None = None
        self._pending: list[str] = []
        self._seq, self._first, self._sum = 0, 1, row.head
        self._restored = 0
        self._loop: str | None = None
        self._mark: int | None = None

    def restore(self, info: RunInfo, recorded: RecordedEntries, entries: Sequence[Entry]) -> None:
        """Continue after recorded entries, of which `entries` survive."""
        self.info = info
        self.recorded = entries
        self._contents.add_stored(recorded.contents)
        self._contents.ranks.update(recorded.ranks)
        for entry in entries:
            if entry.kind == "iteration":
                self._contents.rank(entry.path)
        self._seq, self._first, self._sum = recorded.last, recorded.last + 1, recorded.head
        self._restored = recorded.last

    @property
    def grown(self) -> bool:
        """Whether an entry was appended since it was opened."""
        return self._seq != self._restored

    def begin(self) -> bool:
        """Take the input of a run that no process has opened before; return False if more has to be read."""
        value, source = json.loads(self.row.input), json.loads(self.row.source)
        begins = self.info.epoch == 1 and not [*references(value), *references(source)]
        if begins:  # it has no entries
            self.info = replace(self.info, input=value, source=source)
        return begins

    def share(self, stored: Mapping[bytes, int]) -> None:
        """Refer to contents of another run, by their digests, instead of storing them again."""
        self._contents.add_stored(stored)

    def closed_row(self, info: RunInfo, contents: Contents) -> RunRow:
        """Return the row of the run when it is released; a changed source goes to `contents`."""
        source = self.row.source
        # Folded only if it changed, because the former contents are stored.
        if info.source != self.info.source:
            source = contents.fold(info.source)
        last, head = self._seq, self._sum
        return replace(self.row, info=info, source=source, last=last, head=head, owner=None)

    @property
    def on_cancel(self) -> Callable[[], None] | None:
        """Called on the event loop when cancellation of the run is requested."""
        return self._on_cancel

    @on_cancel.setter
    def on_cancel(self, action: Callable[[], None] | None) -> None:
        self._on_cancel = action
        if action is not None and self._cancelled:
            action()

    def request_cancel(self) -> None:
        """Pass a request to cancel from another thread to the event loop."""
        if self._cancelled:
            return
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()

    @property
    def on_lost(self) -> Callable[[], None] | None:
        """Called on the event loop when another owner took the run over."""
        return self._on_lost

    @on_lost.setter
    def on_lost(self, action: Callable[[], None] | None) -> None:
        self._on_lost = action
        if action is not None and self._taken:
            action()

    def take_away(self) -> None:
        """Refuse all further writes because another owner has the run; for the writer's thread."""
        self.lose()
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._lost)

    def _lost(self) -> None:
        # Each beat and each write finds the other owner again, and a second cancellation would end the release.
        if self._taken:
            return
        self._taken = True
        if self._on_lost is not None:
            self._on_lost()

    @property
    def on_posted(self) -> Callable[[], None] | None:
        """Called on the event loop after a new limit was put into the inbox."""
        return self._on_posted

    @on_posted.setter
    def on_posted(self, action: Callable[[], None] | None) -> None:
        self._on_posted = action
        if action is not None and self._posted:
            action()

    def count_posted(self, count: int) -> None:
        """Announce new limits if their number in the inbox changed; for a thread of the store."""
        if count != self.posted:
            self.posted = count
            self.announce_posted()

    def announce_posted(self) -> None:
        """Announce a new limit in the inbox; for another thread."""
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._has_posted)

    def _has_posted(self) -> None:
        self._posted = True
        if self._on_posted is not None:
            self._on_posted()

    def append(self, entry: Entry, /) -> None:
        """Append an entry; entries of a run that lost its lease are dropped."""
        batch = self._batch
        if batch is not self._queue.batch:
            batch = self._batch = self._queue.join(self)
        iteration = entry.kind == "iteration"
        # A row has at most one iteration, so that an index can find it.
        if len(self._pending) >= _ROW_ENTRIES or (iteration and self._loop is not None):
            self.end_row(batch)
        self._pending.append(entry_text(entry, self._contents))
        self._seq = entry.seq = self._seq + 1
        if iteration:
            self._loop, self._mark = entry.path, self._seq

    def end_row(self, batch: Batch) -> None:
        """Add the pending entries to their batch as one row."""
        if not self._pending:
            return
        first = self._first
        body, total = sealed_row(self._pending, self._sum, first)
        self._sum = total
        batch.values += (self.key, first, self._loop, self._mark, body, total)
        batch.owners.append(self)
        contents = self._contents
        if contents.waiting:
            batch.contents.append((self, contents.take()))
        contents.here = []
        self._pending = []
        self._first = self._seq + 1
        self._loop = self._mark = None

    def sync(self) -> Awaitable[None] | None:
        """Return an awaitable for the commit of all appended entries; None if they are durable."""
        if self.failure is not None:
            raise self.failure()
        batch = self._batch
        if batch is None or batch.done:
            return None
        waiter: asyncio.Future[None] = self._queue.loop.create_future()
        batch.waiters.append((waiter, self))
        return waiter

    def fail(self, error: LoopwrightError) -> None:
        """Refuse all further writes; the entries appended last may be lost."""
        # A new error for each caller: one that is raised twice would collect tracebacks.
        kind, message = type(error), str(error)
        self.failure = lambda: kind(message)

    def lose(self, why: str = "another owner took this run over") -> None:
        """Refuse all further writes because this log does not own the run any more."""
        message = f"{self.info.run_id}: {why}"
        self.failure = lambda: OwnershipLost(message)

    async def close(self, info: RunInfo) -> None:
        """Write the run's row and give the run back.

        Raises:
            JournalUnavailable: if the store failed to write; the run is left as interrupted, once the store
                can be written again.
        """
        # The new owner writes the row; this one may not change it.
        if isinstance(self._error(), OwnershipLost):
            return
        self._queue.flush()
        try:
            await self._give_back(self, info)
        except JournalError as refused:
            self.fail(refused)  # from now on its process does not claim the run any more
            raise
        error = self._error()
        # A later append is an error of the engine, which must not pass silently.
        self.lose("this log is closed")
        if error is not None and not isinstance(error, OwnershipLost):
            raise error

    def _error(self) -> BaseException | None:
        return self.failure() if self.failure is not None else None


def sealed_row(entries: Sequence[str], before: bytes, first: int) -> tuple[str, bytes]:
    """Return the body of a row of entries from number `first` on, and its checksum."""
    body, data = utf8(f"[{','.join(entries)}]")
    return body, chained(before, first, data)


def _usage_text(usage: Usage) -> str:
    text = f"[{usage.calls},{usage.input_tokens},{usage.output_tokens},{usage.usd!r}"
    if usage.cached:
        text = f"{text},{usage.unpriced},{usage.estimated},{usage.cached},{usage.saved!r}"
    elif usage.unpriced or usage.estimated:
        text = f"{text},{usage.unpriced},{usage.estimated}"
    return text + "]"


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6 + 0.5)


def entry_text(entry: Entry, contents: Contents) -> str:
    """Return an entry as compact JSON text; its long values go to `contents`."""
    kind, value, reserved = entry.kind, entry.value, entry.reserved
    if value is None:
        folded = "null"
    elif kind == "iteration" and isinstance(value, Iteration):
        folded = _iteration_text(value, entry.path, contents)
    else:
        folded = contents.fold_fields(value, DEPTHS.get(kind, 0))
    contents.here.append(folded)
    fields = [
        f'"{KINDS.get(kind, kind)}"',
        encode(entry.path),
        str(_microseconds(entry.at)),
        _fingerprint_text(entry, contents),
        str(_microseconds(entry.seconds)),
        folded,
        _usage_text(entry.usage) if entry.usage is not NOTHING else "0",
        _usage_text(reserved) if reserved is not NOTHING and reserved else "0",
        encode(entry.error.to_json()) if entry.error is not None else "null",
    ]
    # Most entries lack the last fields.
    while fields[-1] == _BLANK[len(fields) - 1]:
        fields.pop()
    return f"[{','.join(fields)}]"


def _fingerprint_text(entry: Entry, contents: Contents) -> str:
    if not entry.fingerprint:
        return "0"
    if entry.kind == "started":
        contents.intents[entry.path] = entry.fingerprint
    # Forgotten once it is used, so that the table has effects in flight only.
    elif contents.intents.pop(entry.path, "") == entry.fingerprint:
        return "1"
    return encode(entry.fingerprint)


def _iteration_text(item: Iteration, loop: str, contents: Contents) -> str:
    parts = [f'{{"iteration":{item.number}']
    for name in ("input", "output"):
        value = getattr(item, name)
        if value is not None:
            parts.append(f'"{name}":{contents.fold(value)}')
    if item.evaluation is not None:
        parts.append(f'"evaluation":{contents.fold_evaluation(item.evaluation)}')
    if item.error is not None:
        parts.append(f'"error":{encode(item.error.to_json())}')
    if (usage := item.usage) is not NOTHING and usage:
        parts.append(f'"used":{_usage_text(usage)}')
    if item.seconds:
        parts.append(f'"took":{_microseconds(item.seconds)}')
    parts += [
        f'"{flag}":true' for flag in ("interrupted", "truncated", "explored") if getattr(item, flag)
    ]
    if steps := item.steps:
        parts.append(f'"steps":{contents.fold(dict(steps))}')
    if item.files is not None:
        parts.append(f'"files":{encode(dict(item.files))}')
    parts += _measures_text(item)
    # The rows of candidates are the value of the choice, which is stored already.
    parts += [f'"{name}":{contents.fold(value)}' for name, value in item.lineage_json().items()]
    in_run, in_loop = contents.rank(loop)  # last: a rank is used only if nothing above fails
    # A reader of one page compares it with the expected rank and so detects a missing row.
    parts.append(f'"rank":[{in_run},{in_loop}]')
    return ",".join(parts) + "}"


def _measures_text(item: Iteration) -> Iterator[str]:
    if item.measures:
        measures = {measure.name: measure.to_json() for measure in item.measures}
        yield f'"measures":{encode(measures)}'
    if item.accepted is not None:
        yield f'"accepted":{"true" if item.accepted else "false"}'
