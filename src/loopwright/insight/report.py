"""The report of a replay: a JSON object, a table of pairs and a plot of the frontier."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..records.codec import Json
from .backtest import Backtest, PolicyResult
from .plots import frontier_svg
from .policies import StoppingPolicy, grid
from .recordings import Recordings
from .suggestions import Suggestion, cheapest, suggestions, unknown

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """The report of a replay.

    Args:
        recordings: the recordings.
        policies: the recorded policy first, then the others.
        suggested: the title of the suggested policy, or "".
        suggestions: suggested changes of the iteration limit.
        unknown: what the recordings cannot tell, or "".
        full_length: recordings that used all iterations of their limit.
        price: the quality that one call is worth.
    """

    recordings: Recordings
    policies: Sequence[PolicyResult]
    suggested: str = ""
    suggestions: Sequence[Suggestion] = ()
    unknown: str = ""
    full_length: int = 0
    price: float = 0.0

    def to_json(self) -> dict[str, Json]:
        """Return the report as the JSON object of `loopwright replay --json`."""
        left_out = [{"run_id": one.run_id, "why": one.why} for one in self.recordings.left_out]
        items = self.recordings.items
        return {
            "runs": len({item.run_id for item in items}),
            "loop": self.recordings.loop,
            "reproduced": {
                "ok": len(items) - self.recordings.failed,
                "of": len(items) - self.recordings.failed + len(left_out),
                "failed": self.recordings.failed,
                "left_out": left_out,
            },
            "quality": self.recordings.quality,
            "full_length": self.full_length,
            "price": self.price,
            "policies": [result.to_json() for result in self.policies],
            "suggested": self.suggested or None,
            "suggestions": [one.to_json() for one in self.suggestions],
            "unknown": self.unknown or None,
        }

    def pairs_csv(self) -> str:
        """Return a row for each run and policy."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["run", "policy", "state", "iterations", "calls", "quality", "low", "high"])
        for result in self.policies:
            for pair in result.pairs:
                run = self.recordings.items[pair.recording].run_id
                state = "censored" if pair.quality is None else "exact"
                writer.writerow([
                    run, result.policy.title, state, pair.iterations, pair.calls,
                    pair.quality, pair.low, pair.high,
                ])  # fmt: skip
        return out.getvalue()

    def frontier_svg(self) -> str:
        """Return the plot of mean calls against mean quality."""
        return frontier_svg(self.policies, self.suggested)


def replay(
    recordings: Recordings,
    policies: Iterable[StoppingPolicy] = (),
    *,
    use_grid: bool = False,
    price: float = 0.0,
) -> Replay:
    """Return what other policies would have done on recorded runs.

    Args:
        recordings: the recordings of a loop.
        policies: the policies to compare.
        use_grid: whether to try a grid of thresholds, patience and limits too; the report has those of the
            frontier. Default: false.
        price: the quality that one call is worth, or one iteration of a loop without calls. Default: 0, the
            cheapest policy without a loss is suggested. A lower limit is suggested at any price.

    Returns:
        The report.

    Raises:
        ConfigurationError: without a recording whose stop is reproduced.
    """
    backtest = Backtest(recordings)
    results = [backtest.evaluate(policy) for policy in policies]
    if use_grid:
        # Intervals take most of the time of a replay, so only policies of the frontier get them.
        tried = [backtest.evaluate(p, intervals=False) for p in grid(backtest.loop.limit)]
        titles = {result.policy.title for result in results}
        fresh = [r.policy for r in backtest.frontier(tried) if r.policy.title not in titles]
        results += [backtest.evaluate(policy) for policy in fresh]
    best = cheapest(backtest, results, price)
    return Replay(
        recordings,
        [backtest.recorded, *results],
        suggested=best.policy.title if best is not None else "",
        suggestions=suggestions(backtest, price),
        unknown=unknown(backtest),
        full_length=backtest.full_length,
        price=price,
    )
