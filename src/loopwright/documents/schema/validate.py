"""The validation of values by models: every problem at its position, with the nearest valid name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import UnionType
from typing import Annotated, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ...errors import DocumentError, Problem, listed, nearest
from ...records.codec import Json, flow_text
from ..yaml.bounds import shorten
from ..yaml.reader import Location, Source
from .fields import NAME_PATTERN

__all__ = [
    "NOTHING_LEFT_OUT",
    "Gaps",
    "Hint",
    "Kind",
    "checked",
    "no_hint",
    "placeholder",
    "readable",
    "validated",
]


Model = TypeVar("Model", bound=BaseModel)
Hint = Callable[[Location], str]
# Names of keys in other formats, and the names here.
_SYNONYMS = {
    "depends_on": "needs", "when": "if", "condition": "if", "command": "shell", "cmd": "shell", "script": "shell",
    "on_error": "on_failure", "retries": "max_retries", "max_loops": "max_iterations", "max_rounds": "max_iterations",
    "regex": "matches", "pattern": "matches",
}  # fmt: skip
_LONG = 60  # characters of a value that a message shows
_KEYS_SHOWN = 3  # keys of a mapping in a message
_PASSES = 4  # over a value with problems; each pass can reveal problems that earlier ones hid
_Error = dict[str, Json]  # of pydantic
_Item = tuple[Location, _Error]
# Errors of objects that lack one of several fields.
_NEEDS_ONE = frozenset({"action", "check", "document", "evaluate", "adapt", "strategy"})


def no_hint(_: Location) -> str:
    """Return no hint, at any position."""
    return ""


def validated(
    model: type[Model], value: Json, source: Source, at: Location = (), hint: Hint = no_hint
) -> Model:
    """Return `value` as a model. A text field receives a scalar as it is written, such as `1.0`.

    `hint` returns the advice for an unknown key at a path, "" if there is none.

    Raises:
        DocumentError: With every problem, each with its position and the nearest valid name.
    """
    result, wrong = checked(model, value, source, at, hint)
    if result is None:
        raise DocumentError(list(wrong.values()))
    return result


Wrong = dict[tuple[Location, str], Problem]  # by path and message


def checked(
    model: type[Model], value: Json, source: Source, at: Location, hint: Hint
) -> tuple[Model | None, Wrong]:
    """Return `value` as a model, or None and its problems by path and message.

    Pydantic runs the validators of an object only if all of its fields are valid. So invalid fields are removed, and
    the rest is checked again, because one problem of an object must not hide another.
    """
    result, wrong, _ = _examined(model, value, source, at, hint)
    return result, wrong


def _examined(
    model: type[Model], value: Json, source: Source, at: Location, hint: Hint
) -> tuple[Model | None, Wrong, Json]:
    """Return what `checked` returns, and the value without its invalid fields."""
    result, errors = _validate(model, value)
    if errors:
        repaired = _as_written(errors, value, source, at)
        # YAML reads `version: 1.10` as a number, but the field is a text.
        if repaired is not None:
            value = repaired
            result, errors = _validate(model, value)
    wrong: Wrong = {}
    removed: set[Location] = set()
    for _ in range(_PASSES):
        paths = []
        for place, item in _relevant([(_place(item["loc"], value), item) for item in errors]):
            if _follows(item, place, removed):
                continue
            # This error is reported by the object, but belongs to one of its fields.
            misplaced = item["type"] == "misplaced"
            path = (*place, item["ctx"]["name"]) if misplaced else place
            message = _message(item, place, model, hint)
            # The position of the key, because the value is not the mistake.
            key = misplaced or item["type"] == "extra_forbidden"
            problem = source.problem((*at, *path), message, key=key)
            wrong.setdefault(((*at, *path), message), problem)
            paths.append(path)
        # Removed and not replaced: no value would fit every type.
        # Items of lists stay: without one, the indices of the others would be wrong.
        paths = [path for path in paths if path and isinstance(path[-1], str)]
        if not paths:
            break
        value = _without(value, paths)
        removed.update(paths)
        _, errors = _validate(model, value)
    return (None if wrong else result), wrong, value


def _validate(model: type[Model], value: Json) -> tuple[Model | None, list[_Error]]:
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, [dict(item) for item in error.errors(include_url=False)]


def _follows(item: _Error, place: Location, removed: set[Location]) -> bool:
    """Return whether an error exists only because wrong fields of its object were removed."""
    if (*place, item["loc"][-1] if item["loc"] else "") in removed:
        return True
    # An object whose only action was wrong and is removed now "has none": the author named one.
    incomplete = item["type"] in _NEEDS_ONE and item.get("ctx", {}).get("present") in (
        None,
        "has none",
    )
    return incomplete and any(path[:-1] == place for path in removed)


def _without(value: Json, paths: list[Location]) -> Json:
    """Return a copy of a value without the fields at some paths."""
    result = copy.deepcopy(value)
    for path in sorted(
        paths, key=len, reverse=True
    ):  # inner fields before the objects that contain them
        outer = result
        for part in path[:-1]:
            outer = outer[part]
        outer.pop(path[-1], None)
    return result


def _as_written(errors: list[_Error], value: Json, source: Source, at: Location) -> Json | None:
    """Return a copy whose text fields hold their scalars as written; None if it would be the same."""
    repaired = None
    for item in errors:
        place = _place(item["loc"], value)
        text = source.text((*at, *place)) if place and item["type"] == "string_type" else None
        if text is None or isinstance(item["input"], dict | list | type(None)):
            continue
        # Copied only if needed: few documents need it, and expanded aliases are large.
        repaired = copy.deepcopy(value) if repaired is None else repaired
        outer = repaired
        for part in place[:-1]:
            outer = outer[part]
        outer[place[-1]] = text
    return repaired


def _place(loc: Location, value: Json) -> Location:
    """Return the part of a location that is in the value: pydantic adds the names of union members."""
    place: list[str | int] = []
    for part in loc:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        place.append(part)
    return tuple(place)


_TYPES = {
    "model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list", "string_type": "text",
    "int_type": "an integer", "float_type": "a number", "bool_type": "true or false",
}  # fmt: skip


def _relevant(items: list[_Item]) -> Iterator[_Item]:
    """Iterate over the errors, without those of union members that do not apply to a value.

    Pydantic reports an error for each member of a union. A value that fits no type of its union is one problem. It
    is not a problem if the value has one of the types and a problem inside, or if it is a word and the union allows
    certain words.
    """
    for place, item in items:
        if not _wrong_type(item):
            yield place, item
            continue
        same = [other for at, other in items if at == place]
        inside = any(
            at[: len(place)] == place and (len(at) > len(place) or not _wrong_type(other))
            for at, other in items
        )
        word = any(o["type"] == "literal_error" for o in same) and isinstance(item["input"], str)
        if inside or (word and item["type"] != "literal_error"):
            continue
        kinds = [_TYPES[o["type"]] for o in same if o["type"] in _TYPES]
        yield place, {**item, "kinds": list(dict.fromkeys(kinds))} if kinds and not word else item


def _wrong_type(item: Mapping[str, Json]) -> bool:
    return item["type"] in _TYPES or item["type"] == "literal_error"


def _message(item: dict[str, Json], place: Location, model: type[BaseModel], hint: Hint) -> str:
    """Return the message of an error of pydantic."""
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key {str(place[-1])!r}{_key_hint(item, place, model, hint)}"
    if kind == "missing":
        key = str(item["loc"][-1])
        return f"needs {key!r}" + ("; begin with schema: loopwright/1" if key == "schema" else "")
    if "kinds" in item:
        expected = " or ".join(item["kinds"])
        return (
            f"expected {expected}, not {_kind_for_display(item['input'])}{_list_hint(item, place)}"
        )
    if kind == "too_short":
        count, minimum = item["ctx"]["actual_length"], item["ctx"]["min_length"]
        noun = "item" if minimum == 1 else "items"
        return f"list should have at least {minimum} {noun}, not {count}"
    if kind in ("literal_error", "enum"):
        choices = item["ctx"]["expected"]
        words = choices.replace("'", "").replace(" or ", ", ").split(", ")
        near = nearest(str(item["input"])[:60], words) if len(words) > 1 else ""
        return f"{shorten(_for_display(item['input']))} is not {choices}{near}"
    if kind == "string_pattern_mismatch":
        display = shorten(_for_display(item["input"]))
        marks = "letters, digits, _, - and spaces"
        if item["ctx"]["pattern"].isascii() and r"\p" not in item["ctx"]["pattern"]:
            marks = "letters from a to z, digits and _"
        return f"{display} is not a name; use {marks}, starting with a letter"
    message: str = item["msg"][0].lower() + item["msg"][1:]
    display = _for_display(item["input"])
    return message if kind in _COMPLETE or len(display) > _LONG else f"{message}, not {display}"


# The errors of our own validators, whose messages quote the value already.
_COMPLETE = frozenset(
    {
        "address",
        "action",
        "misplaced",
        "check",
        "document",
        "evaluate",
        "adapt",
        "duration",
        "loop",
        "input",
    }
)


def _key_hint(item: Mapping[str, Json], place: Location, model: type[BaseModel], hint: Hint) -> str:
    """Return what to write instead of an unknown key."""
    key = str(place[-1])
    if text := hint(place):
        return f"; {text}"
    if item["input"] is None and " " in key:
        # In {judge: short, and clear} the text after the comma is a key of YAML.
        return "; put quotes around a text that contains a comma"
    names = _keys_at(model, place[:-1])
    synonym = _SYNONYMS.get(key, "")
    # Only if the synonym is valid at this place.
    if synonym in names:
        return f"; use {synonym!r} instead"
    if "execute" in names and key in ("prompt", "shell", "python", "workflow", "set"):
        return "; put the action under execute"
    return nearest(key[:60], names) or listed(key, names, more="see loopwright schema")


def _for_display(value: Json) -> str:
    """Return a value for a message; only the start of a long one is written."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[: _LONG + 1])
    if isinstance(value, list | dict) and len(value) > _LONG:
        value = type(value)(islice(value.items() if isinstance(value, dict) else value, _LONG))
    return flow_text(value)


