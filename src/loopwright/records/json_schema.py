"""JSON Schema validation: bounded patterns, no remote references, problems in one sentence.

Types are checked as they are: no text is converted to a number or a boolean. A schema and the values may
come from a model or a server, so each pattern is searched with a time limit, and a `$ref` never causes a
request. See https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from .._regex import Pattern, compile_pattern
from ..errors import ConfigurationError, StepError
from .codec import Json

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["Schema", "check_schema", "checker", "library", "problem_with", "validator_of"]

SHOWN = 200  # characters of one problem
Schema = Mapping[str, Json]


def problem_with(value: Json, schema: Schema) -> str:
    """Return the first problem of a value with a JSON Schema in one sentence, or "".

    Raises:
        ConfigurationError: If a reference of the schema cannot be resolved.
    """
    return checker(schema)(value)


def checker(schema: Schema) -> Callable[[Json], str]:
    """Return `problem_with` for one schema and several values."""
    from referencing.exceptions import Unresolvable

    validator = validator_of(schema)

    def check(value: Json) -> str:
        try:
            # All of them, as the order of the library is not that of the places.
            problems = list(validator.iter_errors(value))
        except Unresolvable as error:
            raise ConfigurationError(
                f"schema: $ref {error.ref!r} is not in the schema, and remote schemas are not fetched"
            ) from None
        except RecursionError:
            raise ConfigurationError("schema: its $ref refer to each other without end") from None
        except StepError as error:  # a pattern that takes too long on this value
            return f"the answer: {error}"
        errors = sorted(problems, key=lambda error: (len(error.path), str(error.path)))
        if not errors:
            return ""
        # One sentence: a model that corrects its answer needs the first problem, not a list.
        first = errors[0]
        place = first.json_path if first.path else "the answer"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"{place}: {first.message[:SHOWN]}{more}"

    return check


def check_schema(schema: Schema) -> None:
    """Raise an error for an invalid JSON Schema.

    Raises:
        ConfigurationError: With the place in the schema.
    """
    try:
        type(validator_of(schema)).check_schema(dict(schema))
    except library().SchemaError as error:
        raise ConfigurationError(f"schema: {error.json_path}: {error.message[:SHOWN]}") from None


def validator_of(schema: Schema) -> Validator:
    """Return a validator whose patterns have a time limit and whose references stay in the schema.

    The dialect is the one that `$schema` names, or draft 2020-12.
    """
    import referencing

    library_validators = library().validators
    kind = library_validators.validator_for(dict(schema), library().Draft202012Validator)
    # An empty registry: a reference to another schema cannot be followed.
    return cast(
        "Validator",
        library_validators.extend(kind, _keywords())(dict(schema), registry=referencing.Registry()),
    )


def library() -> Any:
    """Return the `jsonschema` library, whose type stubs lack `extend` with a registry."""
    import jsonschema  # takes 30 ms, and only schemas need it

    return jsonschema


_Matches = Callable[[str, str], bool]


def _keywords() -> dict[str, Callable[..., Iterator[object]]]:
    """Return the keywords that search a pattern, with a time limit.

    A property counts as additional unless `properties` or a pattern names it (JSON Schema 2020-12,
    sections 10.3.2.2 and 10.3.2.3).
    """
    patterns: dict[str, Pattern] = {}  # compiled once for all values of a schema

    def matches(pattern: str, text: str) -> bool:
        if pattern not in patterns:
            patterns[pattern] = compile_pattern(pattern)
        return patterns[pattern].search(text) is not None

    return {
        "pattern": functools.partial(_pattern, matches),
        "patternProperties": functools.partial(_pattern_properties, matches),
        "additionalProperties": functools.partial(_additional_properties, matches),
    }


def _pattern(
    matches: _Matches, validator: Validator, pattern: Json, value: Json, _: Schema
) -> Iterator[object]:
    if not validator.is_type(value, "string") or not isinstance(pattern, str):
        return
    try:
        matched = matches(pattern, value)
    except ConfigurationError as error:  # a server may send a pattern that cannot be compiled
        yield library().ValidationError(str(error))
        return
    if not matched:
        yield library().ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    matches: _Matches, validator: Any, parts: Schema, value: Json, _: Schema
) -> Iterator[object]:
    if not validator.is_type(value, "object"):
        return
    for pattern, part in parts.items():
        for key in (key for key in value if matches(pattern, key)):
            yield from validator.descend(value[key], part, path=key, schema_path=pattern)


def _additional_properties(
    matches: _Matches, validator: Any, part: Json, value: Json, schema: Schema
) -> Iterator[object]:
    if not validator.is_type(value, "object") or part is True:
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key in value:
        if key in named or any(matches(pattern, key) for pattern in patterns):
            continue
        if part is False:
            yield library().ValidationError(f"{key!r} is not among the allowed properties")
        else:
            yield from validator.descend(value[key], part, path=key)
