"""Memory in a run: a space as recorded calls, and a loop that reads lessons and records episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..errors import ConfigurationError, JournalError, StepError
from ..memory import Episode, Fact, Lessons, Memory, Space, SuccessRate
from ..records import Iteration, Result, Status, codec
from ..records.codec import Json
from ..records.display import excerpt_line
from .composites import Wrapper
from .context import Context, Scope
from .step import CompositeStep, Leaf, StepLike, as_step, digest_of, fingerprinted

__all__ = [
    "LoopWithMemory",
    "MemorySpaceStep",
    "lessons",
    "remembered",
    "remembering",
]

# Methods of `Space` that take the time and a key.
_WRITES = (
    "set", "delete", "clear", "record", "feedback", "remember", "reinforce", "contradict",
    "supersede", "decay", "consolidate", "cleanup", "note",
)  # fmt: skip


def memory_of(ctx: Context, owner: str) -> Memory:
    """Return the memory of a run. `owner` is the name of the step that needs it, for the message.

    Raises:
        StepError: of kind `no_memory`, if it has none.
    """
    memory: Memory | None = ctx.run.resources.get("memory")
    if memory is None:
        raise StepError(
            f"{owner} needs a memory, and this run has none; use a journal, or "
            "resources={'memory': …}",
            kind="no_memory",
            retryable=False,
        )
    return memory


class MemoryEffect(Leaf):
    """The step that calls a method of a space with its input as the arguments."""

    fingerprint: str

    def __init__(self, space: str, method: str) -> None:
        self.space = space
        self.method = method
        self.name = method
        self.fingerprint = digest_of("memory", space, method)

    async def act(self, value: Mapping[str, Json], ctx: Context) -> Json:
        """Call the method, with the time of the run and the key of this effect."""
        space = Space(memory_of(ctx, self.space), self.space, run=ctx.run_id)
        # Secrets are removed here too, because a memory is stored outside the journal.
        arguments = dict(ctx.run.clean(value))
        if self.method in _WRITES:
            arguments["at"] = ctx.run.clock.wall()
            # An effect that is repeated after a crash writes once; one that a rewind changed writes again.
            arguments["key"] = f"{ctx.idempotency_key}~{digest_of(codec.encode(value))[:8]}"
        try:
            result = await getattr(space, self.method)(**arguments)
        except JournalError as error:
            # A failure of the step, because the run can continue without its memory.
            raise StepError(f"memory: {error}", kind="memory_unavailable") from error
        if getattr(result, "unreadable", 0):
            ctx.warn(
                f"{result.unreadable} damaged entries of the memory are left out",
                code="memory_damaged",
            )
        return result


class MemorySpaceStep:
    """A space of the memory of a run. See `remembered`.

    It has the methods of `Space`. Each call is an effect named `memory-N` below the step, where N is the
    number of the call. Make the calls in an order that is the same in every replay.

    Raises:
        StepError: of kind `no_memory` without a memory, `memory_unavailable` if its store fails.
    """

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx = ctx
        self.name = name
        self._count = 0

    async def _call(self, method: str, **arguments: Json) -> Json:
        names = self._ctx.names or ()
        self._count += 1
        # Another object for a space of the same step may have used the name.
        while (name := f"memory-{self._count}") in names:
            self._count += 1
        return await self._ctx.call(name, MemoryEffect(self.name, method), arguments)

    async def set(self, name: str, value: Json) -> None:
        await self._call("set", name=name, value=value)

    async def get(self, name: str, default: Json = None) -> Json:
        return (await self.all()).get(name, default)

    async def all(self) -> dict[str, Json]:
        values: dict[str, Json] = await self._call("all")
        return values

    async def delete(self, name: str) -> None:
        await self._call("delete", name=name)

    async def clear(self) -> None:
        await self._call("clear")

    async def record(
        self,
        action: str,
        outcome: str,
        *,
        description: str = "",
        score: float | None = None,
        feedback: str = "",
        tried: Sequence[Json] = (),
        context: Json = None,
    ) -> int:
        number: int = await self._call(
            "record", action=action, outcome=outcome, description=description, score=score,
            feedback=feedback, tried=list(tried), context=context,
        )  # fmt: skip
        return number

    async def recall(self, query: str = "", *, limit: int = 5, action: str = "") -> list[Episode]:
        episodes = await self._call("recall", query=query, limit=limit, action=action)
        return [Episode.from_json(item) for item in episodes]

    async def episodes(self, action: str = "") -> list[Episode]:
        return [Episode.from_json(item) for item in await self._call("episodes", action=action)]

    async def success_rate(self, action: str = "") -> SuccessRate:
        rate = await self._call("success_rate", action=action)
        return SuccessRate(rate["successes"], rate["partial"], rate["failures"])

    async def feedback(self, episode: int, text: str, *, rating: float | None = None) -> None:
        await self._call("feedback", episode=episode, text=text, rating=rating)

    async def remember(self, text: str, *, category: str = "", confidence: float = 0.5) -> str:
        fact: str = await self._call(
            "remember", text=text, category=category, confidence=confidence
        )
        return fact

    async def recall_facts(
        self, query: str = "", *, limit: int = 5, category: str = ""
    ) -> list[Fact]:
        facts = await self._call("recall_facts", query=query, limit=limit, category=category)
        return [Fact.from_json(item) for item in facts]

    async def facts(self, category: str = "", *, status: str = "active") -> list[Fact]:
        facts = await self._call("facts", category=category, status=status)
        return [Fact.from_json(item) for item in facts]

    async def reinforce(self, fact: str) -> None:
        await self._call("reinforce", fact=fact)

    async def contradict(self, fact: str, reason: str = "") -> None:
        await self._call("contradict", fact=fact, reason=reason)

    async def supersede(self, fact: str, text: str, *, confidence: float = 0.5) -> str:
        new: str = await self._call("supersede", fact=fact, text=text, confidence=confidence)
        return new

    async def decay(self, *, half_life: float = 30 * 86400.0) -> None:
        await self._call("decay", half_life=half_life)

    async def consolidate(self, *, least: int = 3) -> list[Fact]:
        return [Fact.from_json(item) for item in await self._call("consolidate", least=least)]

    async def cleanup(
        self, *, relevance: float = 0.05, older_than: float = 90 * 86400.0
    ) -> tuple[int, int]:
        facts, episodes = await self._call("cleanup", relevance=relevance, older_than=older_than)
        return facts, episodes

    async def note(self, value: Json) -> int:
        number: int = await self._call("note", value=value)
        return number

    async def notes(self, *, latest: int = 0) -> list[Json]:
        notes: list[Json] = await self._call("notes", latest=latest)
        return notes


def remembered(ctx: Context, name: str) -> MemorySpaceStep:
    """Return a space of the run's memory, for a step that is a function.

    Args:
        ctx: the context of the step.
        name: the name of the space.

    >>> from loopwright import run_sync
    >>> async def draft(task: str, ctx) -> str:
    ...     space = remembered(ctx, "drafts")
    ...     past = await space.recall(task)
    ...     await space.record("draft", "success", description=task, score=0.9)
    ...     return f"{task}, {len(past)} before"
    >>> from loopwright.journal import MemoryJournal
    >>> journal = MemoryJournal()
    >>> for _ in range(2):
    ...     print(run_sync(draft, "release note", journal=journal).output)
    release note, 0 before
    release note, 1 before
    """
    return MemorySpaceStep(ctx, name)


_OUTCOMES: Mapping[Status, str] = MappingProxyType(
    {Status.SATISFIED: "success", Status.EXHAUSTED: "partial", Status.FAILED: "failure"}
)
_MAX_CHARS = 300  # of each text in an episode
_LATEST = 10  # iterations in an episode
NO_LESSONS = Lessons().to_json()


class LoopWithMemory(Wrapper):
    """A loop that receives the lessons of earlier runs and stores an episode for later ones. See `remembering`.

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

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the loop, of its space and of the number of lessons."""
        lessons = f"{self.space} {self.most} {self.facts}"
        return digest_of("remembering", self.inner.fingerprint, lessons)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Read the lessons, run the loop, record an episode."""
        # A separate scope: templates and `lessons` find the name `memory` in it.
        scope = Scope(self.name, value, ctx.scope, ctx.path)
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        scope.show({"memory": await self._recall(inner)})
        result: Result = await self.inner.run(value, inner)
        # The scope hides the loop from the step around it, which reads ended loops.
        if ctx.scope is not None:
            for name, ended in scope.loops.items():
                ctx.scope.keep_loop(name, ended)
        # A suspended or cancelled run has no outcome yet.
        if result.status in _OUTCOMES:
            try:
                history = result.history
                best = history.last if result.satisfied else result.best or history.last
                feedback = best.feedback if best is not None else result.detail
                episode = {
                    "action": self.name,
                    "outcome": _OUTCOMES[result.status],
                    "description": excerpt_line(codec.text_of(value), _MAX_CHARS),
                    "score": best.score if best is not None else None,
                    "feedback": excerpt_line(feedback, _MAX_CHARS),
                    "tried": [_attempt(item) for item in history[-_LATEST:]],
                    "context": {"reason": result.reason.value, "iterations": result.iterations},
                }
                await ctx.call("record", MemoryEffect(self.space, "record"), episode)
            except StepError as error:
                ctx.warn(
                    f"later runs get no lessons from this run: {error}", code="memory_unavailable"
                )
        return result

    async def _recall(self, ctx: Context) -> Json:
        arguments = {"action": self.name, "most": self.most, "facts": self.facts}
        try:
            return await ctx.call("recall", MemoryEffect(self.space, "lessons"), arguments)
        except StepError as error:
            # A missing memory is a mistake in the program; a store that fails is not.
            if error.kind == "no_memory":
                raise
            ctx.warn(
                f"the loop runs without the lessons of earlier runs: {error}",
                code="memory_unavailable",
            )
            return NO_LESSONS


