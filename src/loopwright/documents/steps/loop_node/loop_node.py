"""A loop node: a scored loop over agents, with lessons from round to round and, if asked, from run to run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ....engine.context import Context
from ....engine.loop import Loop
from ....engine.scope import Scope
from ....engine.step import CompositeStep, Step, digest_of
from ....evaluators.parsing.replies import agents_in, reply_text
from ....prompts.prompt import Prompt, Reask
from ....records import Evaluation, Iteration, Reason, Result, Status
from ....records.codec import Json, text_of
from .lessons import LoopNodeLessons, RecordLessons
from .memory import ReadMemory, WriteMemory
from .scope import NodeScope, notes_of, past_loops
from .scoring import Scorer, looks_like_scorer

__all__ = ["LoopNode", "LoopNodeEvaluator"]

_JUDGES = re.compile(r"evaluat|critic|judge|validat|review|check|assess", re.IGNORECASE)


@dataclass(frozen=True)
class LoopNodeEvaluator(CompositeStep):
    """The evaluator of a loop node: the score, and the entry that later rounds see."""

    scorer: Scorer
    lessons: LoopNodeLessons
    name: str = "evaluate"
    asked: Mapping[str, Prompt] | None = None  # by agent, where who gives no score is asked again

    @functools.cached_property
    def learn(self) -> RecordLessons:
        """The leaf that makes the entry."""
        return RecordLessons(self.lessons)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of how rounds are scored and what is kept of them."""
        again = [] if self.asked is None else [f"again {' '.join(self.asked)}"]
        return digest_of("score_round", repr(self.scorer), self.lessons.fingerprint, *again)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Score the outputs of a round and keep what it teaches."""
        outputs = value if isinstance(value, Mapping) else {"output": value}
        found = self.scorer.evaluate(outputs)
        if found.undecided and self.asked:
            found, outputs = await self._again(self.asked, found, outputs, ctx)
        if found.undecided:
            ctx.warn(f"no score in round {ctx.iteration}: {found.feedback}")
        given = {
            "outputs": outputs,
            "score": found.score,
            "number": ctx.iteration,
            "failed": _failed(found, outputs),
        }
        learned = await ctx.call("lessons", self.learn, given)
        if self.lessons.persist:
            remember = WriteMemory(self.lessons.persist)
            await ctx.call("remember", remember, learned["entry"])
        feedback = found.feedback or learned["lessons"]["improvements"]
        votes = (*found.votes, {"past_loop": learned["entry"], "lessons": learned["lessons"]})
        evaluation = Evaluation(
            found.score,
            None,
            feedback,
            found.improvements,
            (),
            votes,
            found.undecided,
            found.details,
        )
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)

    async def _again(
        self,
        asked: Mapping[str, Prompt],
        found: Evaluation,
        outputs: Mapping[str, Json],
        ctx: Context,
    ) -> tuple[Evaluation, Mapping[str, Json]]:
        """Ask the agent that should have given a score once more; return what then is the evaluation."""
        agents = agents_in(outputs)
        agent = next((name for name in self.scorer.candidates(outputs) if name in asked), None)
        if agent is None:
            return found, outputs
        before = {name: output for name, output in agents.items() if name != agent}
        scope = Scope(agent, ctx.scope.current if ctx.scope else None, ctx.scope)
        scope.outputs = before
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        wanted = self.scorer.wanted()
        said = f"No score could be read in that reply. Reply once more, and state your score as {wanted}."
        given = {"reply": reply_text(agents[agent]), "complaint": said}
        reply = await inner.call("re_ask", Reask(asked[agent], agent), given)
        outputs = {**agents, agent: reply}
        found = self.scorer.evaluate(outputs)
        return replace(found, votes=(*found.votes, {"asked_again": agent})), outputs


def _failed(found: Evaluation, outputs: Mapping[str, Json]) -> list[Json]:
    """Return the criteria that did not hold: those of the score, else those that validators name."""
    own = [
        name for vote in found.votes if isinstance(vote, Mapping) for name in vote.get("failed", ())
    ]
    named = [
        name
        for output in agents_in(outputs).values()
        if isinstance(output, Mapping) and isinstance(output.get("failed_criteria"), list)
        for name in output["failed_criteria"]
    ]
    return list(dict.fromkeys(own or named))


@dataclass(frozen=True)
class LoopNode(CompositeStep):
    """A loop node as a step: runs its loop and gives the documented output object.

    `response` is the text of the last agent of the chosen round that works on the answer (not one that
    scores or judges it), `result` the outputs by agent. `timeout_score` stands in for the score of a loop
    that ran out of time before any round was scored.
    """

    loop: Loop
    threshold: float
    lessons: LoopNodeLessons
    timeout_score: float | None = None
    required: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The node's id."""
        return self.loop.name

    @property
    def accept(self) -> tuple[str, ...]:
        """The statuses that do not count for its workflow."""
        return tuple(self.loop.accept)

    @property
    def depth(self) -> int:
        """How many loops nest in it."""
        return self.loop.depth

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the loop and of what it keeps."""
        scores = f"{self.threshold} {self.timeout_score}"
        return digest_of("loop_node", self.loop.fingerprint, scores, self.lessons.fingerprint)

    def parts(self) -> Iterable[Step]:
        return [self.loop]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the loop and tell what came of it."""
        scope = NodeScope(self.name, value, ctx.scope, ctx.path)
        scope.threshold, scope.most = self.threshold, self.lessons.most
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        if self.lessons.persist:
            recall = ReadMemory(self.lessons.persist, self.lessons.most)
            scope.recalled = await inner.call("recall", recall, self.lessons.persist)
        result = await self.loop.run(value, inner)
        if ctx.scope is not None:
            ctx.scope.keep_loop(self.name, result)
        if result.status is Status.FAILED:
            return result
        return replace(result, output=self._output(result, scope.recalled, value))

    def _output(self, result: Result, recalled: list[Json], value: Json) -> dict[str, Json]:
        history = result.history
        last = history.last
        best = result.best or history.latest_eligible or last
        chosen = last if result.satisfied or self.loop.keep == "last" else best
        outputs = chosen.output if chosen is not None and isinstance(chosen.output, Mapping) else {}
        agents = agents_in(outputs)
        final = chosen.score if chosen is not None else None
        if final is None and result.reason is Reason.TIMEOUT:
            final = self.timeout_score
        return {
            "response": _response(agents, chosen),
            "result": {agent: _result(output) for agent, output in agents.items()},
            "loops_completed": sum(not item.interrupted for item in result.history),
            "final_score": final,
            "threshold_met": result.satisfied,
            "past_loops": past_loops(history, recalled, self.lessons.most),
            "rounds": [{"iteration": item.number, "score": item.score} for item in history],
            "last_score": last.score if last is not None else None,
            "input": value if isinstance(value, str) else text_of(value),
        }


def _result(output: Json) -> Json:
    """Return what an agent gave: data as it is, so that its fields can be read, else text."""
    return dict(output) if isinstance(output, Mapping) else reply_text(output)


def _response(agents: Mapping[str, Json], chosen: Iteration | None) -> str:
    """Return the text of the last agent that neither gave the score nor judges: there is one, or any."""
    if not agents:
        return ""
    notes = notes_of(chosen) if chosen is not None else iter(())
    scorers = {note["agent"] for note in notes if "agent" in note}
    others = [a for a in agents if a not in scorers and not looks_like_scorer(a)]
    workers = [agent for agent in others if not _JUDGES.search(agent)]
    name = (workers or others or list(agents))[-1]
    return reply_text(agents[name])
