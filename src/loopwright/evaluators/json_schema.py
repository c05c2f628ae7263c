"""JSON Schema as a check: every error with its path, safe patterns, and no reference off the page.

Two departures from the library's defaults: regular expressions of a schema are searched with a time
limit, and a reference that is not inside the schema is refused when the check is made, instead of
being fetched when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._regex import compile_pattern
from ..engine.step import FunctionStep, digest_of
from ..engine.threads import in_thread
from ..errors import ConfigurationError, EvaluationError
from ..records import Criterion, Evaluation, codec
from ..records.codec import Json
from .criteria import verdict
from .parsing.text import read_json

__all__ = ["schema_check"]

LISTED = 50  # errors in one feedback
MESSAGE = 300  # characters of one error
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def schema_check(schema: Mapping[str, Json], *, name: str = "schema") -> FunctionStep:
    """Make an evaluator of a JSON Schema (draft 2020-12 unless `$schema` says otherwise).

    A text output is first read as one strict JSON value, alone or in one code fence; if it is none,
    it does not pass. All errors (the first 50) are improvements, each with its JSON path. Formats
    are not asserted, as the standard has it.

    Raises:
        ConfigurationError: for what is no schema, or refers to something outside of it.
        EvaluationError: of kind `check_error`, when a schema cannot be followed to its end.
    """
    validator = _validator(schema)

    def judged(value: Json) -> Evaluation:
        if isinstance(value, str):
            reading = read_json(value)
            if reading.problem:
                return verdict([Criterion(name, False, reading.detail)])
            value = reading.value
        try:
            errors = [_line(error) for error in validator.iter_errors(value)]
        except EvaluationError:
            raise
        except Exception as error:  # a schema that refers to itself for ever, a number too large
            raise EvaluationError(
                f"check {name}: the schema cannot be followed: {type(error).__name__}: {error}",
                kind="check_error",
                retryable=False,
            ) from error
        return _report(name, sorted(errors))

    async def checked(value: Json) -> Evaluation:
        found: Evaluation = await in_thread(judged, value)
        return found

    return FunctionStep(
        checked, name=name, fingerprint=digest_of("schema", codec.canonical(schema))
    )


def _report(name: str, errors: list[str]) -> Evaluation:
    if not errors:
        return verdict([Criterion(name, True)])
    listed = errors[:LISTED]
    if len(errors) > LISTED:
        listed.append(f"and {len(errors) - LISTED} more")
    places = "place" if len(errors) == 1 else "places"
    gap = f"does not fit in {len(errors)} {places}"
    feedback = "\n".join([f"{name}: {gap}:", *(f"- {line}" for line in listed)])
    criterion = Criterion(name, False, f"{gap}; {errors[0]}")
    return verdict([criterion], feedback=feedback, improvements=listed)


def _line(error: Any) -> str:
    from jsonschema.exceptions import best_match

    message = _short(error.message)
    near = best_match([error])
    if near is not error:  # of an anyOf or oneOf: say what the nearest alternative misses
        message = f"{message} (nearest: {near.json_path}: {_short(near.message)})"
    return f"{error.json_path}: {message}"


def _short(message: str) -> str:
    half = MESSAGE // 2
    return message if len(message) <= MESSAGE else f"{message[:half]} … {message[-half:]}"


def _validator(schema: Mapping[str, Json]) -> Any:
    # Here and not at the top: who checks no schema need not load the library.
    from jsonschema import validators
    from jsonschema.exceptions import SchemaError
    from referencing.jsonschema import EMPTY_REGISTRY

    library: Any = validators  # its stubs know less than it does
    if not isinstance(schema, Mapping):
        raise ConfigurationError(f"check: schema: {schema!r} is not an object; give a JSON Schema")
    dialect = schema.get("$schema")
    kind = library.Draft202012Validator
    if dialect is not None:
        kind = library.validator_for(schema, default=None)
    if kind is None:
        raise ConfigurationError(
            f"check: schema: $schema: {dialect!r} is no known dialect; give for example "
            "'https://json-schema.org/draft/2020-12/schema'"
        )
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(
            f"check: schema: {error.json_path}: {_short(error.message)}"
        ) from None
    keywords = _safe_keywords(_compiled(schema, kind, EMPTY_REGISTRY))
    return library.extend(kind, keywords)(schema, registry=EMPTY_REGISTRY)


def _compiled(schema: Mapping[str, Json], kind: Any, registry: Any) -> dict[str, Any]:
    """Return the patterns of a schema, compiled, once its references are known to lead
    somewhere."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    root = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    patterns: dict[str, Any] = {}
    keys: set[str] = set()
    for part, resolver in _parts(root, registry.resolver_with_root(root)):
        keys.update(part)
        for text in (part.get("pattern"), *part.get("patternProperties", ())):
            if isinstance(text, str):
                patterns[text] = compile_pattern(text)
        for reference in (part[key] for key in _REFERENCES if key in part):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise ConfigurationError(
                    f"check: schema: {reference!r} is not in the schema, and nothing is fetched; "
                    "put it under $defs"
                ) from None
    if {"patternProperties", "unevaluatedProperties"} <= keys:
        raise ConfigurationError(
            "check: schema: patternProperties together with unevaluatedProperties has no time "
            "limit; use additionalProperties"
        )
    return patterns


def _parts(resource: Any, resolver: Any) -> Iterator[tuple[Mapping[str, Json], Any]]:
    if isinstance(resource.contents, Mapping):
        yield resource.contents, resolver
    for inner in resource.subresources():
        yield from _parts(inner, resolver.in_subresource(inner))


def _safe_keywords(patterns: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that search a pattern, searching it with a time limit."""
    from jsonschema.exceptions import ValidationError

    def found(pattern: str, text: str) -> bool:
        compiled = patterns.get(pattern) or compile_pattern(pattern)
        return compiled.search(text) is not None

    def pattern_(validator: Any, pattern: str, value: Json, _: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not found(pattern, value):
            yield ValidationError(f"{value!r} does not match {pattern!r}")

    def properties(validator: Any, parts: Any, value: Json, _: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            for pattern, part in parts.items():
                for key in value:
                    if found(pattern, key):
                        yield from validator.descend(
                            value[key], part, path=key, schema_path=pattern
                        )

    def additional(validator: Any, part: Any, value: Json, schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        known, shapes = schema.get("properties", {}), schema.get("patternProperties", {})
        for key in value:
            if key in known or any(found(pattern, key) for pattern in shapes):
                continue
            if part is False:
                yield ValidationError(f"{key!r} is not among the properties that are allowed")
            elif part is not True:
                yield from validator.descend(value[key], part, path=key)

    return {
        "pattern": pattern_,
        "patternProperties": properties,
        "additionalProperties": additional,
    }
