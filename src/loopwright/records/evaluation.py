"""What an evaluator found, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import EvaluationError, StepError, nearest
from . import codec
from .codec import Json
from .isolation import EMPTY, Held, Record, own, read_by_copy, slot_of

Item = TypeVar("Item")
TOLERANCE = 1e-9  # of scores: sums of floats miss the figure that is meant by less
_new = object.__new__
_put = object.__setattr__


@dataclass(frozen=True, slots=True)
class Criterion:
    """One item of an evaluation: whether it holds, and what is missing if not."""

    name: str
    passed: bool
    gap: str = ""

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        return {"name": self.name, "passed": self.passed, "gap": self.gap}


@read_by_copy("votes", "details")
@dataclass(frozen=True, slots=True, init=False)
class Evaluation(Record):
    """What an evaluator found: a score in [0, 1], a verdict, and what would make it better.

    `undecided` means that the judge could not be read: neither satisfied nor a score of 0. `details` is an
    object of anything else that the evaluator reports, such as figures it measured; it is recorded and shown, and
    decides nothing. A score within 1e-9 outside of [0, 1] is the edge.

    Raises:
        EvaluationError: if the score is not a finite number in [0, 1], or a field is of another
            kind than it should be, naming it.
    """

    score: float | None
    passed: bool | None
    feedback: str
    improvements: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    votes: tuple[Json, ...]
    undecided: bool
    details: Mapping[str, Json]
    _raw_votes: ClassVar[Any]
    _raw_details: ClassVar[Any]
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
        details: Mapping[str, Json] | None = None,
    ) -> None:
        if passed is not None and passed is not True and passed is not False:
            raise _unreadable(f"passed: {passed!r} is not true or false")
        _put(self, "score", None if score is None else _checked(score))
        _put(self, "passed", passed)
        _put(self, "feedback", feedback and _text("feedback", feedback))
        _put(self, "improvements", improvements and _listed("improvements", improvements, _text))
        _put(self, "criteria", criteria and _listed("criteria", criteria, _criterion))
        _put(self, "votes", votes and _listed("votes", votes, _plain))
        _put(self, "undecided", undecided is True)
        _put(self, "details", _detailed(details) if details else EMPTY)

    def view(self) -> Evaluation:
        """Return it for one reader, who gets copies of its votes and details."""
        return (
            self._with(Held(self.votes), Held(self.details) if self.details else EMPTY)
            if self._holds_values
            else self
        )

    def sealed(self) -> Evaluation:
        """Return it as it is now: who made it and keeps it can no longer change it."""
        return (
            self._with(own(self.votes), own(self.details) or EMPTY) if self._holds_values else self
        )

    @property
    def _holds_values(self) -> bool:
        return bool(self._raw_votes) or self._raw_details is not EMPTY

    def _with(self, votes: Any, details: Any) -> Evaluation:
        made = _new(Evaluation)
        for name in ("score", "passed", "feedback", "improvements", "criteria", "undecided"):
            _put(made, name, getattr(self, name))
        _put(made, "votes", votes)
        _put(made, "details", details)
        return made

    def __hash__(self) -> int:
        return hash((self.score, self.passed, self.feedback, self.undecided))

    @property
    def has_only_score(self) -> bool:
        """Whether it is a score and a verdict, or one of them, and nothing else."""
        told = self.feedback or self.improvements or self.criteria or self._holds_values
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
        if self.details:
            data["details"] = dict(self.details)
        return data


def reaches(score: float, threshold: float) -> bool:
    """Return whether a score is at least a threshold, but for what floats lose in sums and products.

    >>> reaches(0.3 * 3, 0.9), reaches(0.89, 0.9)
    (True, False)
    """
    return score >= threshold - TOLERANCE


def _checked(score: Any) -> float:
    if type(score) is float and 0.0 <= score <= 1.0:
        return score + 0.0  # -0.0 becomes 0.0
    scored = isinstance(score, int | float) and not isinstance(score, bool)
    if not scored or not -TOLERANCE <= score <= 1 + TOLERANCE:
        raise EvaluationError(
            f"score: {score!r} is not a finite number from 0 to 1; divide by the scale you use",
            kind="bad_score",
            retryable=False,
        )
    return min(1.0, max(0.0, float(score))) + 0.0


_FIELDS = (
    "score",
    "passed",
    "feedback",
    "improvements",
    "criteria",
    "votes",
    "undecided",
    "details",
)


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
    _set_score(made, score + 0.0)
    _set_passed(made, None)
    _set_feedback(made, "")
    _set_improvements(made, ())
    _set_criteria(made, ())
    _set_votes(made, ())
    _set_undecided(made, False)
    _set_details(made, EMPTY)
    return made


(
    _set_score, _set_passed, _set_feedback, _set_improvements, _set_criteria, _set_votes,
    _set_undecided, _set_details,
) = (slot_of(Evaluation, name).__set__ for name in _FIELDS)  # fmt: skip


def _from_mapping(data: Mapping[str, Any]) -> Evaluation:
    fields = dict(data)
    if "confidence" in fields and "score" not in fields:
        fields["score"] = fields.pop("confidence")
    details = fields.pop("details", None) or {}
    if not isinstance(details, Mapping):
        raise _unreadable(f"details: {details!r} is not an object")
    others = {str(name): fields[name] for name in fields if name not in _FIELDS}
    if (
        others and len(others) == len(fields) and not details
    ):  # it says nothing: a slip, more likely than not
        name = next(iter(others))
        raise _unreadable(f"unknown field {name!r}{nearest(name, _FIELDS)}")
    score = fields.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise _unreadable(f"score: {score!r} is not a number")
    return Evaluation(
        score=score,
        passed=fields.get("passed"),
        feedback=fields.get("feedback") or "",
        improvements=fields.get("improvements") or (),
        criteria=fields.get("criteria") or (),
        votes=fields.get("votes") or (),
        undecided=fields.get("undecided") is True,
        details={**others, **details},
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


def _detailed(details: Any) -> dict[str, Json]:
    if not isinstance(details, Mapping):
        raise _unreadable(f"details: {details!r} is not an object")
    return {str(key): _plain(f"details: {key}", value) for key, value in details.items()}


def _plain(name: str, value: Any) -> Json:
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
