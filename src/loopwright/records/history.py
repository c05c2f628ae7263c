"""Iterations and the history that conditions see.

`History` is a window on an append-only list: taking one costs nothing, and an earlier history stays
a prefix of each later one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

from .. import codec
from ..codec import Json
from .evaluation import Evaluation, as_evaluation
from .usage import NOTHING, Usage


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an iteration has no verdict: the stage that failed, a kind to act on, a sentence to read.

    A worker's failure (stage adapt or execute), a check's and a judge's (stage evaluate) stay three
    different facts.
    """

    stage: str
    kind: str
    message: str
    path: str = ""
    retryable: bool = True
    retry_after: float | None = None

    def to_json(self) -> Json:
        """Return it as a JSON object; `retry_after` only if it was told."""
        data = {
            "stage": self.stage,
            "kind": self.kind,
            "message": self.message,
            "path": self.path,
            "retryable": self.retryable,
        }
        return data if self.retry_after is None else data | {"retry_after": self.retry_after}

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> Failure | None:
        """Return the failure that `to_json` wrote."""
        return cls(**data) if data else None


@dataclass(slots=True)
class Iteration:
    """One execute and evaluate of a loop's body, numbered from 1, failed or not.

    `seconds` is how long the round took, `interrupted` that a guard cut it short, `truncated` that
    its output is not whole, `steps` what those of its steps gave that the loop asked to keep.
    """

    number: Final[int]
    input: Final[Json] = None
    output: Final[Json] = None
    evaluation: Final[Evaluation | None] = None
    error: Final[Failure | None] = None
    usage: Final[Usage] = NOTHING
    seconds: Final[float] = 0.0
    interrupted: Final[bool] = False
    truncated: Final[bool] = False
    steps: Final[Mapping[str, Json] | None] = None

    @property
    def score(self) -> float | None:
        """The score, if the round was evaluated and scored."""
        return self.evaluation.score if self.evaluation is not None else None

    @property
    def passed(self) -> bool | None:
        """The verdict, if there is one."""
        return self.evaluation.passed if self.evaluation is not None else None

    @property
    def feedback(self) -> str:
        """What the next round is told: the error of a failed round, else the evaluator's
        feedback."""
        if self.error is not None:
            return self.error.message
        return self.evaluation.feedback if self.evaluation is not None else ""

    @property
    def undecided(self) -> bool:
        """Whether the judge could not be read."""
        return self.evaluation is not None and self.evaluation.undecided

    @property
    def eligible(self) -> bool:
        """Whether its output may be the best or the last: not failed, cut short, truncated or
        undecided."""
        if self.error is not None or self.interrupted or self.truncated:
            return False
        return self.evaluation is None or not self.evaluation.undecided

    def to_json(self) -> Json:
        """Return it as a JSON object, one row of a result's `history`."""
        data: dict[str, Json] = {
            "iteration": self.number,
            "score": self.score,
            "passed": self.passed,
            "feedback": self.feedback,
            "error": self.error.to_json() if self.error else None,
            "output": self.output,
            "input": self.input,
            "seconds": round(self.seconds, 6),
            "usage": self.usage.to_json(),
        }
        if self.evaluation is not None:
            data["evaluation"] = self.evaluation.to_json()
        for flag in ("interrupted", "truncated"):
            if getattr(self, flag):
                data[flag] = True
        if self.steps:
            data["steps"] = dict(self.steps)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Iteration:
        """Return the iteration that `to_json` wrote."""
        evaluation = data.get("evaluation")
        return cls(
            number=data["iteration"],
            input=data.get("input"),
            output=data.get("output"),
            evaluation=None if evaluation is None else as_evaluation(evaluation),
            error=Failure.from_json(data.get("error")),
            usage=Usage.from_json(data.get("usage")),
            seconds=data.get("seconds", 0.0),
            interrupted=data.get("interrupted", False),
            truncated=data.get("truncated", False),
            steps=data.get("steps"),
        )


class _Rounds:
    """The shared, append-only columns behind histories: a decision looks up, it never recomputes.

    A mark is (index of the best so far or -1, number of valid scores, failures in a row, undecided
    in a row). The columns over scores are made when a condition first asks, and then kept up.
    """

    __slots__ = ("columns", "items", "labels", "marks", "top")

    def __init__(self) -> None:
        self.items: list[Iteration] = []
        self.marks: list[tuple[int, int, int, int]] = [_BEGINNING]  # one more than items
        self.top: float | None = None  # the best score
        self.columns: _Columns | None = None
        self.labels: dict[Any, str] | None = None  # digests, made when a guard first asks

    def append(self, item: Iteration) -> None:
        items, marks = self.items, self.marks
        best, scored, failures, undecided = marks[-1]
        if item.eligible:
            evaluation = item.evaluation
            score = None if evaluation is None else evaluation.score
            top = self.top
            if score is not None:
                scored += 1
                if top is None or score > top:
                    best, self.top = len(items), score
            elif top is None:
                best = len(items)  # nothing is scored so far: the latest whole output stands
            marks.append((best, scored, 0, 0))
        else:
            failures = failures + 1 if item.error is not None else 0
            marks.append((best, scored, failures, undecided + 1 if item.undecided else 0))
        items.append(item)

    def over_scores(self) -> _Columns:
        """Return the columns over valid scores, up to the latest."""
        if self.columns is None:
            self.columns = _Columns()
        self.columns.extend(self.items)
        return self.columns


