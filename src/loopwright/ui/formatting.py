"""Numbers and texts on a line, and two texts side by side, for terminals and pages."""

from __future__ import annotations

import difflib
import math
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from ..journal import Rewind, RunInfo
from ..records import Iteration, Status, StepOutcome, number_text
from ..records.codec import Json
from ..records.display import (
    clean,
    clean_json,
    confirmed,
    cost,
    duration,
    from_cache,
    measured,
    money,
    numbered,
    one_line,
    plural,
    rated,
    reveal,
    score,
    spent,
    value_line,
    wait_text,
    when,
)

__all__ = [
    "ASCII",
    "UNICODE",
    "Signs",
    "ago",
    "bar",
    "clean",
    "clean_json",
    "confirmed",
    "cost",
    "duration",
    "fit",
    "fit_end",
    "from_cache",
    "limit_text",
    "measured",
    "money",
    "numbered",
    "objective",
    "one_line",
    "place",
    "plural",
    "rated",
    "reveal",
    "score",
    "sparkline",
    "spent",
    "start",
    "status_of_step",
    "value_line",
    "wait_text",
    "when",
    "width",
]

MAX_LINES = 4_000  # of either text; difflib takes quadratic time in the worst case
MAX_LINE = 2_000  # characters of a line whose words are compared
CONTEXT = 3  # equal lines shown before and after a change

Parts = tuple[tuple[bool, str], ...]  # (changed, text)


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line on both sides: its numbers (0 if it is missing) and its parts.

    `kind` is `same`, `changed`, `gone`, `new`, or `skipped` for `count` omitted lines.
    """

    kind: str
    left: int = 0
    right: int = 0
    before: Parts = ()
    after: Parts = ()
    count: int = 0


def discarded(done: Rewind) -> str:
    """Return what a rewind discards or brings back, as `2 iterations, 12 calls, $0.03`."""
    count = (
        plural(done.iterations, "iteration") if done.iterations else plural(done.entries, "result")
    )
    cost = spent(done.usage)
    return f"{count}, {cost}" if cost else count


def side_by_side(before: str, after: str) -> list[LinePair]:
    """Return two texts as pairs of lines, without long stretches of equal lines."""
    left, right = before.splitlines()[:MAX_LINES], after.splitlines()[:MAX_LINES]
    # The heuristic ignores frequent lines, such as blank ones: faster in long texts, wrong in short ones.
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > 1000)
    pairs: list[LinePair] = []
    codes = matcher.get_opcodes()
    for place, (tag, a, b, c, d) in enumerate(codes):
        if tag == "equal":
            pairs += _equal(left, a, b, c, first=place == 0, last=place == len(codes) - 1)
        else:
            pairs += _changed(left[a:b], right[c:d], a, c)
    return pairs


def _equal(
    left: list[str], a: int, b: int, c: int, *, first: bool, last: bool
) -> Iterator[LinePair]:
    head = 0 if first else CONTEXT
    tail = 0 if last else CONTEXT
    # The texts are equal; the beginning shows which text it is.
    if first and last:
        head = 20
    hidden = (b - a) - head - tail
    for i in range(a, b):
        # A line that says "1 equal line" would need as much room as the line.
        if hidden > 1 and a + head <= i < b - tail:
            if i == a + head:
                yield LinePair("skipped", count=hidden)
            continue
        parts: Parts = ((False, left[i]),)
        yield LinePair("same", i + 1, c + i - a + 1, parts, parts)


def _changed(removed: list[str], new: list[str], a: int, c: int) -> Iterator[LinePair]:
    for i, (old, added) in enumerate(zip_longest(removed, new)):
        if old is None:
            yield LinePair("new", 0, c + i + 1, (), ((True, added),))
        elif added is None:
            yield LinePair("gone", a + i + 1, 0, ((True, old),), ())
        else:
            yield LinePair("changed", a + i + 1, c + i + 1, *_words(old, added))


def _words(old: str, new: str) -> tuple[Parts, Parts]:
    # Words of a minified line have thousands of positions to compare.
    if len(old) + len(new) > 2 * MAX_LINE:
        return ((True, old),), ((True, new),)
    before, after = _split(old), _split(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    left: list[tuple[bool, str]] = []
    right: list[tuple[bool, str]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if b > a:
            left.append((tag != "equal", "".join(before[a:b])))
        if d > c:
            right.append((tag != "equal", "".join(after[c:d])))
    return tuple(left), tuple(right)


def _split(line: str) -> list[str]:
    """Return a line as words and the characters between them."""
    return re.findall(r"[^\W_]+|.", line, re.DOTALL)


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


def width(text: str) -> int:
    """Return the width of a text in cells of a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    # Marks and zero-width characters need no cell, wide East Asian ones and emoji need two.
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


