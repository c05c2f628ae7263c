"""Conditions and loops as the JSON of the loop controller: `{"type": "confidence", "threshold": 0.85}`.

Types: `confidence` (threshold 0 to 1, min_iterations), `max_iterations` (limit), `timeout` (duration_ms),
`no_improvement` (patience), `combined` (operator AND or OR, conditions). Limits act outside an AND too, and
`min_iterations` counts completed iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...conditions import (
    AllOf,
    AnyOf,
    Condition,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
)
from ...engine.loop import Loop
from ...engine.step import StepLike
from ...errors import ConfigurationError, nearest

__all__ = ["conditions_at", "is_controller_json", "load_conditions", "load_loop"]

Path_ = tuple[str | int, ...]
Report = Callable[[Path_, str], None]
# type -> its fields, and those that must be there
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "confidence": (("threshold", "min_iterations"), ("threshold",)),
    "max_iterations": (("limit",), ("limit",)),
    "timeout": (("duration_ms",), ("duration_ms",)),
    "no_improvement": (("patience", "min_delta"), ("patience",)),
    "combined": (("operator", "conditions"), ("operator", "conditions")),
}
_CONFIG = ("name", "termination")


def is_controller_json(data: Any) -> bool:
    """Tell if a value is written as a condition of the loop controller."""
    return isinstance(data, Mapping) and "type" in data


def load_conditions(data: Any) -> Condition:
    """Return the condition that the JSON of a loop controller describes.

    Raises:
        ConfigurationError: with everything wrong, each with its place and the nearest valid name.

    >>> load_conditions({"type": "confidence", "threshold": 0.9, "min_iterations": 1}).to_json()
    {'score_at_least': {'threshold': 0.9, 'min_iterations': 1}}
    """
    problems: list[str] = []
    found = conditions_at(data, (), lambda at, message: problems.append(_placed(at, message)))
    if found is None or problems:
        raise ConfigurationError("; ".join(problems))
    return found


def load_loop(
    config: Any,
    execute: StepLike,
    evaluate: StepLike | None = None,
    adapt: StepLike | None = None,
    **options: Any,
) -> Loop:
    """Return the loop that a controller's configuration, `{name, termination}`, makes of its functions.

    `options` are those of `Loop`.

    Raises:
        ConfigurationError: for an unknown key, or a condition that could not mean anything.
    """
    if not isinstance(config, Mapping):
        raise ConfigurationError("a loop's configuration is an object with name and termination")
    for key in config:
        if key not in _CONFIG:
            raise ConfigurationError(f"unknown key {str(key)!r}{nearest(str(key), _CONFIG)}")
    name = config.get("name", "")
    if not isinstance(name, str):
        raise ConfigurationError(f"name: {name!r} is not text")
    if "termination" not in config:
        raise ConfigurationError("needs termination, the conditions that end the loop")
    problems: list[str] = []
    until = conditions_at(
        config["termination"],
        ("termination",),
        lambda at, message: problems.append(_placed(at, message)),
    )
    if problems:
        raise ConfigurationError("; ".join(problems))
    return Loop(execute, evaluate, adapt, until, name=name, **options)


def _placed(at: Path_, message: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
    return f"{place.removeprefix('.')}: {message}" if place else message


def conditions_at(data: Any, at: Path_, report: Report) -> Condition | None:
    """Return a condition, or None with everything wrong reported at its place."""
    if not isinstance(data, Mapping):
        report(at, f"{data!r} is not a condition; write an object with a type")
        return None
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        report((*at, "type"), f"unknown type {kind!r}{nearest(str(kind), _FIELDS) or _all()}")
        return None
    known, needed = _FIELDS[kind]
    wrong = [name for name in data if name not in (*known, "type")]
    for name in wrong:
        report((*at, str(name)), f"{kind}: unknown key {str(name)!r}{nearest(str(name), known)}")
    missing = [name for name in needed if name not in data]
    for name in missing:
        report(at, f"{kind}: needs {name}")
    if wrong or missing:
        return None
    if kind == "combined":
        return _combined(data, at, report)
    try:
        return _made(kind, data)
    except ConfigurationError as error:
        report(at, str(error))
        return None


def _made(kind: str, data: Mapping[str, Any]) -> Condition:
    if kind == "confidence":
        return ScoreAtLeast(data["threshold"], data.get("min_iterations", 1))
    if kind == "max_iterations":
        return MaxIterations(data["limit"])
    if kind == "no_improvement":
        return NoImprovement(data["patience"], data.get("min_delta", 0.0))
    given = data["duration_ms"]
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigurationError(f"timeout: duration_ms: {given!r} is not a number of milliseconds")
    return Timeout(given / 1000)


def _combined(data: Mapping[str, Any], at: Path_, report: Report) -> Condition | None:
    operator, given = data["operator"], data["conditions"]
    if operator not in ("AND", "OR"):
        report(
            (*at, "operator"),
            f"{operator!r} is not AND or OR{nearest(str(operator).upper(), ('AND', 'OR'))}",
        )
        return None
    if not isinstance(given, list) or not given:
        report((*at, "conditions"), "the list of conditions is empty; name at least one")
        return None
    found = [conditions_at(item, (*at, "conditions", i), report) for i, item in enumerate(given)]
    whole = tuple(condition for condition in found if condition is not None)
    if len(whole) < len(found):
        return None
    if len(whole) == 1:
        return whole[0]
    return AnyOf(whole) if operator == "OR" else AllOf(whole)


def _all() -> str:
    return f"; known are {', '.join(_FIELDS)}"
