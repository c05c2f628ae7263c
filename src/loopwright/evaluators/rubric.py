"""The rubric: a model rates an output by weighted criteria, which may be derived from a goal.

1. One call rates all criteria. Their scores are from 0 to 1, the score of the output is their weighted
   mean.
2. The output passes if its score reaches the threshold; in strict mode, if every criterion does.
3. The criteria of a loop are the same in all iterations: those derived from the goal in the first
   iteration are recorded and used again.
4. An unreadable answer, including NaN, is requested once more. Then the evaluation is undecided.

Source of bands, cut, temperature and threshold: the confidence scorer of the loop controller.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack, cast

from ..engine.context import Context
from ..engine.step import CompositeStep, EvaluatorLike, Step, as_step, digest_of
from ..errors import EvaluationError
from ..models import Message, Reply, read_value
from ..models.protocol import ModelSettings
from ..prompts.settings import PromptSettings, settings_of, with_schema
from ..records import (
    Criterion,
    Evaluation,
    Reason,
    Result,
    Status,
    as_evaluation,
    codec,
    reaches,
)
from ..records.codec import Json
from .answers import Object
from .check import check_sentences, shares
from .judge import Judge
from .judge_questions import DATA, MARK, Sentence, ask, block, mark_of, own_objects
from .verdicts import of_100

__all__ = [
    "BANDS",
    "CUT",
    "Compare",
    "Rating",
    "Ratings",
    "Report",
    "Rubric",
    "band",
    "compare",
    "criteria_messages",
    "cut",
    "listed_criteria",
    "read_criteria",
    "report",
    "rubric",
]

# The texts for the model in this module are part of recorded fingerprints.
CUT = 4000  # characters of an output that are rated
MOST = 5  # the maximum of criteria that a model derives from a goal
_SYSTEM = (
    f"You rate a candidate by several criteria. {DATA} Give each criterion a score from 0 to 100 for "
    "how well it is met, say in its gap what is missing (empty if nothing is), and suggest what would "
    "make the candidate better."
)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+(\S.*?)\s*$", re.MULTILINE)
_GOAL_SYSTEM = (
    "You turn a goal into criteria by which work towards it can be rated. Each is one sentence that "
    "can be checked in the work itself."
)
CRITERIA_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {"criteria": {"type": "array", "items": {"type": "string"}}},
    "required": ["criteria"],
    "additionalProperties": False,
}


def cut(text: str) -> str:
    """Return the rated part of an output: its first 4,000 characters, with a note if it was cut."""
    if len(text) <= CUT:
        return text
    return f"{text[:CUT]}\n[… cut here: {len(text) - CUT} more characters are not shown …]"


@dataclass(frozen=True, slots=True)
class Ratings:
    """The content of one answer: a score from 0 to 1 and a gap for each criterion, and suggestions.

    `problem` says why the answer could not be read; it is "" if it could.
    """

    scores: tuple[float, ...] = ()
    gaps: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Rating:
    """The question that asks for all criteria at once."""

    criteria: tuple[str, ...]

    @property
    def schema(self) -> Mapping[str, Json]:
        """The JSON Schema of the answer."""
        score = {"type": "integer", "minimum": 0, "maximum": 100}
        # Numbered members: the sentences themselves are too long and too varied for keys of a JSON Schema.
        members: dict[str, Json] = {}
        for number in range(1, len(self.criteria) + 1):
            members |= {f"score_{number}": score, f"gap_{number}": {"type": "string"}}
        members["suggestions"] = {"type": "array", "items": {"type": "string"}}
        members["mark"] = MARK
        return {
            "type": "object",
            "properties": members,
            "required": list(members),
            "additionalProperties": False,
        }

    @property
    def answer(self) -> str:
        """The instruction that describes the form of the answer."""
        fields = ", ".join(
            f'"score_{n}": 0 to 100, "gap_{n}": text' for n in range(1, len(self.criteria) + 1)
        )
        return f'Answer with a JSON object: {{{fields}, "suggestions": list of texts, "mark": the mark above}}.'

    def messages(self, goal: str, text: str, mark: str) -> list[Message]:
        """Return the messages to the model. `text` is the rated part of the output."""
        listed = "\n".join(f"{n}. {text_}" for n, text_ in enumerate(self.criteria, start=1))
        about = f"Goal of the work:\n{goal}\n\n" if goal else ""
        question = f"{about}Criteria:\n{listed}\n\n{block(text, mark)}\n{self.answer}"
        return [Message("system", _SYSTEM), Message("user", question)]

    def read(self, reply: Reply, text: str, mark: str) -> Ratings:
        """Read an answer. A missing or ambiguous score makes it unreadable. Never raises."""
        objects = own_objects(reply, text, mark, [f"score_{n}" for n in self._numbers])
        # Unmarked objects may repeat a candidate that contains scores.
        own = [one for one in objects.read if one.marked or not objects.suspect]
        if not own:
            if objects.read or objects.repeated:
                return Ratings(problem='it repeats the candidate or lacks its "mark"')
            return Ratings(problem="it has no JSON object with the scores")
        read = [self._ratings(one) for one in own]
        if len({one.scores for one in read}) > 1:
            return Ratings(problem="it gives different scores")
        if objects.damaged and not read[0].problem:
            return Ratings(problem="it has a JSON value that is broken or does not end")
        return read[0]

    @property
    def _numbers(self) -> range:
        return range(1, len(self.criteria) + 1)

    def _ratings(self, one: Object) -> Ratings:
        scores, ones = [], []
        for number in self._numbers:
            value = one.members.get(f"score{number}")
            score, problem, note = of_100(value)
            # A missing score is not 0: one criterion without a score makes the mean unknown.
            if value is None or problem or note:
                why = problem or note or "it is missing"
                return Ratings(problem=f"score_{number}: {why}")
            assert score is not None
            scores.append(score)
            ones += [number] if score == 0.01 and isinstance(value, int | float) else []
        # If no score is above 1, the model may have used the scale of 0 to 1.
        if ones and max(scores) <= 0.01:
            return Ratings(problem=f"score_{ones[0]}: 1 may mean 1 of 100 or 1 of 1")
        gaps = tuple(_text(one.members.get(f"gap{n}")) for n in self._numbers)
        return Ratings(tuple(scores), gaps, _texts(one.members.get("suggestions")))


def _text(value: Json) -> str:
    return value.strip() if isinstance(value, str) else ""


def _texts(value: Json) -> tuple[str, ...]:
    items = value if isinstance(value, list) else []
    return tuple(text for item in items if (text := _text(item)))


def listed_criteria(goal: str) -> list[str]:
    """Return the criteria listed in a goal as `- …` or `1. …`."""
    return list(dict.fromkeys(_ITEM.findall(goal)))


def criteria_messages(goal: str) -> list[Message]:
    """Return the messages that ask a model for the criteria of a goal."""
    question = (
        f"Goal:\n{goal}\n\nGive 3 to {MOST} criteria. Answer with a JSON object: "
        '{"criteria": list of texts}.'
    )
    return [Message("system", _GOAL_SYSTEM), Message("user", question)]


def read_criteria(reply: Reply) -> Sequence[str]:
    """Return the criteria in an answer, at most 5. An unreadable answer has none."""
    # Structured output if the endpoint supports it, otherwise JSON in the text.
    data = reply.data
    if data is None:
        data = read_value(reply.text, CRITERIA_SCHEMA, finish=reply.finish).value
    criteria = _texts(data.get("criteria")) if isinstance(data, Mapping) else ()
    return list(dict.fromkeys(criteria))[:MOST]


BANDS = ((0.9, "high"), (0.7, "good"), (0.5, "fair"), (0.0, "low"))
TEMPERATURE = 0.2
THRESHOLD = 0.85
TOKENS = 1024  # a score, a gap and suggestions for each of several criteria
_EMPTY = ("refused", "empty_output")  # kinds of errors that count as an empty answer


class _Note(TypedDict):
    """The details of a rating, recorded as a vote of its evaluation."""

    band: str
    scores: Mapping[str, float]
    weights: Mapping[str, float]
    threshold: float
    strict: bool
    delta: float | None


def band(score: float) -> str:
    """Return the band of a score: `high` from 0.9, `good` from 0.7, `fair` from 0.5, otherwise `low`.

    Raises:
        ConfigurationError: For a value that is not a number from 0 to 1, such as NaN.
    """
    codec.number("rubric: score", score, minimum=0, maximum=1)
    return next(name for minimum, name in BANDS if score >= minimum)


@dataclass(frozen=True, slots=True)
class Report:
    """The details of a rating.

    Args:
        overall: The score of the output, from 0 to 1.
        band: The band of that score. See `band`.
        meets_threshold: Whether the output passes.
        scores: The score of each criterion.
        gaps: What is missing, by criterion.
        suggestions: How to improve the output.
        delta: The change of the score since the last iteration, or None in the first.
    """

    overall: float
    band: str
    meets_threshold: bool
    scores: Mapping[str, float]
    gaps: Mapping[str, str]
    suggestions: tuple[str, ...]
    delta: float | None


def report(evaluation: Evaluation) -> Report | None:
    """Return the details of a rubric's evaluation, or None if it is undecided or of another evaluator."""
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


