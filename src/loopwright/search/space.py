"""The space of parameters: their ranges, the values at positions in it, and the check of a proposal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError, StepError, nearest
from ..records import codec
from ..records.codec import Json

__all__ = ["Parameter", "space_of"]

KINDS = ("float", "int", "choice")
_FORM = "write {float: [LOW, HIGH]}, {int: [LOW, HIGH]} or {choice: [VALUE, …]}"


@dataclass(frozen=True)
class Parameter:
    """One parameter: a number from `low` to `high`, both included, or one of `choices`."""

    name: str
    kind: str
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Json, ...] = ()

    def at(self, position: float) -> float:
        """Return the number at a position from 0 to 1; each integer has an equal share of it."""
        low, high = self._ends
        place = low + position * (high - low)
        value = math.exp(place) if self.log else place
        # Rounding may leave the range at its ends.
        return min(max(math.floor(value) if self.kind == "int" else value, self.low), self.high)

    def position(self, value: float) -> float:
        """Return the position of a number, that of the middle of its share for an integer."""
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
            StepError: of kind `bad_proposal` for a value outside of the range.
        """
        if self.choices:
            inside = value in self.choices
            range_ = f"none of {', '.join(map(codec.canonical, self.choices))}"
        else:
            whole = isinstance(value, int) or self.kind == "float"
            number = isinstance(value, int | float) and not isinstance(value, bool) and whole
            # A comparison with NaN is false.
            inside = number and self.low <= value <= self.high
            range_ = f"outside of {self.kind} {self.low:g} to {self.high:g}"
        if not inside:
            raise StepError(
                f"the proposal for {self.name}, {value!r:.60}, is {range_}", kind="bad_proposal"
            )


def space_of(space: Mapping[str, Json]) -> dict[str, Parameter]:
    """Return the parameters of a space by their names, in the order of their names.

    Args:
        space: by name, `{"float": [low, high]}` or `{"int": [low, high]}`, with `"log": True` for a logarithmic scale,
            or `{"choice": [value, …]}`.

    Raises:
        ConfigurationError: for anything else; names the parameter.
    """
    if not isinstance(space, Mapping) or not space:
        raise ConfigurationError(f"optimise: space: it has no parameter; {_FORM}")
    return {name: _parameter(str(name), space[name]) for name in sorted(space)}


def _parameter(name: str, fields: Json) -> Parameter:
    place = f"optimise: space: {name}"
    fields = dict(fields) if isinstance(fields, Mapping) else {}
    log = fields.pop("log", False)
    if len(fields) != 1 or (kind := next(iter(fields))) not in KINDS:
        wrong = next((key for key in fields if key not in KINDS), "")
        said = (
            f"{wrong!r} is no distribution{nearest(str(wrong), (*KINDS, 'log'))}; " if wrong else ""
        )
        raise ConfigurationError(f"{place}: {said}{_FORM}")
    values = fields[kind]
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < 2:
        raise ConfigurationError(f"{place}: {kind}: {values!r:.60}; {_FORM}")
    if not isinstance(log, bool) or (log and kind == "choice"):
        raise ConfigurationError(f"{place}: log: {log!r}; it is true or false, for float and int")
    if kind == "choice":
        if any(value in values[:nth] for nth, value in enumerate(values)):
            raise ConfigurationError(f"{place}: choice: a value comes twice; use each only once")
        return Parameter(name, kind, choices=tuple(codec.normalise(list(values), place)))
    if len(values) != 2:
        raise ConfigurationError(f"{place}: {kind}: {len(values)} values; {_FORM}")
    least = 0.0 if log else -math.inf
    for value in values:
        codec.number(f"{place}: {kind}", value, minimum=least, above=log)
        if kind == "int":
            codec.integer(f"{place}: int", value, minimum=-(2**53))
    low, high = values
    if low >= high:
        raise ConfigurationError(f"{place}: {kind}: [{low:g}, {high:g}]; the first must be lower")
    return Parameter(name, kind, low, high, log)
