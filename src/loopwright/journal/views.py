"""One recorded run as a page shows it: by loop, by iteration, by changes, and by what runs now.

A store with indexes has its own view; `EntriesView` answers the same queries from the entries of any journal.

The last lines of agents that are running, for readers in other processes, are no records: each call has a small
file beside the journal, which is replaced while the call runs and deleted at its end. A reader shows the files of
the calls that the journal has in flight, so the file of a process that died is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ..errors import ConfigurationError, RunNotFound, nearest
from ..records import Iteration, Reason, StepOutcome, codec
from ..records.codec import Json
from .protocol import Entry, Journal, RunInfo, surviving
from .replay import RecordedRun

__all__ = [
    "LINES",
    "LiveCall",
    "LiveLines",
    "LiveWriter",
]

LINES = 8  # lines of a call that are kept
GAP = 0.25  # seconds between two writes of a call; faster changes cannot be read
_READ = 4_000  # characters of a line before it is cleaned
_FILE = 64 * 1024  # bytes of a file that are read


@dataclass(frozen=True, slots=True)
class LiveCall:
    """What a running call of an agent did last.

    Args:
        agent: the name of the agent.
        session: the ID of its session, "" while it is unknown.
        lines: its last lines, the latest at the end.
    """

    agent: str
    session: str
    lines: tuple[str, ...]


class LiveWriter:
    """The lines of one call, written to its file.

    Args:
        file: the file, or None to keep nothing.
        agent: the name of the agent.
        clean: makes a line printable and removes secrets. It is called for lines that are written only.
    """

    def __init__(self, file: Path | None, agent: str, clean: Callable[[str], str]) -> None:
        self._file, self._agent, self._clean = file, agent, clean
        self._lines: deque[str] = deque(maxlen=LINES)
        self._session = ""
        self._next = 0.0  # the time at which the file may be written again
        self._later: asyncio.TimerHandle | None = None

    def add(self, line: str, session: str) -> None:
        """Add a line; the file follows at once, or after a short pause since its last change."""
        if self._file is None:
            return
        self._lines.append(line[:_READ])
        self._session = session
        wait = self._next - time.monotonic()
        if wait <= 0:
            self._write()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(wait, self._write)

    def _write(self) -> None:
        assert self._file is not None
        self._cancel()
        self._next = time.monotonic() + GAP
        lines = [self._clean(line).strip() for line in self._lines]
        data = {"agent": self._agent, "session": self._session, "lines": lines}
        partial = self._file.with_suffix(".part")
        # A full disk must not end a call.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(data), encoding="utf-8")
            partial.replace(self._file)

    def _cancel(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def close(self) -> None:
        """Delete the file, and the folders if they are empty."""
        self._cancel()
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self._file.with_suffix(".part").unlink(missing_ok=True)
            self._file.unlink(missing_ok=True)
            self._file.parent.rmdir()
            self._file.parent.parent.rmdir()


class LiveLines:
    """The last lines of the running calls of a journal.

    Args:
        folder: the folder beside the journal. Default: nothing is kept.

    Example:
        >>> LiveLines().read("run", "task/1/execute/call-1") is None
        True
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def writer(
        self, run_id: str, path: str, agent: str, clean: Callable[[str], str]
    ) -> Iterator[LiveWriter]:
        """Make the writer of a call, whose lines are deleted at the end."""
        writer = LiveWriter(self._file(run_id, path), agent, clean)
        try:
            yield writer
        finally:
            writer.close()

    def read(self, run_id: str, path: str) -> LiveCall | None:
        """Return the last lines of the call at a path, if it has any."""
        file = self._file(run_id, path)
        if file is None:
            return None
        try:
            with file.open("rb") as opened:
                data = json.loads(opened.read(_FILE))
            lines = tuple(str(line) for line in data["lines"][-LINES:])
            return LiveCall(str(data["agent"]), str(data["session"]), lines)
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def version(self, run_id: str) -> int:
        """Return a number that changes with the lines of a run, at a cost of microseconds."""
        folder = self._of_run(run_id)
        try:
            return 0 if folder is None else folder.stat().st_mtime_ns
        except OSError:
            return 0

    def _of_run(self, run_id: str) -> Path | None:
        # A digest, because the ID may be a text of the user.
        return None if self._folder is None else self._folder / _digest(run_id)

    def _file(self, run_id: str, path: str) -> Path | None:
        folder = self._of_run(run_id)
        return None if folder is None else folder / f"{_digest(path)}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


Mark = tuple[int, Iteration]  # the number of an entry and the iteration that it records