def _kind_for_display(value: Json) -> str:
    """Return a value of a wrong type for a message: a mapping by its first keys, as its author wrote them."""
    if not isinstance(value, dict) or not value:
        return shorten(_for_display(value))
    keys = ", ".join(str(key) for key in islice(value, _KEYS_SHOWN))
    noun = "key" if len(value) == 1 else "keys"
    return f"a mapping with the {noun} {shorten(keys)}{', …' if len(value) > _KEYS_SHOWN else ''}"


def _list_hint(item: Mapping[str, Json], place: Location) -> str:
    """Return how to write steps that are a mapping of names."""
    value = item["input"]
    if not place or place[-1] != "steps" or not isinstance(value, dict) or not value:
        return ""
    return (
        f"; write each step as an item that begins with - name: {shorten(str(next(iter(value))))}"
    )


def _keys_at(model: type[BaseModel], place: Location) -> list[str]:
    """Return the keys that the model at a place takes."""
    kinds: list[type[BaseModel]] = [model]
    by_name = False  # whether the next part is a name that the document chose
    for part in place:
        if isinstance(part, int) or by_name:
            by_name = False
            continue
        for kind in kinds:
            kind.model_rebuild()  # a model that was not used yet has no types of its fields
        annotations = [
            field.annotation
            for kind in kinds
            for name, field in kind.model_fields.items()
            if part in (name, field.alias)
        ]
        kinds = [inner for annotation in annotations for inner in _models_in(annotation)]
        by_name = any(get_origin(annotation) is dict for annotation in annotations)
    return list(dict.fromkeys(f.alias or n for kind in kinds for n, f in kind.model_fields.items()))


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, list, dict, Annotated):
        return [m for inner in get_args(annotation) for m in _models_in(inner)]
    return []


