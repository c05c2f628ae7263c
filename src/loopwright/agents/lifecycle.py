"""The lifecycle of an agent: one table of states and events, and the lifecycle of a run by its journal.

Rules:

1. An event that a state does not accept changes nothing and raises no error. The Move has the reason and the
   events that the state accepts.
2. An event reports the past: `STEP_COMPLETE` comes after the step.
3. Every state can reach an end, with a pass, an error, a limit, a timeout or a cancellation. So all active
   states accept `TIMEOUT`, `MAX_ITERATIONS` and `STEP_FAILED`.
4. The state of a run is that of the outermost active loop; a step outside of loops is executing. Any limit
   that ends a run is `MAX_ITERATIONS`, with the limit in the detail. A run that waits for a person is
   waiting for input. A run that is interrupted or waits for anything else is paused.

Source of states and events: the state machine of the loop controller. Its edges from evaluating to executing
and into waiting have no names; `NEXT_STEP`, `INPUT_NEEDED` and `AGENT_CALLED` are names of Loopwright.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from ..errors import nearest
from ..journal import Entry
from ..records import Reason, Status, Stop
from ..records.codec import Json

__all__ = [
    "ACTIVE",
    "TABLE",
    "TERMINAL",
    "Event",
    "Lifecycle",
    "LifecycleEvent",
    "LifecycleListener",
    "Move",
    "State",
    "diagram",
    "event_table",
    "lifecycle_of",
]


class State(StrEnum):
    """The state of an agent."""

    IDLE = "idle"
    INITIALIZING = "initializing"
    PLANNING = "planning"
    EXECUTING = "executing"
    EVALUATING = "evaluating"
    ADAPTING = "adapting"
    WAITING_INPUT = "waiting_input"
    WAITING_AGENT = "waiting_agent"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """An event in the life of an agent."""

    START = "START"
    INIT_COMPLETE = "INIT_COMPLETE"
    PLAN_COMPLETE = "PLAN_COMPLETE"
    STEP_COMPLETE = "STEP_COMPLETE"
    STEP_FAILED = "STEP_FAILED"
    EVALUATION_PASS = "EVALUATION_PASS"  # noqa: S105
    EVALUATION_FAIL = "EVALUATION_FAIL"
    NEXT_STEP = "NEXT_STEP"
    ADAPTATION_COMPLETE = "ADAPTATION_COMPLETE"
    INPUT_NEEDED = "INPUT_NEEDED"
    INPUT_RECEIVED = "INPUT_RECEIVED"
    AGENT_CALLED = "AGENT_CALLED"
    AGENT_COMPLETE = "AGENT_COMPLETE"
    TIMEOUT = "TIMEOUT"
    MAX_ITERATIONS = "MAX_ITERATIONS"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    CANCEL = "CANCEL"
    RESET = "RESET"


ACTIVE = (
    State.INITIALIZING, State.PLANNING, State.EXECUTING, State.EVALUATING, State.ADAPTING,
    State.WAITING_INPUT, State.WAITING_AGENT,
)  # fmt: skip
TERMINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

# An event, the states that accept it, the next state (None: the state before the pause), its meaning.
_ROWS: tuple[tuple[Event, tuple[State, ...], State | None, str], ...] = (
    (Event.START, (State.IDLE,), State.INITIALIZING, "the work began"),
    (Event.INIT_COMPLETE, (State.INITIALIZING,), State.PLANNING, "the resources are ready"),
    (Event.PLAN_COMPLETE, (State.PLANNING,), State.EXECUTING, "the plan is ready"),
    (Event.STEP_COMPLETE, (State.EXECUTING,), State.EVALUATING, "a step was done"),
    (Event.EVALUATION_PASS, (State.EVALUATING,), State.SUCCEEDED, "the output is good enough"),
    (
        Event.EVALUATION_FAIL,
        (State.EVALUATING,),
        State.ADAPTING,
        "the output is not good enough, or the step failed",
    ),
    (
        Event.NEXT_STEP,
        (State.EVALUATING,),
        State.EXECUTING,
        "the output is good enough, and another step follows",
    ),
    (Event.ADAPTATION_COMPLETE, (State.ADAPTING,), State.EXECUTING, "the next input is ready"),
    (Event.INPUT_NEEDED, (State.EXECUTING,), State.WAITING_INPUT, "a question to a person is open"),
    (Event.INPUT_RECEIVED, (State.WAITING_INPUT,), State.EXECUTING, "the person answered"),
    (Event.AGENT_CALLED, (State.EXECUTING,), State.WAITING_AGENT, "another agent was called"),
    (Event.AGENT_COMPLETE, (State.WAITING_AGENT,), State.EXECUTING, "the other agent answered"),
    (Event.STEP_FAILED, ACTIVE, State.FAILED, "an error ended the work"),
    (Event.TIMEOUT, ACTIVE, State.FAILED, "the time ran out"),
    (Event.MAX_ITERATIONS, ACTIVE, State.FAILED, "another limit ended the work"),
    (Event.PAUSE, ACTIVE, State.PAUSED, "the work was interrupted, or waits for a quota"),
    (Event.RESUME, (State.PAUSED,), None, "the work continues where it stopped"),
    (Event.CANCEL, (*ACTIVE, State.PAUSED), State.CANCELLED, "a person ended the work"),
    (Event.RESET, TERMINAL, State.IDLE, "the work starts again"),
)
TABLE: Mapping[tuple[State, Event], State | None] = MappingProxyType(
    {(state, event): after for event, before, after, _ in _ROWS for state in before}
)


@dataclass(frozen=True, slots=True)
class Move:
    """The result of an event: whether it was accepted, and the lifecycle after it.

    `reason` says why it was refused ("" if it was not), and `valid` lists the events that the state
    `before` accepts.
    """

    success: bool
    event: str
    before: State
    lifecycle: Lifecycle
    reason: str = ""
    valid: tuple[Event, ...] = ()

    @property
    def after(self) -> State:
        """The state after the event."""
        return self.lifecycle.state

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        refusal = {"reason": self.reason, "valid": [event.value for event in self.valid]}
        return {
            "success": self.success,
            "event": self.event,
            "before": self.before.value,
            "after": self.after.value,
            **({} if self.success else refusal),
        }


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The immutable state of an agent. An event returns a Move with the lifecycle after it.

    Args:
        state: The current state. Default: idle.
        previous: The state before a pause. Default: none.

    Example:
        >>> move = Lifecycle().on("START")
        >>> move.success, move.after.value
        (True, 'initializing')
        >>> refused = move.lifecycle.on("EVALUATION_PASS")
        >>> refused.success, refused.after.value, refused.reason
        (False, 'initializing', 'initializing does not accept EVALUATION_PASS')
    """

    state: State = State.IDLE
    previous: State | None = None

    @property
    def terminal(self) -> bool:
        """Whether the work has ended."""
        return self.state in TERMINAL

    @property
    def valid(self) -> tuple[Event, ...]:
        """The events that the current state accepts."""
        return tuple(event for event in Event if (self.state, event) in TABLE)

    def on(self, event: str) -> Move:
        """Return the result of an event."""
        name = str(event)
        # Unknown names are refused like other events, because they often come from outside (rule 1).
        if name not in Event.__members__:
            hint = nearest(name, [one.value for one in Event])
            return self._refused(name, f"{name!r} is not an event{hint}")
        accepted = Event(name)
        if (self.state, accepted) not in TABLE:
            return self._refused(name, f"{self.state} does not accept {name}")
        # None in the table stands for the state before the pause.
        after = TABLE[self.state, accepted] or self.previous or State.IDLE
        paused = self.state if after is State.PAUSED else None
        return Move(success=True, event=name, before=self.state, lifecycle=Lifecycle(after, paused))

    def _refused(self, name: str, reason: str) -> Move:
        return Move(
            success=False,
            event=name,
            before=self.state,
            lifecycle=self,
            reason=reason,
            valid=self.valid,
        )


