"""One read or write of a space as an effect of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import codec
from ..codec import Json
from ..context import Context
from ..errors import JournalError, StepError
from ..memory import Memory, Space
from ..step import digest_of

__all__ = ["READS", "WRITES", "Operation", "memory_of"]

READS = (
    "all", "recall", "episodes", "success_rate", "recall_facts", "facts", "lessons", "notes",
)  # fmt: skip
WRITES = (
    "set", "delete", "clear", "record", "feedback", "remember", "reinforce", "contradict",
    "supersede", "decay", "consolidate", "cleanup", "note",
)  # fmt: skip


def memory_of(ctx: Context, who: str) -> Memory:
    """Return the memory of a run.

    Raises:
        StepError: of kind `no_memory`, if it has none.
    """
    found: Memory | None = ctx.run.resources.get("memory")
    if found is None:
        raise StepError(
            f"{who} remembers from run to run, and this run has no memory; give it a journal, or "
            "resources={'memory': …}",
            kind="no_memory",
            retryable=False,
        )
    return found


class Operation:
    """The leaf that calls a method of a space with its input as the arguments."""

    effect = True
    required = False
    reserve = None
    idempotent = True
    wants_context = True

    def __init__(self, space: str, method: str) -> None:
        self.space = space
        self.method = method
        self.name = method
        self.fingerprint = digest_of("memory", space, method)

    async def act(self, value: Mapping[str, Any], ctx: Context) -> Json:
        """Call it, with the time of the run and the key of this effect."""
        space = Space(memory_of(ctx, self.space), self.space, run=ctx.run_id)
        given = dict(value)
        if self.method in WRITES:
            given["at"] = ctx.run.clock.wall()
            given["key"] = f"{ctx.idempotency_key}~{digest_of(codec.encode(value))[:8]}"
        try:
            found = await getattr(space, self.method)(**given)
        except JournalError as error:
            raise StepError(f"memory: {error}", kind="memory_unavailable") from error
        if getattr(found, "unreadable", 0):
            ctx.warn(f"{found.unreadable} damaged entries of the memory were left out")
        return found
