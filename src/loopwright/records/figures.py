"""Figures and verdicts for people: terminal, page, notebook and `repr`."""

from __future__ import annotations

from collections.abc import Mapping

from .codec import Json, text_of
from .excerpts import one_line
from .iteration import Iteration
from .metrics import number_text
from .usage import Usage


def value_line(value: Json) -> str:
    """Return a value on one line, with its numbers for people; `--json` and exports keep them exact.

    >>> value_line({"score": 0.1 + 0.2, "votes": [True, None]})
    '{"score": 0.3, "votes": [true, null]}'
    """
    return one_line(text_of(_rounded(value)))


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        # Of an integer, six digits would be another number.
        return value if value.is_integer() else float(number_text(value))
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def score(value: float | None) -> str:
    """Return a score with two decimals, or three if two would round it."""
    if value is None:
        return ""
    return f"{value:.2f}" if abs(round(value, 2) - value) < 1e-9 else f"{value:.3f}"


def money(usd: float) -> str:
    """Return US dollars: four decimals below 1, two above."""
    if 0 < usd < 0.0001:
        return "<$.0001"
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def cost(usage: Usage) -> str:
    """Return the cost: US dollars, or the number of calls if the price is unknown."""
    if usage.usd:
        return f"{_most(usage)}{money(usage.usd)}"
    return plural(usage.calls, "call") if usage.calls else ""


def _most(usage: Usage) -> str:
    """Return the prefix of figures that are upper bounds, because a call did not report its usage."""
    return "at most " if usage.estimated else ""


def spent(usage: Usage) -> str:
    """Return the usage in words: calls, tokens and US dollars."""
    parts = [plural(usage.calls, "call")] if usage.calls else []
    if usage.tokens:
        parts.append(_most(usage) + plural(usage.tokens, "token"))
    if usage.usd:
        parts.append(_most(usage) + money(usage.usd))
    if usage.unpriced:
        parts.append(f"{plural(usage.unpriced, 'call')} without a known price")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as a text for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:  # 59.96 would be shown as 60.0 s
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    return f"{total // 3600}h {total % 3600 // 60:02d}m"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def measured(item: Iteration, separator: str = ", ") -> str:
    """Return the metrics of an iteration with units and changes: the declared ones, else all."""
    if item.measures:
        return separator.join(one_line(str(measure)) for measure in item.measures)
    metrics = {} if item.evaluation is None else item.evaluation.metrics
    return separator.join(
        f"{one_line(name)} {number_text(value)}" for name, value in metrics.items()
    )


def rated(item: Iteration | None) -> str:
    """Return the objective of an iteration with its unit, else its score; "" without both."""
    if item is None:
        return ""
    objective = item.objective
    return score(item.score) if objective is None else one_line(objective.text)


def verdict_word(item: Iteration) -> str:
    """Return the verdict of an iteration as a word; "" without one."""
    if item.interrupted:
        return "cut short"
    if item.error is not None:
        return "failed"
    if item.undecided:
        return "undecided"
    if item.evaluation is not None and item.evaluation.impossible:
        return "impossible"
    if item.accepted is not None:
        return "accepted" if item.accepted else "rejected"
    if item.passed is None:
        return ""
    return "passed" if item.passed else "not yet"
