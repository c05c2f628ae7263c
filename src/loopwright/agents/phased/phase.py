"""One iteration of a phase: its input, the hooks of the capabilities, and the end of its phase.

The result of a phase may be any value. These members of an object are read: `done` (end the phase),
`next_phase` (end it and continue with that phase), `confidence` (0 to 1, without an evaluator), and `plan`
or `answer` if the plan or the answer is not the object itself.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...conditions import Condition
from ...engine.composites import Wrapper, attempt
from ...engine.context import Context
from ...engine.step import CompositeStep, FunctionStep, Step, digest_of, fingerprinted
from ...errors import StepError, Stopped, nearest
from ...prompts.prompt import Prompt
from ...records import Evaluation, History, Iteration, Reason, Result, Status, Stop
from ...records.codec import Json
from .capabilities import AgentState, Hooks, truth_of
from .prompting import Tools, ask_with_hooks

__all__ = [
    "PHASES",
    "JudgedPhase",
    "PhaseDone",
    "PhaseIteration",
    "WithResults",
    "confidence",
    "following",
    "memories_of",
    "next_input",
    "requested_phase",
    "unknown_phase",
]

PHASES = ("planning", "execution", "refinement")


@dataclass(frozen=True)
class PhaseDone(Condition):
    """Stop when the result of a phase is `done`, or when a capability ends the agent."""

    def check(self, history: History) -> Stop | None:
        last = history.last
        # A failed iteration has no result that could be done.
        if last is None or not last.eligible:
            return None
        if name := (last.steps or {}).get("terminate"):
            return Stop(Reason.CONDITION_MET, f"the capability {name} asked to terminate")
        done = truth_of(last.output.get("done")) if isinstance(last.output, Mapping) else False
        # A request for another phase also ends this one.
        if done or requested_phase(last.output):
            return Stop(Reason.CONDITION_MET, f"iteration {last.number} says that it is done")
        return None


def requested_phase(output: Json) -> str:
    """Return the phase that a result names as the next one, or ""."""
    name = output.get("next_phase") if isinstance(output, Mapping) else None
    return name if isinstance(name, str) and name in PHASES else ""


def unknown_phase(output: Json) -> str:
    """Return the problem with the `next_phase` of a result, or ""."""
    name = output.get("next_phase") if isinstance(output, Mapping) else None
    if not name or requested_phase(output):
        return ""
    return f"there is no phase {name!r:.40}{nearest(str(name), PHASES)}"


def following(phase: str) -> str:
    """Return the phase after this one, or ""."""
    return dict(itertools.pairwise(PHASES)).get(phase, "")


async def _confidence(output: Json, ctx: Context) -> Evaluation:
    value = output.get("confidence") if isinstance(output, Mapping) else None
    # Without a statement there is no score, which is different from a confidence of 0.
    if value is None:
        return Evaluation()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        # A statement of a model about itself must not fail an iteration.
        ctx.warn(
            f"the confidence {value!r:.40} is not a number from 0 to 1 and is ignored",
            code="invalid_confidence",
        )
        return Evaluation()
    return Evaluation(float(value))


confidence = FunctionStep(_confidence, name="confidence", fingerprint=digest_of("confidence", "1"))


async def _next_input(last: Iteration, ctx: Context) -> Json:
    value = last.input if isinstance(last.input, dict) else {}
    evaluation = last.evaluation
    produced = last.error is None and last.output is not None
    results = value.get("results")
    # The next iteration of execution needs the results of all earlier ones.
    if value.get("phase") == "execution" and produced and isinstance(results, list):
        value = {**value, "results": [*results, last.output]}
    return {
        **value,
        # A failed iteration does not replace the last good output.
        "previous": last.output if produced else value.get("previous"),
        "feedback": last.feedback,
        "improvements": list(evaluation.improvements) if evaluation is not None else [],
    }


next_input = FunctionStep(_next_input, name="adapt", fingerprint=digest_of("next input", "2"))


@dataclass(frozen=True)
class _InPlace(Wrapper):
    """A composite step that runs at its own path, with other variables around it."""

    name: str
    inner: CompositeStep

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint


@dataclass(frozen=True)
class WithResults(_InPlace):
    """A composite step of a phase, such as a prompt. Its templates have the results so far as `results`."""

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the phase at its own path."""
        around = ctx.scope.parent if ctx.scope is not None else None
        if around is not None and isinstance(value, Mapping) and "results" in value:
            # A new mapping: the outputs of an outer scope must not change.
            around.outputs = {**around.outputs, "results": value["results"]}
        return await self.inner.run(value, ctx)


