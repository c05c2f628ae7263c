"""Regular expressions from users and models: invalid ones are refused, slow ones are stopped in time.

Rules:

1. The size of a pattern is checked before it is compiled. The library unrolls nested `+` and `{n}`, so
   that 50 characters can require gigabytes, and compilation cannot be interrupted.
2. The library checks its own clock rarely, and never during one repeat, so its `timeout` alone may be
   seconds late. A search therefore runs in a thread with the interpreter lock released. The caller
   stops waiting when the thread has used the timeout in processor time, so that a busy machine does not
   change results, and at the latest after PATIENCE times the timeout. The library's clock counts the
   process: it is set to SPARE times the timeout, and a search that it ends before its thread has used
   the timeout starts again. An abandoned thread ends by that clock; rule 1 limits how late. Until then
   it has a lower priority than later searches.
3. A timeout is an outcome of its own, `PatternTimeout`: neither a match nor the absence of one.

Of a text above 200,000 characters only the first and the last 100,000 are searched, in this order, each
as a separate text. A match that touches the cut is dropped, because it may be incomplete.

The syntax is that of the `regex` library in its `re`-compatible version 0, without calls of groups
(recursion) and with the inline flags `a`, `i`, `m`, `s` and `u` only: others change how a pattern is
read or what a match may cost.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import re
import string
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from .errors import ConfigurationError, EvaluationError

if TYPE_CHECKING:
    import regex

# Limits of the time and memory of a compilation (rule 1). Weights are in units of one character.
PATTERN_CHARS = 2_000
GROUP_DEPTH = 50  # the compiler recurses for each group
UNROLLED_ITEMS = 20_000
SET_WEIGHT = 400
PROPERTY_WEIGHT = 20  # a property such as \p{L} has hundreds of ranges
RANGE_WEIGHT = 10
INLINE_FLAGS = frozenset("aimsu")
POSIX_CLASS = re.compile(r"\[:\^?[A-Za-z0-9 &_.-]*(?:[:=][A-Za-z0-9 &_./-]*)?:\]")
# Recursion makes the time of a match exponential, and no size of the pattern limits it.
GROUP_CALL = re.compile(r"\?(?:[+-]?[0-9]|R|&|P>)")

Quantifier = tuple[int, int]


class PatternError(ConfigurationError):
    """A pattern is not a valid regular expression; `position` counts characters from 0."""

    def __init__(self, pattern: str, reason: str, position: int) -> None:
        shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
        super().__init__(f"pattern {shown!r}: {reason} at position {position}")
        self.pattern = pattern
        self.reason = reason
        self.position = position


def check_size(text: str) -> None:
    """Refuse a pattern that is too expensive to compile.

    Raises:
        PatternError: if it is too long, nests too deeply, repeats too much, or uses a refused feature.
    """
    _Measure(text).check()


class _Measure:
    """Computes the weight of a pattern without compiling it.

    The library unrolls a repeat with at least one match: n copies of its body for `{n}`, and one more if
    it may continue. So a body of weight w weighs w * (n + 1). The library reports errors of syntax.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def check(self) -> None:
        if len(self.text) > PATTERN_CHARS:
            reason = f"longer than {PATTERN_CHARS:,} characters (it has {len(self.text):,})"
            raise PatternError(self.text, reason, PATTERN_CHARS)
        groups: list[list[int]] = [
            [0, 0]
        ]  # of each open group: its weight and that of its last item
        while self.at < len(self.text):
            self._item(groups)
            if groups[-1][0] > UNROLLED_ITEMS:
                self._refuse("repeats too much: nested or large repeat counts multiply")

    def _item(self, groups: list[list[int]]) -> None:
        """Read one item and add its weight to the innermost open group."""
        start, character = self.at, self.text[self.at]
        self.at += 1
        repeat = self._repeat(start)
        if repeat is not None:
            group = groups[-1]
            group[0] += group[1] * repeat
            group[1] = 0
        elif character == "(":
            self._open(groups)
        elif character == ")" and len(groups) > 1:
            weight = groups.pop()[0] + 2
            groups[-1][0] += weight
            groups[-1][1] = weight
        else:
            weight = self._set(start) if character == "[" else 1
            if character == "\\":
                self.at += 1
            groups[-1][0] += weight
            groups[-1][1] = weight

    def _repeat(self, start: int) -> int | None:
        """Return the number of copies that a quantifier at `start` adds; None for other characters."""
        character = self.text[start]
        if character in "*?":
            copies = 0
        elif character == "+":
            copies = 1
        elif character == "{" and (counts := self._counts(start)) is not None:
            low, high = counts
            # The library keeps an optional body once and does not unroll it.
            copies = 0 if low == 0 or low == high == 1 else low
        else:
            return None
        # The lazy and the possessive form of a quantifier cost the same.
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.at += 1
        return copies

    def _counts(self, start: int) -> Quantifier | None:
        """Read `{2}`, `{2,}`, `{,3}` or `{2,3}`; anything else in braces is literal text."""
        end = self.text.find("}", start)
        low, comma, high = self.text[start + 1 : max(end, start)].partition(",")
        digits = set(low + high) <= set(string.digits)
        if end < 0 or not digits or not (low or comma):
            return None
        # Before `int`, whose time grows with the square of the digits.
        if len(low) > 6 or len(high) > 9:
            self._refuse("repeat count too big", start)
        self.at = end + 1
        return int(low or 0), int(high or (-1 if comma else low))

    def _open(self, groups: list[list[int]]) -> None:
        if self.text.startswith("?#", self.at):
            while self.at < len(self.text) and self.text[self.at] != ")":
                self.at += 2 if self.text[self.at] == "\\" else 1
            self.at += 1
            return
        if GROUP_CALL.match(self.text, self.at):
            self._refuse("a call of a group is not supported: repeat its pattern", self.at)
        if self.text.startswith("?", self.at):
            self._check_flags()
        groups.append([0, 0])
        if len(groups) > GROUP_DEPTH:
            self._refuse(f"groups nested more than {GROUP_DEPTH - 1} deep")

    def _check_flags(self) -> None:
        """Refuse the inline flags that change how the rest of the pattern must be read."""
        end = self.at + 1
        while self.text[end : end + 1].isalnum() or self.text[end : end + 1] == "-":
            end += 1
        letters = self.text[self.at + 1 : end]
        unknown = set(letters) - INLINE_FLAGS - {"-"}
        if unknown and self.text[end : end + 1] in (")", ":"):
            self._refuse(
                f"inline flags {letters!r} are not supported, only those of 'aimsu'", self.at
            )

    def _set(self, start: int) -> int:
        """Read a set like `[a-z]` and return its weight, which is its number of characters."""
        text = self.text
        if text.startswith("^", self.at):
            self.at += 1
        weight, first = 0, True
        while self.at < len(text) and (first or text[self.at] != "]"):
            first = False
            weight += self._set_member()
        self.at += 1
        if weight > SET_WEIGHT:
            self._refuse("character set too large; use fewer ranges and properties", start)
        return self.at - start

    def _set_member(self) -> int:
        text, at = self.text, self.at
        if text[at] == "\\":
            self.at += 2
            return PROPERTY_WEIGHT if text[at + 1 : at + 2] in tuple("pPwWdDsShH") else 1
        named = POSIX_CLASS.match(text, at)
        if named:
            self.at = named.end()
            return PROPERTY_WEIGHT
        self.at += 1
        return RANGE_WEIGHT if text[at] == "-" else 1

    def _refuse(self, reason: str, position: int | None = None) -> None:
        raise PatternError(self.text, reason, self.at if position is None else position)


