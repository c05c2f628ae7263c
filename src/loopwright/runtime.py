"""The state of one run in one process: its clock, journal, gates and scopes."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from .budget import Account
from .codec import Json
from .conditions import Condition
from .errors import Stopped, Suspended
from .journal import Entry, RunLog
from .records import NOTHING, History, Iteration, Loops, Reason, Result, Stop
from .replay import Replay

__all__ = ["Clock", "Gate", "Run", "Scope"]


class Clock(Protocol):
    """Where time and waiting come from; tests pass one they can set."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def wall(self) -> float:
        """Return seconds since the epoch."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return what to await for a pause."""


class Run:
    """The state of one run in one process: its journal, clock, accounts and listeners.

    `resources` are what steps of a kind need (models, tools, settings), by name; nothing is global.
    `owned` is what steps opened for this run alone, by name: its end closes it, in `release`.
    """

    __slots__ = (
        "_monotonic",
        "_shift",
        "_told",
        "_unheard",
        "accept_changes",
        "account",
        "agents",
        "append",
        "cancelled",
        "clock",
        "in_doubt",
        "keeps",
        "listeners",
        "log",
        "loops",
        "owned",
        "random",
        "replay",
        "resources",
        "rounds",
        "run_id",
        "score",
        "silent",
        "steps",
        "sync",
        "task",
        "warnings",
    )  # fmt: skip

    def __init__(
        self,
        run_id: str,
        log: RunLog,
        clock: Clock,
        random: Callable[[], float],
        *,
        listeners: Sequence[Callable[[Entry], None]] = (),
        resources: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        in_doubt: str = "suspend",
    ) -> None:
        self.run_id = run_id
        self.log = log
        self.replay = Replay(log.recorded) if log.recorded else None
        self.keeps = log.keeps_values or self.replay is not None  # fingerprints are worth making
        self.clock = clock
        self.random = random
        self.listeners = tuple(listeners)
        self.silent = log.silent and not self.listeners
        self.resources = resources or {}
        self.owned: dict[str, Any] = {}
        self.accept_changes = accept_changes
        self.in_doubt = in_doubt
        self.loops = Loops()
        self.steps: dict[str, Json] = {}
        self.agents: dict[str, Json] = self.replay.reported() if self.replay else {}
        self.warnings = tuple(self.replay.warnings) if self.replay else ()
        self.cancelled: Stop | None = None
        self.rounds = 0
        self.score: float | None = None
        for entry in log.recorded:
            if entry.kind == "iteration":
                self.note(entry.value)
        self.task: asyncio.Task[Any] | None = None
        self._unheard: list[Entry] = [] if self.listeners else _NONE
        self._told = 0
        self._monotonic = clock.monotonic
        self._shift = (self.replay.active if self.replay else 0.0) - clock.monotonic()
        self.sync = log.sync
        # Without listeners an entry goes straight to the log.
        self.append: Callable[[Entry], None] = self._heard if self.listeners else log.append
        spent = self.replay.spent("") if self.replay else NOTHING
        self.account = Account("", settled=spent)
        self.account.judging = self.replay.judging if self.replay else NOTHING

    def note(self, record: Iteration) -> None:
        """Count a round of any of its loops, and the best score: what the row of an open run shows."""
        self.rounds += 1
        score = record.score
        if score is not None and (self.score is None or score > self.score):
            self.score = score

    def now(self) -> float:
        """Return the run's active seconds: they never shrink, and downtime does not count."""
        return self._monotonic() + self._shift

    def _heard(self, entry: Entry) -> None:
        """Put an entry in the journal's order and, once durable, before the listeners."""
        self.log.append(entry)
        self._unheard.append(entry)

    async def settle(self) -> None:
        """Wait until everything appended is durable, then tell the listeners."""
        mark = self._told + len(self._unheard)
        pending = self.log.sync()
        if pending is not None:
            await pending
        count = mark - self._told  # others may have settled, and appended, meanwhile
        if count > 0:
            heard, self._unheard = self._unheard[:count], self._unheard[count:]
            self._told = mark
            self._tell(heard)

    async def settled(self) -> None:
        """Settle, through a cancellation that only asks for the end of the run."""
        try:
            await self.settle()
        except asyncio.CancelledError:
            if self.cancelled is None:
                raise
            await self.settle()

    def stopped_by(self, error: BaseException) -> Stopped:
        """Return an interruption of a round as what it means; one from outside is raised again."""
        if isinstance(error, Stopped):
            return error
        if self.cancelled is None:
            raise error
        return Stopped("", self.cancelled)

    def _tell(self, entries: list[Entry]) -> None:
        for entry in entries:
            for listener in self.listeners:
                try:
                    listener(entry)
                except Exception as error:  # a listener watches; it never steers
                    self.warn(f"a listener failed on {entry.path}: {error}")

    def warn(self, sentence: str) -> None:
        """Add a sentence to the result's warnings, once."""
        if sentence not in self.warnings:
            self.warnings += (sentence,)
            if not self.silent:  # a resumed run warns of what its earlier life warned of
                self.append(Entry("warned", "", self.now(), value=sentence))

    def ask(
        self, path: str, request: Mapping[str, Json], detail: str, reason: Reason = Reason.APPROVAL
    ) -> Json:
        """Return the answer that is on record at a path, or record the question and raise Suspended."""
        replay = self.replay
        if replay is not None and path in replay.answers:
            return replay.answers[path]
        if not self.silent and (replay is None or path not in replay.asked):
            told = {"request": dict(request), "detail": detail, "since": self.clock.wall()}
            self.append(Entry("asked", path, self.now(), value=told))
        raise Suspended(Stop(reason, detail), path=path, request=dict(request))

    async def release(self) -> None:
        """Close what was opened for this run, the latest first."""
        while self.owned:
            _, thing = self.owned.popitem()
            with contextlib.suppress(Exception):  # the outcome of the run is known, and stands
                await thing.aclose()

    def report(self, path: str, name: str, report: Mapping[str, Json]) -> None:
        """Record what the agent at `path` says of how it ended; said once, it stands.

        One that was cut short, and went on after all, says it again.
        """
        known = self.replay.reports.get(path) if self.replay is not None else None
        if known is not None and known["status"] == report["status"]:
            return
        self.agents[name] = {"name": name, **report}
        if not self.silent:
            self.append(Entry("reported", path, self.now(), value=self.agents[name]))

    def cancel(self, detail: str = "cancelled by a person") -> None:
        """End the run as cancelled; the call in flight is cancelled with it."""
        if self.cancelled is None:
            self.cancelled = Stop(Reason.CANCELLED, detail)
            if self.task is not None:
                self.task.cancel()


