"""Evaluators in order of authority: what fails early cannot be overruled by what comes after."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..engine.composites import attempt, combined
from ..engine.context import Context
from ..engine.step import CompositeStep, Step, StepLike, digest_of
from ..errors import ConfigurationError
from ..records import Evaluation, Result, as_evaluation
from ..records.codec import Json
from .checklist import as_check
from .criteria import segments

__all__ = ["gates"]


@dataclass(frozen=True)
class _Gates(CompositeStep):
    name: str
    members: tuple[tuple[str, Step], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("gates", *(f"{name} {part.fingerprint}" for name, part in self.members))

    @property
    def scores_only(self) -> bool:
        """Whether it never gives a verdict: one part that gives none leaves the whole without."""
        return any(part.scores_only for _, part in self.members)

    async def run(self, value: Json, ctx: Context) -> Result:
        found: list[tuple[str, Evaluation]] = []
        ended = []
        for name, part in self.members:
            result = await attempt(ctx, name, part, value)
            evaluation = as_evaluation(result.output)
            found.append((name, evaluation))
            ended.append((name, part, result))
            if evaluation.passed is False or evaluation.undecided:
                break
        return combined(self.name, _merged(found, last=len(found) == len(self.members)), ended, ctx)


def gates(*evaluators: StepLike, name: str = "gates") -> Step:
    """Make an evaluator of several, asked in order: the first that fails ends the look.

    Put what is certain and cheap first: checks, then tests, then a judge. What fails a gate scores
    0, so that it is never the best beside an output that passed them all; the gate's own score is
    kept as a vote. If no gate fails, the score is that of the last evaluator, or the lowest there
    is if it gives none; `passed` is what all of them say; criteria and improvements add up. An
    undecided gate leaves the whole undecided.

    >>> from loopwright import run_sync
    >>> from loopwright.evaluators.check import check
    >>> found = run_sync(gates(check(min_words=3), check(lambda text: 0.9)), "too short").output
    >>> print(found.score, found.passed, found.feedback, sep="\\n")
    0.0
    False
    min_words 3: has 2 words, 1 fewer than asked for
    """
    if not evaluators:
        raise ConfigurationError(f"{name}: give at least one evaluator")
    made = [as_check("", evaluator) for evaluator in evaluators]
    names = segments(part.name for part in made)
    return _Gates(name, tuple(zip(names, made, strict=True)))


def _merged(found: list[tuple[str, Evaluation]], *, last: bool) -> Evaluation:
    evaluations = [evaluation for _, evaluation in found]
    name, final = found[-1]
    verdicts = [evaluation.passed for evaluation in evaluations]
    votes = [vote for evaluation in evaluations for vote in evaluation.votes]
    closed = final.passed is False and not last  # a gate, not the last word
    if closed and final.score:
        votes.append({"gate": name, "score": final.score})
    scores = [e.score for e in evaluations if e.score is not None]
    score = final.score if final.score is not None else min(scores, default=None)
    said = [e.feedback for e in evaluations if e is final or e.passed is not True]
    return Evaluation(
        score=None if final.undecided else 0.0 if closed else score,
        passed=False if False in verdicts else None if None in verdicts else True,
        feedback="\n".join(text for text in said if text),
        improvements=tuple(line for e in evaluations for line in e.improvements),
        criteria=tuple(item for e in evaluations for item in e.criteria),
        votes=tuple(votes),
        undecided=final.undecided,
        details={key: item for e in evaluations for key, item in e.details.items()},
    )