ORDERS = ("started", "updated", "name", "status", "score", "cost", "iterations")
"""The orders of lists of runs. Names and statuses begin with the first letter, the others with the highest value."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The runs that a page of the list shows.

    Args:
        name: only runs with this name; empty selects all.
        status: only runs with this status, or one of several with commas between; empty selects all.
        reason: only runs that ended for this Reason; empty selects all.
        text: only runs with this text in their id, name, detail, tags, input, outputs or feedback, in any case; empty
            selects all.
        before: the key that they are older than; 0 is no bound.
        after: the key that they are newer than; 0 is no bound.
        limit: the number of runs (default: 50).
        queue: only runs that were submitted to this queue; empty selects all.
        worker: only runs that this process holds, as `HOST:PID`; empty selects all.
        schedule: only runs of this schedule, where `Journal.runs` reads them; empty selects all.
        since: only runs that were created at this time or later, in seconds since the epoch; 0 selects all.
        tags: only runs with all of these tags, each as `NAME=VALUE`, or `NAME` for any value.
        sort: their order, one of ORDERS, with a `-` before it the reverse; empty is `started`.
        offset: the number of runs to leave out, in place of `before` and `after` for the other orders.

    Raises:
        ConfigurationError: for an unknown reason or order.

    Example:
        >>> Wanted(status="failed", limit=10).limit
        10
    """

    name: str = ""
    status: str = ""
    reason: str = ""
    text: str = ""
    before: int = 0
    after: int = 0
    limit: int = 50
    queue: str = ""
    worker: str = ""
    schedule: str = ""
    since: float = 0.0
    tags: tuple[str, ...] = ()
    sort: str = ""
    offset: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            hint = nearest(self.order, ORDERS) or f"; use one of {', '.join(ORDERS)}"
            raise ConfigurationError(f"sort: {self.sort!r} is not an order{hint}")
        if self.reason and self.reason not in list(Reason):
            raise ConfigurationError(
                f"reason: {self.reason!r} is not a reason"
                f"{nearest(self.reason, [reason.value for reason in Reason])}"
            )

    @property
    def statuses(self) -> tuple[str, ...]:
        """The statuses of the runs; () is all."""
        return tuple(filter(None, self.status.split(",")))

    @property
    def order(self) -> str:
        """The order without its direction."""
        return self.sort.removeprefix("-") or ORDERS[0]

    @property
    def descending(self) -> bool:
        """Whether the highest value comes first."""
        return (self.order not in ("name", "status")) is not self.sort.startswith("-")

    @property
    def by_key(self) -> bool:
        """Whether it is the order of the keys, newest first."""
        return self.order == "started" and self.descending

    @property
    def is_slow(self) -> bool:
        """Whether more is read than the runs that are shown."""
        return bool(self.text or self.since or self.tags or not self.by_key)

    @property
    def marks(self) -> list[str]:
        """The texts that the stored tags of a run contain if it has these tags; see `tags_text`."""
        pairs = (tag.partition("=") for tag in self.tags)
        return [f'"{name}":{codec.encode(value) if value else chr(34)}' for name, _, value in pairs]


def tags_text(tags: Mapping[str, str]) -> str:
    """Return tags as a store keeps them: JSON, and "" without tags.

    A name has no quotation mark, and in values these follow a backslash, so that `Wanted.marks` are found exactly.
    """
    return codec.encode(dict(tags)) if tags else ""


def mentions(info: RunInfo, entries: Iterable[Entry], text: str) -> bool:
    """Return whether a run has a text in its row, its input, its outputs or its feedback, in any case."""
    needle = text.lower()

    def found(value: Json) -> bool:
        return needle in codec.text_of(value).lower()

    if any(map(found, (info.run_id, info.name, info.detail, info.input))) or any(
        map(found, [f"{name}={value}" for name, value in info.tags.items()])
    ):
        return True
    for entry in entries:
        value = entry.value
        if entry.kind == "iteration":
            if found(value.output) or needle in value.feedback.lower():
                return True
        elif entry.kind == "ended":
            if isinstance(value, dict) and found(value.get("output")):
                return True
        elif entry.kind == "finished" and found(value):
            return True
    return False


