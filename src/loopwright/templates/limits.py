"""The limits of one render, and the meter that counts its cost.

A render is a pure function of template and values, so the limits count work, not time: the same template
with the same values has the same result on every machine and in every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import ConfigurationError

__all__ = [
    "DEPTH",
    "ITEM",
    "LOOP_DEPTH",
    "NUMBER_BITS",
    "RANGE_ITEMS",
    "REPEATED_ITEMS",
    "SOURCE_CHARS",
    "TOKENS",
    "VALUE_DEPTH",
    "VALUE_ITEMS",
    "Meter",
    "TemplateError",
]

# Limits of a source, which bound the time of compilation. A longer text belongs into a variable.
SOURCE_CHARS = 200_000
TOKENS = 5_000
DEPTH = 50  # below the depth at which Python's compiler fails
LOOP_DEPTH = 4
# Limits of one render. They are far above any prompt, and bound the time and memory of a hostile template.
ITERATIONS = 100_000
OUTPUT_CHARS = 2 * 1024 * 1024
MADE_CHARS = 4 * 1024 * 1024  # also bounds the memory of intermediate values
WORK = 10_000_000  # characters read
RANGE_ITEMS = 10_000
REPEATED_ITEMS = 1_000
NUMBER_BITS = 256  # without a bound, `9 ** 9 ** 9` would run forever
# Limits of the values. A list may contain itself many times, so its size is counted while it is copied.
VALUE_ITEMS = 200_000
VALUE_DEPTH = 64
WARNINGS = 100
# One item of a list counts as this many characters, in memory and in time.
ITEM = 64
# Evaluating one node of a template takes about as long as reading this many characters.
NODE = 20


class TemplateError(ConfigurationError):
    """A template is invalid, or cannot be rendered with these values.

    Args:
        reason: The message without the position.
        line: The line inside the template, from 1. Default: 0, unknown.
        column: The column inside the line, from 1. Default: 0, unknown.

    Example:
        >>> from loopwright.templates import compile_template
        >>> compile_template("{{ name | uper }}")
        Traceback (most recent call last):
            ...
        loopwright.templates.limits.TemplateError: template line 1, column 11: there is no filter 'uper'; did you mean 'upper'?
    """

    def __init__(self, reason: str, *, line: int = 0, column: int = 0) -> None:
        place = f"template line {line}" if line else "template"
        if line and column:
            place = f"{place}, column {column}"
        super().__init__(f"{place}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class Meter:
    """Counts the cost of one render, and collects its warnings.

    Its methods raise TemplateError when a limit is exceeded, before the work if its cost is known.
    `defined` are the names with a value, for the hint about an undefined name.
    """

    __slots__ = (
        "copied", "defined", "iterations", "made", "missed", "output", "strict", "warnings", "work",
    )  # fmt: skip

    def __init__(self, *, strict: bool = True, defined: Iterable[str] = ()) -> None:
        self.strict = strict
        self.defined = defined
        self.copied = 0
        self.missed = 0
        self.iterations = 0
        self.output = 0
        self.made = 0
        self.work = 0
        self.warnings: list[str] = []

    def miss(self, describe: Callable[[Meter], str]) -> None:
        """Report an undefined value: an error, or in lenient mode one of at most 100 warnings.

        `describe` is called only if its text is used, because it has a cost.
        """
        if self.strict:
            raise TemplateError(describe(self))
        self.missed += 1
        if self.missed <= WARNINGS and (reason := describe(self)) not in self.warnings:
            self.warnings.append(reason)

    def copy(self, items: int = 1) -> bool:
        """Count copied items; return whether they are within the limit."""
        self.copied += items
        return self.copied <= VALUE_ITEMS

    def read(self, chars: int) -> None:
        """Count `chars` characters that are read."""
        self.work += chars
        if self.work > WORK:
            raise TemplateError("too much work; use smaller values, or fewer steps in loops")

    def make(self, chars: int) -> None:
        """Count `chars` characters of new values, which are also read."""
        self.made += chars
        if self.made > MADE_CHARS:
            raise TemplateError(f"makes values of more than {MADE_CHARS:,} characters in all")
        self.read(chars)

    def write(self, chars: int) -> None:
        """Count `chars` characters of output."""
        self.output += chars
        if self.output > OUTPUT_CHARS:
            raise TemplateError(f"writes more than {OUTPUT_CHARS:,} characters")

    def loop(self, count: int, nodes: int, chars: int) -> None:
        """Count `count` iterations of a loop whose body has `nodes` nodes and `chars` characters of text."""
        self.iterations += count
        if self.iterations > ITERATIONS:
            raise TemplateError(f"loops more than {ITERATIONS:,} times in all")
        self.read(count * nodes * NODE)
        self.write(count * chars)