DEFAULT_TIMEOUT = 0.05  # seconds of processor time
PATIENCE = (
    40  # wall-clock limit as a multiple of the timeout: 2 s, even if the thread gets no processor
)
SPARE = 4  # the library's clock as a multiple of the timeout, because it counts all threads
TEXT_CHARS = 200_000

Matched = TypeVar("Matched")


class PatternTimeout(EvaluationError):
    """A search was stopped; whether the text matches is unknown."""

    def __init__(self, pattern: str, seconds: float) -> None:
        shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
        super().__init__(
            f"the search for pattern {shown!r} was stopped after {seconds:g} s; "
            "avoid a repeat inside a repeat, or search a shorter text",
            kind="pattern_timeout",
            retryable=False,
        )
        self.pattern = pattern
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Match:
    """One match: `text[start:end]` of the searched text, and its groups (None: not part of the match).

    `groups` has the groups from 1, `names` the named groups.
    """

    text: str
    start: int
    end: int
    groups: tuple[str | None, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern from `compile_pattern`; `timeout` is in seconds of processor time per search."""

    text: str
    ignore_case: bool
    timeout: float
    _compiled: regex.Pattern[str] = field(repr=False, compare=False)

    @property
    def group_count(self) -> int:
        """The number of its capturing groups."""
        return self._compiled.groups

    def search(self, text: str) -> Match | None:
        """Return the first match in `text`, or None.

        Raises:
            PatternTimeout: the search took longer than `timeout`.
        """
        return self._within_time(lambda deadline: next(self._matches(text, deadline), None))

    def findall(self, text: str) -> list[Match]:
        """Return every match in `text`, in order and without overlap; one timeout covers them all.

        Raises:
            PatternTimeout: the search took longer than `timeout`.
        """
        return self._within_time(lambda deadline: list(self._matches(text, deadline)))

    def finditer(self, text: str) -> Iterator[Match]:
        """Iterate over the matches of `findall`, which runs first."""
        return iter(self.findall(text))

    def _within_time(self, find: Callable[[float], Matched]) -> Matched:
        """Run a search in a thread and wait until it ends or has used its time."""
        outcome: queue.SimpleQueue[tuple[Matched | None, Exception | None]] = queue.SimpleQueue()
        clocks: list[int] = []

        def run() -> None:
            # Each thread reads its own clock id, because the call is undefined for a thread that has ended.
            # Some systems have none.
            clock_of = getattr(time, "pthread_getcpuclockid", None)
            clocks.append(-1 if clock_of is None else clock_of(threading.get_ident()))
            deadline = time.thread_time() + self.timeout
            while True:
                try:
                    outcome.put((find(deadline), None))
                except TimeoutError as error:
                    if time.thread_time() < deadline and time.monotonic() < latest:
                        continue  # the rest of the process used the time
                    outcome.put((None, error))
                except Exception as error:
                    outcome.put((None, error))
                return

        # A daemon, because an abandoned search must not keep the process alive.
        thread = threading.Thread(target=run, name="pattern", daemon=True)
        left, latest = self.timeout, time.monotonic() + self.timeout * PATIENCE
        thread.start()
        while left > 0:
            try:
                result, error = outcome.get(timeout=left)
            except queue.Empty:
                left = min(self.timeout - _processor_seconds(clocks), latest - time.monotonic())
                continue
            if error is None:
                return cast("Matched", result)
            # A timeout, a lack of memory, or an error of the library: the result is unknown.
            raise PatternTimeout(self.text, self.timeout) from error
        _lower_priority(thread)
        raise PatternTimeout(self.text, self.timeout)

    def _matches(self, text: str, deadline: float) -> Iterator[Match]:
        # Of a long text its ends: answers stand there more often than in its middle.
        length, half = len(text), TEXT_CHARS // 2
        ends = [(0, half), (length - half, length)]
        for first, last in ends if length > TEXT_CHARS else [(0, length)]:
            matches = self._compiled.finditer(
                text, first, last, concurrent=True, timeout=self.timeout * SPARE
            )
            for match in matches:
                if time.thread_time() > deadline:
                    raise TimeoutError
                begins_at_cut = first > 0 and match.start() == first
                ends_at_cut = last < len(text) and match.end() == last
                if not begins_at_cut and not ends_at_cut:
                    yield Match(
                        match[0], match.start(), match.end(), match.groups(), match.groupdict()
                    )


def _lower_priority(thread: threading.Thread) -> None:
    """Give an abandoned thread the lowest priority, because its end may take a while.

    Only Linux has priorities of threads.
    """
    if sys.platform == "linux" and thread.is_alive() and thread.native_id:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, 19)


def _processor_seconds(clocks: list[int]) -> float:
    """Return the processor time of a thread in seconds; infinity on systems without such a clock."""
    if not clocks:  # it has not started yet
        return 0.0
    try:
        return time.clock_gettime(clocks[0]) if clocks[0] != -1 else math.inf
    except OSError:  # it has just ended
        return 0.0


def compile_pattern(
    text: str,
    *,
    ignore_case: bool = False,
    multiline: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
) -> Pattern:
    """Compile a regular expression.

    Args:
        text: the pattern.
        ignore_case: ignore upper and lower case (default: False).
        multiline: `^` and `$` match at each line (default: False).
        timeout: seconds of processor time for each search (default: 0.05).

    Raises:
        PatternError: if the text is not a regular expression, or too large to compile safely.
    """
    if not timeout > 0:
        raise ConfigurationError(
            f"pattern timeout: {timeout!r} is out of range; use a number above 0"
        )
    check_size(text)
    import regex  # its import takes longer than that of this package, and few runs need it

    flags = regex.VERSION0 | (regex.IGNORECASE if ignore_case else 0)
    flags |= regex.MULTILINE if multiline else 0
    try:
        # The library's cache would keep patterns of documents and models in memory.
        compiled = regex.compile(text, flags, cache_pattern=False)
    except regex.error as error:
        reason, position = getattr(error, "msg", str(error)), getattr(error, "pos", 0)
        raise PatternError(text, reason, position or 0) from None
    except (RecursionError, MemoryError, OverflowError, ValueError, KeyError, IndexError):
        raise PatternError(text, "too complex to compile", 0) from None
    return Pattern(text, ignore_case, timeout, compiled)
