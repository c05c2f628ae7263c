"""One round of a phase: what it is given, what goes through the capabilities, when it ends its phase.

A phase's result may be any value. Of an object these members are read: `done` (leave the phase),
`next_phase` (leave it for that one), `confidence` (0 to 1, where no evaluator is given), and `plan`
or `answer` where the phase's plan or answer is not the whole object.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...conditions import Condition
from ...engine.composites import Wrapper, attempt
from ...engine.context import Context
from ...engine.step import CompositeStep, FunctionStep, Step, digest_of
from ...errors import StepError, Stopped, nearest
from ...prompts.prompt import Prompt
from ...records import Evaluation, History, Iteration, Reason, Result, Status, Stop
from ...records.codec import Json
from .capabilities import AgentState, Hooks, says
from .prompting import Tools, spoken

__all__ = [
    "PHASES",
    "Informed",
    "Judged",
    "PhaseDone",
    "Round",
    "confidence",
    "following",
    "left_for",
    "next_input",
    "unknown_phase",
]

PHASES = ("planning", "execution", "refinement")


@dataclass(frozen=True)
class PhaseDone(Condition):
    """Stop when a phase's result says that the phase is done, or a capability that the agent is."""

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not last.eligible:
            return None
        if asked := (last.steps or {}).get("terminate"):
            return Stop(Reason.CONDITION_MET, f"the capability {asked} asked to terminate")
        if is_done(last.output):
            return Stop(Reason.CONDITION_MET, f"iteration {last.number} says that it is done")
        return None


def is_done(output: Json) -> bool:
    """Return whether a phase's result says that the phase is over."""
    if not isinstance(output, Mapping):
        return False
    return says(output.get("done")) is True or left_for(output) != ""


def left_for(output: Json) -> str:
    """Return the phase that a result asks for next, or ""."""
    asked = output.get("next_phase") if isinstance(output, Mapping) else None
    return asked if isinstance(asked, str) and asked in PHASES else ""


def unknown_phase(output: Json) -> str:
    """Return what is wrong with the phase that a result asks for next, or ""."""
    asked = output.get("next_phase") if isinstance(output, Mapping) else None
    if not asked or left_for(output):
        return ""
    return f"there is no phase {asked!r:.40}{nearest(str(asked), PHASES)}"


def following(phase: str) -> str:
    """Return the phase after this one, or ""."""
    place = PHASES.index(phase) + 1
    return PHASES[place] if place < len(PHASES) else ""


async def _confidence(output: Json, ctx: Context) -> Evaluation:
    found = output.get("confidence") if isinstance(output, Mapping) else None
    if found is None:
        return Evaluation()
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if not number or not 0 <= found <= 1:
        # What a model says of itself never fails a round.
        ctx.warn(f"the confidence {found!r:.40} is no number from 0 to 1, and does not count")
        return Evaluation()
    return Evaluation(float(found))


confidence = FunctionStep(_confidence, name="confidence", fingerprint=digest_of("confidence", "1"))


async def _next_input(last: Iteration, ctx: Context) -> Json:
    given = last.input if isinstance(last.input, dict) else {}
    found = last.evaluation
    produced = last.error is None and last.output is not None
    results = given.get("results")
    if given.get("phase") == "execution" and produced and isinstance(results, list):
        given = {**given, "results": [*results, last.output]}
    return {
        **given,
        "previous": last.output if produced else given.get("previous"),
        "feedback": last.feedback,
        "improvements": list(found.improvements) if found is not None else [],
    }


next_input = FunctionStep(_next_input, name="adapt", fingerprint=digest_of("next input", "2"))


