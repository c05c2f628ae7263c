"""Conditions of success: what a good output looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .._regex import PatternTimeout, compile_pattern
from ..errors import ConfigurationError
from ..records import History, Iteration, Reason, Stop, reaches
from ..records.codec import number, text_of, whole
from .base import Condition, condition


@condition
@dataclass(frozen=True, slots=True)
class ScoreAtLeast(Condition):
    """Stop, satisfied, when the latest score is at least `threshold` (0 to 1).

    `min_iterations` completed iterations must be on record first.
    """

    reads: ClassVar[str] = "a score"

    threshold: float
    min_iterations: int = 1

    def __post_init__(self) -> None:
        number("score_at_least: threshold", self.threshold, least=0, most=1)
        whole("score_at_least: min_iterations", self.min_iterations, least=1)

    def told(self, item: Iteration) -> bool:
        return item.score is not None

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or last.evaluation is None:
            return None
        score = last.evaluation.score
        if score is None or not reaches(score, self.threshold):
            return None
        if not last.eligible or len(history) < self.min_iterations:
            return None
        return Stop(Reason.CONDITION_MET, f"score {score:g} is at least {self.threshold:g}")


@condition
@dataclass(frozen=True, slots=True)
class Passed(Condition):
    """Stop, satisfied, when the latest evaluation says so."""

    reads: ClassVar[str] = "a verdict"

    min_iterations: int = 1

    def __post_init__(self) -> None:
        whole("passed: min_iterations", self.min_iterations, least=1)

    def told(self, item: Iteration) -> bool:
        return item.passed is not None

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not last.eligible or last.passed is not True:
            return None
        if len(history) < self.min_iterations:
            return None
        return Stop(Reason.CONDITION_MET, f"iteration {last.number} passed its evaluation")


@condition
@dataclass(frozen=True, slots=True)
class AllCriteriaMet(Condition):
    """Stop, satisfied, when the latest evaluation lists criteria and each of them passed."""

    reads: ClassVar[str] = "criteria"

    def told(self, item: Iteration) -> bool:
        return bool(item.evaluation and item.evaluation.criteria)

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not last.eligible or last.evaluation is None:
            return None
        criteria = last.evaluation.criteria
        if not criteria or not all(item.passed for item in criteria):
            return None
        return Stop(Reason.CONDITION_MET, f"all {len(criteria)} criteria are met")


@condition
@dataclass(frozen=True, slots=True)
class OutputMatches(Condition):
    """Stop, satisfied, when a regular expression is found in the latest output.

    An output that is not text is searched as its JSON. Patterns run with a time limit; one that
    takes too long counts as not found. `^` and `$` match at each line unless `multiline` is false.
    """

    pattern: str
    ignore_case: bool = False
    multiline: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise ConfigurationError(f"output_matches: pattern: {self.pattern!r} is not text")
        self._compiled()

    def _compiled(self) -> Any:
        # Here and not at the top: the engine starts without the pattern library.
        return compile_pattern(self.pattern, ignore_case=self.ignore_case, multiline=self.multiline)

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not last.eligible:
            return None
        try:
            found = self._compiled().search(text_of(last.output))
        except PatternTimeout:
            return None
        if found is None:
            return None
        return Stop(Reason.CONDITION_MET, f"the output matches {self.pattern!r}")
