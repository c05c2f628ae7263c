"""One iteration of a loop, the failure of one, and its usage: calls, tokens and dollars."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic

from typing_extensions import TypeVar

from ..errors import BudgetExceeded, StepError
from . import codec
from .codec import ATOMS, Json, error_text
from .evaluation import Evaluation, Measure, as_evaluation
from .typed import Record, Value, json_of, viewed

_LARGE = 1 << 62  # figures below are valid without further checks, which makes most usages cheap


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Usage(Value):
    """Calls, tokens and dollars of model calls.

    Args:
        calls: model calls.
        input_tokens, output_tokens: tokens.
        usd: US dollars, rounded to a picodollar so that sums do not depend on their order.
        unpriced: calls without a known price; they add 0 to `usd`.
        estimated: calls counted at their maximum, because they were cancelled or reported no usage; if
            there are any, the other figures are upper bounds.
        cached: calls that a kept reply answered; `calls`, tokens and dollars do not count them.
        saved: the US dollars that these replies had cost.

    Raises:
        ConfigurationError: for a negative or infinite figure, or one of another type.

    Example:
        >>> (Usage(calls=1, input_tokens=10) + Usage(calls=1, output_tokens=5)).tokens
        15
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0
    cached: int = 0
    saved: float = 0.0

    def __post_init__(self) -> None:
        usd = self.usd
        counts = (
            self.calls, self.input_tokens, self.output_tokens, self.unpriced, self.estimated, self.cached
        )  # fmt: skip
        valid = all(type(count) is int and 0 <= count < _LARGE for count in counts)
        if valid and type(usd) is float and 0.0 <= usd < _LARGE and not self.saved:
            object.__setattr__(self, "usd", round(usd, 12))
            return
        counts_of = ("calls", "input_tokens", "output_tokens", "unpriced", "estimated", "cached")
        codec.check_integers("usage.", self, counts_of)
        for name in ("usd", "saved"):
            amount = codec.number(f"usage.{name}", getattr(self, name), minimum=0)
            object.__setattr__(self, name, round(amount, 12))

    @property
    def tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        # Most sums have an empty side: steps without a model report nothing.
        if other is NOTHING or not other:
            return self
        if self is NOTHING or not self:
            return other
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            usd=self.usd + other.usd,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
            cached=self.cached + other.cached,
            saved=self.saved + other.saved,
        )

    def __bool__(self) -> bool:
        return bool(
            self.calls or self.input_tokens or self.output_tokens
            or self.usd or self.unpriced or self.estimated or self.cached
        )  # fmt: skip

    def most(self, other: Usage) -> Usage:
        """Return the larger of each figure."""
        return Usage(*(max(a, b) for a, b in zip(self._values(), other._values(), strict=True)))

    def at_most(self) -> Usage:
        """Return the same figures as upper bounds: every call counts as `estimated`."""
        if not self:
            return self
        return replace(self, estimated=max(1, self.calls, self.estimated))

    def settled_at(self, reserved: Usage) -> Usage:
        """Return the usage of a cancelled call that had reported this: the larger of each figure.

        It is estimated if the reservation decides a figure.
        """
        larger = self.most(reserved)
        return larger if larger == self else larger.at_most()

    def _values(self) -> tuple[Json, ...]:
        return (
            self.calls, self.input_tokens, self.output_tokens,
            self.usd, self.unpriced, self.estimated, self.cached, self.saved,
        )  # fmt: skip

    def to_json(self) -> Json:
        """Return the usage as a JSON object; the figures after `usd` only if they are not 0."""
        data: dict[str, Json] = {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": self.usd,
        }
        for name in ("unpriced", "estimated", "cached", "saved"):
            if value := getattr(self, name):
                data[name] = value
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> Usage:
        """Return the usage that `to_json` wrote."""
        # The shared object, because sums and journals test for it by identity.
        return cls(**data) if data else NOTHING

    def less(self, other: Usage) -> Usage:
        """Return the difference of each figure, at least 0."""
        # The rounding of dollars can make a difference of equal sums slightly negative.
        pairs = zip(self._values(), other._values(), strict=True)
        return Usage(*(max(0, a - b) for a, b in pairs))


