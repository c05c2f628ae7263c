"""What every store of runs offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..codec import Json
from ..errors import RunNotFound
from ..records import NOTHING, Iteration, Usage
from .entries import Entry


@dataclass(slots=True)
class RunInfo:
    """The row of a run: what it is and how far it is.

    `created` and `updated` are wall-clock seconds since the epoch, `active` the seconds it was
    alive. `source` says how to load it again (document, settings), as the command line needs it to
    resume. `status` is `running`, `interrupted` (its process is gone or was asked to stop; resume
    it) or a Status.
    """

    run_id: Final[str]
    name: Final[str]
    input: Final[Json] = None
    fingerprint: Final[str] = ""
    source: Final[dict[str, Json]] = field(default_factory=dict)
    status: Final[str] = "running"
    reason: Final[str] = ""
    detail: Final[str] = ""
    created: Final[float] = 0.0
    updated: Final[float] = 0.0
    active: Final[float] = 0.0
    epoch: Final[int] = 0
    iterations: Final[int] = 0
    score: Final[float | None] = None
    usage: Final[Usage] = NOTHING

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
            "source": self.source,
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class Rewind:
    """What a rewind set aside: the path it went back to and how many entries."""

    path: str
    entries: int


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
        """Ask the owner of a run to cancel it; False if nobody owns it now."""

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
