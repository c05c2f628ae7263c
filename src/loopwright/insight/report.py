"""The report of a replay as a JSON object and a table of pairs, and plots as SVG of policies and of judges.

The plots show quality against cost of policies, and reports of a judge over time. Each point has its figures as a
title, and the same figures stand in a table and in JSON.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from .._statistics import Estimate
from ..records.codec import Json
from .backtest import (
    RECORDED,
    Backtest,
    PolicyResult,
    StoppingPolicy,
    Suggestion,
    cheapest,
    grid,
    suggestions,
    unknown,
)
from .recordings import Recordings

__all__ = [
    "Replay",
    "frontier_svg",
    "points_svg",
    "replay",
    "reports_svg",
]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _ABOVE, _BELOW = 64, 24, 52, 52
_STYLE = 'role="img" font-family="sans-serif" font-size="12" fill="currentColor"'
_TICKS = 5  # about as many on an axis
_POLICY, _SUGGESTED, _RECORDED = "#3949ab", "#c2410c", "#047857"
_BESIDE = 8.0  # units between the points of one report
_LEGEND = 190  # units of an entry of the legend


class _Tick(NamedTuple):
    value: float
    text: str


class _Dot(NamedTuple):
    """A point with its interval."""

    x: float
    share: Estimate
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Plot:
    """The area of a plot with a scale for each direction; each axis ends at its outer ticks."""

    title: str
    description: str
    across: Sequence[_Tick]
    up: Sequence[_Tick]
    labels: tuple[str, str]
    legend: Mapping[str, str]

    def x(self, value: float) -> float:
        """Return the place of a value on the horizontal axis."""
        low, high = self.across[0].value, self.across[-1].value
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the place of a value on the vertical axis."""
        low, high = self.up[0].value, self.up[-1].value
        return _HEIGHT - _BELOW - (value - low) / (high - low) * (_HEIGHT - _ABOVE - _BELOW)

    def drawn(self, dots: Sequence[_Dot], inside: Sequence[str] = ()) -> str:
        """Return the plot with its dots, above the elements `inside`."""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_STYLE}>',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.description)}</desc>",
            *self._axes(),
            *inside,
            *(self._dot(dot) for dot in dots),
        ]
        return "\n".join([*lines, "</svg>"]) + "\n"

    def _axes(self) -> Iterator[str]:
        bottom, right = _HEIGHT - _BELOW, _WIDTH - _RIGHT
        for tick in self.up:
            y = f"{self.y(tick.value):.1f}"
            yield f'<path d="M{_LEFT} {y}H{right}" stroke="currentColor" stroke-opacity="0.2"/>'
            yield f'<text x="{_LEFT - 8}" y="{y}" dy="4" text-anchor="end">{tick.text}</text>'
        yield f'<path d="M{_LEFT} {bottom}H{right}" stroke="currentColor" stroke-opacity="0.6"/>'
        for tick in self.across:
            if tick.text:
                middle = f"{self.x(tick.value):.1f}"
                yield f'<text x="{middle}" y="{bottom + 18}" text-anchor="middle">{tick.text}</text>'
        across, up = map(escape, self.labels)
        centre = (_LEFT + right) / 2
        yield f'<text x="{centre:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">{across}</text>'
        yield f'<text x="8" y="{_ABOVE - 16}">{up}</text>'
        start = right - _LEGEND * len(self.legend)
        for place, (name, colour) in enumerate(self.legend.items()):
            left = start + place * _LEGEND
            yield f'<rect x="{left}" y="10" width="10" height="10" fill="{colour}"/>'
            yield f'<text x="{left + 16}" y="19">{escape(name)}</text>'

    def _dot(self, dot: _Dot) -> str:
        x, colour, (value, low, high) = f"{dot.x:.1f}", dot.colour, dot.share
        return (
            f'<g stroke="{colour}" fill="{colour}"><title>{escape(dot.title)}</title>'
            f'<path d="M{x} {self.y(low):.1f}V{self.y(high):.1f}" fill="none" stroke-width="1.5"/>'
            f'<circle cx="{x}" cy="{self.y(value):.1f}" r="4"/></g>'
        )


def _ticks(low: float, high: float, *, whole: bool = False) -> list[_Tick]:
    """Return round values from below `low` to above `high`; `whole` ones are integers."""
    span = (high - low) or 1.0
    unit = 10.0 ** math.floor(math.log10(span / _TICKS))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit * _TICKS >= span * 0.999)
    step = max(1.0, step) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    # A metric may be of any size, and a long number would not fit beside the axis.
    form = f".{digits}f" if digits < 5 and abs(last * step) < 1e5 else ".3g"
    return [_Tick(n * step, f"{n * step:{form}}") for n in range(first, max(last, first + 1) + 1)]