NOTHING = Usage()
# Texts, because few runs judge at a cost or have cases, and expressions take time to compile at the start.
_JUDGING = (
    r"(?:^|/)(?:(?:[0-9]+/(?:candidate-[0-9]+/)?|cases/s[0-9]+/[^/]+/(?:repeat-[0-9]+/)?)(?:evaluate|until|confirm|choice)"
    r"|rejudge/[0-9]+)(?:/|$)"
)
_CASE = r"(?:^|/)cases/s[0-9]+/[^/]+(?:/repeat-[0-9]+)?"


def is_judging(path: str) -> bool:
    """Return whether a path is inside the `evaluate` of a loop or of a case.

    >>> is_judging("refine/2/evaluate/attempt-1"), is_judging("refine/2/execute/attempt-1")
    (True, False)
    >>> is_judging("refine/2/candidate-3/evaluate")
    True
    """
    return re.search(_JUDGING, path) is not None


def case_path(path: str) -> str:
    """Return the path of the innermost case of a data set around a path; "" outside of one.

    >>> case_path("answers/cases/s0003/c12/repeat-2/evaluate/attempt-1")
    'answers/cases/s0003/c12/repeat-2'
    """
    end = max((found.end() for found in re.finditer(_CASE, path)), default=0)
    return path[:end]


def case_segment(case_id: str) -> str:
    """Return the ID of a case as one part of a path.

    >>> case_segment("a/b")
    'a%2Fb'
    """
    return case_id.replace("%", "%25").replace("/", "%2F")


def by_purpose(usage: Usage, judging: Usage) -> Json:
    """Return the usage of work and of judging as a JSON object."""
    return {"work": usage.less(judging).to_json(), "judging": judging.to_json()}