@dataclass(frozen=True)
class Informed(Wrapper):
    """A phase made of steps, such as a prompt: its templates see the results so far by name."""

    name: str
    inner: CompositeStep

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the phase in its place."""
        around = ctx.scope.parent if ctx.scope is not None else None
        if around is not None and isinstance(value, Mapping) and "results" in value:
            around.outputs = {**around.outputs, "results": value["results"]}
        return await self.inner.run(value, ctx)


@dataclass(frozen=True)
class Round(CompositeStep):
    """What one iteration of a phase does: its step, and the capabilities around it."""

    name: str
    inner: Step
    tools: Tools = field(default_factory=Tools)
    hooks: Hooks = field(default_factory=lambda: Hooks(()), compare=False)
    state: AgentState = field(default_factory=lambda: AgentState(""), compare=False)
    owner: str = field(default="", compare=False)

    def parts(self) -> Iterable[Step]:
        return [self.inner]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("round", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Do one iteration, and note for its record what the capabilities remember, store and want."""
        hooks, last = self.hooks, ctx.history.last
        if last is not None:  # on record from before: its hooks are not called again
            hooks.restore((last.steps or {}).get("context"))
        try:
            return await self._through(value, ctx, self._now(ctx))
        finally:
            if hooks.context:
                self._note(ctx, {"context": hooks.context})

    async def _through(self, value: Json, ctx: Context, state: AgentState) -> Result:
        hooks = self.hooks
        if asked := await hooks.asked(ctx, "start_agent_loop", state, usual=True):
            self._note(ctx, {"not_started": True})
            detail = f"the capability {asked} lets no further iteration begin"
            raise Stopped(self.owner, Stop(Reason.CONDITION_MET, detail))
        try:
            response, output = await self._work(value, ctx, state)
        except StepError:
            await hooks.told(ctx, "end_agent_loop", state)
            raise
        memories = await hooks.changed(
            ctx, "process_new_memories", state, [memory(state.phase, output)], of=[response, output]
        )
        if hooks.of("process_new_memories"):
            self._note(ctx, {"memories": memories})
        if asked := await hooks.asked(ctx, "should_terminate", state, output, usual=False):
            self._note(ctx, {"terminate": asked})
        await hooks.told(ctx, "end_agent_loop", state)
        return Result(Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} ran", output, name=self.name)

    async def _work(self, value: Json, ctx: Context, state: AgentState) -> tuple[Json, Json]:
        """Return what was answered, and what came of it."""
        hooks = self.hooks
        if isinstance(self.inner, Prompt):
            said = await spoken(self.inner, value, ctx, tools=self.tools, hooks=hooks, state=state)
            return said, said
        action = {"name": self.inner.name, "arguments": value}
        action = await hooks.changed(ctx, "process_action", state, action)
        given = action.get("arguments", value)
        result = await attempt(ctx, "work", self.inner, given)
        output = await hooks.changed(
            ctx, "process_result", state, result.output, of=[result.output, action]
        )
        return result.output, output

    def _now(self, ctx: Context) -> AgentState:
        """Return the state as of this iteration."""
        state, begun = self.state, len(ctx.history)
        phase = state.phase
        done = dict(state.phase_iterations)
        done[phase] = done.get(phase, 0) + begun
        return AgentState(
            name=state.name,
            input=state.input,
            phase=phase,
            iteration=ctx.iteration,
            current_iteration=state.current_iteration + begun,
            phase_iterations=done,
            memory=[*state.memory, *remembered(phase, ctx.history)],
        )

    def _note(self, ctx: Context, found: dict[str, Json]) -> None:
        if ctx.scope is not None:
            ctx.scope.parts = {**(ctx.scope.parts or {}), **found}


@dataclass(frozen=True)
class Judged(Wrapper):
    """An evaluator made of steps, such as a judge: the goal of the work is the task, not a phase's input."""

    name: str
    inner: CompositeStep
    task: Json = field(default=None, compare=False)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    async def run(self, value: Json, ctx: Context) -> Result:
        """Judge where the evaluator stands, with the task as what the loop was given."""
        scope = copy.copy(ctx.scope)
        if scope is not None:
            scope.initial = self.task
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        return await self.inner.run(value, inner)


def memory(phase: str, output: Json) -> Json:
    """Return what is remembered of a phase's result."""
    return {"type": phase, "content": output}


def remembered(phase: str, history: Iterable[Iteration]) -> list[Json]:
    """Return the memories of the iterations of a phase, oldest first."""
    found: list[Json] = []
    for item in history:
        kept = (item.steps or {}).get("memories")
        if kept is not None:
            found += kept
        elif item.eligible and item.output is not None:
            found.append(memory(phase, item.output))
    return found
