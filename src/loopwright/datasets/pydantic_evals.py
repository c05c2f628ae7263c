"""Data sets of pydantic-evals: cases, and the evaluators that have a counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..records.codec import Json
from .foreign import Foreign, ForeignCase, Located, Place, equal_to, of_case, one_of

__all__ = ["read_pydantic_evals"]

_CASE = {"name": "id", "inputs": "inputs", "expected_output": "expected", "metadata": "metadata"}
_TYPES = {
    "int": "integer", "float": "number", "bool": "boolean", "list": "array", "tuple": "array", "dict": "object",
    "NoneType": "null",
}  # fmt: skip
_TEXT = "every text passes `IsInstance: str` here, and so does an output that is no text"
# The parameters of each evaluator in their order; the first one may stand alone.
_PARAMETERS = {
    "EqualsExpected": ("evaluation_name",),
    "Equals": ("value", "evaluation_name"),
    "Contains": ("value", "case_sensitive", "as_strings", "evaluation_name"),
    "IsInstance": ("type_name", "evaluation_name"),
    "MaxDuration": ("seconds",),
    "LLMJudge": ("rubric", "model", "include_input", "include_expected_output", "model_settings", "assertion"),
}  # fmt: skip


def read_pydantic_evals(source: Any) -> Foreign:
    """Return the cases and evaluators of a data set of pydantic-evals; its problems are collected.

    Args:
        source: the text of the file with its positions.
    """
    foreign = Foreign(source)
    data = source.value
    foreign.only((), data, ("$schema", "name", "cases", "evaluators", "report_evaluators"))
    foreign.name = str(data.get("name") or "")
    if data.get("report_evaluators"):
        foreign.refuse(
            ("report_evaluators",), "evaluators of reports have no counterpart; remove them"
        )
    for item, at in foreign.items(data.get("evaluators"), ("evaluators",)):
        if (evaluator := _evaluator(foreign, item, at)) is not None:
            foreign.evaluate.append(Located(evaluator, at))
    for given, at in foreign.items(data["cases"], ("cases",)):
        item = foreign.mapping(given, at)
        foreign.only(at, item, (*_CASE, "evaluators"))
        foreign.mapping(item.get("metadata"), (*at, "metadata"))
        values = {ours: item[key] for key, ours in _CASE.items() if item.get(key) is not None}
        if "inputs" in item:
            values["inputs"] = item["inputs"]
        case = ForeignCase(source.position(at)[0], values)
        own = []
        for spec, place in foreign.items(item.get("evaluators"), (*at, "evaluators")):
            evaluator = of_case(_evaluator(foreign, spec, place), values)
            if evaluator is not None and "judge" in evaluator:
                case.judges.append(Located(evaluator["judge"], place))
            elif evaluator is not None:
                own.append(evaluator)
        if own:
            values["evaluators"] = own
        foreign.cases.append(case)
    return foreign


def _evaluator(foreign: Foreign, spec: Json, at: Place) -> Any:
    """Return an evaluator as in a document; None if it has no counterpart."""
    arguments: Json = None
    name = spec
    if isinstance(spec, Mapping) and {"name", "arguments"} == spec.keys():
        name, arguments = spec["name"], spec["arguments"]
    elif isinstance(spec, Mapping) and len(spec) == 1:
        name, arguments = next(iter(spec.items()))
    parameters = _PARAMETERS.get(name) if isinstance(name, str) else None
    if parameters is None:
        foreign.refuse(
            at, f"{str(name)!r:.60} has no counterpart; there are {', '.join(_PARAMETERS)}"
        )
        return None
    if arguments is None:
        given: dict[str, Json] = {}
    elif isinstance(arguments, Mapping):
        given = {key: item for key, item in arguments.items() if item is not None}
    else:
        listed = arguments if "arguments" in spec and isinstance(arguments, list) else [arguments]
        given = dict(zip(parameters, listed, strict=False))
    foreign.only((*at, name) if name in spec else at, given, parameters)
    if name != "EqualsExpected" and parameters[0] not in given:
        foreign.refuse(at, f"{name} needs `{parameters[0]}`")
        return None
    made = _MAKERS[name](foreign, given, at)
    label = given.get("evaluation_name")
    if label and isinstance(made, dict) and isinstance(made.get("check"), dict):
        made["check"]["name"] = label
    return made


def _contains(_: Foreign, given: Mapping[str, Json], at: Place) -> Json:
    value = given["value"]
    if isinstance(value, str) or given.get("as_strings"):
        if given.get("case_sensitive", True):
            return {"check": {"contains": str(value)}}
        return {"check": {"matches": one_of([str(value)], ignore_case=True)}}
    if isinstance(value, Mapping):
        members = {key: {"const": item} for key, item in value.items()}
        return {
            "check": {"schema": {"type": "object", "required": [*value], "properties": members}}
        }
    return {"check": {"schema": {"type": "array", "contains": {"const": value}}}}


def _is_instance(foreign: Foreign, given: Mapping[str, Json], at: Place) -> Json:
    name = given["type_name"]
    if name == "str":
        foreign.note(at, _TEXT)
        return {"check": {"min_chars": 0}}
    if name not in _TYPES:
        foreign.refuse(
            at,
            f"outputs are JSON, so there is no type {name!r}; there are str, {', '.join(_TYPES)}",
        )
        return None
    return {"check": {"schema": {"type": _TYPES[name]}}}


def _judge(foreign: Foreign, given: Mapping[str, Json], at: Place) -> Json:
    if given.get("assertion") is False:
        foreign.refuse(at, "a judge gives a verdict; remove `assertion: false`")
    settings = foreign.mapping(given.get("model_settings"), at)
    foreign.only(at, settings, ("temperature", "max_tokens"))
    judge: dict[str, Json] = {"criterion": str(given["rubric"]), **settings}
    if given.get("include_expected_output"):
        judge["expected"] = True
    if given.get("include_input"):
        judge["goal"] = "{{ case.inputs }}"
    if "model" in given:
        judge["model"] = given["model"]
    return {"judge": judge}


_MAKERS: dict[str, Callable[[Foreign, Mapping[str, Json], Place], Json]] = {
    "EqualsExpected": lambda *_: {"check": "equals_expected"},
    "Equals": lambda _, given, __: {"check": equal_to(given["value"])},
    "Contains": _contains,
    "IsInstance": _is_instance,
    "MaxDuration": lambda _, given, __: {"check": {"max_seconds": given["seconds"]}},
    "LLMJudge": _judge,
}
