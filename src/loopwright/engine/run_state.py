"""The state of one run in one process: journal, clock, account, questions, resources, listeners, log and stubs.

The logger `loopwright` has effects at DEBUG, iterations and ends at INFO, and warnings of runs at WARNING. Every
record has `run_id` and `path`. Inputs, outputs, feedback and messages of errors are content: they are left out
unless LOOPWRIGHT_LOG_CONTENT=1. Without a handler of the program nothing is printed.

A dry run has the resource `stubs`. Then Python functions, commands, tools and questions to people get their
results from the stubs, and nothing acts on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..conditions import Budget
from ..errors import OwnershipLost, StepError, Stopped, Suspended
from ..journal import Entry, Journal, RunInfo, RunLog
from ..journal.protocol import FileStore, Posted
from ..records import NOTHING, Failure, Iteration, LoopResults, Reason, StepOutcome, Stop, codec
from ..records.codec import Json, cleaned, error_line, error_text, normalise, text_of
from ..records.display import cut, duration, one_line, score, verdict_word
from ..records.typed import Value
from .budgets import Account, EffectPermits
from .step import Leaf

if TYPE_CHECKING:
    from ..journal.call_cache import CallCache
    from ..journal.events import Event
    from ..journal.replay import RecordedRun
    from ..memory import Memory
    from ..records.redaction import Redactor
    from .run import LiveLimits
    from .steering import Steering

__all__ = [
    "LOG",
    "NO_EXIT",
    "NO_STUB",
    "Clock",
    "Listener",
    "OneLine",
    "Run",
    "RunObserver",
    "RunResources",
    "Stub",
    "Stubs",
    "SystemClock",
    "acting",
    "log_listener",
    "opened_listeners",
    "redactor_of",
    "system_clock",
]

CONTENT = "LOOPWRIGHT_LOG_CONTENT"
_SHOWN = 500  # characters of a value
LOG = logging.getLogger("loopwright")
LOG.addHandler(logging.NullHandler())


class OneLine(str):
    """A text that a handler writes on one line."""

    __slots__ = ()

    def __str__(self) -> str:
        return one_line(str.__str__(self))


def log_listener(info: RunInfo) -> Callable[[Entry], None]:
    """Return the listener that logs the entries of a run."""
    # Read per run, so that a program may set it after the import.
    content = os.environ.get(CONTENT) == "1"

    def listen(entry: Entry) -> None:
        level = logging.DEBUG if entry.kind in ("finished", "cut") else logging.INFO
        if LOG.isEnabledFor(level) and (text := _text(entry, info.name, content=content)):
            LOG.log(level, "%s", text, extra={"run_id": info.run_id, "path": entry.path})

    return listen


def _text(entry: Entry, name: str, *, content: bool) -> str:
    """Return the message of an entry, or "" for one that is not logged."""
    if entry.kind == "cut":
        return f"{entry.path} was cut off after {duration(entry.seconds)}"
    if entry.kind == "finished":
        verb = "finished" if entry.error is None else f"failed ({entry.error.kind})"
        value = entry.value if entry.error is None else entry.error.message
        return f"{entry.path} {verb} in {duration(entry.seconds)}" + _content(value, content)
    if entry.kind == "iteration":
        item: Iteration = entry.value
        word = f"failed ({item.error.kind})" if item.error is not None else verdict_word(item)
        shown = f"score {score(item.score)}" if item.score is not None else ""
        facts = ", ".join(fact for fact in (shown, word) if fact)
        text = f"{entry.path} iteration {item.number}{f': {facts}' if facts else ''}"
        return text + _content(item.feedback, content)
    if entry.kind in ("ended", "suspended"):
        stop = Stop.from_json(entry.value["stop"])
        end = f"{entry.path or name} ended: {stop.reason.status.value} ({stop.reason.value})"
        return end + _content(stop.detail, content)
    return ""


def _content(value: object, content: bool) -> str:
    if not content or value is None or value == "":
        return ""
    to_json = getattr(value, "to_json", None)
    return f": {cut(one_line(text_of(to_json() if to_json else value)), _SHOWN)}"


NO_STUB = "no_stub"  # the kind of an effect without a stub
NO_EXIT = "its stub has an exit code, which only commands have; use output or error"
_Act = Callable[..., Awaitable[Json]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stub(Value):
    """The result in place of an effect: an output, and the exit code of a command (None: not set)."""

    output: Json = None
    exit: int | None = None

    def printed(self) -> str:
        """Return the output as a command prints it."""
        return "" if self.output is None else codec.text_of(self.output)


class Stubs(Protocol):
    """The stubs of a run."""

    def of(self, path: str, what: str) -> Stub:
        """Return the stub of an effect. `what` is its kind, for messages.

        Raises:
            StepError: if no stub matches, or the stub is an error.
        """

    def output(self, path: str, what: str) -> Json:
        """Return the output of an effect that has no exit code.

        Raises:
            StepError: as `of`, and for a stub with an exit code.
        """


def acting(stubs: Stubs | None, step: Leaf, path: str) -> _Act:
    """Return the function that performs a step at a path: its own, or that of its stub."""
    # Steps of this package without an effect outside the run, such as adapters, act in a dry run
    # too.
    if stubs is None or not step.stub:
        return step.act

    async def answer(value: Json, ctx: object) -> Json:
        del value, ctx
        return step.stubbed(stubs.output(path, step.stub))

    return answer


MAX_MESSAGE = 2000  # characters of an error's message
DEBUG = "LOOPWRIGHT_DEBUG"  # environment variable: tracebacks keep the frames inside this package


class Clock(Protocol):
    """The source of time; tests pass one that they can set."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""

    def wall(self) -> float:
        """Return seconds since the epoch."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return an awaitable that pauses."""


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)