class Gate:
    """What an enclosing loop asks before each effect inside it: its deadline and its guards.

    `deadline` is in active seconds and `stop` says that it passed, `wall` in seconds since the epoch
    and `wall_stop` says so; `view` shows the loop's history as of now.
    """

    __slots__ = (
        "_bound", "chain", "deadline", "guards", "owner", "stop", "view", "wall", "wall_stop",
    )  # fmt: skip

    def __init__(
        self,
        owner: str,
        outer: Gate | None,
        *,
        deadline: float = math.inf,
        stop: Stop | None = None,
        wall: float = math.inf,
        wall_stop: Stop | None = None,
        guards: Sequence[Condition] = (),
        view: Callable[[], History] | None = None,
    ) -> None:
        self.owner = owner
        self.chain: tuple[Gate, ...] = (*outer.chain, self) if outer else (self,)
        self.deadline = deadline
        self.stop = stop or Stop(Reason.TIMEOUT)
        self.wall = wall
        self.wall_stop = wall_stop or Stop(Reason.DEADLINE)
        self.guards = tuple(guards)
        self.view = view
        self._bound = math.inf

    def ask(self, run: Run) -> None:
        """Raise Stopped for the outermost loop whose time or guard says so."""
        now = run.now()
        for gate in self.chain:
            if now >= gate._due(run, now):
                raise gate._late()
            if gate.guards and gate.view is not None:
                history = gate.view()
                for guard in gate.guards:
                    if (stop := guard.check(history)) is not None:
                        raise Stopped(gate.owner, stop)

    def remaining(self, run: Run) -> float:
        """Return the seconds until the nearest deadline, or infinity."""
        now = run.now()
        return min(gate._due(run, now) for gate in self.chain) - now

    def expired(self, run: Run) -> Stopped:
        """Return the interruption by the loop with the nearest deadline, the outermost on ties."""
        now = run.now()
        return min(self.chain, key=lambda gate: gate._due(run, now))._late()

    def _due(self, run: Run, now: float) -> float:
        """Return the active second at which it ends: a wall clock that is set back wins no time."""
        if self.wall == math.inf:
            return self.deadline
        self._bound = min(self._bound, now + self.wall - run.clock.wall())
        return min(self.deadline, self._bound)

    def _late(self) -> Stopped:
        return Stopped(self.owner, self.wall_stop if self._bound <= self.deadline else self.stop)


_NONE: list[Entry] = []  # of a run without listeners; never appended to
_UNBEGUN = History()  # of a scope before its first round; what has rounds replaces it
_NOTHING_YET: Mapping[str, Any] = MappingProxyType({})


class Scope:
    """The variables of one loop or workflow, under its own name; a child never changes its
    parent's."""

    __slots__ = (
        "current",
        "history",
        "initial",
        "loops",
        "name",
        "number",
        "outputs",
        "parent",
        "parts",
        "path",
        "results",
        "talks",
        "total",
        "variables",
    )

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str = "") -> None:
        self.name = name
        self.path = path
        self.talks: dict[str, Any] | None = None  # conversations carried from round to round
        self.parent = parent
        self.initial = initial
        self.current = initial
        self.number = 0
        self.total = 0  # of the items, where it goes over a list
        self.parts: Mapping[str, Json] | None = None  # of the present round, for its record
        self.history = _UNBEGUN
        # Most scopes are loops', which have neither; see `keep`.
        self.outputs: Mapping[str, Json] = _NOTHING_YET
        self.results: Mapping[str, Result] = _NOTHING_YET
        self.loops: Mapping[str, Result] = _NOTHING_YET  # in the order in which they ended
        self.variables: dict[str, Json] | None = None  # of a document: nothing beyond is seen

    def keep(self, name: str, result: Result) -> None:
        """Show the result of a step under its name."""
        self.results = {**self.results, name: result}
        self.outputs = {**self.outputs, name: result.output}

    def keep_loop(self, name: str, result: Result) -> None:
        """Show how a loop ended, under its name, after those that ended before it."""
        others = {key: found for key, found in self.loops.items() if key != name}
        self.loops = {**others, name: result}
