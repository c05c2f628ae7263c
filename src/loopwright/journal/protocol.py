"""The protocol that every store of runs implements, with its entries, its files and the form of its URLs.

The contents of files that runs use are stored once each, by their digest. URLs are shown without passwords.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ..errors import ConfigurationError, JournalDamaged, RunLocked, RunNotFound, StepError, nearest
from ..records import (
    NOTHING,
    Evaluation,
    Failure,
    Iteration,
    Record,
    Result,
    Usage,
    own_json,
    viewed,
)
from ..records.codec import Json, text_of
from ..records.typed import Value

if TYPE_CHECKING:
    from pathlib import Path

    from .events import Event, OpenWait, Signalled
    from .views import RunPage, RunView, Wanted, Watch

__all__ = [
    "FileStore",
]


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """One event of a run.

    Args:
        kind: the type of the event:

            - `started`: an effect begins; `reserved` is its worst-case usage
            - `finished`: an effect ended, with its `value` or `error`
            - `cut`: an effect was cancelled and has no outcome; with a value, it stopped to ask a
              person
            - `expired`: a step exceeded its own time limit
            - `iteration`: the record of an iteration; its `error` names the guard that cut it short
            - `ended`: a loop ended; with an empty path, the run
            - `suspended`, `interrupted`: the run paused
            - `asked`, `answered`: a question to a person, and the answer
            - `rewound`: the results from `path` onward are discarded; with a value `{"only": [path, …]}` exactly
              those at or under these paths, with `{"undo": true}` none: the rewind before is undone
            - `accepted`, `warned`: an accepted change of code, a warning
            - `reported`: the report of an agent about its end
            - `would_stop`: the normal end of a loop that explores: its `stop` and the `iterations` until then
            - `step`: the outcome of a step of the root workflow
            - `tuned`: a person changed a limit; see `journal.replay`
            - `noise`: the noise of scores in past runs: `sigma` and the number of `runs`, by loop
            - `waiting`, `woken`: a wait begins, and its decision; `taken`: the number of an event that the run took
            - `steered`: the hints of people that an iteration has read
            - `planned`: from where an iteration continues: its parent, chain and strategy, why, and what was drawn
            - `forked`: the run continues another one; its `value` names that run and the path
            - `folded`: everything at and under the path has ended, and a resume reads this entry in its place; `usage`
              is what was spent there, `value` has the number of `effects`, the `judging` part of the usage, and the
              `value` of whoever folds it
        path: the place in the run, such as `refine/2/execute`; empty for the run itself.
        at: active seconds of the run at the event; for an effect, at its beginning.
        value: the value of the event, by kind.
        fingerprint: the identity of the step, for effects.
        error: the failure of an effect or a guard.
        usage: calls, tokens and dollars of the effect.
        reserved: the usage reserved for an effect that has begun.
        seconds: active seconds that an effect took; for an iteration, those of its loop so far.
        seq: its number in the run, from 1; assigned by the journal.
    """

    kind: str
    path: str
    at: float
    value: Json = None
    fingerprint: str = ""
    error: Failure | None = None
    usage: Usage = NOTHING
    reserved: Usage = NOTHING
    seconds: float = 0.0
    seq: int = 0

    def view(self) -> Entry:
        """Return the entry for one reader, who receives a copy of its value."""
        copy = _View(
            kind=self.kind,
            path=self.path,
            at=self.at,
            value=None,
            fingerprint=self.fingerprint,
            error=self.error,
            usage=self.usage,
            reserved=self.reserved,
            seconds=self.seconds,
            seq=self.seq,
        )
        del copy.value
        copy.recorded = self.value
        return copy

    def __repr__(self) -> str:
        return f"Entry({self.seq} {self.kind} {self.path!r} at {self.at:.3f})"

    def to_json(self) -> dict[str, Json]:
        """Return the entry as a JSON object without empty fields."""
        value = self.value
        # The engine appends records themselves; JSON is made only for readers outside it.
        if isinstance(value, Iteration | Evaluation):
            value = value.to_json()
        data: dict[str, Json] = {"seq": self.seq, "kind": self.kind, "path": self.path}
        data["at"] = round(self.at, 6)
        if value is not None:
            data["value"] = value
        if self.fingerprint:
            data["fingerprint"] = self.fingerprint
        if self.error is not None:
            data["error"] = self.error.to_json()
        if self.usage:
            data["usage"] = self.usage.to_json()
        if self.reserved:
            data["reserved"] = self.reserved.to_json()
        if self.seconds:
            data["seconds"] = round(self.seconds, 6)
        return data

    @classmethod
    def from_json(cls, data: dict[str, Json]) -> Entry:
        """Return the entry that `to_json` wrote."""
        value = data.get("value")
        if data["kind"] == "iteration":
            value = Iteration.from_json(data["value"])
        return cls(
            data["kind"],
            data["path"],
            data["at"],
            value=value,
            fingerprint=data.get("fingerprint", ""),
            error=Failure.from_json(data.get("error")),
            usage=Usage.from_json(data.get("usage")),
            reserved=Usage.from_json(data.get("reserved")),
            seconds=data.get("seconds", 0.0),
            seq=data.get("seq", 0),
        )


class _View(Entry):
    """An entry for one reader: its value is copied when it is first read, as most readers read few of many."""

    __slots__ = ("recorded",)
    recorded: Json

    def __getattr__(self, name: str) -> Json:
        # Only the slot of the value is empty, until it is read.
        if name != "value":
            return object.__getattribute__(self, name)
        self.value = own_json(self.recorded)
        return self.value


# Whatever is repeated, a person set a limit for the run, and an event is taken once.
_STAYS = ("tuned", "taken")
_BESIDE_FOLDS = (*_STAYS, "reported")  # the reports of agents are in the result of the run
Item = TypeVar("Item")


def without_folded(items: list[Item], place: Callable[[Item], tuple[str, str]]) -> list[Item]:
    """Return surviving entries without those that an entry of kind `folded` after them stands for.

    Args:
        items: the entries in order, in any form.
        place: returns the kind and the path of one.
    """
    places = [place(item) for item in items]
    folds = {path: i for i, (kind, path) in enumerate(places) if kind == "folded"}
    return [
        items[i]
        for i, (kind, path) in enumerate(places)
        if kind in _BESIDE_FOLDS or not _is_folded(i, path, folds)
    ]


def _is_folded(number: int, path: str, folds: Mapping[str, int]) -> bool:
    end = len(path)
    while end > 0:
        if folds.get(path[:end], -1) > number:
            return True
        end = path.rfind("/", 0, end)
    return False


def surviving(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that no rewind has set aside, in order.

    A rewind to a path sets aside all entries from the first one at or under that path onward, and
    each "started" whose outcome is set aside with them; see `is_at` for the forms of a path.
    """
    remaining: list[Entry] = []
    former: list[Entry] = []  # what the latest rewind had before it
    for entry in entries:
        # In order, because a later rewind may set aside entries that follow an earlier one.
        if entry.kind != "rewound":
            remaining.append(entry)
        elif (how := entry.value or {}).get("undo"):
            known = set(map(id, former))
            tuned = [one for one in remaining if one.kind in _STAYS and id(one) not in known]
            remaining = former + tuned
        else:
            former = remaining
            only = how.get("only")
            remaining = _without(former, only) if only else _before(former, entry.path)
    return remaining


