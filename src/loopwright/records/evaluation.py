"""The result of an evaluator, the forms in which it may be returned, and the values of declared metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from ..errors import EvaluationError, StepError, nearest
from . import codec
from .codec import Json
from .typed import Record, Value, own, viewed

__all__ = [
    "MAXIMISE",
    "MINIMISE",
    "Measure",
    "number_text",
]

Item = TypeVar("Item")
TOLERANCE = 1e-9  # of scores: the rounding error of a sum of floats is smaller
EMPTY = object()  # an object without members in a slot: most evaluations have two
_new = object.__new__  # past `__init__`, whose checks a copy does not need
_put = object.__setattr__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Criterion(Value):
    """One criterion of an evaluation.

    Args:
        name: its name.
        passed: whether the output meets it.
        gap: what is missing, if it does not.

    Example:
        >>> Criterion("short", False, gap="over 100 words").to_json()
        {'name': 'short', 'passed': False, 'gap': 'over 100 words'}
    """

    name: str
    passed: bool
    gap: str = ""

    def to_json(self) -> Json:
        """Return the criterion as a JSON object."""
        return {"name": self.name, "passed": self.passed, "gap": self.gap}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tampering(Value):
    """How an iteration changed the check that judges it.

    Args:
        kind: `touched` if protected files differ, `forged` if the result of the check is not to be believed.
        paths: the protected files that differ.
        why: the reason as a sentence.
        action: what follows: `put_back`, `reject` or `stop`.
        files: the snapshot of the iteration with the protected files put back, or None.

    Example:
        >>> Tampering("touched", ("tests/test_io.py",), "tests/test_io.py was changed").rejected
        False
    """

    kind: str
    paths: tuple[str, ...]
    why: str
    action: str = "put_back"
    files: Mapping[str, Json] | None = None

    @property
    def rejected(self) -> bool:
        """Whether the iteration does not count, and the next one continues from its parent."""
        return self.kind == "forged" or self.action != "put_back"

    def to_json(self) -> Json:
        """Return the tampering as a JSON object."""
        data: dict[str, Json] = {"kind": self.kind, "paths": list(self.paths), "why": self.why}
        data["action"] = self.action
        if self.files is not None:
            data["files"] = dict(self.files)
        return data


@viewed("votes", "details", "metrics", "verdicts")
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Evaluation(Record):
    """The result of an evaluator: a score, a verdict, and advice for the next iteration.

    Args:
        score: from 0 to 1; a value within 1e-9 of this range is rounded to it.
        passed: the verdict, or None.
        feedback: advice for the next iteration.
        improvements: single suggestions.
        criteria: the criteria and their verdicts.
        votes: the single votes of judges, as JSON.
        undecided: the evaluator could not decide; this is neither success nor a score of 0.
        details: other figures, as JSON; recorded and shown, without an effect on the loop.
        metrics: raw numbers by name, such as seconds or bytes. They order iterations only in a loop that
            declares them.
        impossible: the task cannot be done, by the reason in `feedback`. Such an evaluation is not met, and
            several in a row end the loop as `impossible`; see `Impossible`.
        unjudged: the judge could not decide, and the deterministic evaluators decided alone.
        tampered: how the iteration changed its own check, or None.
        verdicts: the answers to the sentences of `until` that the loop asked, by sentence: `{passed, feedback,
            votes}`, where `passed` is None if a sentence is undecided. An undecided evaluation with verdicts
            keeps a valid score. None in a loop without sentences.

    Raises:
        EvaluationError: of kind `bad_score`, `bad_metric` (a metric that is not finite) or
            `bad_evaluation`, for a value of another type or range; names the field.

    Example:
        >>> Evaluation(0.8, feedback="shorter").score
        0.8
    """

    score: float | None
    passed: bool | None
    feedback: str
    improvements: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    votes: tuple[Json, ...]
    undecided: bool
    details: Mapping[str, Json]
    metrics: Mapping[str, float]
    impossible: bool
    unjudged: bool
    tampered: Tampering | None
    verdicts: Mapping[str, Json] | None
    _raw_details: ClassVar[Json]
    _raw_metrics: ClassVar[Json]
    frozen_json: ClassVar[bool] = True  # tells the codec that the record is immutable

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
        metrics: Mapping[str, float] | None = None,
        impossible: bool = False,
        unjudged: bool = False,
        tampered: Tampering | None = None,
        verdicts: Mapping[str, Json] | None = None,
    ) -> None:
        # 1 and 0 are not verdicts: they are more likely scores in the wrong field.
        if passed is not None and passed is not True and passed is not False:
            raise _unreadable(f"passed: {passed!r} is not true or false")
        if impossible is True:
            if passed or undecided is True:
                raise _unreadable(
                    "impossible: an output that passed, or is undecided, is not impossible"
                )
            passed = False
        # Through the slots: lookups by name made an iteration 10 % slower (decision 73).
        _score(self, None if score is None else _checked(score))
        _passed(self, passed)
        _feedback(self, feedback and _text("feedback", feedback))
        _improvements(self, improvements and _listed("improvements", improvements, _text))
        _criteria(self, criteria and _listed("criteria", criteria, _criterion))
        _votes(self, votes and _listed("votes", votes, _plain))
        _undecided(self, undecided is True)
        _details(self, _detailed(details) if details else EMPTY)
        _metrics(self, _measured(metrics) if metrics else EMPTY)
        _impossible(self, impossible is True)
        _unjudged(self, unjudged is True)
        _tampered(self, tampered and _tampering(tampered))
        # Not `if verdicts`: an empty object says that no sentence was asked.
        _verdicts(self, None if verdicts is None else _answers(verdicts))

    def view(self, *, typed: bool = True) -> Evaluation:
        """Return the evaluation for one reader, who receives copies of its mutable values."""
        return Record.view(self, typed=typed) if self.holds_values() else self

    def sealed(self) -> Evaluation:
        """Return the evaluation in its present state, independent of later changes by its creator."""
        # A view is not recorded itself, as it reads another record.
        if type(self) is Evaluation and not self.holds_values():
            return self
        copy = _new(Evaluation)
        for name in _FIELDS:
            value = own(getattr(self, name))
            _put(copy, name, EMPTY if value == {} and name != "verdicts" else value)
        return copy

    def holds_values(self) -> bool:
        """Return whether it has votes, details, metrics or verdicts, which a reader could change."""
        # The slots, as every iteration asks: reading the fields adds 5 % to the instructions of an iteration.
        if self.votes or self._raw_details is not EMPTY or self._raw_metrics is not EMPTY:
            return True
        return self.verdicts is not None

    def answer(self, sentence: str) -> bool | None:
        """Return the answer to a sentence of `until`; None if it is undecided or was not asked."""
        # A record of an earlier version has one verdict for all sentences.
        if self.verdicts is None:
            return self.passed
        verdict = self.verdicts.get(sentence)
        return None if verdict is None else verdict["passed"]

    def __hash__(self) -> int:
        # Without the votes, which may contain lists.
        return hash((self.score, self.passed, self.feedback, self.undecided))

    @property
    def gaps(self) -> list[str]:
        """A line for each sentence of `until` that was answered no."""
        return [
            " ".join(
                (
                    f"{sentence.rstrip(' .')}: {verdict['feedback']}"
                    if verdict["feedback"]
                    else sentence
                ).split()
            )
            for sentence, verdict in (self.verdicts or {}).items()
            if verdict["passed"] is False
        ]

    @property
    def own_feedback(self) -> str:
        """The feedback of the evaluator, without the lines on sentences of `until`."""
        lines, gaps = self.feedback.split("\n"), self.gaps
        while gaps and lines and lines[-1] in gaps:
            lines.pop()
        return "\n".join(lines)

    @property
    def only_verdicts(self) -> bool:
        """Whether it has answers to sentences of `until`, and nothing of an evaluator."""
        judged = self.score is not None or self.passed is not None or bool(self.metrics)
        return self.verdicts is not None and not judged and not self.own_feedback

    @property
    def standing(self) -> float:
        """The score, else 1 or 0 by the verdict."""
        return float(self.passed is True) if self.score is None else self.score

    @property
    def has_only_score(self) -> bool:
        """Whether it has a score, a verdict or both, and no other field."""
        more = self.feedback or self.improvements or self.criteria or self.holds_values()
        others = self.undecided or self.impossible or self.unjudged or self.tampered is not None
        return not more and not others

    def to_json(self) -> Json:
        """Return the evaluation as a JSON object without empty fields."""
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
        if self.metrics:
            data["metrics"] = dict(self.metrics)
        if self.verdicts is not None:
            data["verdicts"] = dict(self.verdicts)
        # One test for the rare fields: every iteration is written.
        if self.impossible or self.unjudged or self.tampered is not None:
            tampered = None if self.tampered is None else self.tampered.to_json()
            rare = {"impossible": self.impossible, "unjudged": self.unjudged, "tampered": tampered}
            data |= {name: value for name, value in rare.items() if value}
        return data


def reaches(score: float, threshold: float) -> bool:
    """Return whether a score is at least a threshold, within the rounding error of floats.

    >>> reaches(0.3 * 3, 0.9), reaches(0.89, 0.9)
    (True, False)
    """
    return score >= threshold - TOLERANCE


def exceeds(gain: float, least: float) -> bool:
    """Return whether a gain is above the least one that counts, within the rounding error of floats.

    >>> exceeds(0.3 - 0.2, 0.1), exceeds(0.01, 0.0)
    (False, True)
    """
    return gain > least and not math.isclose(gain, least, rel_tol=1e-9)


def _checked(score: Json) -> float:
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
    "score", "passed", "feedback", "improvements", "criteria", "votes", "undecided", "details",
    "metrics", "impossible", "unjudged", "tampered", "verdicts",
)  # fmt: skip


def _new_if_empty(slot: Json) -> property:
    """Return a field that reads an empty object in a slot as a new one: a shared one could be changed."""

    def read(evaluation: Evaluation) -> Json:
        value = slot.__get__(evaluation)
        return {} if value is EMPTY else value

    return property(read, slot.__set__)


for _name in ("details", "metrics"):
    _slot = Evaluation.__dict__[_name]
    setattr(Evaluation, f"_raw_{_name}", _slot)
    setattr(Evaluation, _name, _new_if_empty(_slot))
(
    _score, _passed, _feedback, _improvements, _criteria, _votes, _undecided, _details, _metrics,
    _impossible, _unjudged, _tampered, _verdicts,
) = (
    Evaluation.__dict__[name].__set__ for name in _FIELDS
)  # fmt: skip


def as_evaluation(value: Json) -> Evaluation:
    """Return the return value of an evaluator as an `Evaluation`.

    Args:
        value: an Evaluation; None (no result); True or False (a verdict); a number (a score); or an
            object with the fields of Evaluation, where `confidence` stands for `score`, and `impossible` may be
            the reason itself. Other fields of an object become `details`, and so do `metrics` that are not
            numbers.

    Raises:
        EvaluationError: for any other value; names the field.

    Example:
        >>> as_evaluation(0.5).score, as_evaluation(True).passed
        (0.5, True)
    """
    kind = type(value)
    if kind is float:  # the common forms first: the others ask for abstract classes
        return _simple(_checked(value), None)
    if kind is dict:
        return _from_mapping(value)
    if value is None:
        return Evaluation()
    # Before the numbers: True is an int in Python.
    if isinstance(value, bool):
        return _simple(None, value)
    if isinstance(value, (int, float)):
        return _simple(_checked(value), None)
    if isinstance(value, Evaluation):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)
    raise _unreadable(f"a {type(value).__name__} is not an evaluation")


_SIMPLE = frozenset({"score", "passed", "feedback"})


class _Draft(Record):
    """An evaluation before it is frozen, with the slots of `Evaluation`."""

    __slots__ = _FIELDS


def _simple(score: float | None, passed: bool | None, feedback: str = "") -> Evaluation:
    """Return an evaluation without any other field; see `new_iteration` on drafts."""
    draft: Any = _Draft()
    draft.score = score
    draft.passed = passed
    draft.feedback = feedback
    draft.improvements = draft.criteria = draft.votes = ()
    draft.details = draft.metrics = EMPTY
    draft.undecided = draft.impossible = draft.unjudged = False
    draft.tampered = draft.verdicts = None
    draft.__class__ = Evaluation
    evaluation: Evaluation = draft
    return evaluation


def _from_mapping(data: Mapping[str, Json]) -> Evaluation:
    score, passed = data.get("score"), data.get("passed")
    if type(score) is float and data.keys() <= _SIMPLE and (passed is None or type(passed) is bool):
        feedback = data.get("feedback") or ""
        return _simple(_checked(score), passed, feedback and _text("feedback", feedback))
    fields = dict(data)
    if "confidence" in fields and "score" not in fields:
        fields["score"] = fields.pop("confidence")
    details = fields.pop("details", None) or {}
    if not isinstance(details, Mapping):
        raise _unreadable(f"details: {details!r} is not an object")
    others = {str(name): fields[name] for name in fields if name not in _FIELDS}
    metrics = fields.get("metrics") or {}
    _refuse_infinite(metrics)
    if not _are_numbers(metrics):  # an evaluator of someone else may mean another thing by it
        others["metrics"], metrics = metrics, {}
    tampered = fields.get("tampered")
    if tampered is not None and not _is_tampering(tampered):  # a field of someone else's evaluator
        others["tampered"], tampered = tampered, None
    verdicts = fields.get("verdicts")
    if verdicts is not None and not _are_answers(verdicts):
        others["verdicts"], verdicts = verdicts, None
    score = fields.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise _unreadable(f"score: {score!r} is not a number")
    impossible = fields.get("impossible")
    reason = impossible if isinstance(impossible, str) else ""
    return Evaluation(
        score=score,
        passed=fields.get("passed"),
        feedback=fields.get("feedback") or reason,
        improvements=fields.get("improvements") or (),
        criteria=fields.get("criteria") or (),
        votes=fields.get("votes") or (),
        undecided=fields.get("undecided") is True,
        details={**others, **details},
        metrics=metrics,
        impossible=bool(reason) or impossible is True,
        unjudged=fields.get("unjudged") is True,
        tampered=tampered,
        verdicts=verdicts,
    )


def misspelling(value: Mapping[str, Json]) -> str:
    """Return a sentence on the return value of an evaluator that has other fields only, or "".

    >>> misspelling({"scores": 1})
    "the evaluation has no score and no verdict, but the field 'scores'; did you mean 'score'?"
    """
    if not value or any(name in _FIELDS or name == "confidence" for name in value):
        return ""
    hints = ((str(name), nearest(str(name), _FIELDS)) for name in value)
    name, hint = next(((name, hint) for name, hint in hints if hint), ("", ""))
    return hint and f"the evaluation has no score and no verdict, but the field {name!r}{hint}"


def _listed(name: str, value: object, read: Callable[[str, Json], Item]) -> tuple[Item, ...]:
    if not isinstance(value, list | tuple):
        raise _unreadable(f"{name}: {value!r} is not a list")
    return tuple(read(name, item) for item in value)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable(f"{name}: {value!r} is not text")
    text: str = codec.normalise(value)
    return text


def _detailed(details: object) -> dict[str, Json]:
    if not isinstance(details, Mapping):
        raise _unreadable(f"details: {details!r} is not an object")
    return {str(key): _plain(f"details: {key}", value) for key, value in details.items()}


def _are_numbers(metrics: object) -> bool:
    return isinstance(metrics, Mapping) and all(
        type(value) is int or (isinstance(value, float) and math.isfinite(value))
        for value in metrics.values()
    )


def _refuse_infinite(metrics: object) -> None:
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if isinstance(value, float) and not math.isfinite(value):
            raise EvaluationError(
                f"metrics: {name}: {value!r} is not a finite number, so it cannot be compared; return no value "
                "for it, or correct the measurement",
                kind="bad_metric",
                retryable=False,
            )


def _measured(metrics: object) -> dict[str, float]:
    _refuse_infinite(metrics)
    if not isinstance(metrics, Mapping) or not _are_numbers(metrics):
        raise _unreadable(f"metrics: {metrics!r} is not an object of finite numbers")
    return {str(name): _plain(f"metrics: {name}", value) for name, value in metrics.items()}


def _are_answers(verdicts: object) -> bool:
    return isinstance(verdicts, Mapping) and all(
        isinstance(item, Mapping)
        and {"passed"} <= set(item) <= {"passed", "feedback", "votes"}
        and item["passed"] in (True, False, None)
        for item in verdicts.values()
    )


def _answers(verdicts: object) -> dict[str, Json]:
    if not isinstance(verdicts, Mapping) or not _are_answers(verdicts):
        raise _unreadable(f"verdicts: {verdicts!r:.60} needs passed: true, false or null for each")
    return {
        str(sentence): _plain("verdicts", {"passed": None, "feedback": "", "votes": [], **item})
        for sentence, item in verdicts.items()
    }


def _is_tampering(value: object) -> bool:
    return isinstance(value, Tampering) or (
        isinstance(value, Mapping) and {"kind", "paths", "why"} <= set(value)
    )


def _tampering(value: object) -> Tampering:
    if isinstance(value, Tampering):
        return value
    if not _is_tampering(value):
        raise _unreadable(f"tampered: {value!r:.60} needs kind, paths and why")
    data = cast("Mapping[str, Json]", value)
    return Tampering(
        str(data["kind"]),
        tuple(map(str, data["paths"])),
        str(data["why"]),
        str(data.get("action", "put_back")),
        data.get("files"),
    )


def _plain(name: str, value: object) -> Json:
    try:
        return codec.normalise(value, what=name)
    except StepError as error:
        raise _unreadable(str(error)) from None


def _criterion(name: str, item: object) -> Criterion:
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


MINIMISE, MAXIMISE = "minimise", "maximise"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Measure(Value):
    """The value of a declared metric in one iteration.

    Args:
        name: The name of the metric.
        value: The value, in its unit.
        unit: The unit, for display.
        direction: `minimise`, `maximise`, or "" for a metric that orders nothing.
        change: The value less that of the last accepted iteration, or of the files before the first one.
            None if there is none.
        objective: Whether the metric orders the iterations.

    Example:
        >>> print(Measure("val_loss", 0.9312, direction="minimise", change=-0.0041))
        val_loss 0.9312 ↓ -0.0041
        >>> print(Measure("time", 12.0, unit="s"))
        time 12 s
    """

    name: str
    value: float
    unit: str = ""
    direction: str = ""
    change: float | None = None
    objective: bool = False

    @property
    def rank(self) -> float:
        """The value as a number that is higher if it is better."""
        return -self.value if self.direction == MINIMISE else self.value

    @property
    def arrow(self) -> str:
        """The direction of the change since the last accepted iteration: ↑, ↓ or ""."""
        if not self.change:
            return ""
        return "↑" if self.change > 0 else "↓"

    @property
    def text(self) -> str:
        """The value with its unit."""
        return f"{number_text(self.value)} {self.unit}".rstrip()

    def __str__(self) -> str:
        text = f"{self.name} {self.text}"
        if not self.arrow or self.change is None:
            return text
        return f"{text} {self.arrow} {'+' if self.change > 0 else ''}{number_text(self.change)}"

    def to_json(self) -> dict[str, Json]:
        """Return the measure as a JSON object without empty fields."""
        data: dict[str, Json] = {"value": self.value}
        if self.unit:
            data["unit"] = self.unit
        if self.direction:
            data["direction"] = self.direction
        if self.change is not None:
            data["change"] = self.change
        if self.objective:
            data["objective"] = True
        return data

    @classmethod
    def listed(cls, data: Mapping[str, Mapping[str, Json]] | None) -> tuple[Measure, ...]:
        """Return recorded measures, which are objects by name."""
        return tuple(cls(name=name, **fields) for name, fields in (data or {}).items())


def number_text(value: float) -> str:
    """Return a number for people: integers in full, others with six significant digits.

    >>> number_text(1234567.0), number_text(0.1 + 0.2), number_text(-0.0041)
    ('1234567', '0.3', '-0.0041')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}"
