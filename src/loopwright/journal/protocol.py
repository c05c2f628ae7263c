"""The protocol that every store of runs implements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ..errors import RunLocked, RunNotFound
from ..records import NOTHING, Iteration, Record, Result, Usage, viewed
from ..records.codec import Json
from .entries import Entry

if TYPE_CHECKING:
    from .views import RunPage, RunView, Wanted, Watch

T = TypeVar("T")


@viewed("input", "source")
@dataclass(frozen=True, slots=True)
class RunInfo(Record):
    """The row of a run in the list of runs.

    Args:
        run_id: the id, unique in the journal.
        name: the name of the step or document.
        input: the input of the run.
        fingerprint: the identity of the step.
        source: how the command line loads the step again: document and settings.
        status: `queued` (no process has opened it yet), `running`, `interrupted` (its process ended;
            resume it) or a Status.
        reason: the Reason of its end; empty until then.
        detail: the sentence of its end.
        created, updated: seconds since the epoch.
        active: seconds during which a process ran it.
        epoch: how many times it was opened.
        iterations: the number of its iterations.
        score: the best score, from 0 to 1.
        usage: calls, tokens and dollars so far.
        owner: the process that runs it, as `HOST:PID`; empty if none does.
        queue: the queue that it was submitted to; empty for a run that a process started itself.
        priority: runs with a higher number are started first.
        wake_at: when it is to be started, in seconds since the epoch; 0 is at once.
        deliveries: how many times it was handed to a worker without a new entry since.
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


@dataclass(frozen=True, slots=True)
class Rewind:
    """The result of a rewind.

    Args:
        path: the place from which the run continues.
        entries: the number of entries that no longer count.
    """

    path: str
    entries: int


@dataclass(frozen=True, slots=True)
class Posted:
    """An answer in the inbox of a run.

    Args:
        path: the path of the question.
        asked: the number of the entry with the question.
        value: the answer.
        who: the name of the person.
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
    silent: bool
    """Whether no reader exists, so that entries need not be created."""
    keeps_values: bool
    """Whether values outlive the process, so that fingerprints are needed."""

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
    ) -> list[RunInfo]:
        """Return the rows of runs, newest first.

        Args:
            limit, offset: the page.
            name, status: only runs with this name or status.
            text: only runs whose row contains this text, in any case.
            queue: only runs that were submitted to this queue. Queues have no index: without a status
                or a name, a page of a queue with few runs may read all rows.
            worker: only runs that this process holds, `HOST:PID` as in `RunInfo.owner` and in
                `loopwright workers`. If it ended, its runs count until another process takes them.
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
        (`journal.tunes`) are put there too; the owner of an open run is notified of them.
        """

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return all answers ever put into the inbox of a run, in the order of their questions."""

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

    async def rewind(self, run_id: str, path: str) -> Rewind:
        """Discard the recorded results from `path` onward, so that a resume repeats that part.

        Raises:
            RunNotFound: if there is no such run or path.
            RunLocked: if the run has a live owner.
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


def existing_run(run_id: str) -> RunLocked:
    """Return the error for a new run whose ID is taken."""
    return RunLocked(f"{run_id}: a run with this ID exists; use another ID")


def missing_run(run_id: str, matches: int = 0) -> RunNotFound:
    """Return the error for an id that matches no run, or several."""
    # A prefix of several runs is an error: acting on the wrong run cannot be undone.
    if matches:
        return RunNotFound(f"{run_id!r} matches {matches} runs; use more characters of the id")
    return RunNotFound(
        f"there is no run {run_id!r} in this journal", "; list them with: loopwright runs"
    )