_BY_NAME = (
    "tools",
    "servers",
    "prices",
    "inputs",
)  # mappings whose entries are left out one by one


@dataclass(frozen=True)
class Gaps:
    """The parts that are left out of a document because of their problems.

    `steps` are the paths of the steps. `names` means that the name of a step cannot be read, `head` that a key of
    the document itself is invalid, which may be the model or the tools. `tools` are the names of tools. `fields` are
    the paths of single fields, whose objects stay.
    """

    steps: frozenset[Location] = frozenset()
    names: bool = False
    head: bool = False
    tools: frozenset[str] = frozenset()
    fields: frozenset[Location] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.steps or self.names or self.head or self.tools or self.fields)

    def explains(self, path: Location) -> bool:
        """Return whether a problem at a path may only follow from a field that was left out there, or inside."""
        return any(path == at[: len(path)] or path[:-1] == at[:-1] for at in self.fields)


NOTHING_LEFT_OUT = Gaps()


@dataclass(frozen=True)
class Kind(Generic[Model]):
    """A kind of document: the lists of its steps, the required keys of its head, and the stand-in of a step.

    With `keeps`, a step with an invalid field stays without that field, so that the rest of it is checked too.
    """

    model: type[Model]
    lists: frozenset[str]
    head: Mapping[str, Json]
    stand_in: Callable[[str, str, Json], Json]
    version: str
    hint: Hint = field(default=no_hint)
    keeps: bool = False


