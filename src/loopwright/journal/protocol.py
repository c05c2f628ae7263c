"""What every store of runs offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import RunNotFound
from ..records import NOTHING, Held, Iteration, Record, Usage, read_by_copy
from ..records.codec import Json
from .entries import Entry


@read_by_copy("input", "source")
@dataclass(frozen=True, slots=True)
class RunInfo(Record):
    """The row of a run: what it is and how far it is.

    `created` and `updated` are wall-clock seconds since the epoch, `active` the seconds it was
    alive. `source` says how to load it again (document, settings), as the command line needs it to
    resume. `status` is `running`, `interrupted` (its process is gone or was asked to stop; resume
    it) or a Status.
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

    def view(self) -> RunInfo:
        """Return it for one reader, who gets copies of its input and source."""
        return self.altered(input=Held(self.input), source=Held(self.source))

    def altered(self, **changes: Any) -> RunInfo:
        """Return a copy in which some fields are others, in a third of `dataclasses.replace`'s time."""
        get = changes.get
        return RunInfo(*[get(name, getattr(self, name)) for name in self.__slots__])

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
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
            "source": {k: v for k, v in self.source.items() if k != "documents"},
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class Rewind:
    """What a rewind set aside: the path it went back to and how many entries."""

    path: str
    entries: int


@dataclass(frozen=True, slots=True)
class Posted:
    """An answer in the inbox of a run: to the question that entry number `asked` asked at `path`.

    `who` gave it and when: `at` are seconds since the epoch.
    """

    path: str
    asked: int
    value: Json
    who: str = ""
    at: float = 0.0


class RunLog(Protocol):
    """The open journal of one run, held by its one owner."""

    info: RunInfo
    recorded: Sequence[Entry]
    """What survived of the run before this opening, in order."""
    on_cancel: Callable[[], None] | None
    """Called on the event loop when someone asks for the run to be cancelled, within a second."""
    silent: bool
    """Whether nobody can ever read it, so that entries need not be made."""
    keeps_values: bool
    """Whether values outlive the process, so that fingerprints are worth computing."""

    def append(self, entry: Entry, /) -> None:
        """Put an entry in order."""

    def sync(self) -> Awaitable[None] | None:
        """Return what to await until everything appended is durable; None if it is already.

        Raises:
            OwnershipLost: if another owner took the run over.
            JournalUnavailable: if it could not be written.
        """

    async def close(self, info: RunInfo) -> None:
        """Write how far the run is, give the lease back and forget the run."""


class Journal(Protocol):
    """A durable record of runs; memory, SQLite and others pass one contract suite."""

    async def open(self, info: RunInfo, *, resume: bool = False, takeover: bool = False) -> RunLog:
        """Open a run for writing and take its lease.

        A new `run_id` makes a new run, a known one is opened again; with `resume` it must be known.
        `takeover` takes the lease even of a live owner, which then can write nothing more.

        Raises:
            RunNotFound: with `resume`, if there is no such run.
            RunLocked: if a live process owns it.
            JournalDamaged: if a record does not match its checksum.
        """

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run; a unique beginning of its id will do. Raises RunNotFound."""

    async def runs(
        self, *, limit: int = 50, offset: int = 0, name: str = "", status: str = "", text: str = ""
    ) -> list[RunInfo]:
        """Return the rows of runs, newest first."""

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        """Return the entries of a run with `seq` above `after`, in order; 0 is all of them."""

    async def iterations(
        self, run_id: str, *, loop: str = "", offset: int = 0, limit: int = 100
    ) -> list[tuple[str, Iteration]]:
        """Return (loop path, iteration) pairs of a run by page; of one loop if its path is
        given."""

    async def cancel(self, run_id: str) -> bool:
        """Ask the owner of a run to cancel it, or end one that is suspended; False if there is nothing to end."""

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run, whoever owns it, and return the one that counts: the first.

        Whoever opens the run next moves it to the entries; see `opening.open_log`.
        """

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers that were ever put into the inbox of a run, in the order of their questions."""

    async def rewind(self, run_id: str, path: str) -> Rewind:
        """Set aside what was recorded from `path` on, so that a resume does it again."""

    async def close(self) -> None:
        """Write what is waiting and let go of the store."""


def missing_run(run_id: str, matches: int = 0) -> RunNotFound:
    """Return the error for an id that names no run, or several."""
    if matches:
        return RunNotFound(f"{run_id!r} begins the ids of {matches} runs; give more of it")
    return RunNotFound(
        f"there is no run {run_id!r} in this journal", "; list them with: loopwright runs"
    )
