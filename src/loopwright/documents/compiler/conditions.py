"""Conditions of documents: lists, trees, sentences for a judge, and the JSON of a loop controller.

A loop controller writes `{"type": "confidence", "threshold": 0.85}`. Its types: `confidence` (threshold 0 to 1,
min_iterations), `max_iterations` (limit), `timeout` (duration_ms), `no_improvement` (patience), `combined` (operator
AND or OR, conditions). Limits act outside an AND too, and `min_iterations` counts completed iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pydantic_core import PydanticCustomError

from ...conditions import (
    AllOf,
    AnyOf,
    Condition,
    Judged,
    MaxIterations,
    NoImprovement,
    Passed,
    ScoreAtLeast,
    Timeout,
    from_json,
    has_goal,
    tag_of,
)
from ...conditions.base import TAGS, instance_of
from ...engine.loop import any_of
from ...errors import ConfigurationError, nearest
from ...records import History, Stop
from ...records.codec import Json, flow_text
from ..schema.document import LoopSpec
from ..schema.evaluators import JudgeSpec
from ..schema.fields import duration
from ..yaml.source import Location
from .compilation import Compilation
from .prompts import compile_judge

__all__ = ["compile_conditions", "compile_until", "controller_condition", "sentences_as_judges"]


def compile_until(compilation: Compilation, spec: LoopSpec, path: Location) -> Condition | None:
    """Compile the conditions that end a loop after an iteration."""
    key, values = spec.ends
    at = (*path, key)
    if key == "termination":
        condition = controller_condition(values, at, compilation.problem)
    else:
        condition = compile_conditions(compilation, values, at, sentences=True)
    controls = key == "termination" or is_controller_json(values)
    # A loop controller ends when its evaluation passes, whatever its conditions say.
    if controls and has_goal(condition) and not compilation.project.settings.former:
        return any_of(condition, Passed())
    return condition


def compile_conditions(
    compilation: Compilation, data: Json, path: Location, *, sentences: bool = False
) -> Condition | None:
    """Compile a list or tree of conditions; None if it is empty or has problems.

    Args:
        compilation: the document.
        data: the value in the document.
        path: its place.
        sentences: whether a text with a space is a sentence for a judge.
    """
    if data is None:
        return None
    if isinstance(data, str) and data not in TAGS and (sentences or " " in data.strip()):
        return _sentence(compilation, {"sentence": data}, path, allowed=sentences)
    if isinstance(data, list):
        return _combine(compilation, AnyOf, data, path, sentences=sentences)
    if is_controller_json(data):
        return controller_condition(data, path, compilation.problem)
    if isinstance(data, Mapping) and "python" in data:
        return _python_condition(compilation, data, path)
    if isinstance(data, Mapping):
        tags = list(data)
        if len(tags) > 1:
            # Several keys in one mapping mean "any of", like the items of a list.
            items = [{tag: data[tag]} for tag in tags]
            return _combine(compilation, AnyOf, items, path, tags, sentences=sentences)
        if tags and tags[0] in ("any_of", "all_of"):
            kind = AnyOf if tags[0] == "any_of" else AllOf
            inner = data[tags[0]]
            items = inner if isinstance(inner, list) else [inner]
            return _combine(compilation, kind, items, (*path, tags[0]), sentences=sentences)
        if tags == ["judged"]:
            value = data["judged"]
            fields = value if isinstance(value, Mapping) else {"sentence": value}
            return _sentence(compilation, fields, (*path, "judged"), allowed=sentences)
    try:
        return from_json(_with_seconds(data))
    except ConfigurationError as error:
        tag = next(iter(data), None) if isinstance(data, Mapping) else None
        at = path if tag is None else (*path, tag)
        compilation.problem(at, str(error), key=tag is not None, own=True)
        return None


def _sentence(
    compilation: Compilation, fields: Mapping[str, Json], path: Location, *, allowed: bool
) -> Condition | None:
    """Compile a sentence for a judge, with the model and the settings of the document."""
    text = fields.get("sentence")
    # A sentence has a space; a single unknown word is a misspelt condition.
    if isinstance(text, str) and " " not in text.strip() and path[-1] != "judged":
        known = nearest(text, TAGS)
        message = f"{text!r} is neither a condition nor a sentence{known}"
        compilation.problem(path, message, own=True)
        return None
    if not allowed:
        compilation.problem(
            path,
            "a sentence is asked after an iteration, and guards are checked before each step; move it to until",
        )
        return None
    condition: Condition | None = compilation.attempt(
        path, lambda: from_json({"judged": dict(fields)})
    )
    if not isinstance(condition, Judged):
        return condition
    spec = JudgeSpec(criterion=condition.sentence, model=condition.model or None)
    judge = compile_judge(compilation, spec, path)
    return None if judge is None else replace(condition, judge=judge)


def sentences_as_judges(
    compilation: Compilation, spec: LoopSpec, path: Location
) -> tuple[list[JudgeSpec], Condition | None]:
    """Return the judges and the condition of `until` as earlier versions compiled them, for their fingerprints."""
    judges: list[JudgeSpec] = []

    def walk(data: Json) -> Json:
        if isinstance(data, str) and data not in TAGS:
            judges.append(JudgeSpec(criterion=data))
            return "passed"
        if isinstance(data, list):
            return [walk(item) for item in data]
        if isinstance(data, Mapping) and len(data) == 1:
            tag, value = next(iter(data.items()))
            return {tag: walk(value)} if tag in ("any_of", "all_of") else data
        return data

    walked = spec.model_copy(update={"until": walk(spec.until)})
    return judges, compile_until(compilation, walked, path)


def _python_condition(
    compilation: Compilation, data: Mapping[str, Json], path: Location
) -> Condition | None:
    """Compile a condition of the user: a Python class and its arguments."""
    reference, at = data["python"], (*path, "python")
    if not isinstance(reference, str):
        compilation.problem(
            at,
            f"{flow_text(reference)} is not a class reference; write package.module:Class",
            key=True,
        )
        return None
    kind = compilation.function(at, reference)
    if kind is None:
        return None
    if not compilation.project.execute:
        return NotImported(reference, dict(data))
    values = {str(name): value for name, value in data.items() if name != "python"}

    def make() -> Condition:
        return instance_of(reference, kind, values)

    result: Condition | None = compilation.attempt(at, make)
    return result


def _with_seconds(data: Json) -> Json:
    """Return a condition with a timeout such as `30s` in seconds."""
    # Conditions take seconds only; units are a convenience of documents.
    value = data.get("timeout") if isinstance(data, Mapping) else None
    if isinstance(value, Mapping) and isinstance(value.get("seconds"), str):
        value = value["seconds"]
    if not isinstance(value, str):
        return data
    try:
        return {"timeout": duration(value)}
    except PydanticCustomError as error:
        raise ConfigurationError(f"timeout: {error.message()}") from None


def _combine(
    compilation: Compilation,
    kind: type[AnyOf | AllOf],
    items: list[Json],
    path: Location,
    keys: list[str] | None = None,
    *,
    sentences: bool,
) -> Condition | None:
    if not items:
        compilation.problem(
            path, f"{tag_of(kind)}: the list of conditions is empty; add at least one"
        )
        return None
    places = [path] * len(items) if keys else [(*path, i) for i in range(len(items))]
    result = [
        compile_conditions(compilation, item, at, sentences=sentences)
        for item, at in zip(items, places, strict=True)
    ]
    combined = tuple(c for c in result if c is not None)
    return (combined[0] if len(combined) == 1 else kind(combined)) if combined else None


Report = Callable[[Location, str], None]
# type: its fields, and the required ones of these
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "confidence": (("threshold", "min_iterations"), ("threshold",)),
    "max_iterations": (("limit",), ("limit",)),
    "timeout": (("duration_ms",), ("duration_ms",)),
    "no_improvement": (("patience", "min_delta"), ("patience",)),
    "combined": (("operator", "conditions"), ("operator", "conditions")),
}


def is_controller_json(data: Json) -> bool:
    """Return whether a value has the form of a loop controller's condition."""
    return isinstance(data, Mapping) and "type" in data