def _attempt(item: Iteration) -> dict[str, Json]:
    output = excerpt_line(codec.text_of(item.output), _MAX_CHARS)
    attempt: dict[str, Json] = {"iteration": item.number, "tried": output}
    if item.score is not None:
        attempt["score"] = item.score
    if item.feedback:
        attempt["feedback"] = excerpt_line(item.feedback, _MAX_CHARS)
    return attempt


def remembering(
    loop: StepLike, *, space: str = "", most: int = 5, facts: int = 5
) -> LoopWithMemory:
    """Make a loop that receives the lessons of its earlier runs and stores its own for later runs.

    The memory stores the best score of each run, its feedback and its latest 10 iterations, each with the
    beginning of its output.

    Args:
        loop: the loop or workflow.
        space: the space of the memory (default: the name of the loop).
        most: the number of latest runs whose lessons the loop receives (default: 5).
        facts: the number of facts of the space, the most certain first (default: 5).

    Returns:
        A step.

    Raises:
        ConfigurationError: for a plain step, or a number below 0.

    >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync
    >>> async def draft(task, ctx):
    ...     return f"{task}; earlier: {[item['score'] for item in lessons(ctx)['lessons']]}"
    >>> loop = Loop(draft, lambda text: 0.5, until=MaxIterations(1))
    >>> journal = MemoryJournal()
    >>> for _ in range(2):
    ...     print(run_sync(remembering(loop), "note", journal=journal).output)
    note; earlier: []
    note; earlier: [0.5]
    """
    step = as_step(loop)
    if not isinstance(step, CompositeStep):
        raise ConfigurationError(
            f"remembering: {step.name} is a plain step; use a Loop or a workflow"
        )
    codec.integer("remembering: most", most, minimum=0)
    codec.integer("remembering: facts", facts, minimum=0)
    return LoopWithMemory(step, space or step.name, most, facts)


def lessons(ctx: Context) -> dict[str, Json]:
    """Return the lessons of earlier runs of the nearest loop with a memory.

    Args:
        ctx: the context of a step in the loop.

    Returns:
        The members of Lessons as an object; empty without such a loop.
    """
    scope = ctx.scope
    while scope is not None:
        if "memory" in scope.outputs and isinstance(scope.outputs["memory"], Mapping):
            return dict(codec.copied(scope.outputs["memory"]))
        scope = scope.parent
    return dict(NO_LESSONS)
