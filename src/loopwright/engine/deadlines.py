"""Deadlines and guards that bind everything inside a loop, the outermost first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..conditions import Condition, asked, named
from ..errors import Stopped
from ..records import History, Reason, Stop
from .run_state import Run

__all__ = ["DeadlineScope"]


class DeadlineScope:
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
        outer: DeadlineScope | None,
        *,
        deadline: float = math.inf,
        stop: Stop | None = None,
        wall: float = math.inf,
        wall_stop: Stop | None = None,
        guards: Sequence[Condition] = (),
        view: Callable[[], History] | None = None,
    ) -> None:
        self.owner = owner
        self.chain: tuple[DeadlineScope, ...] = (*outer.chain, self) if outer else (self,)
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
                    if (stop := asked(guard, history)) is not None:
                        raise Stopped(gate.owner, named(stop, gate.owner))

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
