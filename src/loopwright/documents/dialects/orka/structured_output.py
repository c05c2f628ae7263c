"""Structured answers of loop-node documents as JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .schema import SchemaSpec, StructuredSpec

__all__ = ["asks_for_data", "schema_of"]

# What an agent answers whose document turns structured answers on and names no fields.
_DEFAULTS: Mapping[str, SchemaSpec] = {
    "answer": SchemaSpec(
        required=["response"], optional={"confidence": "number", "internal_reasoning": "string"}
    ),
    "binary": SchemaSpec(
        required=["result"],
        optional={"confidence": "number", "reasoning": "string"},
        types={"result": "boolean"},
    ),
    "classification": SchemaSpec(
        required=["category", "confidence"],
        optional={"reasoning": "string", "alternatives": "array"},
        types={"confidence": "number"},
    ),
}
_TYPES = {
    "str": "string", "num": "number", "float": "number", "int": "integer", "bool": "boolean", "list": "array",
    "dict": "object",
}  # fmt: skip
_KNOWN = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_OF_SCHEMAS = frozenset({"type", "properties", "$ref", "anyOf", "oneOf", "allOf"})


def asks_for_data(own: StructuredSpec | None, common: StructuredSpec | None) -> bool:
    """Tell if an agent answers as data: where it or the document says so, or it names fields."""
    said = [each.enabled for each in (own, common) if each is not None and each.enabled is not None]
    return said[0] if said else own is not None and own.json_schema is not None


def schema_of(
    kind: str, own: StructuredSpec | None, common: StructuredSpec | None
) -> dict[str, Any]:
    """Return the JSON Schema of an agent's answer: a schema as it is, a list of fields as one.

    Raises:
        ValidationError: for fields that are no list of names with their types.
    """
    given = next((e.json_schema for e in (own, common) if e is not None and e.json_schema), None)
    if given is not None and _OF_SCHEMAS & given.keys():
        return given
    fields = _DEFAULTS[kind] if given is None else SchemaSpec.model_validate(given)
    optional = fields.optional if isinstance(fields.optional, dict) else {}
    optional = optional or dict.fromkeys(fields.optional, "string")
    types = {**optional, **fields.types}
    strict = any(each.strict for each in (own, common) if each is not None)
    return {
        "type": "object",
        "properties": {
            name: {"type": _type(types.get(name, "string"))}
            for name in (*fields.required, *optional)
        },
        "required": list(fields.required),
        "additionalProperties": not strict,
    }


def _type(given: str) -> str:
    word = given.strip().lower()
    word = _TYPES.get(word, word)
    return word if word in _KNOWN else "string"