def controller_condition(data: Json, at: Location, report: Report) -> Condition | None:
    """Return the condition of a loop controller's JSON; None if `report` received problems."""
    if not isinstance(data, Mapping):
        report(at, f"{flow_text(data)} is not a condition; write an object with a type")
        return None
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        report(
            (*at, "type"),
            f"unknown type {flow_text(kind)}{nearest(str(kind), _FIELDS) or _all_types()}",
        )
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
        return _controller_leaf(kind, data)
    except ConfigurationError as error:
        report(at, str(error))
        return None


def _controller_leaf(kind: str, data: Mapping[str, Json]) -> Condition:
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


def _all_types() -> str:
    return f"; the types are {', '.join(_FIELDS)}"


@dataclass(frozen=True)
class NotImported(Condition):
    """A condition of the user in a document that is only checked: its class is not imported."""

    reference: str
    written: dict[str, Json] = field(hash=False)

    def check(self, history: History) -> Stop | None:
        """Raise an error, because the class is not imported in a check or a dry run.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            f"{self.reference} is a Python condition, and a dry run of a document imports no Python. "
            "Use a condition of Loopwright, or run the step with loopwright.testing.dry_run."
        )

    def __str__(self) -> str:
        return self.reference

    def to_json(self) -> Json:
        """Return the condition in the form of the document."""
        return dict(self.written)
