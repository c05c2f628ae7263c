"""The run of a phased agent: its phases in order, each a `Loop`, their iterations, and the report at the end.

The result of a phase may be any value. These members of an object are read: `done` (end the phase),
`next_phase` (end it and continue with that phase), `confidence` (0 to 1, without an evaluator), and `plan`
or `answer` if the plan or the answer is not the object itself.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..conditions import Budget, Condition, MaxIterations, Passed, PhaseLimit, ScoreAtLeast
from ..engine.composites import Wrapper, attempt
from ..engine.context import Context, Scope
from ..engine.deadlines import DeadlineScope
from ..engine.loop import Loop, any_of
from ..engine.step import CompositeStep, FunctionStep, Step, digest_of, fingerprinted
from ..errors import StepError, Stopped, nearest
from ..prompts.prompt import Prompt
from ..records import (
    NOTHING,
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    agents_history,
    reaches,
)
from ..records.codec import Json
from .capabilities import AgentState, Hooks, Tools, ask_with_hooks, truth_of

if TYPE_CHECKING:
    from .phased import PhasedAgent

__all__ = [
    "PHASES",
    "JudgedPhase",
    "PhaseDone",
    "PhaseIteration",
    "PhasedRun",
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
            around.show({"results": value["results"]})
        return await self.inner.run(value, ctx)


@dataclass(frozen=True)
class JudgedPhase(_InPlace):
    """A composite evaluator, such as a judge. Its goal is the task, not the input of the phase."""

    task: Json = field(default=None, compare=False)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Evaluate with the task as the initial input."""
        # The step of the phase still needs the input of the phase.
        scope = None if ctx.scope is None else ctx.scope.judged(self.task)
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
            return await self._iterate(value, ctx)
        finally:
            # Also after an error, so that a resumed run has the context at the end of this iteration.
            if hooks.context:
                _annotate(ctx, {"context": hooks.context})

    async def _iterate(self, value: Json, ctx: Context) -> Result:
        hooks, before, begun = self.hooks, self.state, len(ctx.history)
        phase, counts = before.phase, before.phase_iterations
        state = replace(
            before,
            iteration=ctx.iteration,
            current_iteration=before.current_iteration + begun,
            phase_iterations={**counts, phase: counts.get(phase, 0) + begun},
            memory=[*before.memory, *memories_of(phase, ctx.history)],
        )
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


def _annotate(ctx: Context, facts: dict[str, Json]) -> None:
    """Add to the record of the present iteration."""
    if ctx.scope is not None:
        ctx.scope.expose({**(ctx.scope.parts or {}), **facts})


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


@dataclass(frozen=True)
class PhaseRun:
    """One run of a phase, with the result of its loop."""

    phase: str
    number: int
    result: Result

    @property
    def iterations(self) -> int:
        """The number of iterations that began. A capability can prevent an iteration."""
        return sum(not _prevented(item) for item in self.result.history)

    @property
    def output(self) -> Json:
        """The output of its loop, or the best output if an outer guard interrupted the loop."""
        output, best = self.result.output, self.result.best
        return best.output if output is None and best is not None else output

    def to_json(self) -> Json:
        """Return its row of the report."""
        result = self.result
        return {
            "phase": self.phase,
            "visit": self.number,  # the keys of reports are a recorded format
            "iterations": self.iterations,
            "reason": result.reason.value,
            "detail": result.detail,
            "tokens": result.usage.tokens,
        }


def _prevented(item: Iteration) -> bool:
    return bool((item.steps or {}).get("not_started"))