In = TypeVar("In", default=Any)  # the defaults keep a bare Iteration legal under `mypy --strict`
Out = TypeVar("Out", default=Any)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Failure(Value):
    """The failure of a step, as it is recorded.

    Args:
        stage: `adapt`, `execute`, `evaluate`, `choice` (among candidates), `until` or `decide`.
        kind: the cause in a word; see `loopwright.errors`.
        message: the cause as a sentence.
        path: the place in the run.
        retryable: whether a retry can help.
        retry_after: seconds to wait before a retry, or None.
        exception: the qualified name of the user's exception.
        traceback: its frames in the user's files, as Python prints them.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> result = run_sync(Loop(int, until=MaxIterations(1)), "x")
        >>> result.error.stage, result.error.kind, result.error.exception
        ('execute', 'ValueError', 'ValueError')
    """

    stage: str
    kind: str
    message: str
    path: str = ""
    retryable: bool = True
    retry_after: float | None = None
    exception: str = ""
    traceback: str = ""

    @classmethod
    def of(
        cls,
        stage: str,
        error: StepError,
        path: str = "",
        redact: Callable[[str], str] | None = None,
    ) -> Failure:
        """Return the record of an error.

        Args:
            stage: the stage that failed.
            error: the error of the step.
            path: the place, for an error without one.
            redact: removes known secrets from the message.
        """
        return cls(
            stage=stage,
            kind=error.kind,
            message=error_text(error, redact),
            path=error.path or path,
            retryable=error.retryable,
            retry_after=error.retry_after,
            exception=error.exception,
            traceback=error.traceback,
        )

    def to_error(self) -> StepError:
        """Return the error of a step that it records."""
        # The class is not recorded; the kind decides it, so that a replay raises the same error.
        kind = BudgetExceeded if self.kind == "budget" else StepError
        return kind(
            self.message,
            path=self.path,
            kind=self.kind,
            retryable=self.retryable,
            retry_after=self.retry_after,
            exception=self.exception,
            traceback=self.traceback,
        )

    def to_json(self) -> Json:
        """Return the failure as a JSON object without empty optional fields."""
        data: dict[str, Json] = {
            "stage": self.stage,
            "kind": self.kind,
            "message": self.message,
            "path": self.path,
            "retryable": self.retryable,
        }
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        if self.exception:
            data["exception"] = self.exception
        if self.traceback:
            data["traceback"] = self.traceback
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> Failure | None:
        """Return the failure that `to_json` wrote."""
        return cls(**data) if data else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Candidate(Value):
    """One of several outputs of one iteration, as its record has it; its output is at its path.

    Args:
        number: from 1.
        state: `chosen`, `lost`, `failed`, `stopped` (cancelled because another one was enough) or
            `skipped` (never begun).
        score: its score, or None.
        passed: its verdict, or None.
        metrics: its metrics by name.
        feedback: the feedback of its evaluation.
        error: its failure, or None.
        vary: what differs between it and the others, or None.
        usage: calls, tokens and dollars.
        seconds: active seconds.
        path: the place of its steps in the run.
        combined: a step made it of the others.

    Example:
        >>> Candidate(2, "lost", score=0.4).to_json()["state"]
        'lost'
    """

    number: int
    state: str
    score: float | None = None
    passed: bool | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    feedback: str = ""
    error: Failure | None = None
    vary: Json = None
    usage: Usage = NOTHING
    seconds: float = 0.0
    path: str = ""
    combined: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the candidate as a JSON object without empty fields."""
        given = {name: getattr(self, name) for name in ("score", "passed", "vary")}
        said = {
            "metrics": dict(self.metrics),
            "feedback": self.feedback,
            "error": self.error and self.error.to_json(),
            "usage": self.usage and self.usage.to_json(),
            "seconds": round(self.seconds, 6),
            "path": self.path,
            "combined": self.combined,
        }
        return {
            "number": self.number,
            "state": self.state,
            **{name: value for name, value in given.items() if value is not None},
            **{name: value for name, value in said.items() if value},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Candidate:
        """Return the candidate that `to_json` wrote."""
        fields = dict(data)
        for name, read in (("error", Failure.from_json), ("usage", Usage.from_json)):
            if name in fields:
                fields[name] = read(fields[name])
        return cls(**fields)

    @classmethod
    def listed(cls, rows: Sequence[Mapping[str, Json]] | None) -> tuple[Candidate, ...]:
        """Return the candidates of a recorded iteration, none for an iteration without."""
        return tuple(map(cls.from_json, rows or ()))


_LINEAGE = ("parent", "chain", "strategy", "candidate")


@viewed("input", "output", "evaluation", "steps", "files")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Iteration(Record, Generic[In, Out]):
    """One iteration of a loop: adapt, execute and evaluate, successful or not.

    Args:
        number: from 1.
        input: the input of `execute`.
        output: the output of `execute`.
        evaluation: the result of `evaluate`, or None.
        error: the failure of a stage, or None.
        usage: calls, tokens and dollars of the iteration.
        seconds: active seconds of the iteration.
        interrupted: a condition ended it before its evaluation.
        truncated: the output is incomplete.
        steps: the outputs of inner steps that the loop keeps.
        files: the snapshot of the workspace after `execute`: its `commit` and `tree`, the number of
            changed `files`, and the lines `added` and `removed`. None without a workspace.
        measures: the declared metrics, in a loop that declares metrics.
        accepted: whether its objective is better than that of the last accepted iteration. None in a
            loop without an objective.
        explored: it follows the normal end of a loop that explores, and has no effect on the result.
        parent: the number of the iteration that it continues from; 0 is the beginning, None the iteration
            before it.
        chain: the number of its chain: the iterations from one start to the next stall.
        strategy: the name of the strategy of its chain, or "".
        candidate: the number of the chosen candidate, or None in an iteration with one candidate.
        candidates: all candidates, in an iteration with several.

    Example:
        >>> Iteration(1, output="draft", evaluation=Evaluation(0.4, feedback="shorter")).feedback
        'shorter'
    """

    number: int
    input: In = None  # type: ignore[assignment]
    output: Out | None = None
    evaluation: Evaluation | None = None
    error: Failure | None = None
    usage: Usage = NOTHING
    seconds: float = 0.0
    interrupted: bool = False
    truncated: bool = False
    steps: Mapping[str, Json] | None = None
    files: Mapping[str, Json] | None = None
    measures: tuple[Measure, ...] = ()
    accepted: bool | None = None
    explored: bool = False
    parent: int | None = None
    chain: int = 1
    strategy: str = ""
    candidate: int | None = None
    candidates: tuple[Candidate, ...] = ()

    def view(self, *, typed: bool = True) -> Iteration[In, Out]:
        """Return the iteration for one reader, who receives copies of its values."""
        # Immutable values need no copies: most iterations of simple loops are returned themselves.
        evaluation = self.evaluation
        if (
            type(self.input) in ATOMS
            and type(self.output) in ATOMS
            and self.steps is None
            and self.files is None
            and (evaluation is None or not evaluation.holds_values())
        ):
            return self
        return Record.view(self, typed=typed)

    @property
    def score(self) -> float | None:
        """The score, or None."""
        return self.evaluation.score if self.evaluation is not None else None

    @property
    def passed(self) -> bool | None:
        """The verdict, or None."""
        return self.evaluation.passed if self.evaluation is not None else None

    @property
    def feedback(self) -> str:
        """The advice for the next iteration: the error of a failed one, else the feedback."""
        if self.error is not None:
            return self.error.message
        return self.evaluation.feedback if self.evaluation is not None else ""

    @property
    def improvements(self) -> tuple[str, ...]:
        """The single suggestions of its evaluation."""
        return self.evaluation.improvements if self.evaluation is not None else ()

    @property
    def continues_from(self) -> int:
        """The number of the iteration that it continues from; 0 is the beginning."""
        return self.number - 1 if self.parent is None else self.parent

    @property
    def objective(self) -> Measure | None:
        """The measure of the metric that orders the iterations, or None."""
        return next((item for item in self.measures if item.objective), None)

    @property
    def rank(self) -> float | None:
        """The number by which iterations are ordered, higher is better: of the objective, else the score."""
        if self.accepted is None:
            return self.score
        objective = self.objective
        return None if objective is None else objective.rank

    @property
    def standing(self) -> float | None:
        """The number by which it is compared within its chain: of the objective, else its score or verdict.

        None if it does not count.
        """
        if self.accepted is not None:
            return self.rank if self.sound else None
        return self.evaluation.standing if self.eligible and self.evaluation is not None else None

    @property
    def undecided(self) -> bool:
        """Whether the evaluator could not decide."""
        return self.evaluation is not None and self.evaluation.undecided

    @property
    def rejected(self) -> bool:
        """Whether it changed its own check, so that it does not count."""
        evaluation = self.evaluation
        tampered = None if evaluation is None else evaluation.tampered
        return tampered is not None and tampered.rejected

    @property
    def eligible(self) -> bool:
        """Whether its output may be the best or the last.

        It must not be failed, interrupted, truncated, undecided or rejected. If only a sentence of `until` is
        undecided, its score is valid.
        """
        # An undecided output is neither good nor bad, so it must not be chosen for its score.
        if self.error is not None or self.interrupted or self.truncated:
            return False
        if (evaluation := self.evaluation) is None:
            return True
        # The score of `evaluate` is valid although a sentence of `until` is undecided.
        if evaluation.undecided and (evaluation.score is None or not evaluation.verdicts):
            return False
        tampered = evaluation.tampered
        return tampered is None or not tampered.rejected

    @property
    def sound(self) -> bool:
        """Whether its value of an objective counts: it is eligible, no check refused it, and a file changed."""
        # Without a changed file, a better value is noise.
        changed = self.files is None or self.files.get("files") != 0
        return self.eligible and self.passed is not False and changed

    @property
    def can_satisfy(self) -> bool:
        """Whether its output may satisfy a loop: it is eligible, and its task was not judged impossible."""
        evaluation = self.evaluation
        refused = evaluation is not None and (evaluation.impossible or evaluation.undecided)
        return self.eligible and not refused

    def to_json(self) -> Json:
        """Return the iteration as a JSON object, a row of a result's `history`."""
        data: dict[str, Json] = {
            "iteration": self.number,
            "score": self.score,
            "passed": self.passed,
            "feedback": self.feedback,
            "error": self.error.to_json() if self.error else None,
            "output": json_of(self.output),
            "input": json_of(self.input),
            "seconds": round(self.seconds, 6),
            "usage": self.usage.to_json(),
        }
        if self.evaluation is not None:
            data["evaluation"] = self.evaluation.to_json()
        for flag in ("interrupted", "truncated", "explored"):
            if getattr(self, flag):
                data[flag] = True
        if self.steps:
            data["steps"] = dict(json_of(self.steps))
        if self.files is not None:
            data["files"] = dict(self.files)
        if self.measures:
            data["measures"] = {item.name: item.to_json() for item in self.measures}
        if self.accepted is not None:
            data["accepted"] = self.accepted
        return data | self.lineage_json()

    def lineage_json(self) -> dict[str, Json]:
        """Return its parent, chain, strategy and candidates as JSON fields, those that say something."""
        data: dict[str, Json] = {}
        if self.parent is not None:
            data["parent"] = self.parent
        if self.chain != 1:
            data["chain"] = self.chain
        if self.strategy:
            data["strategy"] = self.strategy
        if self.candidate is not None:
            data["candidate"] = self.candidate
        if self.candidates:
            data["candidates"] = [item.to_json() for item in self.candidates]
        return data

    @staticmethod
    def lineage_of(data: Mapping[str, Json]) -> dict[str, Any]:
        """Return the fields that `lineage_json` wrote, as arguments."""
        found = {name: data[name] for name in _LINEAGE if name in data}
        return found | {"candidates": Candidate.listed(data.get("candidates"))}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Iteration:
        """Return the iteration that `to_json` wrote."""
        evaluation = data.get("evaluation")
        return cls(
            number=data["iteration"],
            input=data.get("input"),  # type: ignore[arg-type]
            output=data.get("output"),
            evaluation=None if evaluation is None else as_evaluation(evaluation),
            error=Failure.from_json(data.get("error")),
            usage=Usage.from_json(data.get("usage")),
            seconds=data.get("seconds", 0.0),
            interrupted=data.get("interrupted", False),
            truncated=data.get("truncated", False),
            steps=data.get("steps"),
            files=data.get("files"),
            measures=Measure.listed(data.get("measures")),
            accepted=data.get("accepted"),
            explored=data.get("explored", False),
            **cls.lineage_of(data),
        )


class _Draft(Record):
    """An iteration before it is frozen, with the slots of `Iteration`."""

    __slots__ = tuple(item.name for item in fields(Iteration))


def new_iteration(
    number: int,
    input: Json,
    output: Json,
    evaluation: Evaluation | None,
    error: Failure | None,
    usage: Usage,
    seconds: float,
    interrupted: bool,
    steps: Mapping[str, Json] | None,
) -> Iteration:
    """Return the record of an iteration that has just ended; the other fields have their defaults."""
    # A fast path: every field of a frozen record costs a call, that of a draft costs none. With the method of
    # the dataclass, an iteration without a journal executes 10 % more instructions (decision 102).
    draft: Any = _Draft()
    draft.number = number
    draft.input = input
    draft.output = output
    draft.evaluation = evaluation
    draft.error = error
    draft.usage = usage
    draft.seconds = seconds
    draft.interrupted = interrupted
    draft.truncated = False
    draft.steps = steps
    draft.files = None
    draft.measures = ()
    draft.accepted = None
    draft.explored = False
    draft.parent = None
    draft.chain = 1
    draft.strategy = ""
    draft.candidate = None
    draft.candidates = ()
    draft.__class__ = Iteration
    record: Iteration = draft
    return record