def placeholder(name: str) -> dict[str, Json]:
    """Return a stand-in for a step that is left out."""
    # A loop, so that names such as `loops.NAME` and `loop.output` are defined for later steps.
    return {"name": name, "loop": {"execute": {"set": None}, "max_iterations": 1}}


def readable(
    kind: Kind[Model], value: Json, source: Source
) -> tuple[Model | None, list[Problem], Gaps]:
    """Return a document without its invalid parts (None if none is left), its problems, and the gaps."""
    result, wrong, repaired = _examined(kind.model, value, source, (), kind.hint)
    if not wrong:
        return result, [], NOTHING_LEFT_OUT
    problems = list(wrong.values())
    paths = list(dict.fromkeys(path for path, _ in wrong))
    # With an unknown version, the rest of the document cannot be judged.
    if any(path[:1] == (kind.version,) for path in paths):
        return None, problems, NOTHING_LEFT_OUT
    rest = copy.deepcopy(repaired if kind.keeps else value)
    gaps = NOTHING_LEFT_OUT
    if kind.keeps:
        gaps = Gaps(head=any(len(path) < 2 for path in paths), fields=frozenset(paths))
        rest, paths, fields = _pruned(kind.model, {**kind.head, **rest})
        gaps = replace(gaps, fields=gaps.fields | fields)
    for path in paths:
        gaps = _leave_out(kind, rest, path, gaps)
    rest = {**kind.head, **rest}
    result, more = checked(kind.model, rest, source, (), kind.hint)
    return (None if more else result), problems, gaps


def _pruned(model: type[Model], value: Json) -> tuple[Json, list[Location], set[Location]]:
    """Return a value without the objects that lack a field which was removed.

    Also return the paths that are still invalid, items of lists or the value itself, and those of the removed objects.
    """
    removed: set[Location] = set()
    while True:
        _, errors = _validate(model, value)
        paths = list(dict.fromkeys(_place(item["loc"], value) for item in errors))
        fields = [path for path in paths if path and isinstance(path[-1], str)]
        if not fields:
            return value, paths, removed
        value = _without(value, fields)
        removed.update(fields)


def _leave_out(kind: Kind[Model], value: dict[str, Json], path: Location, gaps: Gaps) -> Gaps:
    """Remove an invalid part from a document: the step around it, or a part of its head."""
    # The innermost step around it, if there is one.
    ends = (n for n in range(len(path), 1, -1) if isinstance(path[n - 1], int))
    if end := next((n for n in ends if path[n - 2] in kind.lists), 0):
        return _leave_step_out(kind, value, path[:end], gaps)
    if not path:
        return replace(gaps, head=True)
    key = str(path[0])
    inner = value.get(key)
    # The other entries of the mapping stay usable for the rest of the check.
    if key in _BY_NAME and len(path) > 1 and isinstance(inner, dict):
        inner.pop(path[1], None)
        return replace(gaps, tools=gaps.tools | {str(path[1])})
    value.pop(key, None)
    return replace(gaps, head=True)


def _leave_step_out(kind: Kind[Model], value: dict[str, Json], at: Location, gaps: Gaps) -> Gaps:
    outer: Json = value
    for part in at[:-1]:
        try:
            outer = outer[part]
        except (KeyError, IndexError, TypeError):
            return gaps  # the outer step is already left out
    import regex  # a document without problems needs it not

    index = int(at[-1])
    if not isinstance(outer, list) or index >= len(outer):
        return gaps
    raw = outer[index]
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or regex.fullmatch(NAME_PATTERN, name) is None:
        name = f"step {index + 1}"
        gaps = replace(gaps, names=True)
    outer[index] = kind.stand_in(str(at[-2]), name, raw)
    return replace(gaps, steps=gaps.steps | {at})
