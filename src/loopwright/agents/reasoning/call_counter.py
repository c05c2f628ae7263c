"""How many calls of a model are made at a place and below it."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ...engine.context import Context
from ...engine.step import Step
from ...models.attempts import ModelAttempt
from ...records.codec import Json

__all__ = ["CallCounter", "Counted"]


@dataclass(slots=True)
class CallCounter:
    """How many calls of a model were made, and when the last one was (seconds since the epoch)."""

    calls: int = 0
    at: float = 0.0


class Counted(Context):
    """A context that counts the calls of models made in it and below it."""

    __slots__ = ("tally",)

    tally: CallCounter

    @classmethod
    def of(cls, ctx: Context, tally: CallCounter | None = None) -> Counted:
        """Return the same place, counted."""
        made = cls(ctx.run, ctx.path, ctx.gate, ctx.account, ctx.scope)
        made.tally = CallCounter() if tally is None else tally
        return made

    def child(self, path: str) -> Counted:
        """Return the context of a step inside this one."""
        return self.of(super().child(path), self.tally)

    def _before(self, path: str) -> int:
        """Return how often a call on record was begun and not finished: an interrupt cut it."""
        replay = self.run.replay
        if replay is None:
            return 0
        return replay.repeated.get(path, 0) + (path in replay.doubts)

    def call(
        self, name: str, step: Step, value: Json = None, token: str = ""
    ) -> Coroutine[Any, Any, Json]:
        """Run a step inside this one; see Context.call."""
        if isinstance(step, ModelAttempt):
            self.tally.calls += 1 + self._before(self.below(name))
            self.tally.at = self.run.clock.wall()
        return super().call(name, step, value, token=token)
