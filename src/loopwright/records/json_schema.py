"""JSON Schemas: what a value has to meet, and what keeps it from that.

Types are as written: no text is turned into a number or a boolean. See `strict_json` for how a text is
read, and `values` for replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._regex import compile_pattern
from ..errors import ConfigurationError, StepError
from ..records.codec import Json

__all__ = ["check_schema", "checker", "problem_with"]

SHOWN = 200


def problem_with(value: Json, schema: Mapping[str, Json]) -> str:
    """Return what keeps `value` from meeting a JSON Schema, in one sentence, or "".

    Raises:
        ConfigurationError: for a schema whose references lead nowhere.
    """
    return checker(schema)(value)


def checker(schema: Mapping[str, Json]) -> Callable[[Json], str]:
    """Return `problem_with` of one schema, for several values."""
    from referencing.exceptions import Unresolvable

    validator = _validator(schema)

    def check(value: Json) -> str:
        try:
            found = list(validator.iter_errors(value))
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

    return check


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