def points_svg(
    title: str, points: Sequence[tuple[float, float, str, str]], labels: tuple[str, str]
) -> str:
    """Return an SVG plot of points, the first ones on top, with a colour for each of at most three groups.

    Args:
        title: what it shows.
        points: both values of each point, its title and the name of its group.
        labels: what the horizontal and the vertical axis measure.

    Example:
        >>> points_svg("Loss and time", [(1.0, 2.0, "iteration 1", "front")], ("loss", "seconds")).count("<circle")
        1
    """
    across, up = [x for x, *_ in points], [y for _, y, *_ in points]
    groups = dict.fromkeys(group for *_, group in points)
    colours = dict(zip(groups, (_SUGGESTED, _POLICY, _RECORDED), strict=False))
    plot = _Plot(
        title,
        f"{len(points)} points: {labels[0]} and {labels[1]}.",
        across=_ticks(min(across), max(across), whole=all(x == int(x) for x in across)),
        up=_ticks(min(up), max(up)),
        labels=labels,
        legend=colours,
    )
    return plot.drawn(
        [
            _Dot(plot.x(x), Estimate(y, y, y), text, colours[group])
            for x, y, text, group in reversed(points)
        ]
    )


def frontier_svg(results: Sequence[PolicyResult], suggested: str = "") -> str:
    """Return an SVG plot of mean calls, or iterations without calls, against mean quality.

    A dashed line connects the policies that no other one beats in both.

    Args:
        results: results of policies; those that are not judged have no point.
        suggested: the title of the policy to highlight.

    Example:
        >>> frontier_svg([]).startswith("<svg")
        True
    """
    judged = [(r, r.quality) for r in results if r.judged and r.quality is not None]
    unit = "calls" if any(r.calls for r, _ in judged) else "iterations"
    costs = [(r.calls if unit == "calls" else r.iterations) or 0.0 for r, _ in judged]
    lows = [quality.low for _, quality in judged]
    highs = [quality.high for _, quality in judged]
    colours = {"recorded": _RECORDED, "other policies": _POLICY}
    if any(r.policy.title == suggested for r, _ in judged):
        colours["suggested"] = _SUGGESTED
    bottom, top = min(lows, default=0.0), max(highs, default=1.0)
    # An interval that ends on an axis looks cut off.
    margin = 0.03 * (top - bottom)
    plot = _Plot(
        f"Quality against {unit}",
        f"Mean quality and mean {unit} of {len(judged)} policies, with 95 % intervals.",
        across=_ticks(0.0, max(costs, default=1.0)),
        up=_ticks(bottom - margin, top + margin),
        labels=(f"mean {unit} per run", "mean quality"),
        legend=colours,
    )
    dots = []
    for (result, quality), cost in zip(judged, costs, strict=True):
        mean, low, high = quality
        title = result.policy.title
        name = "recorded" if result.policy.name == RECORDED else "other policies"
        text = f"{title}: {cost:.2f} {unit}, quality {mean:.3f} [{low:.3f}, {high:.3f}]"
        colour = colours["suggested" if title == suggested else name]
        dots.append(_Dot(plot.x(cost), quality, text, colour))
    return plot.drawn(dots, list(_frontier(plot, dots)))


def _frontier(plot: _Plot, dots: Sequence[_Dot]) -> Iterator[str]:
    best, corners = -1.0, []
    for dot in sorted(dots, key=lambda dot: (dot.x, -dot.share.value)):
        if dot.share.value > best:
            best = dot.share.value
            corners.append(f"{dot.x:.1f},{plot.y(best):.1f}")
    if len(corners) > 1:
        yield (
            f'<polyline points="{" ".join(corners)}" fill="none" stroke="currentColor" '
            'stroke-opacity="0.5" stroke-dasharray="4 4"/>'
        )


def reports_svg(
    reports: Sequence[tuple[str, Mapping[str, Json]]],
    judge: str,
    shares: Sequence[str] = ("sensitivity", "specificity"),
) -> str:
    """Return an SVG plot of two shares of a judge, a place for each report.

    Args:
        reports: a name, such as the time, and the report as JSON, in the order of the plot.
        judge: the judge, for the description.
        shares: the keys of the shares. Default: those of a judge of single outputs.

    Example:
        >>> report = {"sensitivity": {"value": 0.9, "low": 0.8, "high": 0.95}, "specificity": {"why": "none"}}
        >>> reports_svg([("Monday", report)], "It is short.").count("<circle")
        1
    """
    names = [name for name, _ in reports]
    words = [share.replace("_", " ") for share in shares]
    colours = dict(zip(words, (_POLICY, _SUGGESTED), strict=True))
    # Names of all reports would cover each other.
    shown = {0, len(names) - 1}
    places = [_Tick(n, escape(name) if n in shown else "") for n, name in enumerate(names)]
    plot = _Plot(
        f"{words[0].capitalize()} and {words[1]} over time",
        f"{len(reports)} reports of the judge {judge}, with 95 % intervals.",
        across=[_Tick(-0.5, ""), *places, _Tick(len(names) - 0.5, "")],
        up=_ticks(0.0, 1.0),
        labels=("time of the measurement", "share"),
        legend=colours,
    )
    dots = []
    for place, (name, report) in enumerate(reports):
        for number, share in enumerate(shares):
            row, word = report[share], words[number]
            if "value" in row:
                value = Estimate(row["value"], row["low"], row["high"])
                text = f"{name}: {word} {value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"
                x = plot.x(place) + _BESIDE * (number - 0.5)
                dots.append(_Dot(x, value, text, colours[word]))
    return plot.drawn(dots)


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
        """Return the report as the JSON object of `loopwright measure limits --json`."""
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
