"""A phased agent while it runs: one visit of a phase after the other, and what it says at its end."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...conditions import Budget, MaxIterations, Passed, PhaseLimit, ScoreAtLeast
from ...engine.context import Context
from ...engine.deadlines import DeadlineScope
from ...engine.loop import Loop, any_of
from ...engine.scope import Scope
from ...engine.step import CompositeStep
from ...errors import Stopped
from ...records import (
    NOTHING,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    agents_history,
    reaches,
)
from ...records.codec import Json
from .capabilities import AgentState, Hooks
from .phase import (
    PHASES,
    Informed,
    Judged,
    PhaseDone,
    Round,
    confidence,
    following,
    left_for,
    next_input,
    remembered,
    unknown_phase,
)

if TYPE_CHECKING:
    from .agent import PhasedAgent

__all__ = ["PhasedRun"]


@dataclass(frozen=True)
class PhaseRun:
    """One stay in a phase: its loop's result, and how many iterations of it count."""

    phase: str
    number: int
    result: Result

    @property
    def iterations(self) -> int:
        """How many iterations were begun: one that a capability did not let begin is none."""
        return sum(not _unbegun(item) for item in self.result.history)

    @property
    def output(self) -> Json:
        """What it gave: its loop's output, or the best of a loop that something else cut short."""
        found, best = self.result.output, self.result.best
        return best.output if found is None and best is not None else found

    def to_json(self) -> Json:
        """Return its row of the report."""
        found = self.result
        return {
            "phase": self.phase,
            "visit": self.number,
            "iterations": self.iterations,
            "reason": found.reason.value,
            "detail": found.detail,
            "tokens": found.usage.tokens,
        }


def _unbegun(item: Iteration) -> bool:
    return bool((item.steps or {}).get("not_started"))