class RunView(Protocol):
    """A recorded run, read at one moment."""

    info: RunInfo

    @property
    def last(self) -> int:
        """The number of the last entry."""

    def loops(self, under: str = "") -> list[str]:
        """Return the paths of the outermost loops at or below a path, in the order of paths."""

    def count(self, loop: str) -> int:
        """Return the number of recorded iterations of a loop."""

    def total(self) -> int:
        """Return the number of iterations of all loops and items of all lists."""

    def steps(self) -> list[StepOutcome]:
        """Return the outcomes of the steps of the workflow, with those that are running."""

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        """Return a page of the iterations of a loop: their numbers and inputs."""

    def outline(
        self, loop: str, *, offset: int = 0, limit: int = -1
    ) -> list[tuple[int, Iteration]]:
        """Return iterations of a loop without their inputs and outputs.

        A negative `offset` counts from the end.
        """

    def iteration(self, loop: str, number: int) -> Iteration:
        """Return a complete iteration. Raises RunNotFound."""

    def effects(self, loop: str, number: int) -> list[Entry]:
        """Return the entries inside an iteration, without those of inner loops; 0 is the baseline."""

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        """Return the number of retries in each iteration of a loop, among the entries after a number."""

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        """Return the entries after a number; long values may be left out as None."""

    def between(self, seq: int, limit: int) -> list[Entry]:
        """Return complete entries after a number; a `limit` of 0 is all."""

    def ending(self) -> dict[str, Json] | None:
        """Return the recorded end or suspension of the run; None if it continued since."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of the run list, read at one moment.

    Args:
        rows: the runs with their keys, in their order.
        names: the names of runs, each once.
        total: the number of runs that match; None for a search for text.
        searched: where a text search stopped, as `before` or `offset` of the next page; 0 at the end, and for a full
            page in the order of the keys.
    """

    rows: Sequence[tuple[int, RunView]]
    names: Sequence[str]
    total: int | None
    searched: int = 0


class Watch(Protocol):
    """Detects commits of any process. Its methods raise JournalError."""

    def version(self) -> int:
        """Return a number that changes with a commit, at a cost of microseconds."""

    async def state(self, run_id: str) -> object:
        """Return a value that changes when a part of a run is committed."""

    async def list_state(self, wanted: Wanted) -> object:
        """Return a value that changes when a run enters or leaves a page of the list, or ends.

        For a list by status or reason it is that of the page without these two; a list by text, time or tags and
        one in another order is changed by new runs only.
        """

    def close(self) -> None:
        """Release what it holds."""


def outermost(path: str) -> str:
    """Return the path of the outermost loop around a path: a loop's path precedes the first number."""
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    return "/".join(parts[:first])


def enclosing(loop: str) -> tuple[str, int] | None:
    """Return the loop and the iteration that contain a loop; None for an outermost loop."""
    parts = loop.split("/")
    # From the end: the nearest number is that of the enclosing iteration.
    for i in range(len(parts) - 1, 0, -1):
        if parts[i].isdigit():
            return "/".join(parts[:i]), int(parts[i])
    return None


def directly(entries: Sequence[Entry], loop: str, number: int) -> list[Entry]:
    """Return the entries below an iteration that are not inside an iteration of a loop in it."""
    start = f"{loop}/{number}/"
    return [
        entry
        for entry in entries
        if entry.path.startswith(start)
        and not any(part.isdigit() for part in entry.path[len(start) :].split("/"))
        and entry.kind != "iteration"
    ]


_AGAIN = re.compile(r"(\d+)/.*\battempt-(?!1$)\d+")


def retried(paths: Iterable[str], loop: str) -> dict[int, int]:
    """Return the number of retries by iteration of a loop, from the paths of effects that began.

    Retries inside inner loops count too.
    """
    under = f"{loop}/"
    counts: Counter[int] = Counter()
    # Each path once: an effect that is repeated after a crash is not a retry.
    for path in dict.fromkeys(paths):
        # The second and later attempts of an iteration, also in inner loops.
        again = _AGAIN.fullmatch(path.removeprefix(under)) if path.startswith(under) else None
        if again is not None:
            counts[int(again[1])] += 1
    return dict(counts)


_ALL = 1_000_000  # runs of a journal in memory
_LOOK = 0.3  # seconds between two looks at all entries of a journal