def diagram() -> str:
    """Return the table as a state diagram in Mermaid's language.

    The active states are in a box. An event that all of them accept is an edge from the box.
    """
    lines = ["stateDiagram-v2", "    [*] --> idle", "    state active {"]
    inside: list[str] = []
    outside: list[str] = []
    for event, before, after, _ in _ROWS:
        from_box = set(ACTIVE) <= set(before)
        target = "active" if after is None else after.value
        if from_box:
            outside.append(f"active --> {target}: {event}")
        for state in before:
            if not (from_box and state in ACTIVE):
                both = state in ACTIVE and after in ACTIVE
                (inside if both else outside).append(f"{state} --> {target}: {event}")
    lines += [f"        {line}" for line in inside]
    lines += ["    }", *(f"    {line}" for line in outside)]
    lines += [f"    {state} --> [*]" for state in TERMINAL]
    return "\n".join(lines)


def event_table() -> str:
    """Return the table in Markdown: a row for each event."""
    rows = ["| event | from | to | meaning |", "|---|---|---|---|"]
    for event, before, after, meaning in _ROWS:
        rest = [state.value for state in before if state not in ACTIVE or len(before) < len(ACTIVE)]
        sources = ["any active state"] if set(ACTIVE) <= set(before) else []
        target = after.value if after is not None else "the state before the pause"
        rows.append(f"| `{event}` | {', '.join([*sources, *rest])} | {target} | {meaning} |")
    return "\n".join(rows)


