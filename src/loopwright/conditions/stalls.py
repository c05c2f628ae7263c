"""Conditions on iterations that achieve nothing: no progress of a check, no changed file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..records import Evaluation, History, Iteration, Reason, Stop
from ..records.codec import integer
from .base import Condition, condition

__all__ = ["NoChange", "NoProgress", "failing", "stalls"]

_NUMBERS = re.compile(r"\d+")


def failing(evaluation: Evaluation) -> frozenset[str]:
    """Return what fails: the failing tests in `details`, else the feedback without its numbers.

    >>> failing(Evaluation(details={"tests": {"failing": ["test_a"]}}))
    frozenset({'test_a'})
    """
    reports = [item["failing"] for item in evaluation.details.values() if _has_failing(item)]
    if reports:
        return frozenset(str(name) for names in reports for name in names)
    # Times and addresses differ each time, and are no progress.
    return frozenset([_NUMBERS.sub("", evaluation.own_feedback)])


def _has_failing(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("failing"), list)


def stalls(history: History, patience: int) -> tuple[int, tuple[int, ...]]:
    """Return the iterations in a row without progress, and the numbers of those that completed a stall.

    An iteration is progress if its score is above all earlier ones, or if other tests fail than in the
    evaluation before. Iterations without an evaluation do not count. In a loop with an objective, progress
    is an accepted iteration. After a stall the count begins again.
    """
    best, last, streak, ends = -1.0, None, 0, []
    for item in history:
        evaluation = item.evaluation
        if item.accepted is not None:
            # The text of a measurement differs each time, so only an accepted value is progress.
            streak = 0 if item.accepted else streak + 1
        elif evaluation is None or (not item.eligible and evaluation.undecided):
            continue
        elif evaluation.only_verdicts:
            continue
        else:
            score, fails = _score(evaluation), failing(evaluation)
            streak = 0 if last is None or score > best or fails != last else streak + 1
            best, last = max(best, score), fails
        if streak == patience:
            ends.append(item.number)
            streak = 0
    return streak, tuple(ends)


def _score(evaluation: Evaluation) -> float:
    if evaluation.score is not None:
        return evaluation.score
    return 1.0 if evaluation.passed else 0.0


@condition
@dataclass(frozen=True, slots=True)
class NoProgress(Condition):
    """Stop after `patience` iterations in a row that neither raise the score nor change what fails.

    What fails are the failing tests of a check that reports them, else its feedback without numbers.
    Iterations without an evaluation do not count. Reason: `no_progress`.

    Args:
        patience: iterations in a row, at least 1.

    Raises:
        ConfigurationError: if the number is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> scores = enumerate((0.5, 0.5, 0.5), start=1)
        >>> history = History(Iteration(n, evaluation=Evaluation(score)) for n, score in scores)
        >>> NoProgress(patience=2).check(history).detail
        'the score and the failing tests were the same for 2 iterations'
    """

    goal: ClassVar[bool] = False
    patience: int

    def __post_init__(self) -> None:
        integer("no_progress: patience", self.patience, minimum=1)

    def check(self, history: History) -> Stop | None:
        _, ends = stalls(history, self.patience)
        if not ends or history.last is None or ends[-1] != history.last.number:
            return None
        same = "the score and the failing tests were the same"
        if history.last.accepted is not None:
            same = "no iteration was accepted"
        return Stop(Reason.NO_PROGRESS, f"{same} for {self.patience} iterations")


@condition
@dataclass(frozen=True, slots=True)
class NoChange(Condition):
    """Stop after `limit` iterations in a row that changed no file of the workspace.

    Without a workspace it never holds. Reason: `no_change`.

    Args:
        limit: iterations in a row, at least 1 (default: 2).

    Raises:
        ConfigurationError: if the number is out of range.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> NoChange().check(History([Iteration(1)])) is None
        True
    """

    goal: ClassVar[bool] = False
    limit: int = 2

    def __post_init__(self) -> None:
        integer("no_change: limit", self.limit, minimum=1)

    def check(self, history: History) -> Stop | None:
        if len(history) < self.limit:
            return None
        items = [history[-n] for n in range(self.limit, 0, -1)]
        if not all(map(_unchanged, items)):
            return None
        found = [item.evaluation.tampered for item in items if item.evaluation is not None]
        detail = f"{self.limit} iterations in a row changed no file"
        if paths := [path for one in found if one is not None for path in one.paths]:
            detail += f"; protected files were changed and put back, the first is {paths[0]}"
        return Stop(Reason.NO_CHANGE, detail)


def _unchanged(item: Iteration) -> bool:
    # Of a workspace only: without one it is unknown which files an iteration changed.
    return item.files is not None and item.files.get("files") == 0