class EntriesWatch:
    """The changes of a journal in memory, of which each look reads all."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def version(self) -> int:
        return int(time.monotonic() / _LOOK)

    async def state(self, run_id: str) -> object:
        try:
            info = await self._journal.find(run_id)
        except RunNotFound:
            return None
        return info.status, info.updated, info.epoch, len(await self._journal.entries(run_id))

    async def list_state(self, wanted: Wanted) -> object:
        page = await entries_page(self._journal, replace(wanted, status="", reason=""))
        return tuple((key, view.info.status, view.info.epoch) for key, view in page.rows)

    def close(self) -> None:
        """Do nothing."""


async def entries_page(journal: Journal, wanted: Wanted) -> RunPage:
    """Return a page of the runs of any journal; a key is the position from the end."""
    place = wanted.before and -wanted.before
    offset = max(0, -wanted.after - 1 - wanted.limit) if wanted.after else place
    infos = await journal.runs(
        limit=_ALL, name=wanted.name, status=wanted.status, text=wanted.text, queue=wanted.queue,
        worker=wanted.worker, since=wanted.since, tags=wanted.tags, sort=wanted.sort,
    )  # fmt: skip
    infos = [info for info in infos if not wanted.reason or info.reason == wanted.reason]
    first = offset + wanted.offset
    rows = [
        (-number, EntriesView(info, await journal.entries(info.run_id)))
        for number, info in enumerate(infos[first : first + wanted.limit], start=first + 1)
    ]
    total = None if wanted.text else len(infos)
    return RunPage(rows, sorted({info.name for info in infos}), total)


class EntriesView:
    """The view of a run of any journal, from all its entries; slow for long runs."""

    def __init__(self, info: RunInfo, entries: Sequence[Entry]) -> None:
        self.info = info
        self.last = entries[-1].seq if entries else 0
        self._all = entries
        self._surviving = surviving(entries)
        self._iterations: dict[str, list[Mark]] = {}
        for entry in self._surviving:
            if entry.kind == "iteration":
                self._iterations.setdefault(entry.path, []).append((entry.seq, entry.value))

    def loops(self, under: str = "") -> list[str]:
        loops: list[str] = []
        for path in sorted(self._iterations):
            inside = not under or path.startswith(f"{under}/")
            if inside and not any(path.startswith(f"{outer}/") for outer in loops):
                loops.append(path)
        return loops

    def count(self, loop: str) -> int:
        return len(self._iterations.get(loop, ()))

    def total(self) -> int:
        return sum(len(items) for items in self._iterations.values())

    def steps(self) -> list[StepOutcome]:
        return step_outcomes(self.info, self._all)

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        page = self._iterations.get(loop, [])[offset : offset + limit]
        return [(item.number, item.input) for _, item in page]

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        items = self._iterations.get(loop, [])[offset:]
        light = [(seq, replace_values(item)) for seq, item in items]
        return light if limit < 0 else light[:limit]

    def iteration(self, loop: str, number: int) -> Iteration:
        for _, item in self._iterations.get(loop, ()):
            if item.number == number:
                return item
        raise no_iteration(self.info.run_id, loop, number)

    def effects(self, loop: str, number: int) -> list[Entry]:
        return directly(self._surviving, loop, number)

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        paths = [e.path for e in self._surviving if e.kind == "started" and e.seq > after]
        return retried(paths, loop)

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        entries = [entry for entry in self._all if entry.seq > seq]
        return entries if limit < 0 else entries[:limit]

    def between(self, seq: int, limit: int) -> list[Entry]:
        return self.since(seq, limit or -1)

    def ending(self) -> dict[str, Json] | None:
        return ending_of(self._all[-ENDING:])


def step_outcomes(info: RunInfo, entries: Sequence[Entry]) -> list[StepOutcome]:
    """Return the outcomes of the steps of a run's workflow, in the order of their ends.

    A step that has begun and not ended has no reason; its detail is the status of the run.
    """
    replay = RecordedRun(surviving(entries))
    end = replay.ended.get("")
    outcomes = replay.outcomes(end["steps"] if end is not None else None)
    # A loop at the root has iterations instead of steps.
    if not replay.steps and any("/" not in path for path in replay.records):
        return []
    for path in [] if end is not None else [*replay.finished, *replay.unsettled]:
        # A time limit adds this part to the path of its step.
        parts = [part for part in path.split("/") if part != "within"]
        if len(parts) < 2 or parts[1] in outcomes:
            continue
        began = replay.began("/".join(path.split("/")[: path.split("/").index(parts[1]) + 1]))
        seconds = max(0.0, replay.active - (began or 0.0))
        outcomes[parts[1]] = StepOutcome(parts[1], detail=info.status, seconds=seconds)
    return list(outcomes.values())


ENDING = 6  # latest entries to read for an end: answers and accepted limits may follow it


def ending_of(entries: Sequence[Entry]) -> dict[str, Json] | None:
    """Return the value of the latest end or suspension of a run; None if it continued since."""
    if any(entry.kind == "rewound" and entry.value for entry in entries):
        entries = surviving(entries)  # an end may be back
    for entry in reversed(entries):
        if entry.kind in ("ended", "suspended") and not entry.path:
            value: dict[str, Json] = entry.value
            return value
        if entry.kind not in ("answered", "asked", "accepted"):
            return None
    return None


def replace_values(item: Iteration) -> Iteration:
    """Return an iteration without its input and output."""
    return replace(item, input=None, output=None, steps=None)


def no_iteration(run_id: str, loop: str, number: int) -> RunNotFound:
    """Return the error for an iteration that is not recorded."""
    return RunNotFound(f"{run_id}: there is no iteration {number} of {loop!r}; reload the page")