_STAGE = re.compile(r"(?:^|/)\d+/(adapt|execute|evaluate|until)(?=/|$)")
_PLANNING = re.compile(  # the planning of an agent, and the hooks before it
    r"(?:^|/)(?:planning(?:-\d+)?(?:/|$)|[^/]+\.(?:init|start_agent_loop)$)"
)
_TARGETS = {
    "adapt": State.ADAPTING,
    "execute": State.EXECUTING,
    "evaluate": State.EVALUATING,
    "until": State.EVALUATING,
}
_WORK = ("started", "finished", "cut", "expired", "iteration")
_TIME = (Reason.TIMEOUT, Reason.DEADLINE)
# The journal records stages, not events. These are the events between two recorded stages.
_ROUTES: dict[tuple[State, State], tuple[Event, ...]] = {
    (State.PLANNING, State.EXECUTING): (Event.PLAN_COMPLETE,),
    (State.EXECUTING, State.EVALUATING): (Event.STEP_COMPLETE,),
    (State.EXECUTING, State.ADAPTING): (Event.STEP_COMPLETE, Event.EVALUATION_FAIL),
    (State.EVALUATING, State.ADAPTING): (Event.EVALUATION_FAIL,),
    (State.EVALUATING, State.EXECUTING): (Event.NEXT_STEP,),
    (State.ADAPTING, State.EXECUTING): (Event.ADAPTATION_COMPLETE,),
    (State.ADAPTING, State.EVALUATING): (Event.ADAPTATION_COMPLETE, Event.STEP_COMPLETE),
}
# The events that lead from a waiting state back to work.
_WAKING = {
    State.IDLE: (Event.START, Event.INIT_COMPLETE),
    State.PAUSED: (Event.RESUME,),
    State.WAITING_INPUT: (Event.INPUT_RECEIVED,),
    State.WAITING_AGENT: (Event.AGENT_COMPLETE,),
}
# A run that ended can continue after a rewind or with a higher limit.
_AGAIN = (Event.RESET, Event.START, Event.INIT_COMPLETE)


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """A move in the lifecycle of a run: `at` in active seconds, the path in the journal, and the reason."""

    at: float
    path: str
    move: Move
    detail: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "at": round(self.at, 6),
            "path": self.path,
            "event": self.move.event,
            "state": self.move.after.value,
            **({"detail": self.detail} if self.detail else {}),
        }