def _note(evaluation: Evaluation | None) -> _Note | None:
    votes = evaluation.votes if evaluation is not None else ()
    # The name of the key is recorded in the votes of existing runs.
    notes = (vote.get("confidence") for vote in votes if isinstance(vote, Mapping))
    return cast("_Note | None", next((note for note in notes if note is not None), None))


class Rubric(CompositeStep[object, Evaluation]):
    """An evaluator that rates an output by weighted criteria. See `rubric`."""

    name = "confidence"  # paths and fingerprints of recorded runs contain this word
    asks_model = True
    fingerprint: str

    def __init__(
        self,
        criteria: Sequence[str],
        *,
        model_settings: PromptSettings,
        goal: str = "",
        weights: Mapping[str, float] | None = None,
        threshold: float = THRESHOLD,
        strict: bool = False,
    ) -> None:
        self.criteria = tuple(criteria)
        self.model_settings = model_settings
        self.unsupplied = model_settings.unsupplied("rubric")
        self.goal = goal
        check_sentences("rubric", self.criteria)
        self.weights = shares("rubric", self.criteria, weights)
        self.threshold = codec.number("rubric: threshold", threshold, minimum=0, maximum=1)
        self.strict = strict
        settings = f"{threshold} {strict} {sorted(self.weights.items())}"
        self.fingerprint = digest_of(
            "confidence", codec.canonical(list(self.criteria)), goal, settings,
            codec.canonical(model_settings.to_json()),
        )  # fmt: skip

    async def run(self, value: Json, ctx: Context) -> Result:
        """Rate an output. The result's output is the evaluation."""
        text = codec.text_of(value)
        if not text.strip():
            evaluation = Evaluation(0.0, False, "the output is empty")
        else:
            goal = self.goal or codec.text_of(ctx.initial)
            criteria = self.criteria or await self._derived(goal, ctx)
            question = Rating(tuple(criteria))
            mark = mark_of(ctx.idempotency_key, text)
            ratings = await ask(
                with_schema(self.model_settings, question.schema),
                # Only the question is cut. The answer is compared with the complete text, which it might repeat.
                question.messages(goal, cut(text), mark),
                ctx,
                read=lambda reply: question.read(reply, text, mark),
                problem=lambda ratings: ratings.problem,
                form=question.answer,
                empty=_EMPTY,
            )
            evaluation = self._evaluation(criteria, ratings, ctx)
        return Result(Status.SATISFIED, Reason.COMPLETED, "rated", evaluation, name=self.name)

    async def _derived(self, goal: str, ctx: Context) -> tuple[str, ...]:
        """Return the criteria listed in the goal, those of an earlier iteration, or those of a model."""
        listed = listed_criteria(goal)
        if listed:
            return tuple(listed)
        # Other criteria in each iteration would make the scores incomparable (rule 3).
        notes = (_note(item.evaluation) for item in ctx.history)
        recorded = next((note for note in notes if note is not None), None)
        if recorded is not None:
            return tuple(recorded["scores"])
        criteria = await ask(
            with_schema(self.model_settings, CRITERIA_SCHEMA),
            criteria_messages(goal),
            ctx.child(ctx.below("criteria")),
            read=read_criteria,
            problem=lambda _: "",  # without criteria the goal itself is the criterion
            form="",
            empty=_EMPTY,
        )
        if not criteria:
            ctx.warn(
                "no criteria could be derived from the goal; the goal itself is the criterion",
                code="no_criteria",
            )
        return tuple(criteria) or ("The goal is met",)

    def _evaluation(self, criteria: Sequence[str], ratings: Ratings, ctx: Context) -> Evaluation:
        if ratings.problem:
            feedback = f"the model gave no rating: {ratings.problem}"
            return Evaluation(undecided=True, feedback=feedback)
        weights = self.weights or {name: 1 / len(criteria) for name in criteria}
        scores = dict(zip(criteria, ratings.scores, strict=True))
        gaps = dict(zip(criteria, ratings.gaps, strict=True))
        # Rounded, because binary sums such as 0.85 from several weights would miss the threshold.
        overall = min(1.0, round(math.fsum(weights[n] * s for n, s in scores.items()), 9))
        items = tuple(
            Criterion(name, reaches(score, self.threshold), _gap(score, gaps[name], self.threshold))
            for name, score in scores.items()
        )
        # The mean may pass while one criterion fails; `strict` refuses that.
        passed = reaches(overall, self.threshold)
        if self.strict:
            passed = all(item.passed for item in items)
        failing = [f"{item.name}: {item.gap}" for item in items if not item.passed]
        # An undecided or failed iteration has no score to compare with.
        last = ctx.last.score if ctx.last is not None and ctx.last.eligible else None
        note: _Note = {
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
            # The next iteration needs something to act on, even if the model suggests nothing.
            improvements=ratings.suggestions or tuple(failing),
            criteria=items,
            votes=({"confidence": note},),
        )

    def quick_check(self) -> Judge:
        """Return a judge that decides in one call, without criteria, whether the goal is met."""
        return Judge(
            {"goal": "The goal is met."}, model_settings=with_schema(self.model_settings, None), goal=self.goal,
            question=Sentence(),
        )  # fmt: skip


