"""The lifecycle of a run, derived from its journal: live, as a listener, or afterwards.

The outermost loop at work is what is executing, evaluating or adapting; a step outside of loops is
executing. What ended a run by a limit is `MAX_ITERATIONS`, with the limit in the moment's detail; a run
that waits for a person is waiting for input, one that was interrupted or waits for anything else is
paused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..codec import Json
from ..journal import Entry
from ..records import Reason, Status, Stop
from .lifecycle import Event, Lifecycle, Move, State

__all__ = ["Follower", "Moment", "lifecycle_of"]

_STAGE = re.compile(r"(?:^|/)\d+/(adapt|execute|evaluate)(?=/|$)")
_TARGETS = {"adapt": State.ADAPTING, "execute": State.EXECUTING, "evaluate": State.EVALUATING}
_WORK = ("started", "finished", "cut", "expired", "iteration")
_TIME = (Reason.TIMEOUT, Reason.DEADLINE)
_ROUTES: dict[tuple[State, State], tuple[Event, ...]] = {
    (State.PLANNING, State.EXECUTING): (Event.PLAN_COMPLETE,),
    (State.EXECUTING, State.EVALUATING): (Event.STEP_COMPLETE,),
    (State.EXECUTING, State.ADAPTING): (Event.STEP_COMPLETE, Event.EVALUATION_FAIL),
    (State.EVALUATING, State.ADAPTING): (Event.EVALUATION_FAIL,),
    (State.EVALUATING, State.EXECUTING): (Event.NEXT_STEP,),
    (State.ADAPTING, State.EXECUTING): (Event.ADAPTATION_COMPLETE,),
    (State.ADAPTING, State.EVALUATING): (Event.ADAPTATION_COMPLETE, Event.STEP_COMPLETE),
}
_WAKING = {
    State.IDLE: (Event.START, Event.INIT_COMPLETE),
    State.PAUSED: (Event.RESUME,),
    State.WAITING_INPUT: (Event.INPUT_RECEIVED,),
    State.WAITING_AGENT: (Event.AGENT_COMPLETE,),
}
_AGAIN = (Event.RESET, Event.START, Event.INIT_COMPLETE)


@dataclass(frozen=True, slots=True)
class Moment:
    """A move of a run's lifecycle: when (active seconds), at which path of the journal, and why."""

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


class Follower:
    """A listener that derives the lifecycle of a run: `run(…, listeners=[follower])`.

    `lifecycle` is where the run is, `moments` how it came there.
    """

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        self.moments: list[Moment] = []
        self._loop = ""  # the path of the outermost loop at work

    @property
    def state(self) -> State:
        """Where the run is."""
        return self.lifecycle.state

    def __call__(self, entry: Entry) -> None:
        """Hear of an entry of the journal."""
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
            self.moments.append(Moment(entry.at, entry.path, move, detail))

    def _wake(self, entry: Entry) -> None:
        """Take up work that had not begun, was paused or waited, or had ended."""
        self._on(entry, *(_AGAIN if self.lifecycle.terminal else _WAKING.get(self.state, ())))
        if self.state is State.PLANNING:
            self._on(entry, Event.PLAN_COMPLETE)

    def _work(self, entry: Entry) -> None:
        found = _STAGE.search(entry.path)
        loop = entry.path[: found.start()] if found else entry.path
        if found:
            target = _TARGETS[found[1]]
        else:
            target = State.EVALUATING if entry.kind == "iteration" else State.EXECUTING
        again = found is not None and loop == self._loop
        if again and (self.state, target) == (State.EVALUATING, State.EXECUTING):
            # Another round of the same loop, whose input stays as it is.
            self._on(entry, Event.EVALUATION_FAIL, Event.ADAPTATION_COMPLETE)
        self._loop = loop if found or entry.kind == "iteration" else self._loop
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
        if status is Status.CANCELLED and self.state is State.PAUSED:
            self._on(entry, Event.CANCEL, detail=stop.detail)
            return
        self._wake(entry)
        if status is Status.SATISFIED:
            self._on(entry, *_ROUTES.get((self.state, State.EVALUATING), ()))
            self._on(entry, Event.EVALUATION_PASS, detail=stop.detail)
        elif status is Status.EXHAUSTED:
            event = Event.TIMEOUT if stop.reason in _TIME else Event.MAX_ITERATIONS
            self._on(entry, event, detail=stop.detail)
        else:
            event = Event.CANCEL if status is Status.CANCELLED else Event.STEP_FAILED
            self._on(entry, event, detail=stop.detail)


def lifecycle_of(entries: Iterable[Entry]) -> Follower:
    """Return the lifecycle that the entries of a run tell, with every moment of it."""
    follower = Follower()
    for entry in entries:
        follower(entry)
    return follower
