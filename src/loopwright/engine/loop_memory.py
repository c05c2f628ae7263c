"""A loop that leaves an episode behind, and is given the lessons of earlier ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from ..errors import ConfigurationError, StepError
from ..memory import Lessons
from ..records import Iteration, Result, Status, codec
from ..records.codec import Json
from .composites import Wrapper
from .context import Context
from .memory_steps import Operation, remembered
from .scope import Scope
from .step import CompositeStep, StepLike, as_step, digest_of

__all__ = ["LoopWithMemory", "lessons", "remembered", "remembering"]

_OUTCOMES: Mapping[Status, str] = MappingProxyType(
    {Status.SATISFIED: "success", Status.EXHAUSTED: "partial", Status.FAILED: "failure"}
)
_LONGEST = 300  # characters of what was tried, said or given, as an episode keeps it
_ROUNDS = 10  # the latest rounds of a loop that an episode keeps
NOTHING = Lessons().to_json()


class LoopWithMemory(Wrapper):
    """A loop that is given the lessons of earlier runs and leaves an episode for later ones.

    Inside, templates see the lessons as `memory` (`memory.text`, `memory.lessons`, `memory.facts`,
    `memory.success_rate`), functions by `lessons(ctx)`.
    """

    inner: CompositeStep

    def __init__(self, inner: CompositeStep, space: str, most: int, facts: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.space = space
        self.most = most
        self.facts = facts

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the loop and of what is remembered of it."""
        kept = f"{self.space} {self.most} {self.facts}"
        return digest_of("remembering", self.inner.fingerprint, kept)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Recall, run the loop, record."""
        scope = Scope(self.name, value, ctx.scope, ctx.path)
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        scope.outputs = {"memory": await self._recall(inner)}
        result: Result = await self.inner.run(value, inner)
        if ctx.scope is not None:
            for name, ended in scope.loops.items():
                ctx.scope.keep_loop(name, ended)
        if result.status in _OUTCOMES:
            await self._record(value, result, ctx)
        return result

    async def _recall(self, ctx: Context) -> Json:
        given = {"action": self.name, "most": self.most, "facts": self.facts}
        try:
            return await ctx.call("recall", Operation(self.space, "lessons"), given)
        except StepError as error:
            if error.kind == "no_memory":
                raise
            ctx.warn(f"it goes on without the lessons of earlier runs: {error}")
            return NOTHING

    async def _record(self, value: Json, result: Result, ctx: Context) -> None:
        try:
            await ctx.call("record", Operation(self.space, "record"), self._episode(value, result))
        except StepError as error:
            ctx.warn(f"later runs will not know of it: {error}")

    def _episode(self, value: Json, result: Result) -> dict[str, Json]:
        history = result.history
        best = history.last if result.satisfied else result.best or history.last
        return {
            "action": self.name,
            "outcome": _OUTCOMES[result.status],
            "description": _cut(codec.text_of(value)),
            "score": best.score if best is not None else None,
            "feedback": _cut(best.feedback if best is not None else result.detail),
            "tried": [_tried(item) for item in history[-_ROUNDS:]],
            "context": {"reason": result.reason.value, "iterations": result.iterations},
        }


def _tried(item: Iteration) -> dict[str, Json]:
    found: dict[str, Json] = {"iteration": item.number, "tried": _cut(codec.text_of(item.output))}
    if item.score is not None:
        found["score"] = item.score
    if item.feedback:
        found["feedback"] = _cut(item.feedback)
    return found


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def remembering(
    loop: StepLike, *, space: str = "", most: int = 5, facts: int = 5
) -> LoopWithMemory:
    """Make a loop that is given what earlier runs of it came to, and leaves the same for later ones.

    `space` is where in the memory (default: the loop's name), `most` how many past runs are shown, the
    latest, and `facts` how many facts of the space, the surest. Of each run its best score, its
    feedback and its latest 10 rounds are kept, each with the beginning of its output.

    Raises:
        ConfigurationError: for something that is no loop, or numbers below 0.

    >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync
    >>> async def draft(task, ctx):
    ...     return f"{task}; seen: {[item['score'] for item in lessons(ctx)['lessons']]}"
    >>> loop = Loop(draft, lambda text: 0.5, until=MaxIterations(1))
    >>> journal = MemoryJournal()
    >>> for _ in range(2):
    ...     print(run_sync(remembering(loop), "note", journal=journal).output)
    note; seen: []
    note; seen: [0.5]
    """
    made = as_step(loop)
    if not isinstance(made, CompositeStep):
        raise ConfigurationError(f"remembering: {made.name} is no loop; give a Loop, or a workflow")
    codec.whole("remembering: most", most, least=0)
    codec.whole("remembering: facts", facts, least=0)
    return LoopWithMemory(made, space or made.name, most, facts)


def lessons(ctx: Context) -> dict[str, Json]:
    """Return what earlier runs of the nearest remembering loop came to; see Lessons.

    Without such a loop there is nothing in it.
    """
    scope = ctx.scope
    while scope is not None:
        if "memory" in scope.outputs and isinstance(scope.outputs["memory"], Mapping):
            return dict(codec.copied(scope.outputs["memory"]))
        scope = scope.parent
    return dict(NOTHING)