class PhasedRun:
    """The visits of a run of one agent."""

    def __init__(self, agent: PhasedAgent, value: Json, ctx: Context) -> None:
        self.agent = agent
        self.given = value
        self.outer = ctx
        run = ctx.run
        began = run.replay.began(ctx.path) if run.replay else None
        start = run.now() if began is None else began
        self.scope = Scope(agent.name, value, ctx.scope, ctx.path)
        gate = ctx.gate
        if agent.max_duration_seconds is not None:
            seconds = agent.max_duration_seconds
            stop = Stop(Reason.TIMEOUT, f"{seconds:g} s used")
            gate = DeadlineScope(ctx.path, ctx.gate, deadline=start + seconds, stop=stop)
        self.ctx = Context(run, ctx.path, gate, ctx.account, self.scope)
        self.hooks = Hooks(agent.capabilities)
        self.done: list[PhaseRun] = []
        self.plan: Json = value.get("plan") if isinstance(value, dict) else None
        self.phase = ""

    # What is known so far.

    @property
    def used(self) -> int:
        """How many iterations were begun."""
        return sum(visit.iterations for visit in self.done)

    def iterations(self) -> dict[str, int]:
        """Return the iterations of each phase, over all its visits."""
        return {p: sum(v.iterations for v in self.done if v.phase == p) for p in PHASES}

    def results(self) -> list[Json]:
        """Return what execution gave, in order."""
        rounds = (item for v in self.done if v.phase == "execution" for item in v.result.history)
        return [item.output for item in rounds if item.eligible and item.output is not None]

    def output(self) -> Json:
        """Return the answer of the latest phase that gave one."""
        for phase in reversed(PHASES):
            for visit in reversed(self.done):
                found = visit.output
                if isinstance(found, dict) and "answer" in found:
                    found = found["answer"]
                if visit.phase == phase and found is not None:
                    return found
        return None

    def state(self) -> AgentState:
        """Return how far the agent is, as its capabilities see it."""
        memory = [m for v in self.done for m in remembered(v.phase, v.result.history)]
        return AgentState(
            name=self.agent.name,
            input=self.given,
            phase=self.phase,
            iteration=0,
            current_iteration=self.used,
            phase_iterations=self.iterations(),
            memory=memory,
        )

    # The way through the phases.

    async def drive(self) -> Result:
        """Visit the phases in turn until something ends the agent."""
        agent, ctx = self.agent, self.outer
        if agent.warning:
            ctx.warn(agent.warning)
        for sentence in agent.too_small:
            ctx.warn(sentence)
        try:
            await self.hooks.begin(self.ctx, self.state())
            stop = await self._through()
        except Stopped as stopped:
            if stopped.owner != ctx.path:
                self._finish(stopped.stop, {})
                raise
            stop = stopped.stop
        try:
            said = await self.hooks.told(ctx, "terminate", self.state())
        except Stopped as stopped:
            self._finish(stopped.stop, {})
            raise
        return self._finish(stop, said)

    async def _through(self) -> Stop:
        phase = self._first()
        while True:
            self.phase = phase
            if allowed := self._allowed(phase):
                stop = await self._visit(phase, allowed)
                for item in self.done[-1].result.history if self.done else ():
                    if wrong := unknown_phase(item.output):
                        self.outer.warn(f"{phase}: {wrong}")
                if stop is not None:
                    return stop
                phase = left_for(self._last_output()) or following(phase)
            else:
                phase = following(phase)
            if not phase:
                return self._all_done()
            left = self._left_out(phase)
            if self.used >= self.agent.max_iterations_effective and left:
                return self._capped(left)

    def _first(self) -> str:
        """Return the phase that it begins with: a plan that came with the input needs no planning."""
        given = self.given.get("plan") if isinstance(self.given, dict) else None
        return PHASES[given is not None]

    def _left_out(self, phase: str) -> list[str]:
        """Return the phases from this one on that have something to do."""
        return [p for p in PHASES[PHASES.index(phase) :] if self.agent.limits[p]]

    def _allowed(self, phase: str) -> int:
        """Return how many iterations this visit may have."""
        agent = self.agent
        left = agent.max_iterations_effective - self.used
        if phase != "refinement":
            held = min(agent.reserve_refinement, agent.limits["refinement"])
            left -= held
            if held and phase == "planning" and agent.limits["execution"]:
                # What is kept for refinement is worth nothing if there is nothing to refine.
                left = max(left - 1, min(left, 1))
        return max(0, min(agent.limits[phase], left))

    async def _visit(self, phase: str, allowed: int) -> Stop | None:
        """Run a phase's loop; return why the agent ends with it, or None."""
        number = 1 + sum(visit.phase == phase for visit in self.done)
        loop = self._loop(phase, number, allowed)
        self.scope.outputs = {"task": self._task(), "plan": self.plan, "results": self.results()}
        try:
            result = await self.ctx.outcome(loop.name, loop, self._input(phase))
        except Stopped:
            if (cut := self.scope.loops.get(loop.name)) is not None:
                self.done.append(PhaseRun(phase, number, cut))
            raise
        self.done.append(PhaseRun(phase, number, result))
        if result.history.last is not None:
            self.hooks.restore((result.history.last.steps or {}).get("context"))
        if phase == "planning" and result.output is not None:
            found = result.output
            self.plan = found["plan"] if isinstance(found, dict) and "plan" in found else found
        return self._after(phase, result)

    def _loop(self, phase: str, number: int, allowed: int) -> Loop:
        agent = self.agent
        step = getattr(agent, phase)
        kit = agent.kit if phase == "execution" else type(agent.kit)()
        if self.hooks or kit.given:
            state = self.state()
            step = Round(
                name=step.name,
                inner=step,
                tools=kit,
                hooks=self.hooks,
                state=state,
                owner=self.outer.path,
            )
        if isinstance(step, CompositeStep):
            step = Informed(step.name, step)
        judge = agent.evaluators.get(phase)
        if isinstance(judge, CompositeStep):
            judge = Judged(judge.name, judge, self._task())
        sure = None
        if agent.enable_dynamic_termination:
            judge = judge or (None if phase == "planning" else confidence)
            sure = ScoreAtLeast(agent.min_confidence_threshold) | Passed() if judge else None
        capped = allowed < agent.limits[phase]
        limit = MaxIterations(allowed) if capped else PhaseLimit(allowed)
        tokens = self._tokens(phase)
        return Loop(
            execute=step,
            evaluate=judge,
            adapt=next_input,
            until=any_of(sure, PhaseDone(), limit),
            guards=None if tokens is None else Budget(tokens=tokens),
            name=phase if number == 1 else f"{phase}-{number}",
            on_failure=agent.on_failure,
            max_retries=agent.max_retries,
            on_iteration=self._hook(),
        )

    def _hook(self) -> Callable[[Iteration], Any] | None:
        """Return what tells the agent's `on_iteration` of a phase's iteration, by its number in all."""
        tell, before = self.agent.on_iteration, len(self.history())
        if tell is None:
            return None

        def told(item: Iteration) -> Any:
            return None if _unbegun(item) else tell(replace(item, number=before + item.number))

        return told

    def history(self) -> History:
        """Return the iterations of all phases, numbered as those of the agent."""
        return agents_history(visit.result.history for visit in self.done)

    def _tokens(self, phase: str) -> int | None:
        """Return the tokens that this visit may spend: those of its phase, and what earlier ones left."""
        shares = self.agent.tokens
        if not shares:
            return None
        spent = {p: sum(v.result.usage.tokens for v in self.done if v.phase == p) for p in PHASES}
        own = shares[phase] - spent[phase]
        if self.agent.token_rollover:
            before = PHASES[: PHASES.index(phase)]
            own += sum(max(0, shares[p] - spent[p]) for p in before)
        return max(1, own)

    def _input(self, phase: str) -> Json:
        given = {
            "phase": phase,
            "input": self._task(),
            "plan": self.plan,
            "results": self.results(),
        }
        earlier = [visit for visit in self.done if visit.phase == phase]
        previous = earlier[-1].output if earlier else None
        last = self.done[-1].result.history.last if self.done else None
        feedback = last.feedback if earlier and last is not None else ""
        return {**given, "previous": previous, "feedback": feedback, "improvements": []}

    def _task(self) -> Json:
        """Return what is to be done, without the plan that a coordinator gave with it."""
        task = self.given
        if isinstance(task, dict) and "input" in task and "plan" in task:
            return task["input"]
        return task

    def _last_output(self) -> Json:
        last = self.done[-1].result.history.last if self.done else None
        return last.output if last is not None and last.eligible else None

    # Why it ends.

    def _after(self, phase: str, result: Result) -> Stop | None:
        """Return why the agent ends with this visit, or None if the next phase follows."""
        if result.status is Status.FAILED:
            return Stop(result.reason, f"{phase}: {result.detail}", result.also)
        last = result.history.last
        if result.status is Status.SATISFIED and last is not None:
            if asked := (last.steps or {}).get("terminate"):
                return Stop(result.reason, f"the capability {asked} asked to terminate in {phase}")
            if self._is_sure(result.history):
                return Stop(result.reason, f"{phase}: {result.detail}")
        return None

    def _is_sure(self, history: History) -> bool:
        agent, last = self.agent, history.last
        if not agent.enable_dynamic_termination or last is None:
            return False
        enough = last.score is not None and reaches(last.score, agent.min_confidence_threshold)
        return last.passed is True or enough

    def _all_done(self) -> Stop:
        """Return how it ended with its last phase."""
        done = self.iterations()
        told = ", ".join(f"{phase} {count}" for phase, count in done.items() if count)
        last = self.done[-1] if self.done else None
        if last is None:
            return Stop(Reason.MAX_ITERATIONS, "no phase had an iteration left")
        found = last.result
        if found.reason in (Reason.MAX_ITERATIONS, Reason.BUDGET):
            return Stop(found.reason, f"{last.phase}: {found.detail}", found.also)
        if self.agent.enable_dynamic_termination and found.status is not Status.SATISFIED:
            threshold = f"{self.agent.min_confidence_threshold:g}"
            return Stop(
                Reason.PHASE_LIMIT, f"no answer reached the confidence of {threshold} ({told})"
            )
        if without := [p for p in self._left_out(self._first()) if not done[p]]:
            return self._capped(without)
        return Stop(Reason.COMPLETED, f"the phases ran: {told}")

    def _capped(self, left: list[str]) -> Stop:
        cap = self.agent.max_iterations_effective
        phases = " and ".join(left)
        return Stop(
            Reason.MAX_ITERATIONS, f"{self.used} of {cap} iterations used, {phases} had none"
        )

    def _finish(self, stop: Stop, said: dict[str, Json]) -> Result:
        """Report, and return the result."""
        agent, ctx = self.agent, self.outer
        output = self.output()
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
            "visits": [visit.to_json() for visit in self.done],
        }
        if agent.token_budget is not None:
            report["token_budget"] = agent.tokens
        if said:
            report["terminated"] = said
        ctx.run.report(ctx.path, agent.name, report)
        usage = functools.reduce(operator.add, (v.result.usage for v in self.done), NOTHING)
        result = Result(
            status=stop.reason.status,
            reason=stop.reason,
            detail=stop.detail,
            output=output,
            history=self.history(),
            usage=usage,
            name=agent.name,
            also=stop.also,
        )
        if ctx.scope is not None:
            ctx.scope.keep_loop(agent.name, result)
        return result