class PhasedRun:
    """The run of one agent. `done` are its phase runs, `plan` the latest plan, `phase` the current phase."""

    def __init__(self, agent: PhasedAgent, value: Json, ctx: Context) -> None:
        self.agent = agent
        self.input = value
        self.outer = ctx
        self.scope = Scope(agent.name, value, ctx.scope, ctx.path)
        gate, seconds = ctx.gate, agent.max_duration_seconds
        # Active time since the first start: a resumed run continues with the time that is left.
        if seconds is not None:
            began = ctx.run.replay.began(ctx.path) if ctx.run.replay else None
            start = ctx.run.now() if began is None else began
            stop = Stop(Reason.TIMEOUT, f"{seconds:g} s used")
            gate = DeadlineScope(ctx.path, ctx.gate, deadline=start + seconds, stop=stop)
        self.ctx = Context(ctx.run, ctx.path, gate, ctx.account, self.scope)
        self.hooks = Hooks(agent.capabilities)
        self.done: list[PhaseRun] = []
        self.plan: Json = value.get("plan") if isinstance(value, dict) else None
        self.phase = ""

    # The way through the phases.

    async def run(self) -> Result:
        """Run the phases in turn until something ends the agent."""
        agent, ctx = self.agent, self.outer
        # Again at run time: an agent from a document is created before there is a run.
        for code, sentence in agent.warnings:
            ctx.warn(sentence, code=code)
        try:
            try:
                await self.hooks.begin(self.ctx, self.state())
                stop = await self._run_phases()
            # The agent's own time limit is a result. A stop of an outer loop or of the run is not.
            except Stopped as stopped:
                if stopped.owner != ctx.path:
                    raise
                stop = stopped.stop
            # With the outer context: the agent's own time may be over, and cleaning up must still be possible.
            answers = await self.hooks.notify(ctx, "terminate", self.state())
        except Stopped as stopped:
            self._finish(stopped.stop, {})
            raise
        return self._finish(stop, answers)

    async def _run_phases(self) -> Stop:
        phase = self._first()
        while phase:
            self.phase = phase
            following_phase = following(phase)
            if allowed := self._allowed(phase):
                if (stop := await self._run_phase(phase, allowed)) is not None:
                    return stop
                last = self.done[-1].result.history.last
                output = last.output if last is not None and last.eligible else None
                following_phase = requested_phase(output) or following_phase
            phase = following_phase
            left = self._phases_from(phase) if phase else []
            # Only if a later phase could still run; otherwise the agent is complete.
            if left and self.used >= self.agent.max_iterations_effective:
                return self._cap_reached(left)
        return self._ended()

    async def _run_phase(self, phase: str, allowed: int) -> Stop | None:
        """Run the loop of a phase; return why the agent ends with it, or None."""
        # A phase can run several times, because `next_phase` may return to it.
        number = 1 + sum(run.phase == phase for run in self.done)
        loop = self._loop(phase, number, allowed)
        self.scope.show({"task": self.task, "plan": self.plan, "results": self.results()})
        try:
            result = await self.ctx.outcome(loop.name, loop, self._input(phase))
        except Stopped:
            # The best output of an interrupted phase is the best answer of the agent so far.
            if (interrupted := self.scope.loops.get(loop.name)) is not None:
                self.done.append(PhaseRun(phase, number, interrupted))
            raise
        self.done.append(PhaseRun(phase, number, result))
        if result.history.last is not None:
            self.hooks.restore((result.history.last.steps or {}).get("context"))
        output = result.output
        if phase == "planning" and output is not None:
            # Without a member `plan` the complete output is the plan.
            self.plan = output["plan"] if isinstance(output, dict) and "plan" in output else output
        for item in result.history:
            # A wrong name must not end the agent: models invent names.
            if problem := unknown_phase(item.output):
                self.outer.warn(f"{phase}: {problem}", code="unknown_phase")
        return self._stop_after(phase, result)

    def _first(self) -> str:
        """Return the first phase: an input with a plan needs no planning."""
        plan = self.input.get("plan") if isinstance(self.input, dict) else None
        return PHASES[0] if plan is None else PHASES[1]

    def _phases_from(self, phase: str) -> list[str]:
        """Return the phases from this one on that may have iterations."""
        return [p for p in PHASES[PHASES.index(phase) :] if self.agent.limits[p]]

    def _allowed(self, phase: str) -> int:
        """Return the maximum of iterations of this run of a phase."""
        agent = self.agent
        left = agent.max_iterations_effective - self.used
        if phase != "refinement":
            reserved = min(agent.reserve_refinement, agent.limits["refinement"])
            left -= reserved
            if reserved and phase == "planning" and agent.limits["execution"]:
                # Refinement needs a result of execution, so planning also leaves one iteration for it.
                left = max(left - 1, min(left, 1))
        return max(0, min(agent.limits[phase], left))

    # One phase as a loop.

    def _loop(self, phase: str, number: int, allowed: int) -> Loop:
        agent = self.agent
        judge, confident = self._judge(phase)
        # At its own limit a phase is finished. At the limit of the agent, the agent is.
        limit = MaxIterations if allowed < agent.limits[phase] else PhaseLimit
        tokens = self._tokens(phase)
        return Loop(
            execute=self._step(phase),
            evaluate=judge,
            adapt=next_input,
            until=any_of(confident, PhaseDone(), limit(allowed)),
            # A guard, so that a call that does not fit is refused before it is made.
            guards=None if tokens is None else Budget(tokens=tokens),
            # Unique in the paths of the journal.
            name=phase if number == 1 else f"{phase}-{number}",
            on_failure=agent.on_failure,
            max_retries=agent.max_retries,
            on_iteration=self._hook(),
        )

    def _step(self, phase: str) -> Step:
        """Return the step of a phase, with the tools and capabilities around it."""
        agent = self.agent
        step: Step = getattr(agent, phase)
        # Tools are for execution only, as `tools` documents.
        tools = agent.kit if phase == "execution" else type(agent.kit)()
        if self.hooks or tools.tools:
            step = PhaseIteration(
                name=step.name,
                inner=step,
                tools=tools,
                hooks=self.hooks,
                state=self.state(),
                owner=self.outer.path,
            )
        return WithResults(step.name, step) if isinstance(step, CompositeStep) else step

    def _judge(self, phase: str) -> tuple[Step | None, Condition | None]:
        """Return the evaluator of a phase, and the condition of a confident answer."""
        agent = self.agent
        judge = agent.evaluators.get(phase)
        if isinstance(judge, CompositeStep):
            judge = JudgedPhase(judge.name, judge, self.task)
        if not agent.enable_dynamic_termination:
            return judge, None
        judge = judge or (None if phase == "planning" else confidence)
        # Either sign is sufficient: evaluators give a score, a verdict, or both.
        threshold = agent.min_confidence_threshold
        return judge, ScoreAtLeast(threshold) | Passed() if judge else None

    def _hook(self) -> Callable[[Iteration], object] | None:
        """Return the agent's `on_iteration` for a phase, with iterations numbered over all phases."""
        hook, before = self.agent.on_iteration, len(self.history())
        if hook is None:
            return None

        def numbered(item: Iteration) -> object:
            return None if _prevented(item) else hook(replace(item, number=before + item.number))

        return numbered

    def _tokens(self, phase: str) -> int | None:
        """Return the remaining tokens of a phase: its share, and with `token_rollover` the rest of earlier phases."""
        shares = self.agent.tokens
        if not shares:
            return None
        # A phase that runs again shares its tokens with its earlier runs.
        spent = {p: sum(v.result.usage.tokens for v in self.done if v.phase == p) for p in PHASES}
        left = shares[phase] - spent[phase]
        if self.agent.token_rollover:
            before = PHASES[: PHASES.index(phase)]
            left += sum(max(0, shares[p] - spent[p]) for p in before)
        # A budget must be at least 1. It then ends the phase before its first call.
        return max(1, left)

    def _input(self, phase: str) -> Json:
        earlier = [run for run in self.done if run.phase == phase]
        last = self.done[-1].result.history.last if self.done else None
        return {
            "phase": phase,
            "input": self.task,
            "plan": self.plan,
            "results": self.results(),
            "previous": earlier[-1].output if earlier else None,
            "feedback": last.feedback if earlier and last is not None else "",
            "improvements": [],
        }

    # The progress.

    @property
    def task(self) -> Json:
        """The task, without the plan that a coordinator may have added to it."""
        value = self.input
        return (
            value["input"] if isinstance(value, dict) and {"input", "plan"} <= set(value) else value
        )

    @property
    def used(self) -> int:
        """The number of iterations that began."""
        return sum(run.iterations for run in self.done)

    def iterations(self) -> dict[str, int]:
        """Return the number of iterations by phase."""
        return {p: sum(run.iterations for run in self.done if run.phase == p) for p in PHASES}

    def results(self) -> list[Json]:
        """Return the outputs of execution, in order."""
        runs = (run.result.history for run in self.done if run.phase == "execution")
        items = (item for history in runs for item in history)
        return [item.output for item in items if item.eligible and item.output is not None]

    def output(self) -> Json:
        """Return the answer of the latest phase that has one."""
        # By phase and not by time: a refined answer is better than a later result of execution.
        for phase in reversed(PHASES):
            for run in reversed(self.done):
                output = run.output
                if isinstance(output, dict) and "answer" in output:
                    output = output["answer"]
                if run.phase == phase and output is not None:
                    return output
        return None

    def history(self) -> History:
        """Return the iterations of all phases, numbered as those of the agent."""
        return agents_history(run.result.history for run in self.done)

    def state(self) -> AgentState:
        """Return the state of the agent for its capabilities."""
        return AgentState(
            name=self.agent.name,
            input=self.input,
            phase=self.phase,
            current_iteration=self.used,
            phase_iterations=self.iterations(),
            memory=[m for run in self.done for m in memories_of(run.phase, run.result.history)],
        )

    # The end.

    def _stop_after(self, phase: str, result: Result) -> Stop | None:
        """Return why the agent ends with this phase, or None if the next phase follows."""
        if result.status is Status.FAILED:
            return Stop(result.reason, f"{phase}: {result.detail}", result.also)
        last = result.history.last
        # An exhausted phase is followed by the next one, which may still improve the answer.
        if result.status is not Status.SATISFIED or last is None:
            return None
        if name := (last.steps or {}).get("terminate"):
            return Stop(result.reason, f"the capability {name} asked to terminate in {phase}")
        threshold = self.agent.min_confidence_threshold
        confident = last.passed is True or (
            last.score is not None and reaches(last.score, threshold)
        )
        if self.agent.enable_dynamic_termination and confident:
            return Stop(result.reason, f"{phase}: {result.detail}")
        return None

    def _ended(self) -> Stop:
        """Return how the agent ended after its last phase."""
        counts = self.iterations()
        counted = ", ".join(f"{phase} {count}" for phase, count in counts.items() if count)
        if not self.done:
            return Stop(Reason.MAX_ITERATIONS, "no phase had an iteration left")
        last, result = self.done[-1], self.done[-1].result
        # The limit of the last phase is the reason of the agent.
        if result.reason in (Reason.MAX_ITERATIONS, Reason.BUDGET):
            return Stop(result.reason, f"{last.phase}: {result.detail}", result.also)
        if self.agent.enable_dynamic_termination and result.status is not Status.SATISFIED:
            threshold = f"{self.agent.min_confidence_threshold:g}"
            detail = f"no answer reached the confidence of {threshold} ({counted})"
            return Stop(Reason.PHASE_LIMIT, detail)
        if without := [p for p in self._phases_from(self._first()) if not counts[p]]:
            return self._cap_reached(without)
        return Stop(Reason.COMPLETED, f"the phases ran: {counted}")

    def _cap_reached(self, left: list[str]) -> Stop:
        used = f"{self.used} of {self.agent.max_iterations_effective} iterations used"
        return Stop(Reason.MAX_ITERATIONS, f"{used}, {' and '.join(left)} had none")

    def _finish(self, stop: Stop, terminated: dict[str, Json]) -> Result:
        """Record the report, and return the result."""
        agent, ctx = self.agent, self.outer
        report: dict[str, Json] = {
            "kind": "phased",
            "status": stop.reason.status.value,
            "ended_by": stop.reason.value,
            "detail": stop.detail,
            "phase": self.phase,
            "phase_iterations": self.iterations(),
            "total_iterations": self.used,
            "max_iterations_effective": agent.max_iterations_effective,
            "phase_sum": agent.phase_sum,
            "limits": dict(agent.limits),
            "visits": [run.to_json() for run in self.done],
        }
        if agent.token_budget is not None:
            report["token_budget"] = agent.tokens
        if terminated:
            report["terminated"] = terminated
        ctx.run.report(ctx.path, agent.name, report)
        result = Result(
            status=stop.reason.status,
            reason=stop.reason,
            detail=stop.detail,
            output=self.output(),
            history=self.history(),
            usage=functools.reduce(operator.add, (r.result.usage for r in self.done), NOTHING),
            name=agent.name,
            also=stop.also,
        )
        if ctx.scope is not None:
            # Later steps read it as `loops.NAME`, like a loop.
            ctx.scope.keep_loop(agent.name, result)
        return result
