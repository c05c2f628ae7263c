"""The columns behind histories: a decision looks up, it never recomputes."""

from __future__ import annotations

import math
from typing import Any

from .iteration import Iteration

_BEGINNING = (-1, 0, 0, 0)


class Rounds:
    """The shared, append-only columns behind histories: a decision looks up, it never recomputes.

    A mark is (index of the best so far or -1, number of valid scores, failures in a row, undecided
    in a row). The columns over scores are made when a condition first asks, and then kept up.
    """

    __slots__ = ("columns", "items", "labels", "marks", "top")

    def __init__(self) -> None:
        self.items: list[Iteration] = []
        self.marks: list[tuple[int, int, int, int]] = [_BEGINNING]  # one more than items
        self.top: float | None = None  # the best score
        self.columns: Columns | None = None
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

    def over_scores(self) -> Columns:
        """Return the columns over valid scores, up to the latest."""
        if self.columns is None:
            self.columns = Columns()
        self.columns.extend(self.items)
        return self.columns


class Columns:
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
