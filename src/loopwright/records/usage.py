"""Calls, tokens and dollars."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import codec
from .codec import Json

_LARGE = 1 << 62  # figures below are valid without further checks, which makes most usages cheap


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls, tokens and dollars of model calls.

    Args:
        calls: model calls.
        input_tokens, output_tokens: tokens.
        usd: US dollars, rounded to a picodollar so that sums do not depend on their order.
        unpriced: calls without a known price; they add 0 to `usd`.
        estimated: calls counted at their maximum, because they were cancelled or reported no usage; if
            there are any, the other figures are upper bounds.

    Raises:
        ConfigurationError: for a negative or infinite figure, or one of another type.

    Example:
        >>> (Usage(calls=1, input_tokens=10) + Usage(calls=1, output_tokens=5)).tokens
        15
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0

    def __post_init__(self) -> None:
        usd = self.usd
        counts = (
            self.calls, self.input_tokens, self.output_tokens, self.unpriced, self.estimated
        )  # fmt: skip
        valid = all(type(count) is int and 0 <= count < _LARGE for count in counts)
        if valid and type(usd) is float and 0.0 <= usd < _LARGE:
            object.__setattr__(self, "usd", round(usd, 12))
            return
        counts_of = ("calls", "input_tokens", "output_tokens", "unpriced", "estimated")
        codec.check_integers("usage.", self, counts_of)
        object.__setattr__(self, "usd", round(codec.number("usage.usd", self.usd, minimum=0), 12))

    @property
    def tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        # Most sums have an empty side: steps without a model report nothing.
        if other is NOTHING or not other:
            return self
        if self is NOTHING or not self:
            return other
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            usd=self.usd + other.usd,
            unpriced=self.unpriced + other.unpriced,
            estimated=self.estimated + other.estimated,
        )

    def __bool__(self) -> bool:
        return bool(
            self.calls or self.input_tokens or self.output_tokens
            or self.usd or self.unpriced or self.estimated
        )  # fmt: skip

    def most(self, other: Usage) -> Usage:
        """Return the larger of each figure."""
        return Usage(*(max(a, b) for a, b in zip(self._values(), other._values(), strict=True)))

    def at_most(self) -> Usage:
        """Return the same figures as upper bounds: every call counts as `estimated`."""
        if not self:
            return self
        return replace(self, estimated=max(1, self.calls, self.estimated))

    def settled_at(self, reserved: Usage) -> Usage:
        """Return the usage of a cancelled call that had reported this: the larger of each figure.

        It is estimated if the reservation decides a figure.
        """
        larger = self.most(reserved)
        return larger if larger == self else larger.at_most()

    def _values(self) -> tuple[Json, ...]:
        return (
            self.calls, self.input_tokens, self.output_tokens,
            self.usd, self.unpriced, self.estimated,
        )  # fmt: skip

    def to_json(self) -> Json:
        """Return the usage as a JSON object; `unpriced` and `estimated` only if they are not 0."""
        data: dict[str, Json] = {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": self.usd,
        }
        if self.unpriced:
            data["unpriced"] = self.unpriced
        if self.estimated:
            data["estimated"] = self.estimated
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json] | None) -> Usage:
        """Return the usage that `to_json` wrote."""
        # The shared object, because sums and journals test for it by identity.
        return cls(**data) if data else NOTHING

    def less(self, other: Usage) -> Usage:
        """Return the difference of each figure, at least 0."""
        # The rounding of dollars can make a difference of equal sums slightly negative.
        pairs = zip(self._values(), other._values(), strict=True)
        return Usage(*(max(0, a - b) for a, b in pairs))


NOTHING = Usage()
_JUDGING = re.compile(r"(?:^|/)(?:[0-9]+/(?:evaluate|until)|rejudge/[0-9]+)(?:/|$)")


def is_judging(path: str) -> bool:
    """Return whether a path is inside the `evaluate` of a loop.

    >>> is_judging("refine/2/evaluate/attempt-1"), is_judging("refine/2/execute/attempt-1")
    (True, False)
    """
    return _JUDGING.search(path) is not None


def by_purpose(usage: Usage, judging: Usage) -> Json:
    """Return the usage of work and of judging as a JSON object."""
    return {"work": usage.less(judging).to_json(), "judging": judging.to_json()}
