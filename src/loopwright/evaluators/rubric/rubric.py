"""The confidence scorer: an output rated by weighted criteria, which a goal may supply.

Rules:

1. One call rates all criteria. Their scores are from 0 to 1, the whole is their weighted mean.
2. It passes if the whole reaches the threshold; in strict mode, if every criterion does.
3. The criteria of a loop stay the same from round to round: what was made of the goal in its first
   round is on record, and used again.
4. An answer that cannot be read, NaN included, is asked for once more, then the evaluation is
   undecided: neither a score of 0 nor one of anything else.

Source of bands, cut and temperature: the confidence scorer of the loop controller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ...engine.context import Context
from ...engine.step import CompositeStep, Step, StepLike, as_step, digest_of
from ...errors import EvaluationError
from ...models import Message, ModelError, Reply
from ...models.settings import ModelSettings
from ...prompts.prompt import PromptSettings, asking_of, with_schema
from ...records import (
    Criterion,
    Evaluation,
    Iteration,
    Reason,
    Result,
    Status,
    as_evaluation,
    codec,
    reaches,
)
from ...records.codec import Json
from ..criteria import sentences, shares
from ..judge.judge import Judge
from ..judge.questions import Sentence, mark_of, re_ask
from .rating import (
    CRITERIA_SCHEMA,
    Rating,
    Ratings,
    asked_criteria,
    cut,
    listed_criteria,
    read_criteria,
)

__all__ = ["BANDS", "Compare", "Confidence", "Report", "band", "compare", "confidence", "report"]

BANDS = ((0.9, "high"), (0.7, "good"), (0.5, "fair"), (0.0, "low"))
TEMPERATURE = 0.2
TOKENS = 1024
THRESHOLD = 0.85
_UNREADABLE = ("refused", "empty_output", "malformed")


def band(score: float) -> str:
    """Return the band of a score: `high` from 0.9, `good` from 0.7, `fair` from 0.5, else `low`.

    Raises:
        ConfigurationError: for what is no number from 0 to 1, such as NaN.
    """
    codec.number("confidence: score", score, least=0, most=1)
    return next(name for least, name in BANDS if score >= least)


@dataclass(frozen=True, slots=True)
class Report:
    """What a confidence scorer found, beyond score and verdict.

    `scores` and `gaps` are by criterion, `delta` is the change since the round before, if there is
    one.
    """

    overall: float
    band: str
    meets_threshold: bool
    scores: Mapping[str, float]
    gaps: Mapping[str, str]
    suggestions: tuple[str, ...]
    delta: float | None


def report(evaluation: Evaluation) -> Report | None:
    """Return what a confidence scorer put in an evaluation; None if it is undecided or another's."""
    note = _note(evaluation)
    if note is None or evaluation.score is None:
        return None
    gaps = {item.name: item.gap for item in evaluation.criteria if item.gap}
    return Report(
        overall=evaluation.score,
        band=note["band"],
        meets_threshold=evaluation.passed is True,
        scores=note["scores"],
        gaps=gaps,
        suggestions=evaluation.improvements,
        delta=note["delta"],
    )


def _note(evaluation: Evaluation | None) -> Mapping[str, Any] | None:
    votes = evaluation.votes if evaluation is not None else ()
    found = (
        vote["confidence"] for vote in votes if isinstance(vote, Mapping) and "confidence" in vote
    )
    return next(found, None)


class Confidence(CompositeStep):
    """The evaluator; `confidence` makes one."""

    fingerprint: str

    name = "confidence"

    def __init__(
        self,
        criteria: Sequence[str],
        *,
        asking: PromptSettings,
        goal: str = "",
        weights: Mapping[str, float] | None = None,
        threshold: float = THRESHOLD,
        strict: bool = False,
    ) -> None:
        self.criteria = tuple(criteria)
        self.asking = asking
        self.goal = goal
        sentences("confidence", self.criteria)
        self.weights = shares("confidence", self.criteria, weights)
        self.threshold = codec.number("confidence: threshold", threshold, least=0, most=1)
        self.strict = strict
        settings = f"{threshold} {strict} {sorted(self.weights.items())}"
        self.fingerprint = digest_of(
            "confidence", codec.canonical(list(self.criteria)), goal, settings,
            codec.canonical(asking.to_json()),
        )  # fmt: skip

    async def run(self, value: Json, ctx: Context) -> Result:
        """Rate an output; the result's output is the evaluation."""
        text = codec.text_of(value)
        if not text.strip():
            found = Evaluation(0.0, False, "the output is empty")
        else:
            goal = self.goal or codec.text_of(ctx.initial)
            criteria = self.criteria or await self._derived(goal, ctx)
            found = self._evaluation(criteria, await self._rated(criteria, goal, text, ctx), ctx)
        return Result(Status.SATISFIED, Reason.COMPLETED, "rated", found, name=self.name)

    async def _derived(self, goal: str, ctx: Context) -> tuple[str, ...]:
        """Return the criteria of a goal: those it lists, those of the first round, or a model's."""
        listed = listed_criteria(goal)
        if listed:
            return tuple(listed)
        notes = (_note(item.evaluation) for item in ctx.history)
        known = next((note for note in notes if note is not None), None)
        if known is not None:
            return tuple(known["scores"])
        asking = with_schema(self.asking, CRITERIA_SCHEMA)
        inner = ctx.child(ctx.below("criteria"))
        found = read_criteria(await _asked(asking, asked_criteria(goal), inner))
        if not found:
            ctx.warn("no criteria could be made of the goal; the goal itself is the criterion")
        return tuple(found) or ("The goal is met",)

    async def _rated(self, criteria: Sequence[str], goal: str, text: str, ctx: Context) -> Ratings:
        """Ask once, and once more if the answer cannot be read."""
        question = Rating(tuple(criteria))
        asking = with_schema(self.asking, question.schema)
        mark = mark_of(ctx.idempotency_key, text)
        shown = cut(text)
        messages = question.messages(goal, shown, mark)
        reply = await _asked(asking, messages, ctx)
        found = question.read(reply, text, mark)
        if found.problem:
            again = ctx.child(ctx.below("again"))
            talk = [*messages, *re_ask(reply, found.problem, question.answer)]
            found = question.read(await _asked(asking, talk, again), text, mark)
        return found

    def _evaluation(self, criteria: Sequence[str], found: Ratings, ctx: Context) -> Evaluation:
        if found.problem:
            told = f"the model gave no rating: {found.problem}"
            return Evaluation(undecided=True, feedback=told)
        weights = self.weights or {name: 1 / len(criteria) for name in criteria}
        scores = dict(zip(criteria, found.scores, strict=True))
        gaps = dict(zip(criteria, found.gaps, strict=True))
        overall = min(1.0, round(math.fsum(weights[n] * s for n, s in scores.items()), 9))
        items = tuple(
            Criterion(name, reaches(score, self.threshold), _gap(score, gaps[name], self.threshold))
            for name, score in scores.items()
        )
        passed = reaches(overall, self.threshold)
        if self.strict:
            passed = all(item.passed for item in items)
        failing = [f"{item.name}: {item.gap}" for item in items if not item.passed]
        last = _last_score(ctx.last)
        note = {
            "band": band(overall),
            "scores": scores,
            "weights": {name: weights[name] for name in criteria},
            "threshold": self.threshold,
            "strict": self.strict,
            "delta": None if last is None else round(overall - last, 9),
        }
        return Evaluation(
            score=overall,
            passed=passed,
            feedback="\n".join(failing),
            improvements=found.suggestions or tuple(failing),
            criteria=items,
            votes=({"confidence": note},),
        )

    def quick_check(self) -> Judge:
        """Return an evaluator that asks in one call, without criteria, whether the goal is met."""
        return Judge(
            {"goal": "The goal is met."}, asking=with_schema(self.asking, None), goal=self.goal,
            question=Sentence(),
        )  # fmt: skip


