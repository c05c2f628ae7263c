"""Configurations of promptfoo: their tests as cases, and the assertions that have a counterpart."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..records.codec import Json
from .foreign import Foreign, ForeignCase, Located, Place, equal_to, one_of

__all__ = ["read_promptfoo"]

# Keys that say nothing on cases and evaluators: where results go, and who sees them.
_IGNORED = (
    "description", "tags", "outputPath", "sharing", "writeLatestResults", "commandLineOptions", "metadata",
    "$schema",
)  # fmt: skip
_TASK = ("prompts", "providers", "targets", "evaluateOptions")  # of the document, not of its cases
_TEST = ("description", "vars", "assert", "threshold", "metadata", "options")
_OPTIONS = ("provider", "disableVarExpansion", "disableDefaultAsserts")
_ASSERTION = ("type", "value", "weight", "threshold", "metric", "provider")
_ELSEWHERE = "this value is in another file; write it here"
_VARIABLE = re.compile(r"\{\{-?\s*([\w.]+)\s*-?\}\}")
_KNOWN = (
    "equals", "contains", "icontains", "contains-any", "icontains-any", "contains-all", "icontains-all", "regex",
    "is-json", "python", "llm-rubric", "latency", "cost",
)  # fmt: skip


def read_promptfoo(source: Any) -> Foreign:
    """Return the tests of a configuration as cases; its problems are collected.

    Args:
        source: the text of the file with its positions.
    """
    foreign = Foreign(source)
    data = source.value
    foreign.only((), data, ("tests", "defaultTest", *_TASK, *_IGNORED))
    default = foreign.mapping(data.get("defaultTest"), ("defaultTest",))
    foreign.only(("defaultTest",), default, _TEST)
    for test, at in foreign.items(data.get("tests"), ("tests",)):
        _test(foreign, foreign.mapping(test, at), at, default)
    return foreign


def _test(
    foreign: Foreign, test: Mapping[str, Json], at: Place, default: Mapping[str, Json]
) -> None:
    foreign.only(at, test, _TEST)
    both = ((default, ("defaultTest",)), (test, at))

    def merged(name: str) -> dict[str, Json]:
        first, second = (foreign.mapping(one.get(name), (*place, name)) for one, place in both)
        return {**first, **second}

    options, variables, metadata = merged("options"), merged("vars"), merged("metadata")
    foreign.only(
        (*at, "options") if "options" in test else ("defaultTest", "options"), options, _OPTIONS
    )
    for name, value in variables.items():
        place = at if name in (test.get("vars") or {}) else ("defaultTest",)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.startswith("file://"):
                foreign.refuse((*place, "vars", name), _ELSEWHERE)
    asserted = foreign.items(test.get("assert"), (*at, "assert"))
    if not options.get("disableDefaultAsserts"):
        asserted = [*foreign.items(default.get("assert"), ("defaultTest", "assert")), *asserted]
    if "description" in test:
        metadata["description"] = test["description"]
    threshold = test.get("threshold", default.get("threshold"))
    expanded = not options.get("disableVarExpansion")
    for inputs in _combinations(variables, expanded):
        values: dict[str, Json] = {"inputs": inputs}
        if metadata:
            values["metadata"] = metadata
        case = ForeignCase(foreign.source.position(at)[0], values)
        made = (_assertion(foreign, case, assertion, inputs, options) for assertion in asserted)
        items = [item for item in made if item is not None]
        if threshold is not None and (case.judges or case.programs):
            foreign.refuse(
                (*at, "threshold"), "a threshold over judges or programs has no counterpart"
            )
        if items:
            values["evaluators"] = [_together(items, threshold)]
        foreign.cases.append(case)


def _combinations(variables: Mapping[str, Json], expanded: bool) -> Iterator[dict[str, Json]]:
    """Yield the values of one case: of each variable with a list, one item."""
    several = [name for name, value in variables.items() if expanded and isinstance(value, list)]
    for chosen in itertools.product(*(variables[name] for name in several)):
        yield {**variables, **dict(zip(several, chosen, strict=True))}


def _together(items: Sequence[dict[str, Json]], threshold: Json) -> dict[str, Json]:
    """Return the checks of a test as one evaluator, whose score is the weighted share that passes."""
    if len(items) == 1 and threshold is None:
        return {"check": {key: item for key, item in items[0].items() if key != "weight"}}
    names: dict[str, int] = {}
    for item in items:
        number = names[item["name"]] = names.get(item["name"], 0) + 1
        if number > 1:
            item["name"] += f" ({number})"
    return {"checklist": [*items], **({} if threshold is None else {"at_least": threshold})}


def _assertion(
    foreign: Foreign,
    case: ForeignCase,
    assertion: Located,
    variables: Mapping[str, Json],
    options: Mapping[str, Json],
) -> dict[str, Json] | None:
    """Return an assertion as an item of a checklist; a judge or a program is added to the case."""
    data, at = assertion
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
        foreign.refuse(at, "expected an assertion, an object with `type`")
        return None
    kind = data["type"]
    inverse = kind.startswith("not-")
    base = kind.removeprefix("not-")
    if base not in _KNOWN:
        foreign.refuse(at, f"`{kind}` has no counterpart; there are {', '.join(_KNOWN)} and not-…")
        return None
    foreign.only(at, data, _ASSERTION)
    value = data.get("value")
    if isinstance(value, str) and value.startswith("file://") and base != "python":
        foreign.refuse((*at, "value"), _ELSEWHERE)
        return None
    for key in ("weight", "threshold") if base in ("python", "llm-rubric") else ():
        if data.get(key) not in (None, 1):
            foreign.refuse((*at, key), f"of `{kind}` it has no counterpart; remove it")
    if base == "python":
        case.programs.append(Located({"code": value, "inverse": inverse}, (*at, "value")))
        return None
    value = _filled(foreign, value, variables, (*at, "value"))
    if base == "llm-rubric":
        if inverse:
            value = f"This does not hold: {value}"
        judge: dict[str, Json] = {"criterion": value}
        if provider := data.get("provider") or options.get("provider"):
            judge["model"] = provider
        case.judges.append(Located(judge, at))
        return None
    rule = _rule(base, value, data.get("threshold"), inverse)
    if isinstance(rule, str):
        foreign.refuse(at, f"`{kind}`: {rule}")
        return None
    label = data.get("metric") or (f"{kind} {value}" if isinstance(value, str) else kind)
    weight = data.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        foreign.refuse(
            (*at, "weight"), "a weight is a number above 0; remove an assertion that cannot fail"
        )
        return None
    return {"name": label[:60], **rule, **({} if weight == 1 else {"weight": weight})}


def _rule(base: str, value: Json, threshold: Json, inverse: bool) -> dict[str, Json] | str:
    """Return the options of a check, or why there are none."""
    if base in ("latency", "cost"):
        if inverse or isinstance(threshold, bool) or not isinstance(threshold, int | float):
            return "it needs a `threshold`, and has no counterpart with not-"
        return {"max_seconds": threshold / 1000} if base == "latency" else {"max_usd": threshold}
    if threshold is not None:
        return "it has no threshold; remove it"
    if base == "is-json":
        if inverse or not (value is None or isinstance(value, Mapping)):
            return "it takes a JSON Schema or nothing, and has no counterpart with not-"
        return {"schema": value or {}}
    if base == "equals" and isinstance(value, Mapping | list):
        return "texts only, with not-" if inverse else equal_to(value)
    if base == "regex":
        return (
            {"not_matches" if inverse else "matches": value}
            if isinstance(value, str)
            else "it needs a text"
        )
    texts = [_text(one) for one in value] if isinstance(value, list) else [_text(value)]
    if isinstance(value, str) and base.endswith(("-any", "-all")):
        # Commas separate, but for those in quotes.
        cells = next(csv.reader([value], skipinitialspace=True), [])
        texts = [cell.strip() for cell in cells if cell.strip()]
    if (
        value is None
        or not texts
        or not all(texts)
        or (isinstance(value, list) and "-" not in base)
    ):
        return "it needs a value"
    low = base.startswith("i")
    if base == "equals":
        pattern = equal_to(texts[0])["matches"]
    elif base.endswith("-all"):
        # Each somewhere, in any order.
        pattern = f"(?s{'i' * low})\\A{''.join(f'(?=.*{re.escape(one)})' for one in texts)}"
    else:
        pattern = one_of(texts, ignore_case=low)
        if base == "contains" and not inverse:
            return {"contains": texts[0]}
    return {"not_matches" if inverse else "matches": pattern}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _filled(foreign: Foreign, value: Json, variables: Mapping[str, Json], at: Place) -> Json:
    """Return the value of an assertion with the variables of its case."""
    if isinstance(value, list):
        return [_filled(foreign, one, variables, (*at, number)) for number, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    if re.search(r"\{[{%#]", _VARIABLE.sub("", value)):
        foreign.refuse(at, "only {{ variable }} has a counterpart in the value of an assertion")

    def value_of(match: re.Match[str]) -> str:
        found: Json = variables
        for part in match[1].split("."):  # `a.b` is the member `b` of `a`
            found = found.get(part, "") if isinstance(found, Mapping) else ""
        return _text(found)

    return _VARIABLE.sub(value_of, value)