def is_at(entry: Entry, path: str) -> bool:
    """Return whether an entry is at or under a path.

    `PATH/ended` names the end of the loop at PATH (`ended` alone the end of the run), `PATH/3/record`
    the record of its third iteration.
    """
    own = entry.path
    if own == path or own.startswith(path + "/"):
        return True
    if entry.kind == "ended":
        return path == (f"{own}/ended" if own else "ended")
    point = path.removesuffix("/record")
    return point != path and entry.kind == "iteration" and point == f"{own}/{entry.value.number}"


def _before(entries: list[Entry], path: str) -> list[Entry]:
    first = next((i for i, e in enumerate(entries) if is_at(e, path)), None)
    if first is None:
        first = len(entries)  # the path has no entries yet: only the run's end is set aside
    # Every rewind also removes the end of the run, so that the run continues.
    remaining = [e for e in entries[:first] if e.kind != "ended" or e.path]
    # A "started" without its outcome would be an effect in doubt.
    finished = {e.path for e in remaining if e.kind == "finished"}
    undone = {e.path for e in entries[first:] if e.kind == "finished"} - finished
    remaining = [e for e in remaining if not (e.kind == "started" and e.path in undone)]
    return remaining + [e for e in entries[first:] if e.kind in _STAYS]


def _without(entries: list[Entry], paths: Sequence[str]) -> list[Entry]:
    """Return the entries that are not at or under the paths; what they are part of has not ended either."""
    above = {"", *(point for path in paths for point in points_of(path))}
    return [
        e
        for e in entries
        if e.kind in _STAYS
        or not (
            (e.kind in ("ended", "step", "would_stop", "suspended", "folded") and e.path in above)
            or any(is_at(e, path) for path in paths)
        )
    ]


