"""The values of declared metrics in an iteration, with their direction and unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .codec import Json

__all__ = ["MAXIMISE", "MINIMISE", "Measure", "number_text"]

MINIMISE, MAXIMISE = "minimise", "maximise"


@dataclass(frozen=True, slots=True)
class Measure:
    """The value of a declared metric in one iteration.

    Args:
        name: The name of the metric.
        value: The value, in its unit.
        unit: The unit, for display.
        direction: `minimise`, `maximise`, or "" for a metric that orders nothing.
        change: The value less that of the last accepted iteration, or of the files before the first one.
            None if there is none.
        objective: Whether the metric orders the iterations.

    Example:
        >>> print(Measure("val_loss", 0.9312, direction="minimise", change=-0.0041))
        val_loss 0.9312 ↓ -0.0041
        >>> print(Measure("time", 12.0, unit="s"))
        time 12 s
    """

    name: str
    value: float
    unit: str = ""
    direction: str = ""
    change: float | None = None
    objective: bool = False

    @property
    def rank(self) -> float:
        """The value as a number that is higher if it is better."""
        return -self.value if self.direction == MINIMISE else self.value

    @property
    def arrow(self) -> str:
        """The direction of the change since the last accepted iteration: ↑, ↓ or ""."""
        if not self.change:
            return ""
        return "↑" if self.change > 0 else "↓"

    @property
    def text(self) -> str:
        """The value with its unit."""
        return f"{number_text(self.value)} {self.unit}".rstrip()

    def __str__(self) -> str:
        text = f"{self.name} {self.text}"
        if not self.arrow or self.change is None:
            return text
        return f"{text} {self.arrow} {'+' if self.change > 0 else ''}{number_text(self.change)}"

    def to_json(self) -> dict[str, Json]:
        """Return the measure as a JSON object without empty fields."""
        data: dict[str, Json] = {"value": self.value}
        if self.unit:
            data["unit"] = self.unit
        if self.direction:
            data["direction"] = self.direction
        if self.change is not None:
            data["change"] = self.change
        if self.objective:
            data["objective"] = True
        return data

    @classmethod
    def listed(cls, data: Mapping[str, Mapping[str, Json]] | None) -> tuple[Measure, ...]:
        """Return recorded measures, which are objects by name."""
        return tuple(cls(name=name, **fields) for name, fields in (data or {}).items())


def number_text(value: float) -> str:
    """Return a number for people: integers in full, others with six significant digits.

    >>> number_text(1234567.0), number_text(0.1 + 0.2), number_text(-0.0041)
    ('1234567', '0.3', '-0.0041')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}"
