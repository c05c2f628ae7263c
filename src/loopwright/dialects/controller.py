"""The conditions of a loop controller, as JSON.

A loop controller writes `{"type": "confidence", "threshold": 0.85}`. Its types: `confidence` (threshold 0 to 1,
min_iterations), `max_iterations` (limit), `timeout` (duration_ms), `no_improvement` (patience), `combined` (operator
AND or OR, conditions). Limits act outside an AND too, and `min_iterations` counts completed iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..conditions import (
    AllOf,
    AnyOf,
    Condition,
    MaxIterations,
    NoImprovement,
    Passed,
    ScoreAtLeast,
    Timeout,
    has_goal,
)
from ..documents.compiler.compilation import Compilation
from ..documents.yaml.reader import Location
from ..engine.loop import any_of
from ..errors import ConfigurationError, nearest
from ..records.codec import Json, flow_text

__all__ = ["compile_termination", "controller_condition"]

Report = Callable[[Location, str], None]
# type: its fields, and the required ones of these
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "confidence": (("threshold", "min_iterations"), ("threshold",)),
    "max_iterations": (("limit",), ("limit",)),
    "timeout": (("duration_ms",), ("duration_ms",)),
    "no_improvement": (("patience", "min_delta"), ("patience",)),
    "combined": (("operator", "conditions"), ("operator", "conditions")),
}


def compile_termination(compilation: Compilation, data: Json, at: Location) -> Condition | None:
    """Compile the condition that ends a loop; None if it has problems."""
    condition = controller_condition(data, at, compilation.problem)
    # A loop controller ends when its evaluation passes, whatever its conditions say.
    if has_goal(condition) and not compilation.project.settings.former:
        return any_of(condition, Passed())
    return condition


def controller_condition(data: Json, at: Location, report: Report) -> Condition | None:
    """Return the condition of a loop controller's JSON; None if `report` received problems."""
    if not isinstance(data, Mapping):
        report(at, f"{flow_text(data)} is not a condition; write an object with a type")
        return None
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        hint = nearest(str(kind), _FIELDS) or f"; the types are {', '.join(_FIELDS)}"
        report((*at, "type"), f"unknown type {flow_text(kind)}{hint}")
        return None
    names, needed = _FIELDS[kind]
    wrong = [name for name in data if name not in (*names, "type")]
    for name in wrong:
        report((*at, str(name)), f"{kind}: unknown key {str(name)!r}{nearest(str(name), names)}")
    missing = [name for name in needed if name not in data]
    for name in missing:
        report(at, f"{kind}: needs {name}")
    if wrong or missing:
        return None
    if kind == "combined":
        return _combined(data, at, report)
    try:
        return _leaf(kind, data)
    except ConfigurationError as error:
        report(at, str(error))
        return None


def _leaf(kind: str, data: Mapping[str, Json]) -> Condition:
    if kind == "confidence":
        return ScoreAtLeast(data["threshold"], data.get("min_iterations", 1))
    if kind == "max_iterations":
        return MaxIterations(data["limit"])
    if kind == "no_improvement":
        return NoImprovement(data["patience"], data.get("min_delta", 0.0))
    value = data["duration_ms"]
    # bool is a subclass of int: `duration_ms: true` would be one millisecond.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"timeout: duration_ms: {flow_text(value)} is not a number of milliseconds"
        )
    return Timeout(value / 1000)


def _combined(data: Mapping[str, Json], at: Location, report: Report) -> Condition | None:
    operator, value = data["operator"], data["conditions"]
    if operator not in ("AND", "OR"):
        report(
            (*at, "operator"),
            f"{flow_text(operator)} is not AND or OR{nearest(str(operator).upper(), ('AND', 'OR'))}",
        )
        return None
    if not isinstance(value, list) or not value:
        report((*at, "conditions"), "the list of conditions is empty; add at least one")
        return None
    result = [
        controller_condition(item, (*at, "conditions", i), report) for i, item in enumerate(value)
    ]
    combined = tuple(condition for condition in result if condition is not None)
    # With a part left out, an AND would hold too early.
    if len(combined) < len(result):
        return None
    if len(combined) == 1:
        return combined[0]
    return AnyOf(combined) if operator == "OR" else AllOf(combined)