def _gap(score: float, gap: str, threshold: float) -> str:
    if reaches(score, threshold):
        return ""
    return f"{gap} ({score:.2f})" if gap else f"rated {score:.2f}, below {threshold:g}"


@dataclass(frozen=True)
class Compare(CompositeStep):
    """A step that rates several outputs and returns the best. See `compare`."""

    scorer: Step
    name: str = "compare"

    @property
    def fingerprint(self) -> str:
        """A digest of the scorer."""
        return digest_of("compare", self.scorer.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Rate a list of outputs one by one.

        Raises:
            EvaluationError: For an empty list, or if no output could be rated.
        """
        if not isinstance(value, list) or not value:
            kind = "an empty list" if value == [] else f"a {type(value).__name__}"
            raise EvaluationError(
                f"{ctx.path}: {kind} cannot be compared. Use a list of at least one output.",
                retryable=False,
            )
        evaluations = [
            as_evaluation(await ctx.call(f"output-{number}", self.scorer, item))
            for number, item in enumerate(value, start=1)
        ]
        rated = [
            i for i, item in enumerate(evaluations) if item.score is not None and not item.undecided
        ]
        if not rated:
            raise EvaluationError(
                f"{ctx.path}: none of the outputs could be rated", kind="undecided"
            )
        # `-i` makes the earliest of equal outputs win.
        best = max(rated, key=lambda i: (evaluations[i].score or 0.0, -i))
        output = {
            "best": best,
            "output": value[best],
            "scores": [item.score for item in evaluations],
            "evaluations": [item.to_json() for item in evaluations],
        }
        return Result(Status.SATISFIED, Reason.COMPLETED, "compared", output, name=self.name)


def compare(scorer: EvaluatorLike) -> Compare:
    """Make a step that rates a list of outputs and returns the best, the earliest of equal ones.

    Args:
        scorer: The evaluator that rates each output.

    Returns:
        A step whose output has `best` (an index from 0), `output`, `scores` and `evaluations`.
    """
    return Compare(as_step(scorer, purpose="evaluate"))


def rubric(
    *criteria: str,
    goal: str = "",
    weights: Mapping[str, float] | None = None,
    threshold: float = THRESHOLD,
    strict: bool = False,
    model: str | Sequence[str] = (),
    **settings: Unpack[ModelSettings],
) -> Rubric:
    """Make an evaluator whose model rates an output by weighted criteria.

    One call rates all criteria from 0 to 1. The score is sum(weight * score) / sum(weight). The first 4,000
    characters of an output are rated, with a note if it was cut. The evaluation has a gap for each
    criterion below the threshold. `report(evaluation)` returns the band, the scores and the change,
    `trend(history)` the trend.

    Args:
        *criteria: Sentences. Default: the items of a list in the goal (`- ...` or `1. ...`), otherwise 3
            to 5 criteria that a model derives from the goal once.
        goal: The goal of the work. Default: the loop's first input.
        weights: Weights by criterion. Default: 1 each.
        threshold: The score from which an output passes. Default: 0.85.
        strict: Whether every criterion must reach the threshold. Default: false.
        model: The model, such as "openai:gpt-4o-mini". Default: the model of the run.
        **settings: The settings of `ModelSettings`. The temperature is 0.2 by default.

    Returns:
        A step from an output to an Evaluation.

    Raises:
        ConfigurationError: For weights of unknown criteria, or invalid weights.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.testing import Models, ScriptedModel
        >>> reply = {"score_1": 90, "gap_1": "", "score_2": 70, "gap_2": "no date", "suggestions": []}
        >>> models = Models(ScriptedModel([{"replies": [{"json": reply}]}]))
        >>> evaluator = rubric("It is clear.", "It has a date.", model="openai:any")
        >>> result = run_sync(evaluator, "Released today.", resources={"models": models}).output
        >>> result.score, result.passed, result.improvements
        (0.8, False, ('It has a date.: no date (0.70)',))
    """
    model_settings = settings_of(model, settings, temperature=TEMPERATURE, cap=TOKENS)
    return Rubric(
        criteria,
        model_settings=model_settings,
        goal=goal,
        weights=weights,
        threshold=threshold,
        strict=strict,
    )