def bar(value: float | None, cells: int, signs: Signs = UNICODE) -> str:
    """Return a score from 0 to 1 as a bar of `cells` cells; blank without a score."""
    if value is None:
        return " " * cells
    # Only a score of 1 fills the bar: 0.99 must not look like success.
    full = cells if value >= 1 else min(cells - 1, round(value * cells))
    return signs.full * full + signs.empty * (cells - full)


def sparkline(scores: Sequence[float], cells: int, signs: Signs = UNICODE) -> str:
    """Return scores as one character each, on the scale from 0 to 1.

    More scores than `cells` are joined in groups of equal size; the highest of each is shown.
    """
    size = max(1, math.ceil(len(scores) / max(1, cells)))
    # The maximum and not the mean, because the best iteration of a loop counts.
    peaks = [max(scores[i : i + size]) for i in range(0, len(scores), size)]
    top = len(signs.levels) - 1
    return "".join(signs.levels[min(top, int(peak * (top + 1)))] for peak in peaks)


def objective(item: Iteration, signs: Signs = UNICODE) -> str:
    """Return the objective of an iteration with its change: `0.93 s ↓ -0.01`; "" without one."""
    measure = item.objective
    if measure is None:
        return ""
    shown = one_line(str(measure).removeprefix(f"{measure.name} "))
    return shown if signs is UNICODE else shown.replace("↓ ", "").replace("↑ ", "")


def limit_text(name: str, value: Json) -> str:
    """Return a limit, or what is used or left of it, for people; "" for None."""
    if value is None or isinstance(value, str):
        return value or ""
    if name == "timeout":
        return duration(value)
    return number_text(value)


def ago(moment: float) -> str:
    """Return a time (seconds since the epoch) relative to now, from 30 days on as the date."""
    past = max(0.0, time.time() - moment)
    for seconds, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if past >= seconds:
            return f"{past // seconds:.0f} {unit} ago" if past < 30 * 86_400 else when(moment)[:10]
    return "just now"


def start(moment: float) -> str:
    """Return the start time of a run (seconds since the epoch) as local time and UTC."""
    local = time.localtime(moment)
    shown = time.strftime("%Y-%m-%d %H:%M", local)
    if local.tm_gmtoff == 0:
        return f"{shown} UTC"
    return f"{shown} ({time.strftime('%Y-%m-%d %H:%M', time.gmtime(moment))} UTC)"


def place(info: RunInfo) -> str:
    """Return the worker of a submitted run, or the queue in which it waits and since when; else ""."""
    if not info.queue:
        return ""
    if info.owner:
        return f"on {info.owner}, queue {info.queue}"
    if info.status not in ("queued", "interrupted"):
        return ""
    if info.wake_at > time.time():
        return f"in the queue {info.queue}"
    since = max(info.updated if info.status == "interrupted" else info.created, info.wake_at)
    # A time and not a duration, because the page keeps a row until the run changes.
    return f"waiting in the queue {info.queue} since {when(since)}"


def held_out(figures: Mapping[str, Json]) -> str:
    """Return what held-out tests or cases say of the result of a loop; of cases, also whether it is better at all."""
    compared = figures.get("difference")
    if compared is None:
        return f"{figures['passing']} of {figures['total']} pass"
    difference, low, high = (compared.get(name) for name in ("difference", "low", "high"))
    looks = f"{plural(compared['paired'], 'case')}, look {figures['dataset']['looks']}"
    if difference is None or figures.get("score") is None:
        return f"no score, {looks}"
    verdict, interval = "not shown to be better than", ""
    if low is not None and high is not None:
        interval = f" [{low:+.4f}, {high:+.4f}]"
        verdict = "better than" if low > 0 else "worse than" if high < 0 else verdict
    return f"{figures['score']:.4f}, {verdict} the beginning: {difference:+.4f}{interval}, {looks}"


def status_of_step(outcome: StepOutcome) -> str:
    """Return the status of a step as a word; `skipped` and `not run` are words for people only."""
    # A skipped step satisfies its workflow, but did nothing.
    if outcome.status is Status.SATISFIED and outcome.detail.endswith(" skipped"):
        return "skipped"
    return outcome.status.value if outcome.status is not None else outcome.detail or "not run"
