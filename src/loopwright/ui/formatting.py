"""Numbers and texts on a line: scores, bars, money, times; cleaned, cut and measured."""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from ..records import Iteration, Status, StepOutcome, Usage


class Signs(NamedTuple):
    """The characters that a stream can show."""

    full: str
    empty: str
    levels: str
    more: str
    spin: str
    passed: str
    not_yet: str
    to: str
    failed: str = "!"
    undecided: str = "?"


UNICODE = Signs("█", "░", "▁▂▃▄▅▆▇█", more="…", spin="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", passed="✓", not_yet="✗", to="→")
ASCII = Signs("#", ".", "_.-=+*#@", more="...", spin="|/-\\", passed="+", not_yet="-", to="->")

# Characters that a terminal interprets: C0 and C1 controls except tab and newline, and characters that
# change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLANKS = re.compile(r"\s+")


def clean(text: str) -> str:
    """Return text with control characters made visible.

    >>> clean("\x1b]0;title\x07")
    '\\\\x1b]0;title\\\\x07'
    """
    if _CONTROLS.search(text) is None:
        return text
    return _CONTROLS.sub(_visible, text.replace("\r\n", "\n"))


def clean_json(text: str) -> str:
    """Return JSON text with control characters escaped; its value is unchanged."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return text on one line, cleaned, with single spaces."""
    return clean(_BLANKS.sub(" ", text)).strip()


def width(text: str) -> int:
    """Return the width of a text in cells of a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, cells: int, signs: Signs = UNICODE) -> str:
    """Return text cut to at most `cells` cells, with an ellipsis if it was cut."""
    if width(text) <= cells:
        return text
    room = cells - len(signs.more)
    if room <= 0:
        return signs.more[: max(0, cells)]
    used = 0
    for index, character in enumerate(text):
        used += _cells(character)
        if used > room:
            return text[:index].rstrip() + signs.more
    return text


def fit_end(text: str, cells: int, signs: Signs = UNICODE) -> str:
    """Return the end of a text in at most `cells` cells, after an ellipsis if it was cut."""
    if width(text) <= cells:
        return text
    while text and width(text) + len(signs.more) > cells:
        text = text[1:]
    return signs.more + text


def score(value: float | None) -> str:
    """Return a score with two decimals, or three if two would round it."""
    if value is None:
        return ""
    return f"{value:.2f}" if abs(round(value, 2) - value) < 1e-9 else f"{value:.3f}"


def bar(value: float | None, cells: int, signs: Signs = UNICODE) -> str:
    """Return a score from 0 to 1 as a bar of `cells` cells; blank without a score."""
    if value is None:
        return " " * cells
    full = cells if value >= 1 else min(cells - 1, round(value * cells))
    return signs.full * full + signs.empty * (cells - full)


def sparkline(scores: Sequence[float], cells: int, signs: Signs = UNICODE) -> str:
    """Return scores as one character each, on the scale from 0 to 1.

    More scores than `cells` are joined in groups of equal size; the highest of each is shown.
    """
    size = max(1, math.ceil(len(scores) / max(1, cells)))
    peaks = [max(scores[i : i + size]) for i in range(0, len(scores), size)]
    top = len(signs.levels) - 1
    return "".join(signs.levels[min(top, int(peak * (top + 1)))] for peak in peaks)


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
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    return f"{total // 3600}h {total % 3600 // 60:02d}m"


def when(moment: float) -> str:
    """Return a time (seconds since the epoch) as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment)) if moment else ""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def status_of_step(outcome: StepOutcome) -> str:
    """Return the status of a step as a word; `skipped` and `not run` are words for people only."""
    if outcome.status is Status.SATISFIED and outcome.detail.endswith(" skipped"):
        return "skipped"
    return outcome.status.value if outcome.status is not None else outcome.detail or "not run"


def verdict(item: Iteration, signs: Signs = UNICODE) -> tuple[str, str, str]:
    """Return the sign, the word and the style of an iteration's verdict."""
    if item.interrupted:
        return signs.undecided, "cut short", "yellow"
    if item.error is not None:
        return signs.failed, "failed", "red"
    if item.undecided:
        return signs.undecided, "undecided", "yellow"
    if item.passed is None:
        return " ", "", ""
    return (signs.passed, "passed", "green") if item.passed else (signs.not_yet, "not yet", "cyan")
