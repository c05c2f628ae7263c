"""The row of a run in any store: how it is found, created, taken, released and rewound.

Functions of rows and owners. The store reads and writes both in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...errors import RunLocked
from ...records.codec import Json
from ..protocol import Entry, RunInfo, missing_run
from .log import Contents, OpenedRun, entry_text, sealed_row
from .rows import RunRow, read_row

__all__ = [
    "OwnerState",
    "RewindPlan",
    "Rewound",
    "find_row",
    "locked",
    "present",
    "rewound",
    "running",
    "taken",
]


@dataclass(frozen=True, slots=True)
class OwnerState:
    """An opened store at the present: `seconds` is its age at its latest beat, `seen` the time of that beat.

    `claims` are the keys of the runs that it named in that beat; None if its kind of store names none.
    """

    key: int
    host: str
    pid: int
    seconds: float
    seen: float
    until: float
    alive: bool
    lease: float = 0.0
    claims: Sequence[int] | None = None

    def owns(self, row: RunRow) -> bool:
        """Return whether it is alive and has not given up this run of its own."""
        # A run that it took a moment ago is named in its next beat.
        return self.alive and (
            self.claims is None or row.key in self.claims or self.seconds < row.opened + self.lease
        )

    @property
    def name(self) -> str:
        """Its host and process."""
        return f"{self.host}:{self.pid}"


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """A rewind of a run, from its state when it was read.

    `row` is the run's row, `how` the entry that describes the rewind, `after` the run after it, `last` and `head` its
    last entry and the checksum of that entry's row. `aside` are the numbers of the iterations that leave the
    pages, `back` those that return, with their loops.
    """

    row: RunRow
    how: Entry
    after: RunInfo
    last: int
    head: bytes
    aside: Sequence[int]
    back: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Rewound:
    """A rewind to write: the run's new row, and the text of the entry that records it."""

    row: RunRow
    body: str


Rows = Sequence[Sequence[Json]]


def find_row(
    run_id: str, by_id: Callable[[str], Rows], between: Callable[[str, str], Rows]
) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it.

    `between` selects the rows from one id up to another, which is excluded.

    Raises:
        RunNotFound: if no run or several have it.
    """
    rows = by_id(run_id)
    if not rows and run_id:
        # A range instead of LIKE: it uses the index, and % and _ are ordinary characters.
        rows = between(run_id, f"{run_id}\U0010ffff")
    if len(rows) != 1:
        raise missing_run(run_id, len(rows))
    return read_row(rows[0])


def locked(run_id: str, owner: OwnerState) -> RunLocked:
    """Return the error for a run with a live owner."""
    return RunLocked(
        f"{run_id}: process {owner.pid} on {owner.host} is running it; wait for it, "
        f"or stop it with: loopwright cancel {run_id}",
        owner=owner.name,
        until=owner.until,
    )


def running(run_id: str) -> RunLocked:
    """Return the error for a rewind of a run with a live owner."""
    return RunLocked(f"{run_id}: it is running; cancel it before you rewind it")


def present(row: RunRow, owner: OwnerState | None) -> RunInfo:
    """Return a run in its present state: a running run without a live owner is interrupted."""
    info = row.info
    if info.status != "running":
        return info
    if owner is None:
        return replace(info, status="interrupted")
    # The row is written at the opening and the closing only. The owner's beat shows that the run was
    # alive since.
    active = info.active + max(0.0, owner.seconds - row.opened)
    info = replace(info, active=active, updated=max(info.updated, owner.seen))
    if not owner.owns(row):
        return replace(info, status="interrupted")
    return replace(info, owner=owner.name)


def taken(
    row: RunRow, before: OwnerState | None, *, opened: float, owner: int, posted: int
) -> OpenedRun:
    """Return a run that the store `owner` takes from the owner before, if it had one."""
    info = present(row, before)
    # The new epoch is what stops the writes of the owner before, even if it still lives.
    opened_info = replace(info, epoch=info.epoch + 1, status="running", owner="")
    status = "interrupted" if info.status == "running" else info.status
    return OpenedRun(replace(row, info=opened_info, opened=opened, owner=owner), status, posted)


def rewound(
    plan: RewindPlan,
    row: RunRow,
    owner: OwnerState | None,
    *,
    head: bytes | None,
    contents: Contents,
) -> Rewound:
    """Return the rewind of a run without an owner; `head` is the checksum of its latest entries.

    Raises:
        RunLocked: if the run has a live owner, or changed since the plan was made.
    """
    info = present(row, owner)
    changed = row.info.epoch != plan.row.info.epoch or head not in (None, plan.head)
    if info.status == "running" or changed:
        raise running(info.run_id)
    last = plan.last + 1
    entry = replace(plan.how, at=info.active)
    body, new_head = sealed_row([entry_text(entry, contents)], plan.head, last)
    info = replace(plan.after, active=info.active, epoch=info.epoch + 1)
    return Rewound(replace(row, info=info, last=last, head=new_head, owner=None), body)