def _gap(score: float, said: str, threshold: float) -> str:
    if reaches(score, threshold):
        return ""
    return f"{said} ({score:.2f})" if said else f"rated {score:.2f}, below {threshold:g}"


def _last_score(last: Iteration | None) -> float | None:
    return last.score if last is not None and last.eligible else None


async def _asked(asking: PromptSettings, messages: Sequence[Message], ctx: Context) -> Reply:
    """Ask; an answer that is none is an empty one."""
    try:
        return await asking.ask(messages, ctx, judge=True)
    except ModelError as fault:
        if fault.kind not in _UNREADABLE:
            raise
        return Reply(fault.partial if fault.kind == "malformed" else "")


@dataclass(frozen=True)
class Compare(CompositeStep):
    """Rates each of several outputs and gives the best; `compare` makes one."""

    scorer: Step
    name: str = "compare"

    @property
    def fingerprint(self) -> str:
        """A digest of how they are rated."""
        return digest_of("compare", self.scorer.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Rate a list of outputs, one by one.

        Raises:
            EvaluationError: if there are none, or none could be rated.
        """
        if not isinstance(value, list) or not value:
            given = "an empty list" if value == [] else f"a {type(value).__name__}"
            raise EvaluationError(
                f"{ctx.path}: {given} cannot be compared; give a list of at least one output",
                retryable=False,
            )
        found = [
            as_evaluation(await ctx.call(f"output-{number}", self.scorer, item))
            for number, item in enumerate(value, start=1)
        ]
        rated = [i for i, item in enumerate(found) if item.score is not None and not item.undecided]
        if not rated:
            raise EvaluationError(
                f"{ctx.path}: none of the outputs could be rated", kind="undecided"
            )
        best = max(rated, key=lambda i: (found[i].score or 0.0, -i))
        output = {
            "best": best,
            "output": value[best],
            "scores": [item.score for item in found],
            "evaluations": [item.to_json() for item in found],
        }
        return Result(Status.SATISFIED, Reason.COMPLETED, "compared", output, name=self.name)


def compare(scorer: StepLike) -> Compare:
    """Make a step that rates a list of outputs and gives the best, the earliest on ties.

    Its output has `best` (an index from 0), `output`, `scores` and `evaluations`.
    """
    return Compare(as_step(scorer))


def confidence(
    *criteria: str,
    goal: str = "",
    weights: Mapping[str, float] | None = None,
    threshold: float = THRESHOLD,
    strict: bool = False,
    model: str | Sequence[str] = (),
    **settings: Unpack[ModelSettings],
) -> Confidence:
    """Make an evaluator that rates an output by criteria, each from 0 to 1, and as a whole.

    Without criteria they come from `goal` (default: the loop's first input): the items of its list
    if it has one (`- …`, `1. …`), else a model is asked once for 3 to 5. `weights` are by
    criterion, 1 unless given. It passes if the weighted mean reaches `threshold`, in `strict` mode if
    every criterion does. Of an output the first 4,000 characters are rated, with a note where it
    was cut. The evaluation has a gap for each criterion that falls short; `report(evaluation)` gives
    its band, scores and delta, `trend(history)` where the scores are going. `settings` are those of
    `ModelSettings`; the temperature is 0.2 unless given.

    Raises:
        ConfigurationError: for weights of criteria that are not there, or that are no numbers.
    """
    asking = asking_of(model, settings, temperature=TEMPERATURE, cap=TOKENS)
    return Confidence(
        criteria, asking=asking, goal=goal, weights=weights, threshold=threshold, strict=strict
    )