def points_of(path: str) -> Iterator[str]:
    """Iterate over a path and the paths that it begins with, the shortest first."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts) + 1))


def nothing_at(path: str, entries: Sequence[Entry]) -> RunNotFound:
    """Return the error for a path without entries; it names the nearest path."""
    # Composite steps and iterations have no entries, but a rewind or a fork may begin at one.
    points = {point for entry in entries for point in points_of(entry.path)}
    return RunNotFound(f"nothing was recorded at {path!r}{nearest(path, sorted(points))}")


def kept_by_fork(entries: Sequence[Entry], path: str) -> list[Entry]:
    """Return the surviving entries of a run that a fork at `path` begins with.

    Calls without an outcome are left out: they belong to the run that made them.

    Raises:
        RunNotFound: if no entry is at or under that path; names the nearest path.
    """
    remaining = surviving(entries)
    if not any(is_at(entry, path) for entry in remaining):
        raise nothing_at(path, remaining)
    first = next(i for i, entry in enumerate(remaining) if is_at(entry, path))
    kept = [e for e in _before(remaining, path)[:first] if e.kind not in _OF_PROCESSES]
    finished = {e.path for e in kept if e.kind == "finished"}
    before = {id(entry) for entry in remaining[:first]}
    return [
        e
        for e in kept
        if id(e) in before and (e.kind not in ("started", "cut") or e.path in finished)
    ]


_OF_PROCESSES = ("suspended", "interrupted")  # the end of a process, which a fork does not share


def is_note(fingerprint: str) -> bool:
    """Return whether an effect only records a value for a later resume, by its fingerprint `note.…`.

    Limits on the number of effects do not count notes.
    """
    return fingerprint.startswith("note.")


_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileStore:
    """Contents by the SHA-256 digest of their bytes: in a folder, or in memory.

    Args:
        folder: the folder, which the first content creates. Default: contents stay in memory.

    Example:
        >>> store = FileStore()
        >>> digest = store.put(b"content")
        >>> digest[:12], store.get(digest)
        ('ed7002b439e9', b'content')
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._contents: dict[str, bytes] = {}

    @property
    def journal_folder(self) -> Path | None:
        """The folder with the journal and the folder of these contents; None if they are in memory."""
        return self._folder and self._folder.parent

    @property
    def journal_files(self) -> tuple[Path, ...]:
        """The database of the journal, what SQLite and a lock keep beside it, and the folder of these contents."""
        ends = ("", "-wal", "-shm", "-journal", "-lock", ".files")
        databases = [] if self._folder is None else [self._folder.with_suffix("")]
        return tuple(one.with_name(f"{one.name}{end}") for one in databases for end in ends)

    def put(self, content: bytes) -> str:
        """Store a content and return its digest; an existing content is not written again."""
        digest = hashlib.sha256(content).hexdigest()
        if self._folder is None:
            self._contents[digest] = content
            return digest
        path = self._path(self._folder, digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written under another name and renamed, so that a crash leaves no incomplete content. The
            # thread is part of the name, because threads of one process may store the same content.
            partial = path.with_name(f"{digest}.{os.getpid()}.{threading.get_ident()}.part")
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the content with a digest.

        Raises:
            StepError: of kind `file_missing` if it is not there, or is damaged.
        """
        if self._folder is None:
            content = self._contents.get(digest)
        else:
            try:
                content = self._path(self._folder, digest).read_bytes()
            except OSError:
                content = None
        # Checked at each read: a prompt must not contain a damaged file.
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            state = "is missing" if content is None else "is damaged"
            where = "in memory" if self._folder is None else f"in {self._folder}"
            raise StepError(f"the recorded file {digest[:12]} {state} {where}", kind="file_missing")
        return content

    def digests(self) -> list[str]:
        """Return the digests of all contents."""
        if self._folder is None:
            return list(self._contents)
        names = (path.name for path in sorted(self._folder.glob("??/*")))
        return [name for name in names if _DIGEST.fullmatch(name)]

    @staticmethod
    def _path(folder: Path, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            # The digest may come from a document; it must not name another path.
            raise StepError(f"{digest!r:.80} is not the digest of a file", kind="file_missing")
        return folder / digest[:2] / digest


T = TypeVar("T")
DAMAGED = "damaged"  # the status of a run in a list whose record cannot be read


@viewed("input", "source")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunInfo(Record):
    """The row of a run in the list of runs.

    Args:
        run_id: the id, unique in the journal.
        name: the name of the run: that of its step or document, or one of its own.
        input: the input of the run.
        fingerprint: the identity of the step.
        source: how the command line loads the step again: document and settings.
        status: `queued` (no process has opened it yet), `running`, `interrupted` (its process ended;
            resume it) or a Status. In a list also `damaged`: its record does not match its checksum.
        reason: the Reason of its end; empty until then.
        detail: the sentence of its end.
        created, updated: seconds since the epoch.
        active: seconds during which a process ran it.
        epoch: how many times it was opened.
        iterations: the number of its iterations.
        score: the best score, from 0 to 1; of an evaluation of a data set, its mean score.
        usage: calls, tokens and dollars so far.
        owner: the process that runs it, as `HOST:PID`; empty if none does.
        queue: the queue that it was submitted to; empty for a run that a process started itself.
        priority: runs with a higher number are started first.
        wake_at: when it is to be started, in seconds since the epoch; 0 is at once.
        deliveries: how many times it was handed to a worker without a new entry since.
        tags: the names and values that people gave it, to find it again.
    """

    run_id: str
    name: str
    input: Json = None
    fingerprint: str = ""
    source: dict[str, Json] = field(default_factory=dict)
    status: str = "running"
    reason: str = ""
    detail: str = ""
    created: float = 0.0
    updated: float = 0.0
    active: float = 0.0
    epoch: int = 0
    iterations: int = 0
    score: float | None = None
    usage: Usage = NOTHING
    owner: str = ""
    queue: str = ""
    priority: int = 0
    wake_at: float = 0.0
    deliveries: int = 0
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """The name of its step, with which the paths of its entries begin."""
        return text_of(self.source.get("step") or self.name)

    @property
    def seed(self) -> int:
        """The seed of what the run draws: the one that it was given, else one from its ID."""
        given = self.source.get("seed")
        if isinstance(given, int):
            return given
        return int.from_bytes(hashlib.sha256(self.run_id.encode()).digest()[:4], "big")

    @property
    def scripted(self) -> bool:
        """Whether scripted replies answer its model calls."""
        # A list has the tags only, because the source may be a content.
        return self.tags.get("replies") == "scripted" or bool(self.source.get("replies"))

    def as_damaged(self, error: JournalDamaged) -> RunInfo:
        """Return the row as lists show it: damaged, with the error as its detail."""
        return replace(self, status=DAMAGED, detail=str(error))

    def view(self, *, typed: bool = False) -> RunInfo:
        """Return the row for one reader, who receives copies of its input and source."""
        return Record.view(self, typed=typed)

    def to_json(self) -> dict[str, Json]:
        """Return the row as a JSON object, as the command line prints it."""
        data: dict[str, Json] = {
            "run_id": self.run_id,
            "name": self.name,
            "status": self.status,
            "reason": self.reason,
            "detail": self.detail,
            "input": self.input,
            "created": self.created,
            "updated": self.updated,
            "active": round(self.active, 6),
            "iterations": self.iterations,
            "score": self.score,
            "usage": self.usage.to_json(),
            # The texts of documents would fill the output.
            "source": {k: v for k, v in self.source.items() if k not in ("documents", "code")},
            "fingerprint": self.fingerprint,
            "tags": self.tags,
        }
        if self.queue:
            data |= {
                "queue": self.queue,
                "priority": self.priority,
                "wake_at": self.wake_at,
                "deliveries": self.deliveries,
                "owner": self.owner,
            }
        return data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rewind(Value):
    """The result of a rewind.

    Args:
        path: the place from which the run continues; "" for several places, and after an undo.
        entries: the number of entries that no longer count; of an undo, those that count again.
        iterations: the number of iterations among them.
        usage: what they had cost.
    """

    path: str
    entries: int
    iterations: int = 0
    usage: Usage = NOTHING


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Posted(Value):
    """An answer in the inbox of a run.

    Args:
        path: the path of the question.
        asked: the number of the entry with the question.
        value: the answer.
        who: the name of the person. A store that knows who is connected adds that, such as
            `alice (database role ops)`.
        at: seconds since the epoch.
    """

    path: str
    asked: int
    value: Json
    who: str = ""
    at: float = 0.0


class RunLog(Protocol):
    """The open journal of one run, held by its owner."""

    info: RunInfo
    recorded: Sequence[Entry]
    """The surviving entries from before this opening, in order."""
    on_cancel: Callable[[], None] | None
    """Called on the event loop within a second of a request to cancel the run."""
    on_lost: Callable[[], None] | None
    """Called on the event loop, at the latest with the next beat, when another owner took the run over."""
    on_posted: Callable[[], None] | None
    """Called on the event loop within a second after a new limit was put into the run's inbox."""
    posted: int
    """How many new limits its inbox had when the store looked last."""
    silent: bool
    """Whether no reader exists, so that entries need not be created."""
    keeps_values: bool
    """Whether values outlive the process, so that fingerprints are needed."""

    @property
    def grown(self) -> bool:
        """Whether it may have entries that are not in `recorded`."""

    def append(self, entry: Entry, /) -> None:
        """Append an entry to the order of the run; `sync` makes it durable."""

    def sync(self) -> Awaitable[None] | None:
        """Return an awaitable for the commit of all appended entries; None if they are durable.

        Raises:
            OwnershipLost: if another owner took the run over.
            JournalUnavailable: if the store could not be written.
        """

    async def close(self, info: RunInfo) -> None:
        """Write the row of the run, and release the lease."""


class NoLog:
    """The log of a run without a journal: it keeps no entries."""

    keeps_values = False
    silent = True
    grown = True
    posted = 0
    recorded: Sequence[Entry] = ()
    __slots__ = ("info", "on_cancel", "on_lost", "on_posted")

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self.on_cancel: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.on_posted: Callable[[], None] | None = None

    @staticmethod
    def append(entry: Entry) -> None:
        """Drop the entry."""

    @staticmethod
    def sync() -> None:
        """Return None: no entry waits."""

    async def close(self, info: RunInfo) -> None:
        """Do nothing."""


class Journal(Protocol):
    """A record of runs; all stores pass one suite of tests. As an async context manager it closes itself.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, run
        >>> async def example() -> None:
        ...     loop = Loop(lambda n: n + 1, lambda n: n / 10, until=MaxIterations(3), name="count")
        ...     async with open_journal("memory:") as journal:
        ...         await run(loop, 1, journal=journal, run_id="r1")
        ...         print([info.status for info in await journal.runs()])
        >>> from loopwright.journal import open_journal
        >>> asyncio.run(example())
        ['exhausted']
    """

    async def __aenter__(self) -> Self:
        """Return this journal."""

    async def __aexit__(self, *_: object) -> None:
        """Close the journal."""

    async def open(self, info: RunInfo, *, resume: bool = False, takeover: bool = False) -> RunLog:
        """Open a run for writing and take its lease.

        Args:
            info: the run; a new `run_id` creates a run, an existing one is opened again.
            resume: require that the run exists.
            takeover: take the lease even from a live owner, which can then write nothing more.

        Raises:
            RunNotFound: with `resume`, if there is no such run.
            RunLocked: if a live process owns it.
            JournalDamaged: if a record does not match its checksum.
        """

    async def create(self, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs that no process has opened yet; their status is `queued`.

        Args:
            runs: the rows; a run whose `run_id` exists already stays as it is.

        Returns:
            The ids of the created runs, once they are durable.
        """

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""

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
        """Return the rows of runs, by default newest first.

        Args:
            limit, offset: the page.
            name: only runs with this name.
            status: only runs with this status, or one of several with commas between.
            text: only runs with this text in their id, name, detail, tags, input, outputs or feedback, in any case.
            queue: only runs that were submitted to this queue. Queues have no index: without a status
                or a name, a page of a queue with few runs may read all rows.
            worker: only runs that this process holds, `HOST:PID` as in `RunInfo.owner` and in
                `loopwright worker list`. If it ended, its runs count until another process takes them.
            schedule: only runs of the schedule with this name.
            since: only runs that were created at this time or later, in seconds since the epoch.
            tags: only runs with all of these tags, each as `NAME=VALUE`, or `NAME` for any value.
            sort: their order, one of `views.ORDERS`: the latest, the highest and the dearest first, names and
                statuses by letter. A `-` before it reverses the order.

        Raises:
            ConfigurationError: for an unknown order.
        """

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        """Return the entries of a run with `seq` above `after`, in order; a `limit` of 0 is all."""

    async def iterations(
        self, run_id: str, *, loop: str = "", offset: int = 0, limit: int = 100
    ) -> list[tuple[str, Iteration]]:
        """Return a page of (loop path, iteration) pairs of a run; `loop` selects one loop."""

    async def result(self, run_id: str) -> Result:
        """Return the recorded result of a run, without its step.

        A run that has not ended counts as cancelled; its output is the best so far.

        Args:
            run_id: the run, or a unique prefix of its ID.

        Raises:
            RunNotFound: if there is no such run.

        Example:
            >>> import asyncio
            >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync
            >>> journal, loop = MemoryJournal(), Loop(lambda n: n + 1, name="l", until=MaxIterations(2))
            >>> _ = run_sync(loop, 1, journal=journal, run_id="r")
            >>> asyncio.run(journal.result("r")).output
            2
        """

    async def cancel(self, run_id: str) -> bool:
        """Ask the owner of a run to cancel it, or end a queued or suspended run.

        Returns:
            False if the run is neither queued, running nor suspended.
        """

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run, and return the first answer to its question.

        Only the first answer counts. The next opening of the run moves it to the entries. New limits
        (`journal.replay`) are put there too; the owner of an open run is notified of them.
        """

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return all answers ever put into the inbox of a run, in the order of their questions."""

    async def signal(self, event: Event) -> Signalled:
        """Store an event for the runs that wait for its name and key, now or later.

        Raises:
            ConfigurationError: if too many events were taken by no run; nothing is stored.
        """

    async def look_for(self, waits: Sequence[OpenWait]) -> tuple[float, list[Event | None]]:
        """Register the waits of one path, and return the time of the store and the first event for each.

        No signal falls between the look at events and the registration.
        """

    async def end_wait(self, run_id: str, path: str = "", taken: Sequence[int] = ()) -> int:
        """Remove the waits of a run, by default at all paths; `taken` are the numbers of the events that it took.

        Returns:
            Without a path, how many events whose key is the ID of the run were taken by no run.
        """

    async def waits(
        self, run_id: str = "", *, due: float = math.inf, limit: int = 1000
    ) -> list[OpenWait]:
        """Return open waits, those that are due first.

        Args:
            run_id: only those of this run.
            due: only those that are due at this time, in seconds since the epoch.
            limit: how many.
        """

    async def tag(self, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Add tags to a run, whoever owns it, and return all that it has; an empty value removes a tag.

        Raises:
            RunNotFound: if there is no such run.
            ConfigurationError: for a tag that is not valid.
        """

    async def fork(self, origin: str, info: RunInfo, entries: Sequence[Entry]) -> None:
        """Create a run that begins with entries of another one; their values are not stored again.

        Args:
            origin: the ID of the run that has the entries.
            info: the row of the new run, whose status becomes `interrupted`.
            entries: the entries, in order.

        Raises:
            RunNotFound: if there is no run `origin`.
            RunLocked: if a run with the new ID exists.
        """

    async def rewind(
        self, run_id: str, path: str = "", *, only: Sequence[str] = (), undo: bool = False
    ) -> Rewind:
        """Discard the recorded results from `path` onward, so that a resume repeats that part.

        Args:
            run_id: the run.
            path: the place from which it is repeated.
            only: instead of `path`, the places of which exactly the results are discarded.
            undo: instead of `path`, take back the latest rewind; the run has not continued since.

        Raises:
            RunNotFound: if there is no such run or path.
            RunLocked: if the run has a live owner, or there is no rewind to undo.
        """

    async def view(self, run_id: str, work: Callable[[RunView], T]) -> T:
        """Return the result of `work` on the view of a run, which is read at one moment.

        `work` may be called in another thread.
        """

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list, which is read at one moment.

        `work` may be called in another thread.
        """

    def watch(self) -> Watch:
        """Return a detector of commits by any process; close it."""

    async def close(self) -> None:
        """Write all waiting entries and close the store."""


_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,63}")
_VALUE = 200  # characters of the value of a tag
_TAGS = 16  # of a run


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags in the order of their names. Raises ConfigurationError.

    Example:
        >>> checked_tags({"team": "search", "pr": "7"})
        {'pr': '7', 'team': 'search'}
    """
    for name, value in tags.items():
        if not (isinstance(name, str) and _TAG.fullmatch(name)):
            raise ConfigurationError(
                f"tag: {name!r:.80} is not a name; use 1 to 64 letters, digits, _, -, . and /"
            )
        if not (isinstance(value, str) and len(value) <= _VALUE and value.isprintable()):
            raise ConfigurationError(
                f"tag: the value of {name} is not a line of at most {_VALUE} characters"
            )
    if len(tags) > _TAGS:
        raise ConfigurationError(f"tag: {len(tags)} tags are too many; a run has at most {_TAGS}")
    return dict(sorted(tags.items()))


def with_tags(before: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a run after a change; an empty value removes one. Raises ConfigurationError."""
    checked_tags(tags)
    return checked_tags({name: value for name, value in {**before, **tags}.items() if value})


MATCHES = 100  # runs that are read for the beginning of an id


def existing_run(run_id: str) -> RunLocked:
    """Return the error for a new run whose ID is taken."""
    return RunLocked(f"{run_id}: a run with this ID exists; use another ID")


def missing_run(run_id: str, matches: int = 0) -> RunNotFound:
    """Return the error for an id that matches no run, or several."""
    # A prefix of several runs is an error: acting on the wrong run cannot be undone.
    if matches:
        many = f"{matches} runs" if matches < MATCHES else f"{MATCHES} runs or more"
        return RunNotFound(f"{run_id!r} matches {many}; use more characters of the id")
    return RunNotFound(
        f"there is no run {run_id!r} in this journal", "; list them with: loopwright runs"
    )


_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@|(?<=[?&]password=)[^&]*")
_OPTIONS: dict[str, Json] = {
    "connect_timeout": "10",
    # The defaults of libpq notice a vanished server after two hours.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    # Milliseconds until data that nobody acknowledges ends a connection.
    "tcp_user_timeout": "20000",
}


def shown_url(url: str) -> str:
    """Return a journal's URL without its password.

    Example:
        >>> shown_url("postgres://me:secret@db/runs")
        'postgres://me:***@db/runs'
    """
    return _PASSWORD.sub(lambda match: f"{match[1]}:***@" if match[1] is not None else "***", url)


def session_options(url: str, role: str) -> dict[str, Json]:
    """Return the options of a session in the PostgreSQL database of a URL; those of the URL apply first.

    Args:
        url: a URL as libpq reads it.
        role: what the session is for, as lists of sessions name it.

    Raises:
        psycopg.ProgrammingError: if libpq cannot read the URL.
    """
    from psycopg.conninfo import conninfo_to_dict  # comes with an extra

    return {**_OPTIONS, "application_name": f"loopwright {role}", **conninfo_to_dict(url)}