@dataclass(frozen=True)
class JudgedPhase(_InPlace):
    """A composite evaluator, such as a judge. Its goal is the task, not the input of the phase."""

    task: Json = field(default=None, compare=False)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Evaluate with the task as the initial input."""
        # A copy: the step of the phase still needs the input of the phase.
        scope = copy.copy(ctx.scope)
        if scope is not None:
            scope.initial = self.task
        return await self.inner.run(value, Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope))


@dataclass(frozen=True)
class PhaseIteration(CompositeStep):
    """One iteration of a phase: its step, and the hooks of the capabilities around it."""

    name: str
    inner: Step
    tools: Tools = field(default_factory=Tools)
    hooks: Hooks = field(default_factory=lambda: Hooks(()), compare=False)
    state: AgentState = field(default_factory=lambda: AgentState(""), compare=False)
    owner: str = field(default="", compare=False)

    def parts(self) -> Iterable[Step]:
        return [self.inner]

    @fingerprinted
    def fingerprint(self) -> str:
        # The word is part of recorded fingerprints. Hooks have fingerprints of their effects.
        return digest_of("round", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run one iteration, and record the context, memories and decisions of the capabilities."""
        hooks, last = self.hooks, ctx.history.last
        # The hooks of a recorded iteration are not called again, so their context comes from the record.
        if last is not None:
            hooks.restore((last.steps or {}).get("context"))
        try:
            return await self._iterate(value, ctx, self._state_now(ctx))
        finally:
            # Also after an error, so that a resumed run has the context at the end of this iteration.
            if hooks.context:
                _annotate(ctx, {"context": hooks.context})

    async def _iterate(self, value: Json, ctx: Context, state: AgentState) -> Result:
        hooks = self.hooks
        if name := await hooks.ask(ctx, "start_agent_loop", state, usual=True):
            _annotate(ctx, {"not_started": True})
            detail = f"the capability {name} allows no further iteration"
            # A stop and not an error: the agent ends with the answer that it has.
            raise Stopped(self.owner, Stop(Reason.CONDITION_MET, detail))
        try:
            response, output = await self._execute(value, ctx, state)
        # The hook is called after every iteration, so that a capability can release its resources.
        except StepError:
            await hooks.notify(ctx, "end_agent_loop", state)
            raise
        memories = await hooks.change(
            ctx,
            "process_new_memories",
            state,
            [_memory(state.phase, output)],
            of=[response, output],
        )
        # Without such a hook the memories follow from the outputs, and need no record.
        if hooks.of("process_new_memories"):
            _annotate(ctx, {"memories": memories})
        if name := await hooks.ask(ctx, "should_terminate", state, output, usual=False):
            _annotate(ctx, {"terminate": name})
        await hooks.notify(ctx, "end_agent_loop", state)
        return Result(Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} ran", output, name=self.name)

    async def _execute(self, value: Json, ctx: Context, state: AgentState) -> tuple[Json, Json]:
        """Return the response of the step, and the output after the hooks."""
        hooks = self.hooks
        if isinstance(self.inner, Prompt):
            # A prompt has hooks between its parts: text, reply, calls of tools.
            reply = await ask_with_hooks(
                self.inner, value, ctx, tools=self.tools, hooks=hooks, state=state
            )
            return reply, reply
        action = {"name": self.inner.name, "arguments": value}
        action = await hooks.change(ctx, "process_action", state, action)
        result = await attempt(ctx, "work", self.inner, action.get("arguments", value))
        output = await hooks.change(
            ctx, "process_result", state, result.output, of=[result.output, action]
        )
        return result.output, output

    def _state_now(self, ctx: Context) -> AgentState:
        """Return the state of the agent in this iteration."""
        state, begun = self.state, len(ctx.history)
        phase = state.phase
        counts = state.phase_iterations
        return replace(
            state,
            iteration=ctx.iteration,
            current_iteration=state.current_iteration + begun,
            phase_iterations={**counts, phase: counts.get(phase, 0) + begun},
            memory=[*state.memory, *memories_of(phase, ctx.history)],
        )


def _annotate(ctx: Context, facts: dict[str, Json]) -> None:
    """Add to the record of the present iteration."""
    if ctx.scope is not None:
        ctx.scope.parts = {**(ctx.scope.parts or {}), **facts}


def _memory(phase: str, output: Json) -> Json:
    return {"type": phase, "content": output}


def memories_of(phase: str, history: Iterable[Iteration]) -> list[Json]:
    """Return the memories of the iterations of a phase, oldest first."""
    memories: list[Json] = []
    for item in history:
        recorded = (item.steps or {}).get("memories")
        # A hook may have changed the memories of an iteration.
        if recorded is not None:
            memories += recorded
        elif item.eligible and item.output is not None:
            memories.append(_memory(phase, item.output))
    return memories
