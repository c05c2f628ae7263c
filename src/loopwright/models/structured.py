"""Structured output: from the text of a reply to a value that meets a JSON Schema, or a sentence.

Rules:

1. One code fence around the whole is taken off; nothing else is repaired.
2. Strict JSON: no NaN or Infinity, no key twice, at most 64 levels and 5 MB.
3. Types are as written: no text is turned into a number or a boolean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from ..codec import Json
from ..errors import ConfigurationError, StepError
from ..patterns import compile_pattern

__all__ = ["check_schema", "parse", "problem_with", "read_json"]

MAX_BYTES = 5_000_000
MAX_DEPTH = 64
SHOWN = 200
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


def parse(text: str, schema: Mapping[str, Json]) -> tuple[Json, str]:
    """Return the value in `text` and "", or None and what is wrong with it in one sentence.

    Raises:
        ConfigurationError: for a schema whose references lead nowhere.
    """
    value, problem = read_json(text)
    if problem:
        return None, problem
    problem = problem_with(value, schema)
    return (None, problem) if problem else (value, "")


def read_json(text: str) -> tuple[Json, str]:
    """Return the value of strict JSON text and "", or None and what is wrong with it."""
    if len(text) > MAX_BYTES:
        return None, f"the answer has {len(text):,} characters; at most {MAX_BYTES:,} are read"
    fenced = _FENCE.fullmatch(text.strip())
    body = fenced[1] if fenced else text.strip()
    if _depth(body) > MAX_DEPTH:
        return None, f"the JSON is nested deeper than {MAX_DEPTH} levels"
    try:
        decoder = json.JSONDecoder(
            object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
        )
        return decoder.decode(body), ""
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return None, f"the answer is not JSON: {error.msg} at {place}, in {_shown(body)}"
    except (ValueError, RecursionError) as error:
        return None, f"the answer is not strict JSON: {error}"


def problem_with(value: Json, schema: Mapping[str, Json]) -> str:
    """Return what keeps `value` from meeting a JSON Schema, in one sentence, or "".

    Raises:
        ConfigurationError: for a schema whose references lead nowhere.
    """
    from referencing.exceptions import Unresolvable

    try:
        found = list(_validator(schema).iter_errors(value))
    except Unresolvable as error:
        raise ConfigurationError(
            f"schema: $ref {error.ref!r} leads nowhere; only references inside it are followed"
        ) from None
    except RecursionError:
        raise ConfigurationError("schema: its $ref go round in a circle") from None
    errors = sorted(found, key=lambda error: (len(error.path), str(error.path)))
    if not errors:
        return ""
    first = errors[0]
    place = first.json_path if first.path else "the answer"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{place}: {first.message[:SHOWN]}{more}"


def check_schema(schema: Mapping[str, Json]) -> None:
    """Refuse what is no JSON Schema.

    Raises:
        ConfigurationError: naming the place in the schema.
    """
    from jsonschema.exceptions import SchemaError

    try:
        type(_validator(schema)).check_schema(dict(schema))
    except SchemaError as error:
        raise ConfigurationError(f"schema: {error.json_path}: {error.message[:SHOWN]}") from None


def _validator(schema: Mapping[str, Json]) -> Any:
    # 30 ms to import, and only structured replies need it.
    import jsonschema
    import referencing

    base = jsonschema.validators.validator_for(dict(schema), jsonschema.Draft202012Validator)
    extend: Any = jsonschema.validators.extend
    made = extend(base, {"pattern": _pattern})
    # An empty registry: a schema's $ref never makes a request.
    return made(dict(schema), registry=referencing.Registry())


def _pattern(_: Any, pattern: Any, value: Json, __: Any) -> Iterator[Exception]:
    """The `pattern` keyword under our own time limit: the text it reads is a model's."""
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, str) or not isinstance(pattern, str):
        return
    try:
        found = compile_pattern(pattern).search(value)
    except (ConfigurationError, StepError) as error:
        yield ValidationError(str(error))
        return
    if found is None:
        yield ValidationError(f"{value[:60]!r} does not match {pattern!r}")


def _object(pairs: list[tuple[str, Json]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:40]} is too large for a JSON number")
    return found


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


_MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def _depth(text: str) -> int:
    """Return how deep brackets are nested, in one pass: a parser would recurse."""
    depth = deepest = 0
    quoted = False
    for found in _MARKS.finditer(text):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and len(mark) == 1:
            depth += 1 if mark in "[{" else -1
            deepest = max(deepest, depth)
    return deepest


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
