"""The report of a replay: a JSON object, a table of pairs and a plot of the frontier."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..records.codec import Json
from .backtest import Backtest, PolicyResult
from .policies import StoppingPolicy, grid
from .recordings import Recordings
from .suggestions import Suggestion, cheapest, suggestions, unknown

__all__ = ["Replay", "frontier_svg", "replay"]

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 56


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
    """

    recordings: Recordings
    policies: Sequence[PolicyResult]
    suggested: str = ""
    suggestions: Sequence[Suggestion] = ()
    unknown: str = ""
    full_length: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the report as the JSON object of `loopwright replay --json`."""
        left_out = [{"run_id": one.run_id, "why": one.why} for one in self.recordings.left_out]
        items = self.recordings.items
        return {
            "runs": len({item.run_id for item in items}),
            "loop": self.recordings.loop,
            "reproduced": {
                "ok": len(items),
                "of": len(items) + len(left_out),
                "left_out": left_out,
            },
            "quality": self.recordings.quality,
            "full_length": self.full_length,
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
        price: the quality that one call is worth. Default: 0, the cheapest policy without a loss is suggested.

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
    )


def frontier_svg(results: Sequence[PolicyResult], suggested: str = "") -> str:
    """Return an SVG plot of mean calls, or iterations without calls, against mean quality.

    Args:
        results: results of policies; those that are not judged have no point.
        suggested: the title of the policy to highlight.

    Example:
        >>> frontier_svg([]).startswith("<svg")
        True
    """
    shown = [r for r in results if r.judged and r.quality is not None]
    unit = "calls" if any(r.calls for r in shown) else "iterations"
    costs = [(r.calls if unit == "calls" else r.iterations) or 0.0 for r in shown]
    highs = [r.quality.high for r in shown if r.quality is not None]
    lows = [r.quality.low for r in shown if r.quality is not None]
    right = max(costs, default=1.0) * 1.1 or 1.0
    bottom, top = min(lows, default=0.0), max(highs, default=1.0)
    span = (top - bottom) or 1.0

    def x(cost: float) -> float:
        return _MARGIN + cost / right * (_WIDTH - 2 * _MARGIN)

    def y(quality: float) -> float:
        return _HEIGHT - _MARGIN - (quality - bottom) / span * (_HEIGHT - 2 * _MARGIN)

    box = f"0 0 {_WIDTH} {_HEIGHT}"
    style = 'role="img" font-family="sans-serif" font-size="12"'
    axes = f"M{_MARGIN} {_MARGIN}V{_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {style}>',
        f"<title>Quality against {unit}</title>",
        f"<desc>Mean quality and mean {unit} of {len(shown)} policies, with 95 % intervals.</desc>",
        f'<path d="{axes}" fill="none" stroke="#666"/>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">mean {unit}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 12}">mean quality</text>',
    ]
    for value, place in ((bottom, y(bottom)), (top, y(top))):
        lines.append(
            f'<text x="{_MARGIN - 6}" y="{place:.1f}" text-anchor="end">{value:.2f}</text>'
        )
    lines.append(
        f'<text x="{x(right):.1f}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="end">{right:.1f}</text>'
    )
    for result, cost in zip(shown, costs, strict=True):
        assert result.quality is not None
        mean, low, high = result.quality
        text = escape(
            f"{result.policy.title}: {cost:.2f} {unit}, quality {mean:.3f} [{low:.3f}, {high:.3f}]"
        )
        colour = "#c2410c" if result.policy.title == suggested else "#3949ab"
        lines += [
            f'<g stroke="{colour}" fill="{colour}"><title>{text}</title>',
            f'<path d="M{x(cost):.1f} {y(low):.1f}V{y(high):.1f}" fill="none"/>',
            f'<circle cx="{x(cost):.1f}" cy="{y(mean):.1f}" r="4"/></g>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
