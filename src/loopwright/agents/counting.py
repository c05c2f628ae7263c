"""How many calls of a model are made at a place and below it."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ..codec import Json
from ..context import Context
from ..models.attempts import Attempt

__all__ = ["Counted", "Tally"]


@dataclass(slots=True)
class Tally:
    """How many calls of a model were made, and when the last one was (seconds since the epoch)."""

    calls: int = 0
    at: float = 0.0


class Counted(Context):
    """A context that counts the calls of models made in it and below it."""

    __slots__ = ("tally",)

    tally: Tally

    @classmethod
    def of(cls, ctx: Context, tally: Tally | None = None) -> Counted:
        """Return the same place, counted."""
        made = cls(ctx.run, ctx.path, ctx.gate, ctx.account, ctx.scope)
        made.tally = Tally() if tally is None else tally
        return made

    def child(self, path: str) -> Counted:
        """Return the context of a step inside this one."""
        return self.of(super().child(path), self.tally)

    def call(
        self, name: str, step: Any, value: Json = None, token: str = ""
    ) -> Coroutine[Any, Any, Json]:
        """Run a step inside this one; see Context.call."""
        if isinstance(step, Attempt):
            self.tally.calls += 1
            self.tally.at = self.run.clock.wall()
        return super().call(name, step, value, token=token)
