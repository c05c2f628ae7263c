"""The space of parameters: their ranges, the numbers at positions in it, and the check of a proposal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError, StepError, nearest
from ..records import codec
from ..records.codec import Json

__all__ = ["Parameter", "space_of"]

_KINDS = ("float", "int", "choice")
_FORM = "write {float: [LOW, HIGH]}, {int: [LOW, HIGH]} or {choice: [VALUE, VALUE, …]}, numbers also with log: true"


@dataclass(frozen=True)
class Parameter:
    """One parameter: a number from `low` to `high`, both included, or one of `choices`."""

    name: str
    kind: str
    low: Any = 0
    high: Any = 0
    log: bool = False
    choices: tuple[Json, ...] = ()

    def at(self, position: float) -> float:
        """Return the number at a position from 0 to 1; each integer has an equal share of it."""
        low, high = self._ends
        place = low + position * (high - low)
        value = math.exp(place) if self.log else place
        # Rounding may leave the range at its ends.
        number: float = min(
            max(math.floor(value) if self.kind == "int" else value, self.low), self.high
        )
        return number

    def position(self, value: float) -> float:
        """Return the position of a number; that of an integer is the middle of its share."""
        low, high = self._ends
        place = value + 0.5 if self.kind == "int" else value
        return ((math.log(place) if self.log else place) - low) / (high - low)

    @property
    def _ends(self) -> tuple[float, float]:
        high = self.high + 1 if self.kind == "int" else self.high
        return (math.log(self.low), math.log(high)) if self.log else (self.low, high)

    def check(self, value: Json) -> None:
        """Check a proposed value.

        Raises:
            StepError: of kind `bad_proposal` for a value outside of the space; names the parameter.
        """
        number = type(value) is int or (type(value) is float and self.kind == "float")
        # A comparison with NaN is false.
        if value in self.choices if self.choices else number and self.low <= value <= self.high:
            return
        range_ = list(self.choices) or [self.low, self.high]
        raise StepError(
            f"the proposal for {self.name}, {value!r:.60}, is outside of {self.kind} {range_!r:.80}",
            kind="bad_proposal",
        )


def space_of(space: Mapping[str, Json]) -> dict[str, Parameter]:
    """Return the parameters of a space in the order of their names.

    Raises:
        ConfigurationError: for anything else than `Optimise` describes; names the parameter.
    """
    if not isinstance(space, Mapping) or not space:
        raise ConfigurationError(f"optimise: space: it has no parameter; {_FORM}")
    return {name: _parameter(str(name), space[name]) for name in sorted(space)}


def _parameter(name: str, fields: Json) -> Parameter:
    place = f"optimise: space: {name}"
    items: dict[str, Any] = dict(fields) if isinstance(fields, Mapping) else {}
    log = items.pop("log", False)
    kind, values = next(iter(items.items()), ("", None))
    if (
        len(items) != 1
        or kind not in _KINDS
        or not isinstance(values, list | tuple)
        or type(log) is not bool
        or (log and kind == "choice")
    ):
        unknown = nearest(str(kind), _KINDS) if kind not in _KINDS else ""
        raise ConfigurationError(f"{place}: {fields!r:.60}; {_FORM}{unknown}")
    if kind == "choice":
        if len(values) < 2 or any(value in values[:nth] for nth, value in enumerate(values)):
            raise ConfigurationError(
                f"{place}: choice: {values!r:.60}; use two different values or more"
            )
        return Parameter(name, kind, choices=tuple(codec.normalise(list(values), place)))
    for value in values:
        codec.number(f"{place}: {kind}", value, minimum=0.0 if log else -math.inf, above=log)
    whole = kind == "float" or all(type(value) is int for value in values)
    if len(values) != 2 or not whole or values[0] >= values[1]:
        numbers = "numbers" if kind == "float" else "integers"
        raise ConfigurationError(
            f"{place}: {kind}: {values!r:.60}; write two {numbers}, the lower one first"
        )
    return Parameter(name, kind, values[0], values[1], log)
