"""Regular expressions from users and models: a bad one is refused, a slow one is given up in time.

Rules:

1. A pattern is compiled only after its text has been measured. The library unrolls nested `+` and
   `{n}`: 50 characters can ask for gigabytes, and compiling cannot be interrupted.
2. The library looks at its own clock only now and then, and not at all while one repeat runs along
   the text, so its `timeout` alone may come seconds late. A search therefore runs in a thread, with
   the interpreter lock released, and the caller gives it up once it has worked for the timeout: by
   the processor time of that thread, so that a busy machine does not decide what matches, and at
   the latest after PATIENCE times the timeout. A thread that was given up ends by the library's own
   clock, which counts the whole process and so gets SPARE times as much; rule 1 bounds how late,
   and until then it stands back behind the searches that come after it.
3. A time-out is its own outcome, `PatternTimeout`: not a match, and not the absence of one.

A text of up to 200,000 characters is searched whole. Of a longer one only the first and the last
100,000 characters are searched, in this order, each as a text of its own; a match that touches the
cut is dropped, because it may be one half of something longer.

The syntax is that of the `regex` library in its `re`-compatible version 0, without calls of groups
(recursion), and of the inline flags only with `a`, `i`, `m`, `s` and `u`: the rest changes how a
pattern is read, or what a match may cost.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import regex

from .errors import ConfigurationError, EvaluationError
from .pattern_sizes import PatternError, check_size

__all__ = ["Match", "Pattern", "PatternError", "PatternTimeout", "compile_pattern"]

DEFAULT_TIMEOUT = 0.05
PATIENCE = 10
SPARE = 4
TEXT_CHARS = 200_000

Found = TypeVar("Found")


class PatternTimeout(EvaluationError):
    """A search was given up; whether the text matches is not known."""

    def __init__(self, pattern: str, seconds: float) -> None:
        shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
        super().__init__(
            f"pattern {shown!r} was given up after {seconds:g} s; "
            "avoid a repeat inside a repeat, or search a shorter text",
            kind="pattern_timeout",
            retryable=False,
        )
        self.pattern = pattern
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Match:
    """One occurrence: `text[start:end]` of what was searched, and its groups (None: took no part).

    `groups` holds group 1 and up; `names` maps the named ones.
    """

    text: str
    start: int
    end: int
    groups: tuple[str | None, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; get one from `compile_pattern`. `timeout` is in seconds of work, per search."""

    text: str
    ignore_case: bool
    timeout: float
    _compiled: regex.Pattern[str] = field(repr=False, compare=False)

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
        """Iterate over what `findall` returns; all of them are found before the first is given."""
        return iter(self.findall(text))

    def _within_time(self, find: Callable[[float], Found]) -> Found:
        """Run a search in a thread and wait for it until it has had its time."""
        outcome: queue.SimpleQueue[tuple[Found | None, Exception | None]] = queue.SimpleQueue()
        clocks: list[int] = []

        def run() -> None:
            try:
                clocks.append(_own_clock())
                outcome.put((find(time.thread_time() + self.timeout), None))
            except Exception as error:
                outcome.put((None, error))

        thread = threading.Thread(target=run, name="pattern", daemon=True)
        thread.start()
        latest, left = time.monotonic() + self.timeout * PATIENCE, self.timeout
        while left > 0:
            try:
                found, error = outcome.get(timeout=left)
            except queue.Empty:
                left = min(self.timeout - _worked(clocks), latest - time.monotonic())
                continue
            if error is None:
                return cast("Found", found)
            # Out of time, out of memory, or an error of the library's own: the text is unjudged.
            raise PatternTimeout(self.text, self.timeout) from error
        _hold_back(thread)
        raise PatternTimeout(self.text, self.timeout)

    def _matches(self, text: str, deadline: float) -> Iterator[Match]:
        for first, last in _windows(len(text)):
            found = self._compiled.finditer(
                text, first, last, concurrent=True, timeout=self.timeout * SPARE
            )
            for match in found:
                if time.thread_time() > deadline:
                    raise TimeoutError
                begins_at_cut = first > 0 and match.start() == first
                ends_at_cut = last < len(text) and match.end() == last
                if not begins_at_cut and not ends_at_cut:
                    yield Match(
                        match[0], match.start(), match.end(), match.groups(), match.groupdict()
                    )


def _own_clock() -> int:
    """Return the clock of the calling thread's processor time; -1 where there is none.

    A thread asks for its own: with the identity of one that has ended the call is undefined.
    """
    ask = getattr(time, "pthread_getcpuclockid", None)
    return ask(threading.get_ident()) if ask is not None else -1


def _hold_back(thread: threading.Thread) -> None:
    """Let a thread that was given up work only where nothing else wants to: its end may take a while.

    On Linux alone a thread has a priority of its own.
    """
    if sys.platform == "linux" and thread.is_alive() and thread.native_id:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, 19)


def _worked(clocks: list[int]) -> float:
    """Return the seconds that a thread has worked; infinity where nobody can tell."""
    if not clocks:  # it has not even begun
        return 0.0
    try:
        return time.clock_gettime(clocks[0]) if clocks[0] != -1 else math.inf
    except OSError:  # it has just ended
        return 0.0


def compile_pattern(
    text: str, *, ignore_case: bool = False, timeout: float = DEFAULT_TIMEOUT
) -> Pattern:
    """Compile a regular expression; `timeout` bounds the work of each search, in seconds.

    Raises:
        PatternError: the text is not a regular expression, or one too large to compile safely.
    """
    if not timeout > 0:
        raise ConfigurationError(f"pattern timeout must be above 0 seconds, got {timeout!r}")
    check_size(text)
    flags = regex.VERSION0 | (regex.IGNORECASE if ignore_case else 0)
    try:
        compiled = regex.compile(text, flags, cache_pattern=False)
    except regex.error as error:
        reason, position = getattr(error, "msg", str(error)), getattr(error, "pos", 0)
        raise PatternError(text, reason, position or 0) from None
    except (RecursionError, MemoryError, OverflowError, ValueError, KeyError, IndexError):
        raise PatternError(text, "too complex to compile", 0) from None
    return Pattern(text, ignore_case, timeout, compiled)


def _windows(length: int) -> list[tuple[int, int]]:
    if length <= TEXT_CHARS:
        return [(0, length)]
    half = TEXT_CHARS // 2
    return [(0, half), (length - half, length)]