class _LoopClock(SystemClock):
    """The clock of an event loop with its own time, such as a virtual one."""

    __slots__ = ("monotonic",)

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic


_SYSTEM = SystemClock()  # without state, so that all runs share it


def system_clock() -> Clock:
    """Return the clock of the machine, or that of the running event loop if it has its own time."""
    loop = asyncio.get_running_loop()
    # The standard loop calls time.monotonic itself: calling it directly saves a Python call per entry.
    return _SYSTEM if type(loop).time is asyncio.BaseEventLoop.time else _LoopClock(loop.time)


class RunObserver(Protocol):
    """A listener for any number of runs, such as telemetry."""

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return the listener for the entries of one run, from its row and its recorded entries."""


Listener = Callable[[Entry], None] | RunObserver


def opened_listeners(
    listeners: Sequence[Listener], log: RunLog
) -> tuple[tuple[Callable[[Entry], None], ...], tuple[str, ...]]:
    """Return the listeners for the entries of a run, with the logger, and a warning for each that failed to start."""
    started: list[Callable[[Entry], None]] = []
    failed = []
    for listener in listeners:
        try:
            if hasattr(listener, "opened"):
                started.append(listener.opened(log.info.view(), [e.view() for e in log.recorded]))
            else:
                started.append(listener)
        except BaseException as error:  # a listener never ends a run
            failed.append(f"listener_failed: a listener could not start: {error_line(error)}")
    # Without a listener the entries take the shorter path of `Run.append`.
    if LOG.isEnabledFor(logging.INFO):
        started.append(log_listener(log.info))
    return tuple(started), tuple(failed)


class RunResources(Mapping[str, Any]):
    """The resources of a run by name; `memory` is the one that the caller passed, else the journal's.

    Nothing is loaded or opened before a step reads it.
    """

    __slots__ = ("_calls", "_files", "_memory", "_passed", "_store", "opened")

    def __init__(self, passed: Mapping[str, Any] | None, store: Journal | None) -> None:
        self._passed = passed or {}
        self._store = store
        self._memory: object = None
        self._files: FileStore | None = None
        self._calls: CallCache | None = None
        self.opened: Memory | None = None  # the memory that was opened for this run

    def __getitem__(self, name: str) -> Any:
        if name == "file_store":
            # Beside the journal, else in memory.
            if self._files is None:
                self._files = getattr(self._store, "files", None) or FileStore()
            return self._files
        if name == "call_cache":
            if self._calls is None:
                from ..journal.in_memory import MemoryJournal

                own = getattr(self._store, "call_cache", None)
                self._calls = own or MemoryJournal().call_cache
            return self._calls
        if name == "live_lines":
            from ..journal.views import LiveLines

            return getattr(self._store, "live", None) or LiveLines()
        if name != "memory":
            return self._passed[name]
        if self._memory is None:
            memory = self._passed.get("memory")
            if memory is None:
                memory = getattr(self._store, "memory", None)
            elif isinstance(memory, str):
                from ..journal.open import open_memory

                memory = self.opened = open_memory(memory)
            self._memory = memory
        if self._memory is None:
            raise KeyError(name)
        return self._memory

    def get(self, name: str, default: Any = None) -> Any:
        """Return a resource, or the default; `Mapping.get` raises and catches an error for each that is missing."""
        if name in ("memory", "file_store", "live_lines", "call_cache"):
            return super().get(name, default)
        return self._passed.get(name, default)

    def __iter__(self) -> Iterator[str]:
        own = ["memory"] if hasattr(self._store, "memory") else []
        return iter(dict.fromkeys([*self._passed, *own]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True  # counting them would load the journal's memory


def redactor_of(resources: Mapping[str, Any]) -> Redactor | None:
    """Return the redactor of a run: the resource `redactor`, else that of its models.

    None if it knows no secret, so that no value is searched.
    """
    redactor: Redactor | None = resources.get("redactor")
    if redactor is None:
        redactor = getattr(resources.get("models"), "redactor", None)
    return redactor or None


class Run:
    """The state of one run in one process: its journal, clock, accounts and listeners.

    Attributes:
        resources: the models, tools and settings that steps need, by name. Nothing is global.
        owned: the objects that steps opened for this run, by name. `release` closes them.
        open_loops: the runs of loops that have not ended, by path; `LiveLimits` changes their limits.
        tuned: the limits that people changed, or None.
        noise: the sigma of the scores of loops, by name, as past runs measured it; or None.
        timed: the loop that a tuned limit of time ends now.
        store: its journal, for waits. `leaves` is whether it is suspended when all its branches wait.
        at_work: how many of its branches do not wait. `waited` is whether one did, so that the journal has rows of it.
        taken: the highest number and the latest time of the events that it took, by name and key.
        steering: the hints and the hold of people, or None.
        interruptible: for each call in flight that may be interrupted, by path, what ends it if a person asks for that.
    """

    __slots__ = (
        "_monotonic",
        "_notified",
        "_pending",
        "_shift",
        "accept_changes",
        "account",
        "agents",
        "append",
        "at_work",
        "cancelled",
        "clock",
        "ending",
        "finishing",
        "in_doubt",
        "interruptible",
        "iterations",
        "keeps",
        "leaves",
        "limits",
        "listeners",
        "log",
        "loops",
        "lost",
        "noise",
        "open_loops",
        "orders",
        "outcomes",
        "owned",
        "permits",
        "random",
        "redactor",
        "replay",
        "resources",
        "run_id",
        "score",
        "silent",
        "steering",
        "steps",
        "store",
        "stubs",
        "sync",
        "taken",
        "task",
        "timed",
        "tuned",
        "waited",
        "warnings",
    )  # fmt: skip

    def __init__(
        self,
        run_id: str,
        log: RunLog,
        clock: Clock,
        random: Callable[[], float],
        *,
        listeners: tuple[Callable[[Entry], None], ...] = (),
        resources: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        in_doubt: str = "suspend",
        redactor: Redactor | None = None,
        warnings: tuple[str, ...] = (),
        store: Journal | None = None,
        leaves: bool = False,
    ) -> None:
        self.run_id = run_id
        self.store = store
        self.leaves = leaves
        self.at_work = 1
        self.redactor = redactor or None  # without secrets there is nothing to search for
        self.log = log
        self.replay: RecordedRun | None = None
        if log.recorded:
            from ..journal.replay import RecordedRun

            self.replay = RecordedRun(log.recorded)
        # Whether fingerprints are computed: a journal in memory needs them only for a replay.
        self.keeps = log.keeps_values or self.replay is not None
        self.clock = clock
        self.random = random
        self.listeners = listeners
        self.resources = resources or {}
        self.stubs: Stubs | None = self.resources.get("stubs")
        self.permits: EffectPermits | None = self.resources.get("permits")
        # A silent run performs its effects on a shorter path, which has no stubs.
        self.silent = log.silent and not self.listeners and self.stubs is None
        self.owned: dict[str, Any] = {}
        self.accept_changes = accept_changes
        self.in_doubt = in_doubt
        self.loops = LoopResults()
        self.steps: dict[str, Json] = {}
        self.outcomes: dict[str, StepOutcome] = self.replay.outcomes() if self.replay else {}
        self.agents: dict[str, Json] = self.replay.reported() if self.replay else {}
        # Those that the caller passes are not recorded: they concern this process only.
        self.warnings = (*(self.replay.warnings if self.replay else ()), *warnings)
        self.taken = self.replay.taken if self.replay else _NONE_TAKEN
        self.waited = bool(self.replay and self.replay.waiting)
        self.steering: Steering | None = None
        self.interruptible: dict[str, Callable[[], None]] = {}
        self.cancelled: Stop | None = None
        self.timed: Stopped | None = None
        # A run that cannot be tuned has neither, which keeps many runs at once small.
        self.noise: Mapping[str, float] | None = self.replay.noise if self.replay else None
        self.orders: Mapping[str, Sequence[str]] = (
            self.replay.plans.get("", {}) if self.replay else {}
        )
        self.tuned = self.replay.tuned if self.replay and self.replay.tuned else None
        self.open_loops: dict[str, Any] = {} if not self.silent else _NO_LOOPS
        self.limits: LiveLimits | None = None  # from the first notification on
        self.lost = False
        self.ending = False  # its root step has ended
        self.finishing = 0  # calls in progress that end although the run is lost
        self.iterations = 0
        self.score: float | None = None
        # The row of a resumed run shows the iterations of all its processes.
        for entry in self.replay.own_records() if self.replay else ():
            self.note(entry.value)
        self.task: asyncio.Task[object] | None = None
        self._pending: list[Entry] = [] if self.listeners else _NONE
        self._notified = 0
        self._monotonic = clock.monotonic
        # Active time continues from the last entry, so that time without a process does not count.
        self._shift = (self.replay.active if self.replay else 0.0) - clock.monotonic()
        self.sync = log.sync
        # Without listeners an entry goes straight to the log.
        self.append: Callable[[Entry], None] = (
            self._append_for_listeners if self.listeners else log.append
        )
        spent = self.replay.spent("") if self.replay else NOTHING
        recorded = self.replay.effects if self.replay else None
        self.account = Account("", settled=spent, recorded=recorded)
        self.account.judging = self.replay.judging if self.replay else NOTHING

    @property
    def unobserved(self) -> bool:
        """Whether nothing but its journal has a part in its effects: no replay, listener, permit or stub."""
        return (
            self.replay is None
            and not self.listeners
            and self.permits is None
            and self.stubs is None
        )

    @property
    def origin(self) -> str:
        """The run that this one was forked from, or ""."""
        return str((self.log.info.source.get("forked") or {}).get("run_id", ""))

    @property
    def token(self) -> str:
        """The value of TOKEN in the environment of its processes.

        It is the same after a resume, and another for a run of the same ID in another journal.
        """
        identity = f"{self.run_id} {self.log.info.created!r}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    @property
    def debug(self) -> bool:
        """Whether tracebacks of failures keep the frames inside this package."""
        # Read at each failure, so that a program may set it after the import.
        return bool(os.environ.get(DEBUG))

    def clean(self, value: Json) -> Json:
        """Return a value without the secrets that the redactor knows."""
        return value if self.redactor is None else self.redactor.clean(value)

    def redact(self, text: str) -> str:
        """Return text without the secrets that the redactor knows."""
        redacted: str = self.clean(text)
        return redacted

    def error_text(self, text: str) -> str:
        """Return the text of an error as it is recorded.

        Secrets are removed first, as the other rules could leave a part of one.
        """
        return cleaned(self.redact(text))

    def failure(self, error: BaseException, path: str) -> Failure:
        """Return the record of an error: a sentence and the user's frames behind it, no secret."""
        if isinstance(error, StepError):
            failure = Failure.of("", error, path, self.redact)
            if not error.traceback:  # the one of an inner step is nearer to the cause
                exception, traceback = self._traceback(error, own=False)
                failure = replace(failure, exception=exception, traceback=traceback)
        else:
            exception, traceback = self._traceback(error)
            text = error_text(error, self.redact)[:MAX_MESSAGE]
            name = type(error).__name__
            message = f"{name}: {text}" if text else name
            failure = Failure("", name, message, path, exception=exception, traceback=traceback)
        recorded: Failure = self.clean(failure)
        return recorded

    def _traceback(self, error: BaseException, *, own: bool = True) -> tuple[str, str]:
        from ..records.redaction import described

        exception, traceback = described(error, whole=self.debug, own=own, redact=self.redact)
        return normalise(exception), normalise(traceback)

    def cleaned_stop(self, stop: Stop) -> Stop:
        """Return a stop without secrets: its sentence may come from a step."""
        if self.redactor is None:
            return stop
        detail, failure = self.redact(stop.detail), self.clean(stop.failure)
        same = detail is stop.detail and failure is stop.failure
        return stop if same else replace(stop, detail=detail, failure=failure)

    def note(self, record: Iteration) -> None:
        """Count an iteration of any loop, and keep the best score: the row of an open run shows both."""
        self.iterations += 1
        if self.silent:  # it has no row
            return
        score = None if record.evaluation is None else record.evaluation.score
        if score is not None and (self.score is None or score > self.score):
            self.score = score

    def cap(self, budget: Budget | None) -> None:
        """Limit the run by a budget, before its first step."""
        uncapped = self.account
        recorded = None if self.replay is None else self.replay.effects
        self.account = Account("", None, budget, uncapped.settled, recorded)
        self.account.judging = uncapped.judging

    def measured(self, noise: Mapping[str, Mapping[str, Json]]) -> None:
        """Record the noise of the scores of loops in past runs, and use it."""
        self.append(Entry("noise", "", self.now(), value=noise))
        self.noise = {loop: values["sigma"] for loop, values in noise.items()}

    def ordered(self, orders: Mapping[str, Sequence[str]]) -> None:
        """Record the order in which loops try their strategies, and use it."""
        self.append(Entry("planned", "", self.now(), value=orders))
        self.orders = orders

    def retune(self, entry: Entry) -> None:
        """Record a limit that a person changed; loops that begin from now on have it."""
        self.append(entry)
        if self.tuned is None:
            from ..journal.replay import TunedLimits

            self.tuned = TunedLimits()
        self.tuned.add(entry)

    def steer(self, inbox: Sequence[Posted]) -> None:
        """Follow the hints and holds in the inbox of the run."""
        from .steering import Steering

        if self.steering is None:
            self.steering = Steering(inbox, self.replay.steered if self.replay else None)
        else:
            self.steering.take(inbox)
        for interrupt in tuple(self.interruptible.values()):
            interrupt()

    def check_hold(self) -> None:
        """Raise Suspended if a person holds the run; the question is recorded once."""
        steering = self.steering
        if steering is None or not steering.held:
            return
        from .steering import hold_of

        stop, asked = hold_of(steering)
        path = steering.question
        known = steering.asked or (self.replay is not None and path in self.replay.asked)
        if not known and not self.silent:
            asked["since"] = self.clock.wall()
            self.append(Entry("asked", path, self.now(), value=self.clean(asked)))
        steering.asked = True
        raise Suspended(stop, path=path, request=asked["request"])

    def read_limits(self, reader: Callable[[], LiveLimits]) -> None:
        """Read and apply new limits while the run is open; most runs get none, and need no reader."""
        if self.ending:
            return
        if self.limits is None:
            self.limits = reader()
        self.limits.read()

    def stop_reading(self) -> None:
        """Read no further limits: the end of the run is recorded next, and nothing may follow it."""
        self.ending = True
        if self.limits is not None:
            self.limits.close()

    def redact_with(self, redactor: Redactor) -> None:
        """Remove the secrets of a redactor from now on.

        Raises:
            ConfigurationError: if the input has one.
        """
        self.redactor = redactor
        redactor.refuse("input", self.log.info.input)

    def now(self) -> float:
        """Return the run's active seconds: they never shrink, and downtime does not count."""
        return self._monotonic() + self._shift

    def count(self, more: int) -> None:
        """Add to the number of branches that do not wait; without one, the active time stands."""
        before, self.at_work = self.at_work, self.at_work + more
        if before and not self.at_work:
            stopped = self.clock.monotonic()
            self._monotonic = lambda: stopped
        elif self.at_work and not before:
            self._shift -= self.clock.monotonic() - self._monotonic()
            self._monotonic = self.clock.monotonic

    def begin_wait(self) -> None:
        """Note that the journal has rows of waits of this run."""
        self.waited = True

    def take_event(self, event: Event, path: str) -> None:
        """Record that the run took an event, which stays so if a person rewinds it."""
        from ..journal.events import add_taken

        value = {"name": event.name, "key": event.key, "number": event.number, "at": event.at}
        self.taken = dict(self.taken)
        add_taken(self.taken, value)
        if not self.silent:
            self.append(Entry("taken", path, self.now(), value=value))

    def _append_for_listeners(self, entry: Entry) -> None:
        """Append an entry to the journal; listeners receive it once it is durable."""
        self.log.append(entry)
        self._pending.append(entry)

    async def settle(self) -> None:
        """Wait until all appended entries are durable, then call the listeners."""
        # The position in the order of all entries, because other tasks append while this one waits.
        position = self._notified + len(self._pending)
        pending = self.log.sync()
        if pending is not None:
            await pending
        count = position - self._notified  # others may have settled, and appended, meanwhile
        if count <= 0:
            return
        durable, self._pending = self._pending[:count], self._pending[count:]
        self._notified = position
        for entry in durable:
            for listener in self.listeners:
                try:
                    listener(entry.view())
                except BaseException as error:  # a listener never ends a run
                    text = f"a listener failed on {entry.path}: {error_line(error, self.redact)}"
                    self.warn(text, code="listener_failed")

    async def settled(self) -> None:
        """Settle, even while a cancellation asks for the end of the run."""
        try:
            await self.settle()
        except asyncio.CancelledError:
            if self.cancelled is None:
                raise
            await self.settle()

    def stopped_by(self, error: BaseException, path: str = "") -> Stopped:
        """Return the stop that an interruption at a path means; raise one that did not come from the run again."""
        if isinstance(error, Stopped):
            return error
        if self.cancelled is not None:
            return Stopped("", self.cancelled)
        # Only inside the loop that the limit of time cuts: elsewhere the caller cancelled the task.
        if self.timed is not None and f"{path}/".startswith(f"{self.timed.owner}/"):
            return self.timed
        raise error

    def warn(self, sentence: str, path: str = "", *, code: str = "") -> None:
        """Add a sentence to the result's warnings, once, with its code and the first path it applies to."""
        sentence = self.clean(sentence)
        # A warning of an earlier process may have a code or a path before the same sentence.
        if any(w == sentence or w.endswith(f": {sentence}") for w in self.warnings):
            return
        warning = ": ".join(part for part in (code, path, sentence) if part)
        self.warnings += (warning,)
        if code != "blocking_event_loop":  # logged while the step blocked, with its stack
            LOG.warning("%s", OneLine(warning), extra={"run_id": self.run_id, "path": path})
        # Recorded, so that a resumed run has the warnings of its earlier processes.
        if not self.silent:
            self.append(Entry("warned", "", self.now(), value=warning))

    def ask(
        self, path: str, request: Mapping[str, Json], detail: str, reason: Reason = Reason.APPROVAL
    ) -> Json:
        """Return the recorded answer at a path, or record the question and raise Suspended."""
        replay = self.replay
        if self.stubs is not None:
            return self.stubs.output(path, "question to a person")
        if replay is not None and path in replay.answers:
            return replay.answers[path]
        detail, request = self.clean(detail), self.clean(dict(request))
        # A resume asks the same question again: one entry is enough.
        if not self.silent and (replay is None or path not in replay.asked):
            asked = {"request": dict(request), "detail": detail, "since": self.clock.wall()}
            self.append(Entry("asked", path, self.now(), value=asked))
        raise Suspended(Stop(reason, detail), path=path, request=dict(request))

    async def release(self) -> None:
        """Close the objects that were opened for this run, the latest first."""
        while self.owned:
            _, resource = self.owned.popitem()
            with contextlib.suppress(Exception):  # the run has its result already
                await resource.aclose()

    def report(self, path: str, name: str, report: Mapping[str, Json]) -> None:
        """Record the report of the agent at `path` on how it ended, unless it is recorded.

        An agent that was cut short and continued after a resume has another status, and is recorded again.
        """
        recorded = self.replay.reports.get(path) if self.replay is not None else None
        if recorded is not None and recorded["status"] == report["status"]:
            return
        self.agents[name] = self.clean({"name": name, **report})
        if not self.silent:
            self.append(Entry("reported", path, self.now(), value=self.agents[name]))

    def step_ended(self, path: str, outcome: StepOutcome) -> None:
        """Record how a step of the root workflow ended, or that it did not run; the latest record counts."""
        stop = None
        if outcome.reason is not None:
            stop = Stop(outcome.reason, outcome.detail).to_json()
        recorded = self.replay.steps.get(path) if self.replay is not None else None
        if recorded is not None and recorded.value.get("stop") == stop:
            return
        # Removed first, because the order of the outcomes is that of the ends.
        self.outcomes.pop(outcome.name, None)
        self.outcomes[outcome.name] = outcome
        if not self.silent:
            ended = {"step": outcome.name, "stop": stop, "seconds": round(outcome.seconds, 6)}
            self.append(Entry("step", path, self.now(), value=ended))

    def enter(self) -> asyncio.Task[object] | None:
        """Let a cancel reach the current task until `leave`; return the task."""
        self.task = asyncio.current_task()
        return self.task

    def leave(self) -> None:
        """Let no later cancel reach the caller's task."""
        self.task = None

    def cut(self, task: asyncio.Task[object], stop: Stopped) -> None:
        """Cancel the task of a loop because a person's limit of time has passed."""
        self.timed = stop
        task.cancel()

    def take_back(self, task: asyncio.Task[object]) -> bool:
        """Take back the cancellation of `cut`; return whether the caller of the task cancelled it as well."""
        self.timed = None
        return task.uncancel() > 0 and self.cancelled is None

    def cancel(self, detail: str = "cancelled by a person") -> None:
        """End the run as cancelled; the call in flight is cancelled with it."""
        if self.cancelled is None:
            self.cancelled = Stop(Reason.CANCELLED, detail)
            if self.task is not None:
                self.task.cancel()

    def lose(self) -> None:
        """Cancel the calls in flight, because another owner took the run over and repeats them.

        Calls of steps with `on_lost="finish"` end first.
        """
        self.lost = True
        if self.task is not None and not self.finishing:
            self.task.cancel()

    async def to_its_end(
        self, act: Callable[[Any, Any], Awaitable[Any]], value: Any, ctx: Any
    ) -> Any:
        """Act to the end, and raise OwnershipLost only then."""
        self.finishing += 1
        try:
            return await act(value, ctx)
        finally:
            self.finishing -= 1
            # Not by cancelling the task: the cancellation could reach its caller after this error.
            if self.lost:
                raise OwnershipLost(f"{self.run_id}: another owner took this run over")


_NONE: list[Entry] = []  # shared by all runs without listeners; it stays empty
_NONE_TAKEN: dict[tuple[str, str], tuple[int, float]] = {}  # shared by all runs without events
_NO_LOOPS: dict[str, Any] = {}  # shared by all silent runs; it stays empty
