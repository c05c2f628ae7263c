"""A loop node: a scored loop over agents, with lessons from round to round and, if asked, from run to run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..codec import Json, text_of
from ..composites import Composite
from ..context import Context
from ..loop import Loop
from ..records import Evaluation, History, Iteration, Reason, Result, Status
from ..runtime import Scope
from ..step import digest_of
from .learning import Learn, Lessons
from .remembering import Recall, Remember
from .scoring import Scorer, agents_in, reply_text

__all__ = ["LoopNode", "NodeScope", "ScoreRound", "past_loops"]


class NodeScope(Scope):
    """The variables around a loop node: what earlier runs left, and what score it wants."""

    __slots__ = ("most", "recalled", "threshold")

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str) -> None:
        super().__init__(name, initial, parent, path)
        self.recalled: list[Json] = []
        self.threshold = 0.0
        self.most = 20


@dataclass(frozen=True)
class ScoreRound(Composite):
    """The evaluator of a loop node: the score, and the entry that later rounds see."""

    scorer: Scorer
    lessons: Lessons
    name: str = "evaluate"

    @functools.cached_property
    def learn(self) -> Learn:
        """The leaf that makes the entry."""
        return Learn(self.lessons)

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("score_round", repr(self.scorer), self.lessons.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Score the outputs of a round and keep what it teaches."""
        outputs = value if isinstance(value, Mapping) else {"output": value}
        found = self.scorer.evaluate(outputs)
        given = {
            "outputs": outputs,
            "score": found.score,
            "number": ctx.iteration,
            "input": text_of(ctx.initial),
        }
        learned = await ctx.call("lessons", self.learn, given)
        if self.lessons.persist:
            remember = Remember(self.lessons.persist)
            await ctx.call("remember", remember, learned["entry"])
        feedback = found.feedback or learned["lessons"]["improvements"]
        evaluation = Evaluation(
            found.score, None, feedback, found.improvements, (),
            (*found.votes, {"past_loop": learned["entry"], "lessons": learned["lessons"]}),
            found.undecided,
        )  # fmt: skip
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)


@dataclass(frozen=True)
class LoopNode(Composite):
    """A loop node as a step: runs its loop and gives the documented output object.

    `response` is the text of the last agent of the chosen round that is no scorer, `result` the outputs by agent.
    """

    loop: Loop
    threshold: float
    lessons: Lessons
    required: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The node's id."""
        return self.loop.name

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("loop_node", self.loop.fingerprint, str(self.threshold), self.lessons.fingerprint)

    def made_of(self) -> Any:
        return [self.loop]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Run the loop and tell what came of it."""
        scope = NodeScope(self.name, value, ctx.scope, ctx.path)
        scope.threshold, scope.most = self.threshold, self.lessons.most
        inner = Context(ctx.run, ctx.path, ctx.gate, ctx.account, scope)
        if self.lessons.persist:
            recall = Recall(self.lessons.persist, self.lessons.most)
            scope.recalled = await inner.call("recall", recall, self.lessons.persist)
        result = await self.loop.run(value, inner)
        if result.status is Status.FAILED:
            return result
        if ctx.scope is not None:
            ctx.scope.keep_loop(self.name, result)
        chosen = result.history.last if result.satisfied else result.best or result.history.last
        output = self._output(result, chosen, scope.recalled, text_of(value))
        return replace(result, output=output)

    def _output(
        self, result: Result, chosen: Iteration | None, recalled: list[Json], text: str
    ) -> dict[str, Json]:
        outputs = chosen.output if chosen is not None and isinstance(chosen.output, Mapping) else {}
        agents = agents_in(outputs)
        last = result.history.last
        return {
            "response": _response(agents, chosen),
            "result": {agent: reply_text(output) for agent, output in agents.items()},
            "loops_completed": result.iterations,
            "final_score": chosen.score if chosen is not None else None,
            "last_score": last.score if last is not None else None,
            "threshold_met": result.satisfied,
            "past_loops": past_loops(result.history, recalled, self.lessons.most),
            "input": text,
        }


def _response(agents: Mapping[str, Json], chosen: Iteration | None) -> str:
    votes = chosen.evaluation.votes if chosen is not None and chosen.evaluation is not None else ()
    scorers = {vote["agent"] for vote in votes if isinstance(vote, Mapping) and "agent" in vote}
    writers = [agent for agent in agents if agent not in scorers] or list(agents)
    return reply_text(agents[writers[-1]]) if writers else ""


def past_loops(history: History, recalled: list[Json], most: int) -> list[Json]:
    """Return the entries of the rounds so far, those of earlier runs first, the latest `most`."""
    entries = [
        vote["past_loop"]
        for item in history
        if item.evaluation is not None
        for vote in item.evaluation.votes
        if isinstance(vote, Mapping) and "past_loop" in vote
    ]
    return [*recalled, *entries][-most:]
