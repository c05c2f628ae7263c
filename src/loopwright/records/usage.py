"""What was spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import codec
from .codec import Json

_LARGE = 1 << 62  # figures above are looked at closely


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent: calls, tokens and US dollars.

    Dollars are kept to a picodollar, so that sums do not depend on their order. `unpriced` counts
    calls whose price nobody knows (they add 0 to `usd`), `estimated` calls that are counted at the
    most that they can have cost, because they were cut or did not report it: where there are any, the
    other figures are upper bounds.
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
        for count in counts:  # what is sound is seen quickly: every call makes several of these
            if type(count) is not int or not 0 <= count < _LARGE:
                break
        else:
            if type(usd) is float and 0.0 <= usd < _LARGE:
                object.__setattr__(self, "usd", round(usd, 12))
                return
        for name in ("calls", "input_tokens", "output_tokens", "unpriced", "estimated"):
            codec.whole(f"usage.{name}", getattr(self, name), least=0)
        object.__setattr__(self, "usd", round(codec.number("usage.usd", self.usd, least=0), 12))

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
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
        """Return the larger of each figure: what a cut call is taken to have cost."""
        return Usage(*(max(a, b) for a, b in zip(self._values(), other._values(), strict=True)))

    def at_most(self) -> Usage:
        """Return the same figures, marked as upper bounds: every call of it counts as `estimated`."""
        if not self:
            return self
        return replace(self, estimated=max(1, self.calls, self.estimated))

    def settled_at(self, reserved: Usage) -> Usage:
        """Return what a call cost that was cut after it reported this: the larger of each figure,
        marked as estimated where the reservation decides one."""
        found = self.most(reserved)
        return found if found == self else found.at_most()

    def _values(self) -> tuple[Any, ...]:
        return (
            self.calls, self.input_tokens, self.output_tokens,
            self.usd, self.unpriced, self.estimated,
        )  # fmt: skip

    def to_json(self) -> Json:
        """Return it as a JSON object; `unpriced` and `estimated` only where there are any."""
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
        return cls(**data) if data else NOTHING

    def less(self, other: Usage) -> Usage:
        """Return what is left of it without `other`, never below nothing."""
        pairs = zip(self._values(), other._values(), strict=True)
        return Usage(*(max(0, a - b) for a, b in pairs))


NOTHING = Usage()
_JUDGING = re.compile(r"(?:^|/)(?:[0-9]+/evaluate|rejudge/[0-9]+)(?:/|$)")


def is_judging(path: str) -> bool:
    """Return whether what happens at a path judges work, rather than does it: a loop's `evaluate`.

    >>> is_judging("refine/2/evaluate/attempt-1"), is_judging("refine/2/execute/attempt-1")
    (True, False)
    """
    return _JUDGING.search(path) is not None


def by_purpose(usage: Usage, judging: Usage) -> Json:
    """Return what was spent on working and on judging apart, as a JSON object."""
    return {"work": usage.less(judging).to_json(), "judging": judging.to_json()}
