"""Suggested limits, from replay alone or from runs that continued to their limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._statistics import mean_estimate
from ..conditions import MaxIterations
from ..engine.loop import Loop
from ..records import Reason
from ..records.codec import Json
from .backtest import Backtest, PolicyResult
from .policies import StoppingPolicy
from .recordings import quality_of

__all__ = ["Suggestion", "cheapest", "suggestions", "unknown"]

TOLERANCE = 0.005  # loss of quality that a suggestion accepts
_AT_LIMIT = 0.20  # share of runs at their limit from which a higher one is considered


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change of a loop.

    Args:
        key: the setting.
        old, new: its values.
        why: the reason, with its figures.
    """

    key: str
    old: int
    new: int
    why: str

    def to_json(self) -> dict[str, Json]:
        """Return the suggestion as a JSON object."""
        return {"key": self.key, "from": self.old, "to": self.new, "why": self.why}


def cheapest(
    backtest: Backtest, results: Sequence[PolicyResult], price: float
) -> PolicyResult | None:
    """Return the result to suggest: of those without a loss of quality, the best value.

    The cost of a loop without model calls is its iterations.

    Args:
        backtest: the recordings.
        results: results with intervals.
        price: the quality that one call or iteration is worth; with 0 the cheapest result.
    """
    calls = bool(backtest.recorded.calls)

    def cost(result: PolicyResult) -> float:
        return (result.calls if calls else result.iterations) or 0.0

    cheaper = [r for r in results if _loses_nothing(r) and cost(r) < cost(backtest.recorded)]

    def value(result: PolicyResult) -> tuple[float, float]:
        mean = result.quality.value if result.quality is not None else 0.0
        return (mean - price * cost(result) if price else 0.0, -cost(result))

    return max(cheaper, key=value, default=None)


def _loses_nothing(result: PolicyResult) -> bool:
    """Return whether a policy keeps the quality, and satisfies as many runs where quality counts no sentences."""
    now, before = result.satisfied or (0.0, 0.0)
    return result.difference is not None and result.difference.low >= -TOLERANCE and now >= before


def suggestions(backtest: Backtest, price: float = 0.0) -> list[Suggestion]:
    """Return the suggested changes of the iteration limit.

    The lower limit is the smallest one whose quality is within 0.005 of the present one by the lower end
    of the paired 95 % interval. A higher limit is suggested only from runs that explored.

    Args:
        backtest: the recordings.
        price: the quality that one call is worth. Default: 0.
    """
    return [*_lower(backtest), *_raise(backtest, price)]


def _lower(backtest: Backtest) -> Iterator[Suggestion]:
    loop = backtest.loop
    calls = backtest.recorded.calls or 0.0
    for limit in range(1, loop.limit):
        result = backtest.evaluate(with_limit(loop, limit))
        if not _loses_nothing(result):
            continue
        saved = 1 - (result.calls or 0.0) / calls if calls else _iterations_saved(backtest, result)
        # A limit that no run reaches changes nothing.
        if saved > 0:
            of = "calls" if calls else "iterations"
            why = f"saves {saved:.0%} of {of}"
            yield Suggestion("max_iterations", loop.limit, limit, why)
        return


def _iterations_saved(backtest: Backtest, result: PolicyResult) -> float:
    return 1 - (result.iterations or 0.0) / (backtest.recorded.iterations or 1.0)


def with_limit(loop: Loop, limit: int) -> StoppingPolicy:
    """Return the policy of a loop with a lower iteration limit, in addition to its own."""
    until = MaxIterations(limit) if loop.until is None else loop.until | MaxIterations(limit)
    return StoppingPolicy(until)


def _raise(backtest: Backtest, price: float) -> Iterator[Suggestion]:
    if unknown(backtest):
        return
    audited = backtest.recordings.quality == "audit score"
    gains = []
    for item in backtest.recordings.items:
        if item.explored and len(item) > 1:
            now, before = item.prefixes[-1].best, item.prefixes[-2].best
            gains.append(quality_of(now, audited=audited) - quality_of(before, audited=audited))
    gain = mean_estimate(gains)
    if gain is not None and gain.low > price:
        limit = backtest.loop.limit
        why = f"the last iteration still gains {gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}]"
        yield Suggestion("max_iterations", limit, limit + max(1, limit // 2), why)


def unknown(backtest: Backtest) -> str:
    """Return what the recordings cannot tell about a higher limit, or ""."""
    items = backtest.recordings.items
    at_limit = sum(item.stop.reason is Reason.MAX_ITERATIONS for item in items)
    if at_limit < _AT_LIMIT * len(items):
        return ""
    if sum(item.explored for item in items) >= 2:
        return ""
    return "raising max_iterations: unknown. Set explore: 0.1 on the loop, and record more runs"
