"""Sparklines and curves as SVG, without scripts and style attributes.

Colours are presentation attributes, so that a drawing also shows in a notebook, in the colour of its text.
The style sheet of the page replaces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from . import figures as texts

POINTS = 300  # of a curve; of more, the highest of each group is drawn
DOTTED = 60  # a curve with more points has no dots
LEFT, RIGHT, ABOVE, BELOW = 52, 8, 8, 18  # margins of a curve
Point = tuple[float, float]


def sparkline(scores: Sequence[float], *, width: int = 96, height: int = 22) -> str:
    """Return scores from 0 to 1 as a small line with a dot at its end, and a label for screen readers."""
    if not scores:
        return ""
    label = "scores " + ", ".join(texts.score(value) for value in scores)
    step = (width - 6) / max(1, len(scores) - 1)
    points = [(3 + i * step, height - 3 - score * (height - 6)) for i, score in enumerate(scores)]
    x, y = points[-1]
    line = f'<polyline points="{_joined(points)}"/>' if len(points) > 1 else ""
    return (
        f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(label)}">{line}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )


def curve(
    points: Sequence[Point],
    label: str,
    *,
    top: float = 0.0,
    line_at: float | None = None,
    shown: Callable[[float], str] = texts.score,
    width: int = 340,
    height: int = 130,
) -> str:
    """Return values by iteration as a curve from 0, or the lowest value, to `top` (default: the highest).

    `line_at` is the value of a horizontal line; `shown` formats the values at the axis.
    """
    if not points:
        return ""
    points = _thinned(points)
    highest = top or max(value for _, value in points) or 1.0
    # Scores and costs begin at 0; a metric may be negative.
    lowest = min(0.0, *(value for _, value in points))
    height_of = (highest - lowest) or 1.0
    first, last = points[0][0], points[-1][0]
    span = (last - first) or 1.0

    right, low = width - RIGHT, height - BELOW

    def place(x: float, y: float) -> Point:
        across = (x - first) / span if last != first else 0.5
        return LEFT + across * (right - LEFT), low - (y - lowest) / height_of * (low - ABOVE)

    placed = [place(x, y) for x, y in points]
    # More dots would cover the line.
    dotted = placed if len(placed) <= DOTTED else []
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in dotted)
    drawn = ""
    if line_at is not None:
        y = place(first, line_at)[1]
        drawn = (
            f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="wanted" '
            'stroke="#c2571a" stroke-dasharray="5 4"/>'
        )
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}" '
        'fill="currentColor" font-size="9">'
        f"{_axes(first, last, (lowest, height_of), shown=shown, right=right, low=low)}"
        f'{drawn}<polyline points="{_joined(placed)}" fill="none" stroke="#3b82c4" stroke-width="2"/>'
        f'<g fill="#3b82c4">{dots}</g></svg>'
    )


def _axes(
    first: float,
    last: float,
    values: tuple[float, float],
    *,
    shown: Callable[[float], str],
    right: int,
    low: int,
) -> str:
    """Return both axes with labels at their ends, and at half of the vertical one."""
    drawn = ""
    lowest, height = values
    for part in (0.0, 0.5, 1.0):
        y = low - part * (low - ABOVE)
        drawn += (
            f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="axis" '
            'stroke="currentColor" stroke-opacity="0.25"/>'
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{escape(shown(lowest + part * height))}</text>'
        )
    for number, x, anchor in ((first, LEFT, "start"), (last, right, "end")):
        if number != first or anchor == "start":
            drawn += f'<text x="{x}" y="{low + 12}" text-anchor="{anchor}">{number:g}</text>'
    middle = (LEFT + right) / 2
    return drawn + f'<text x="{middle:.0f}" y="{low + 12}" text-anchor="middle">iteration</text>'


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most POINTS points: the highest of each group, and the last."""
    size = math.ceil(len(points) / (POINTS - 1))
    if len(points) <= POINTS:
        return points
    # The highest and not the mean: the best score is what a reader searches for.
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [*(max(group, key=lambda point: point[1]) for group in groups[:-1]), points[-1]]


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
