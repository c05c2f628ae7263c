"""Fits a value to a JSON Schema where the meaning is certain.

Changed: integral `4.0` and text `"4"` to numbers, `"80%"` where the maximum is 1, `"true"` to a
boolean; members of an enum and keys to their own case, `_` and `-`. One wrapper or one-element list is
removed, one item becomes a list. A `null` of an optional member and forbidden members are dropped. A
number at most 1e-9 beyond a limit becomes the limit. Nothing else changes: `80` is not 0.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from ...records.codec import Json, canonical
from ...records.json_schema import checker

__all__ = ["fitted"]

EDGE = (
    1e-9  # the error of a sum of rounded parts, such as weights that add up to 1.0000000000000002
)
MAX_DEPTH = 64  # the depth of `strict_json`: a deeper value is never read
_NUMBER_OR_SHARE = re.compile(r"[ \t]*(-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?)[ \t]*(%?)[ \t]*")
_BOOLEANS = {"true": True, "false": False}

Check = Callable[[Json], str]


def fitted(value: Json, schema: Mapping[str, Json], check: Check) -> tuple[Json, str, list[str]]:
    """Return a value that fits, "" and the repairs; or None, the first violation and no repairs.

    `check` returns the first violation of the schema, "" if there is none.
    """
    problem, first = "", ""
    for candidate, done in _shapes(value):
        notes: list[str] = [done] if done else []
        fit = _Fitter(schema, notes).fit(candidate, schema, 0)
        # An empty object would satisfy a schema without required members, although nothing of the reply is left.
        if fit == {} and candidate != {}:
            first = first or check(candidate) or "it has none of the members that were asked for"
            continue
        problem = check(fit)
        if not problem:
            return fit, "", notes
        first = first or problem
    return None, first, []


def _shapes(value: Json) -> Iterator[tuple[Json, str]]:
    """Iterate over a value, the value inside a wrapper, and the list with the value as its only item."""
    # The value itself comes first, so that a value that fits is never taken apart.
    yield value, ""
    if isinstance(value, dict) and len(value) == 1:
        inner = next(iter(value.values()))
        if isinstance(inner, dict | list):
            yield inner, "wrapper taken off"
    if isinstance(value, list) and len(value) == 1:
        yield value[0], "list taken off"
    if isinstance(value, dict):
        yield [value], "made a list"


class _Fitter:
    def __init__(self, root: Mapping[str, Json], notes: list[str]) -> None:
        self.root = root
        self.notes = notes

    def fit(self, value: Json, schema: Json, depth: int) -> Json:
        """Return a value, changed where the schema requires it and the meaning is certain."""
        schema = self._resolved(schema)
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return value
        for kind in ("anyOf", "oneOf"):
            if isinstance(schema.get(kind), list):
                return self._one_of(value, schema[kind], depth)
        # All parts apply at once, so each may change the value that the part before it left.
        for part in schema.get("allOf", ()) if isinstance(schema.get("allOf"), list) else ():
            value = self.fit(value, part, depth + 1)
        types = _types(schema)
        if isinstance(value, dict) and (not types or "object" in types):
            return self._object(value, schema, depth)
        if isinstance(value, list) and (not types or "array" in types):
            return [self.fit(item, schema.get("items"), depth + 1) for item in value]
        if types == {"array"} and self._is_one_item(value, schema.get("items")):
            self.notes.append("made a list")
            return [self.fit(value, schema.get("items"), depth + 1)]
        return self._scalar(value, schema, types)

    def _is_one_item(self, value: Json, items: Json) -> bool:
        """Whether a value can only be an item. A free text can also list several items, or say "none"."""
        items = self._resolved(items)
        if not isinstance(value, str):
            return value is not None and not isinstance(value, list)
        if not isinstance(items, Mapping):
            return False
        return "enum" in items or (bool(_types(items)) and "string" not in _types(items))

    def _resolved(self, schema: Json) -> Json:
        # A schema from a document may refer to itself; a longer chain of references counts as unknown.
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            schema = self.root
            for part in reference.lstrip("#").strip("/").split("/") if reference != "#" else ():
                part = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(schema, Mapping) or part not in schema:
                    return None
                schema = schema[part]
        return None

    def _one_of(self, value: Json, schemas: list[Json], depth: int) -> Json:
        """Return the value in the form of the only alternative that it fits, or unchanged."""
        fitting: dict[str, tuple[Json, list[str]]] = {}
        for schema in schemas:
            schema = self._resolved(schema)
            if not isinstance(schema, Mapping):
                return value
            # References in an alternative point to the definitions of the complete schema.
            standalone = {**schema, "$defs": self.root.get("$defs", {}),
                          "definitions": self.root.get("definitions", {})}  # fmt: skip
            check = checker(standalone)
            notes: list[str] = []
            if not check(value) and not _integral(value, schema):
                return _Fitter(self.root, self.notes).fit(value, schema, depth + 1)
            candidate = _Fitter(self.root, notes).fit(value, schema, depth + 1)
            if not check(candidate):
                fitting.setdefault(canonical(candidate), (candidate, notes))
        # Of two different readings neither is certain.
        if len(fitting) != 1:
            return value
        candidate, notes = next(iter(fitting.values()))
        self.notes += notes
        return candidate

    def _object(self, value: dict[str, Json], schema: Mapping[str, Json], depth: int) -> Json:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        names = self._names(value, properties)
        members: dict[str, Json] = {}
        for key, member in value.items():
            name = names[key]
            if name not in properties:
                if schema.get("additionalProperties") is False and not schema.get(
                    "patternProperties"
                ):
                    self.notes.append("unknown member dropped")
                    continue
                inner = schema.get("additionalProperties")
                members[key] = self.fit(member, inner, depth + 1)
                continue
            part = self._resolved(properties[name])
            # Models write null for "no value"; an optional member means the same when it is absent.
            if member is None and name not in required and not _takes_null(part):
                self.notes.append("null dropped")
                continue
            members[name] = self.fit(member, part, depth + 1)
        return members

    def _names(self, value: Mapping[str, Json], properties: Mapping[str, Json]) -> dict[str, str]:
        """Return the name of each key: its own, or the only similar name that is not used."""
        by_plain_name: dict[str, list[str]] = {}
        for name in properties:
            by_plain_name.setdefault(_plain(name), []).append(name)
        wanted = [_plain(key) for key in value if key not in properties]
        names = {}
        for key in value:
            plain = _plain(key)
            free = [name for name in by_plain_name.get(plain, ()) if name not in value]
            names[key] = key
            # Two keys must never become one: a value would be lost.
            if key not in properties and len(free) == 1 and wanted.count(plain) == 1:
                names[key] = free[0]
                self.notes.append("key spelt as in the schema")
        return names

    def _scalar(self, value: Json, schema: Mapping[str, Json], types: set[str]) -> Json:
        members = schema.get("enum")
        if isinstance(members, list) and isinstance(value, str) and value not in members:
            near = [m for m in members if isinstance(m, str) and _word(m) == _word(value)]
            if len(near) == 1:
                self.notes.append("word spelt as in the schema")
                return near[0]
        converted = value
        if isinstance(value, str) and not members and "string" not in types:
            converted = _of_text(value, schema, types)
        if isinstance(converted, float) and "integer" in types and converted.is_integer():
            converted = int(converted)
        if isinstance(converted, int | float) and not isinstance(converted, bool):
            converted = _on_edge(converted, schema)
        if converted is not value and (type(converted) is not type(value) or converted != value):
            self.notes.append("value written as in the schema")
        return converted


def _types(schema: Mapping[str, Json]) -> set[str]:
    types = schema.get("type")
    if isinstance(types, str):
        return {types}
    return {item for item in types if isinstance(item, str)} if isinstance(types, list) else set()


def _integral(value: Json, schema: Mapping[str, Json]) -> bool:
    return isinstance(value, float) and "integer" in _types(schema)


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, Mapping):
        return True
    types = _types(schema)
    if types:
        return "null" in types
    return "properties" not in schema and "enum" not in schema


def _of_text(text: str, schema: Mapping[str, Json], types: set[str]) -> Json:
    if "boolean" in types and text.strip().lower() in _BOOLEANS:
        return _BOOLEANS[text.strip().lower()]
    match = _NUMBER_OR_SHARE.fullmatch(text)
    if match is None or not types & {"number", "integer"}:
        return text
    # A fraction is exact: "80%" of 1 must be 0.8, not 0.8000000000000000444.
    number = Fraction(match[1])
    if match[2]:
        # Only a maximum of 1 shows that the schema wants a share and not a number of percent.
        if schema.get("maximum") != 1 or isinstance(schema.get("maximum"), bool):
            return text
        number /= 100
    if number.denominator == 1:
        return int(number)
    return float(number) if "number" in types else text


def _on_edge(number: int | float, schema: Mapping[str, Json]) -> int | float:
    for name, sign in (("maximum", 1), ("minimum", -1)):
        edge = schema.get(name)
        if isinstance(edge, int | float) and not isinstance(edge, bool):
            beyond = (number - edge) * sign
            if 0 < beyond <= EDGE:
                return edge
    return number


def _plain(key: str) -> str:
    return re.sub(r"[\s_-]", "", key).casefold()


def _word(text: str) -> str:
    return text.strip().casefold()
