"""Conditions on the course of a loop: no progress, repeats, decline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import ConfigurationError, nearest
from ..records import History, Reason, Stop
from ..records.codec import number, text_of, whole
from . import statistics as guards
from .base import Condition, condition


@condition
@dataclass(frozen=True, slots=True)
class NoImprovement(Condition):
    """Stop after `patience` scores in a row that did not beat the best by more than `min_delta`.

    Failed and undecided iterations have no score and do not count. Pair it with `keep="best"`:
    the last output of a plateau is rarely the one you want.

    >>> str(NoImprovement(patience=2) | MaxIterations(5))
    'no_improvement(patience=2) | max_iterations(limit=5)'
    """

    goal: ClassVar[bool] = False
    patience: int
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        whole("no_improvement: patience", self.patience, least=1)
        number("no_improvement: min_delta", self.min_delta, least=0, most=1)

    def check(self, history: History) -> Stop | None:
        if not history.stalled(self.patience, self.min_delta):
            return None
        best = history.best
        shown = f" than {best.score:g}" if best is not None and best.score is not None else ""
        return Stop(
            Reason.NO_IMPROVEMENT, f"{self.patience} iterations without a better score{shown}"
        )


@condition
@dataclass(frozen=True, slots=True)
class RepeatedOutput(Condition):
    """Stop when the output repeats: twice in a row, or in a cycle.

    Where the loop's input differs from iteration to iteration, the same output twice in a row counts only if the two
    inputs differed: the same input may well have the same output. Where the input never changes, it always counts.
    Cycles of up to `period` (1 to 4) outputs count when seen twice. Key order, Unicode form and
    the keys named in `volatile` do not matter; `similarity` (0 to 1, say 0.9) also takes nearly
    equal texts for equal. Never fires when the repeat brought a new best score.
    """

    goal: ClassVar[bool] = False
    period: int = 4
    volatile: tuple[str, ...] = ()
    similarity: float | None = None

    def __post_init__(self) -> None:
        if whole("repeated_output: period", self.period, least=1) > 4:
            raise ConfigurationError(f"repeated_output: period: {self.period} is above 4")
        if not isinstance(self.volatile, list | tuple):
            raise ConfigurationError("repeated_output: volatile: give a list of keys")
        object.__setattr__(self, "volatile", tuple(self.volatile))
        if self.similarity is not None:
            number("repeated_output: similarity", self.similarity, least=0, most=1, above=True)

    def check(self, history: History) -> Stop | None:
        count = len(history)
        labels = self._labels(history)
        period = guards.cycle_period(labels, self.period)
        if period == 1 and not self._inputs_differ(history) and self._inputs_change(history):
            period = 0
        best = history.best
        if not period or (
            best is not None and best.score is not None and best.number > count - period
        ):
            return None
        what = "output repeats" if period == 1 else f"outputs repeat in a cycle of {period}"
        return Stop(Reason.REPEATED_OUTPUT, f"the {what}, seen twice")

    def _inputs_differ(self, history: History) -> bool:
        count = len(history)
        a, b = (history.label(i, "input", self.volatile) for i in (count - 2, count - 1))
        return a != b

    def _inputs_change(self, history: History) -> bool:
        """Return whether the loop's input was another one in any iteration so far."""
        labels = (history.label(i, "input", self.volatile) for i in range(len(history)))
        first = next(labels)
        return any(label != first for label in labels)

    def _labels(self, history: History) -> list[str]:
        count = len(history)
        window = range(max(0, count - 2 * self.period), count)
        labels = [
            history.label(i, "output", self.volatile) if history[i].eligible else f"failed {i}"
            for i in window
        ]
        if self.similarity is None:
            return labels
        texts = {
            place: guards.shingles(text_of(history[i].output))
            for place, i in enumerate(window)
            if history[i].eligible
        }
        for place, text in texts.items():
            like = (p for p in texts if guards.similarity(text, texts[p]) >= self.similarity)
            labels[place] = labels[next(like)]  # the first that is alike, or itself
        return labels


@condition
@dataclass(frozen=True, slots=True)
class Degrading(Condition):
    """Stop when scores fall by more than their noise explains.

    `rule: drawdown` compares means of two scores: the fall from the best mean must exceed h(T)
    times `sigma`, the noise of one score, for a run of `horizon` iterations (5 % false alarms; see
    `guards.drawdown_limit`). With `sigma` 0, for deterministic checks, any fall above `tolerance`
    counts. `rule: strict` is the loop controller's: `window` scores, each below the one before.
    """

    goal: ClassVar[bool] = False
    window: int = 3
    rule: str = "drawdown"
    sigma: float = 0.07
    tolerance: float = 0.0
    horizon: int = 10

    def __post_init__(self) -> None:
        whole("degrading: window", self.window, least=2)
        whole("degrading: horizon", self.horizon, least=2)
        number("degrading: sigma", self.sigma, least=0, most=1)
        number("degrading: tolerance", self.tolerance, least=0, most=1)
        if self.rule not in ("drawdown", "strict"):
            hint = nearest(str(self.rule), ("drawdown", "strict"))
            raise ConfigurationError(f"degrading: rule: unknown rule {self.rule!r}{hint}")

    def check(self, history: History) -> Stop | None:
        scores = history.recent_scores(self.window)
        last = history.last
        if len(scores) < self.window or last is None or not last.eligible or last.score is None:
            return None
        if self.rule == "strict":
            if not guards.strictly_falling(scores, self.window):
                return None
            return Stop(Reason.DEGRADING, f"{self.window} scores in a row, each below the last")
        if self.sigma == 0:
            best = history.best
            fall = (best.score or 0.0) - scores[-1] if best is not None else 0.0
            limit = self.tolerance
        else:
            fall = history.fall
            limit = guards.drawdown_limit(self.horizon) * self.sigma
        if fall <= limit:
            return None
        return Stop(Reason.DEGRADING, f"scores fell by {fall:.3g}, more than {limit:.3g}")