class LifecycleListener:
    """A listener that derives the lifecycle of a run.

    `lifecycle` is the current state, `moments` are the moves so far.

    Example:
        >>> from loopwright import run_sync
        >>> listener = LifecycleListener()
        >>> result = run_sync(str.upper, "a title", listeners=[listener])
        >>> listener.state.value
        'succeeded'
    """

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        self.moments: list[LifecycleEvent] = []
        self._loop = ""  # the path of the outermost active loop

    @property
    def state(self) -> State:
        """The state of the run."""
        return self.lifecycle.state

    def __call__(self, entry: Entry) -> None:
        """Update the lifecycle with an entry of the journal."""
        if entry.kind in _WORK:
            self._wake(entry)
            self._work(entry)
        elif entry.kind == "answered" and self.state is State.WAITING_INPUT:
            self._on(entry, Event.INPUT_RECEIVED)
        elif entry.kind == "interrupted" and not self.lifecycle.terminal:
            self._pause(entry, "its process was asked to end")
        elif entry.kind == "suspended":
            self._suspended(entry)
        elif entry.kind == "ended" and not entry.path:
            self._ended(entry)
        elif entry.kind == "rewound" and self.lifecycle.terminal:
            self._on(entry, Event.RESET)

    def _on(self, entry: Entry, *events: Event, detail: str = "") -> None:
        for event in events:
            move = self.lifecycle.on(event)
            self.lifecycle = move.lifecycle
            self.moments.append(LifecycleEvent(entry.at, entry.path, move, detail))

    def _wake(self, entry: Entry) -> None:
        """Continue work that has not begun, is paused or waiting, or has ended."""
        self._on(entry, *(_AGAIN if self.lifecycle.terminal else _WAKING.get(self.state, ())))
        if self.state is State.PLANNING and not _PLANNING.search(entry.path):
            self._on(entry, Event.PLAN_COMPLETE)

    def _work(self, entry: Entry) -> None:
        if self.state is State.PLANNING:  # all work before the plan belongs to planning
            return
        stage = _STAGE.search(entry.path)
        loop = entry.path[: stage.start()] if stage else entry.path
        if stage:
            target = _TARGETS[stage[1]]
        else:
            target = State.EVALUATING if entry.kind == "iteration" else State.EXECUTING
        again = stage is not None and loop == self._loop
        if again and (self.state, target) == (State.EVALUATING, State.EXECUTING):
            # Another iteration of the same loop without `adapt`, whose input stays the same. The table has
            # no direct edge between the two states for a failed evaluation.
            self._on(entry, Event.EVALUATION_FAIL, Event.ADAPTATION_COMPLETE)
        self._loop = loop if stage or entry.kind == "iteration" else self._loop
        self._on(entry, *_ROUTES.get((self.state, target), ()))

    def _pause(self, entry: Entry, detail: str) -> None:
        if self.state is State.IDLE:
            self._on(entry, Event.START)
        if self.state is not State.PAUSED:
            self._on(entry, Event.PAUSE, detail=detail)

    def _suspended(self, entry: Entry) -> None:
        stop = Stop.from_json(entry.value["stop"])
        person = stop.reason in (Reason.APPROVAL, Reason.NEEDS_ATTENTION)
        if person:
            self._wake(entry)
        if person and self.state is State.EXECUTING:
            self._on(entry, Event.INPUT_NEEDED, detail=stop.detail)
        else:
            self._pause(entry, stop.detail)

    def _ended(self, entry: Entry) -> None:
        stop = Stop.from_json(entry.value["stop"])
        status = stop.reason.status
        # A paused run is cancelled directly; resuming it first would report work that never happened.
        if status is Status.CANCELLED and self.state is State.PAUSED:
            self._on(entry, Event.CANCEL, detail=stop.detail)
            return
        if self.state is not State.PLANNING or status is Status.SATISFIED:
            self._wake(entry)
        if status is Status.SATISFIED:
            self._on(entry, *_ROUTES.get((self.state, State.EVALUATING), ()))
            self._on(entry, Event.EVALUATION_PASS, detail=stop.detail)
        elif status is Status.EXHAUSTED:
            # The format has no other names for limits.
            event = Event.TIMEOUT if stop.reason in _TIME else Event.MAX_ITERATIONS
            self._on(entry, event, detail=stop.detail)
        else:
            event = Event.CANCEL if status is Status.CANCELLED else Event.STEP_FAILED
            self._on(entry, event, detail=stop.detail)


def lifecycle_of(entries: Iterable[Entry]) -> LifecycleListener:
    """Return the lifecycle of a run by the entries of its journal.

    Args:
        entries: The entries, in order.
    """
    listener = LifecycleListener()
    for entry in entries:
        listener(entry)
    return listener
