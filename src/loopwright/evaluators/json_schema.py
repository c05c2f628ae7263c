"""JSON Schema as a check: every error with its path, bounded patterns, no remote references.

Two departures from the defaults of the library: patterns of a schema are searched with a time limit, and
a reference that is not inside the schema is refused when the check is made, instead of being fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from .._regex import compile_pattern
from ..engine.functions import in_thread
from ..engine.step import FunctionStep, digest_of
from ..errors import ConfigurationError, EvaluationError
from ..models.reply_text import read_json
from ..records import Criterion, Evaluation, codec
from ..records.codec import Json
from ..records.json_schema import Schema, library, validator_of
from .criteria import verdict

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator
    from referencing import Resource
    from referencing._core import Resolver

__all__ = ["json_schema", "schema_check"]

LISTED = 50  # errors in one feedback
MESSAGE = 300  # characters of one error
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def json_schema(schema: Schema, *, name: str = "schema") -> FunctionStep:
    """Make an evaluator that checks an output against a JSON Schema.

    A text output is first read as one strict JSON value, alone or in one code fence; any other text
    fails. All errors (the first 50) become improvements, each with its JSON path. Formats are not
    asserted, as the standard requires. See https://json-schema.org/draft/2020-12.

    Args:
        schema: The schema. The dialect is draft 2020-12 unless `$schema` names another.
        name: The name in the feedback. Default: "schema".

    Returns:
        A step from an output to an Evaluation of score 1.0 or 0.0.

    Raises:
        ConfigurationError: For an invalid schema, or a reference that is not inside it.
        EvaluationError: At run time, of kind `check_error`, if the schema cannot be evaluated, for
            example because it refers to itself without end.

    Example:
        >>> from loopwright import run_sync
        >>> print(run_sync(json_schema({"type": "array", "minItems": 2}), "[1]").output.feedback)
        schema: does not fit in 1 place:
        - $: [1] is too short
    """
    validator = _validator(schema)

    def evaluate(value: Json) -> Evaluation:
        if isinstance(value, str):
            reading = read_json(value)
            if reading.problem:
                return verdict([Criterion(name, False, reading.detail)])
            value = reading.value
        try:
            errors = [_line(error) for error in validator.iter_errors(value)]
        # A pattern's time limit has its own error.
        except EvaluationError:
            raise
        except Exception as error:  # endless recursion, a number that is too large
            raise EvaluationError(
                f"check {name}: the schema cannot be evaluated: {type(error).__name__}: {error}",
                kind="check_error",
                retryable=False,
            ) from error
        # The library's order depends on the order of keys in the schema.
        return _report(name, sorted(errors))

    async def in_background(value: Json) -> Evaluation:
        return cast("Evaluation", await in_thread(evaluate, value))

    return FunctionStep(
        in_background, name=name, fingerprint=digest_of("schema", codec.canonical(schema))
    )


schema_check = json_schema  # the former name, for one release


def _report(name: str, errors: list[str]) -> Evaluation:
    if not errors:
        return verdict([Criterion(name, True)])
    lines = errors[:LISTED]
    if len(errors) > LISTED:
        lines.append(f"and {len(errors) - LISTED} more")
    gap = f"does not fit in {len(errors)} {'place' if len(errors) == 1 else 'places'}"
    feedback = "\n".join([f"{name}: {gap}:", *(f"- {line}" for line in lines)])
    criterion = Criterion(name, False, f"{gap}; {errors[0]}")
    return verdict([criterion], feedback=feedback, improvements=lines)


def _line(error: ValidationError) -> str:
    message = _short(error.message)
    near = library().exceptions.best_match([error])
    if near is not None and near is not error:  # the closest alternative of an anyOf or oneOf
        message = f"{message} (nearest: {near.json_path}: {_short(near.message)})"
    return f"{error.json_path}: {message}"


def _short(message: str) -> str:
    # The beginning names the value, the end the rule that it violates.
    half = MESSAGE // 2
    return message if len(message) <= MESSAGE else f"{message[:half]} … {message[-half:]}"


def _validator(schema: Schema) -> Validator:
    if not isinstance(schema, Mapping):
        raise ConfigurationError(
            f"check: schema: {schema!r} is not an object. Use a JSON Schema as a mapping."
        )
    dialect = schema.get("$schema")
    kind = library().Draft202012Validator
    if dialect is not None:
        # Without a default the library would silently use its newest dialect for an unknown name.
        kind = library().validators.validator_for(schema, default=None)
    if kind is None:
        raise ConfigurationError(
            f"check: schema: $schema: {dialect!r} is not a known dialect. Use for example "
            "'https://json-schema.org/draft/2020-12/schema'."
        )
    try:
        kind.check_schema(schema)
    except library().SchemaError as error:
        raise ConfigurationError(
            f"check: schema: {error.json_path}: {_short(error.message)}"
        ) from None
    _check_parts(schema, kind)
    return validator_of(schema)


def _check_parts(schema: Schema, kind: Any) -> None:
    """Raise an error for a pattern or a reference that would fail only when a value reaches it."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import EMPTY_REGISTRY, specification_with

    root = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    keys: set[str] = set()
    for part, resolver in _parts(root, EMPTY_REGISTRY.resolver_with_root(root)):
        keys.update(part)
        for text in (part.get("pattern"), *part.get("patternProperties", ())):
            if isinstance(text, str):
                # An invalid pattern is reported when the check is made, not in the first iteration.
                compile_pattern(text)
        for reference in (part[key] for key in _REFERENCES if key in part):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise ConfigurationError(
                    f"check: schema: {reference!r} is not in the schema, and remote schemas are not "
                    "fetched. Put it under $defs."
                ) from None
    # The library searches these patterns with `re`, past the search with a time limit.
    if {"patternProperties", "unevaluatedProperties"} <= keys:
        raise ConfigurationError(
            "check: schema: patternProperties together with unevaluatedProperties has no time limit. "
            "Use additionalProperties."
        )


def _parts(
    resource: Resource[Json], resolver: Resolver[Json]
) -> Iterator[tuple[Schema, Resolver[Json]]]:
    if isinstance(resource.contents, Mapping):
        yield resource.contents, resolver
    for inner in resource.subresources():
        yield from _parts(inner, resolver.in_subresource(inner))
