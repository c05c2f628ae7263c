"""What an evaluator found, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from .. import codec
from ..codec import Json
from ..errors import EvaluationError, StepError, nearest

Item = TypeVar("Item")
_new = object.__new__


@dataclass(frozen=True, slots=True)
class Criterion:
    """One item of an evaluation: whether it holds, and what is missing if not."""

    name: str
    passed: bool
    gap: str = ""

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        return {"name": self.name, "passed": self.passed, "gap": self.gap}


@dataclass(slots=True, init=False)
class Evaluation:
    """What an evaluator found: a score in [0, 1], a verdict, and what would make it better.

    `undecided` means that the judge could not be read: neither satisfied nor a score of 0.

    Raises:
        EvaluationError: if the score is not a finite number in [0, 1], or a field is of another
            kind than it should be, naming it.
    """

    score: Final[float | None]
    passed: Final[bool | None]
    feedback: Final[str]
    improvements: Final[tuple[str, ...]]
    criteria: Final[tuple[Criterion, ...]]
    votes: Final[tuple[Json, ...]]
    undecided: Final[bool]
    frozen_json: ClassVar[bool] = True  # to the codec: an immutable record, kept as it is

    def __init__(
        self,
        score: float | None = None,
        passed: bool | None = None,
        feedback: str = "",
        improvements: tuple[str, ...] = (),
        criteria: tuple[Criterion, ...] = (),
        votes: tuple[Json, ...] = (),
        undecided: bool = False,
    ) -> None:
        if passed is not None and passed is not True and passed is not False:
            raise _unreadable(f"passed: {passed!r} is not true or false")
        self.score = None if score is None else _checked(score)
        self.passed = passed
        self.feedback = feedback and _text("feedback", feedback)
        self.improvements = improvements and _listed("improvements", improvements, _text)
        self.criteria = criteria and _listed("criteria", criteria, _criterion)
        self.votes = votes and _listed("votes", votes, _vote)
        self.undecided = undecided is True

    def __hash__(self) -> int:
        return hash((self.score, self.passed, self.feedback, self.undecided))

    @property
    def says_only_score(self) -> bool:
        """Whether it is a score and a verdict, or one of them, and nothing else."""
        told = self.feedback or self.improvements or self.criteria or self.votes
        return not told and not self.undecided

    def to_json(self) -> Json:
        """Return it as a JSON object without the fields that say nothing."""
        data: dict[str, Json] = {"score": self.score, "passed": self.passed}
        if self.feedback:
            data["feedback"] = self.feedback
        if self.improvements:
            data["improvements"] = list(self.improvements)
        if self.criteria:
            data["criteria"] = [item.to_json() for item in self.criteria]
        if self.votes:
            data["votes"] = list(self.votes)
        if self.undecided:
            data["undecided"] = True
        return data


def _checked(score: Any) -> float:
    if type(score) is float and 0.0 <= score <= 1.0:
        return score + 0.0  # -0.0 becomes 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise EvaluationError(
            f"score: {score!r} is not a finite number from 0 to 1; divide by the scale you use",
            kind="bad_score",
            retryable=False,
        )
    return float(score) + 0.0


_FIELDS = ("score", "passed", "feedback", "improvements", "criteria", "votes", "undecided")


def as_evaluation(value: Any) -> Evaluation:
    """Return what an evaluator gave as an `Evaluation`.

    Shapes: an Evaluation; None (nothing to say); True or False (a verdict); a number (a score); an
    object with the fields of Evaluation, where `confidence` is read as `score` as in the loop
    controller of the seed.

    Raises:
        EvaluationError: naming the field that cannot be read.
    """
    if type(value) is Evaluation:
        return value
    if type(value) is float and 0.0 <= value <= 1.0:
        return _scored(value)
    if value is None:
        return Evaluation()
    if isinstance(value, bool):
        return Evaluation(passed=value)
    if isinstance(value, int | float):
        return Evaluation(score=value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    raise _unreadable(f"a {type(value).__name__} is not an evaluation")


def _scored(score: float) -> Evaluation:
    """Return an evaluation that is a score and nothing else, in half the time: most are."""
    made = _new(Evaluation)
    made.score, made.passed, made.feedback, made.undecided = score + 0.0, None, "", False  # type: ignore[misc]
    made.improvements = made.criteria = made.votes = ()  # type: ignore[misc]
    return made


def _from_mapping(data: Mapping[str, Any]) -> Evaluation:
    fields = dict(data)
    if "confidence" in fields and "score" not in fields:
        fields["score"] = fields.pop("confidence")
    for name in fields:
        if name not in _FIELDS:
            raise _unreadable(f"unknown field {name!r}{nearest(str(name), _FIELDS)}")
    score = fields.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise _unreadable(f"score: {score!r} is not a number")
    return Evaluation(
        score,
        fields.get("passed"),
        fields.get("feedback") or "",
        fields.get("improvements") or (),
        fields.get("criteria") or (),
        fields.get("votes") or (),
        fields.get("undecided") is True,
    )


def _listed(name: str, value: Any, read: Callable[[str, Any], Item]) -> tuple[Item, ...]:
    if not isinstance(value, list | tuple):
        raise _unreadable(f"{name}: {value!r} is not a list")
    return tuple(read(name, item) for item in value)


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable(f"{name}: {value!r} is not text")
    text: str = codec.normalise(value)
    return text


def _vote(name: str, value: Any) -> Json:
    try:
        return codec.normalise(value, what=name)
    except StepError as error:
        raise _unreadable(str(error)) from None


def _criterion(name: str, item: Any) -> Criterion:
    if isinstance(item, Criterion):
        item = item.to_json()
    if not isinstance(item, Mapping) or not isinstance(item.get("passed"), bool):
        raise _unreadable(f"{name}: {item!r} needs a name and passed: true or false")
    label = codec.normalise(str(item.get("name", "")))
    return Criterion(label, item["passed"], _text("gap", item.get("gap", "")))


def _unreadable(message: str) -> EvaluationError:
    return EvaluationError(
        f"{message}; return a score from 0 to 1, True or False, or an Evaluation",
        kind="bad_evaluation",
        retryable=False,
    )