class _Columns:
    """What conditions on the course of the scores look up: one entry per valid score."""

    __slots__ = ("crests", "peaks", "scores", "taken")

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.peaks: list[float] = []  # the best before each score; -inf before the first
        self.crests: list[float] = []  # the best mean of two neighbouring scores, so far
        self.taken = 0

    def extend(self, items: list[Iteration]) -> None:
        for item in items[self.taken :] if self.taken < len(items) else ():
            score = item.score
            if item.eligible and score is not None:
                self._add(score)
        self.taken = len(items)

    def _add(self, score: float) -> None:
        scores, peaks, crests = self.scores, self.peaks, self.crests
        peaks.append(max(peaks[-1], scores[-1]) if scores else -math.inf)
        if scores:
            mean = (scores[-1] + score) / 2
            crests.append(max(mean, crests[-1]) if crests else mean)
        scores.append(score)


_BEGINNING = (-1, 0, 0, 0)
_new = object.__new__


class History(Sequence[Iteration]):
    """The iterations so far, and all that a condition may see.

    `elapsed` is the loop's active seconds, `usage` what it spent, `now` the wall clock (seconds
    since the epoch); the three are recorded with each decision.

    >>> history = History([Iteration(1, evaluation=Evaluation(0.4)), Iteration(2, evaluation=Evaluation(0.9))])
    >>> len(history), history.best.number, history.scores
    (2, 2, [0.4, 0.9])
    """

    __slots__ = ("_length", "_rounds", "elapsed", "now", "usage")

    def __init__(
        self,
        iterations: Iterable[Iteration] = (),
        *,
        elapsed: float = 0.0,
        usage: Usage = NOTHING,
        now: float = 0.0,
    ) -> None:
        self._rounds = _Rounds()
        for item in iterations:
            self._rounds.append(item)
        self._length = len(self._rounds.items)
        self.elapsed, self.usage, self.now = elapsed, usage, now

    def _at(self, elapsed: float, usage: Usage, now: float) -> History:
        window = _new(History)
        window._rounds = self._rounds
        window._length = self._length
        window.elapsed, window.usage, window.now = elapsed, usage, now
        return window

    def seen_at(self, *, elapsed: float, usage: Usage, now: float) -> History:
        """Return the same iterations as seen at another moment."""
        return self._at(elapsed, usage, now)

    def appended(self, item: Iteration, elapsed: float, usage: Usage, now: float = 0.0) -> History:
        """Return the history that follows this one by `item`; this one stays as it is."""
        if self._length != len(self._rounds.items):  # someone else went on from here: copy
            return History([*self, item], elapsed=elapsed, usage=usage, now=now)
        rounds = self._rounds
        rounds.append(item)
        window = _new(History)
        window._rounds = rounds
        window._length = self._length + 1
        window.elapsed, window.usage, window.now = elapsed, usage, now
        return window

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Iteration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration]: ...
    def __getitem__(self, index: int | slice) -> Iteration | Sequence[Iteration]:
        if isinstance(index, slice):
            return self._rounds.items[: self._length][index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"iteration {index + 1} of {self._length}")
        return self._rounds.items[index]

    def __iter__(self) -> Iterator[Iteration]:
        return iter(self._rounds.items[: self._length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<History of {self._length} iterations>"

    @property
    def last(self) -> Iteration | None:
        """The latest iteration."""
        return self._rounds.items[self._length - 1] if self._length else None

    @property
    def best(self) -> Iteration | None:
        """The eligible iteration with the highest score, the earliest on ties; without scores, the
        latest one."""
        if not self._length:
            return None
        index = self._rounds.marks[self._length][0]
        return self._rounds.items[index] if index >= 0 else None

    @property
    def latest_eligible(self) -> Iteration | None:
        """The latest iteration whose output is whole and was judged."""
        return next((item for item in reversed(self) if item.eligible), None)

    @property
    def scores(self) -> list[float]:
        """The valid scores, in order: those of eligible iterations."""
        return self._rounds.over_scores().scores[: self._count]

    @property
    def _count(self) -> int:
        return self._rounds.marks[self._length][1]

    def stalled(self, count: int, min_delta: float) -> bool:
        """Whether the last `count` valid scores all failed to beat the best before them by more
        than `min_delta`."""
        end = self._count
        if end < count:
            return False
        columns = self._rounds.over_scores()
        scores, peaks = columns.scores, columns.peaks
        return all(scores[i] <= peaks[i] + min_delta for i in range(end - count, end))

    @property
    def fall(self) -> float:
        """How far the mean of the two latest valid scores lies below the best such mean."""
        end = self._count
        if end < 2:
            return 0.0
        columns = self._rounds.over_scores()
        scores = columns.scores
        return columns.crests[end - 2] - (scores[end - 2] + scores[end - 1]) / 2

    def recent_scores(self, count: int) -> list[float]:
        """Return the latest `count` valid scores, or fewer."""
        end = self._count
        return self._rounds.over_scores().scores[max(0, end - count) : end]

    @property
    def streaks(self) -> tuple[int, int]:
        """How many iterations in a row failed, and how many are undecided, up to the latest."""
        return self._rounds.marks[self._length][2:]

    @property
    def failures(self) -> int:
        """How many iterations in a row failed, up to the latest."""
        return self._rounds.marks[self._length][2]

    @property
    def undecided(self) -> int:
        """How many iterations in a row are undecided, up to the latest."""
        return self._rounds.marks[self._length][3]

    def label(self, index: int, field_name: str, volatile: tuple[str, ...]) -> str:
        """Return the canonical digest of an iteration's `output` or `input`, made once."""
        key = (index, field_name, volatile)
        labels = self._rounds.labels
        if labels is None:
            labels = self._rounds.labels = {}
        found = labels.get(key)
        if found is None:
            value = getattr(self._rounds.items[index], field_name)
            found = codec.digest(codec.canonical(value, volatile=volatile))
            labels[key] = found
        return found
