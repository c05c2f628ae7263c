"""Interruptions of coding agents by people: a call is ended, and its session goes on at once with the new hints.

1. A call that is interrupted ends as others do: with a record, which has its usage, and the files that it made.
2. The record has the hints of the next prompt, so a replay makes the same prompt.
3. Only steps of `execute` read hints. A hold interrupts every agent, and is asked before the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.context import Context
from ...journal import Entry
from ...prompts.prompt import with_hints
from ...records.codec import Json

__all__ = ["GO_ON", "Interruptions"]

GO_ON = "You were interrupted. Go on with your task."


class Interruptions:
    """What people ask of the calls of one answer.

    Args:
        ctx: the context of the step.

    Attributes:
        loop: the path of the loop whose hints it reads; "" is none.
        seen: how many requests to interrupt it were taken into account. Earlier ones do not concern it.
    """

    def __init__(self, ctx: Context) -> None:
        scope: Any = None if ctx.scope is None else ctx.scope.iteration_scope
        self.iteration = "" if scope is None else f"{scope.path}/{scope.number}"
        self.step = ctx.path.removeprefix(self.iteration)
        reads = scope is not None and f"{ctx.path}/".startswith(f"{scope.iteration_path}/execute/")
        self.ctx, self.scope, self.loop = ctx, scope, scope.path if reads else ""
        self.seen = self.requests()

    def requests(self) -> int:
        """Return how many requests to interrupt it there are."""
        steering = self.ctx.run.steering
        return 0 if steering is None else steering.urgent(self.loop)

    def take(self) -> list[Json]:
        """Return the hints for the session of an interrupted call."""
        self.seen, run, found = self.requests(), self.ctx.run, list[Json]()
        if self.loop and run.steering is not None:
            found = run.steering.read(self.loop, self.iteration, self.scope.hints, self.step)
        return [hint for hint in run.clean(found) if hint["new"]]

    def told(self, hints: Sequence[Json]) -> str:
        """Return the prompt after an interrupted call, and record that its iteration has read the hints."""
        if new := [hint for hint in hints if hint not in self.scope.hints]:
            self.scope.hint([*self.scope.hints, *new])
            run = self.ctx.run
            run.append(Entry("steered", self.iteration, run.now(), value=self.scope.hints))
        return with_hints(GO_ON, [hint["text"] for hint in hints])
