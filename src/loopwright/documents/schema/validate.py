"""Values against models: every problem at its place, with the nearest valid name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import UnionType
from typing import Annotated, Generic, TypeVar, Union, get_args, get_origin

import regex
from pydantic import BaseModel, ValidationError

from ...errors import DocumentError, Problem, listed, nearest
from ...records.codec import Json
from ..yaml.reader import Location, Source
from ..yaml.scalars import shorten

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
Hint = Callable[[tuple[str | int, ...]], str]
# What other formats call a key of this one.
_SYNONYMS = {
    "depends_on": "needs", "when": "if", "condition": "if", "command": "shell", "cmd": "shell", "script": "shell",
    "on_error": "on_failure", "retries": "max_retries", "max_loops": "max_iterations", "max_rounds": "max_iterations",
    "regex": "matches", "pattern": "matches",
}  # fmt: skip
_LONG = 60  # characters of a value that a message shows
_Item = tuple[tuple[str | int, ...], dict[str, Json]]


def no_hint(_: tuple[str | int, ...]) -> str:
    """Return no hint, at any position."""
    return ""


def validated(
    model: type[Model],
    value: Json,
    source: Source,
    at: tuple[str | int, ...] = (),
    hint: Hint = no_hint,
) -> Model:
    """Return `value` as a model; text fields take the text as it was written.

    `hint` says of the path of an unknown key what to write instead, "" if it does not know.

    Raises:
        DocumentError: with every problem, each with its place and the nearest valid name.
    """
    result, wrong = checked(model, value, source, at, hint)
    if result is None:
        raise DocumentError(list(wrong.values()))
    return result


Wrong = dict[tuple[tuple[str | int, ...], str], Problem]  # by path and message


def checked(
    model: type[Model], value: Json, source: Source, at: tuple[str | int, ...], hint: Hint
) -> tuple[Model | None, Wrong]:
    """Return `value` as a model, or None and what is wrong in it, by path and message."""
    try:
        return model.model_validate(value), {}
    except ValidationError as error:
        repaired = _as_written(error, value, source, at)
        if repaired is None:
            return None, _problems(error, model, value, source, at, hint)
    try:
        return model.model_validate(repaired), {}
    except ValidationError as error:
        return None, _problems(error, model, repaired, source, at, hint)


def _as_written(
    error: ValidationError, value: Json, source: Source, at: tuple[str | int, ...]
) -> Json | None:
    """Return a copy in which scalars that should be text are the text that was written; None if there are none."""
    repaired = None
    for item in error.errors(include_url=False):
        place = _place(item["loc"], value)
        text = source.text((*at, *place)) if item["type"] == "string_type" else None
        if (
            text is None
            or not place
            or isinstance(item["input"], (dict, list))
            or item["input"] is None
        ):
            continue
        # Few documents need it, and a bomb of aliases is large.
        repaired = copy.deepcopy(value) if repaired is None else repaired
        parent = repaired
        for part in place[:-1]:
            parent = parent[part]
        parent[place[-1]] = text
    return repaired


def _place(loc: tuple[str | int, ...], value: Json) -> tuple[str | int, ...]:
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


def _problems(
    error: ValidationError,
    model: type[BaseModel],
    value: Json,
    source: Source,
    at: tuple[str | int, ...],
    hint: Hint,
) -> Wrong:
    result: Wrong = {}
    items = [(_place(item["loc"], value), dict(item)) for item in error.errors(include_url=False)]
    for place, item in _relevant(items):
        misplaced = item["type"] == "misplaced"
        message = _message(item, place, model, hint)
        path = (*at, *place, item["ctx"]["name"]) if misplaced else (*at, *place)
        key = misplaced or item["type"] == "extra_forbidden"
        result.setdefault((path, message), source.problem(path, message, key=key))
    return result


_TYPES = {
    "model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list", "string_type": "text",
    "int_type": "an integer", "float_type": "a number", "bool_type": "true or false",
}  # fmt: skip


def _relevant(items: list[_Item]) -> Iterator[_Item]:
    """Iterate over the errors of what was meant: a value of several kinds is one of them, not all.

    What is of no kind at a place is told in one problem; it is not told if the value is of some
    kind and wrong inside, or one of a few words and none of them.
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


def _message(
    item: dict[str, Json], place: tuple[str | int, ...], model: type[BaseModel], hint: Hint
) -> str:
    kind = item["type"]
    if kind == "extra_forbidden" and (text := hint(place)):
        return f"unknown key {str(place[-1])!r}; {text}"
    if kind == "extra_forbidden" and item["input"] is None and " " in str(place[-1]):
        # {judge: who, and when}: between brackets YAML takes what follows the comma for a key.
        return f"unknown key {str(place[-1])!r}; put quotes around a text that has a comma in it"
    if kind == "extra_forbidden":
        names = _keys_at(model, place[:-1])
        intended = _SYNONYMS.get(str(place[-1]), "")
        if intended in names:
            return f"unknown key {str(place[-1])!r}; use {intended!r} instead"
        if "execute" in names and place[-1] in ("prompt", "shell", "python", "workflow", "set"):
            return f"unknown key {str(place[-1])!r}; put the action under execute"
        return f"unknown key {str(place[-1])!r}{nearest(str(place[-1])[:60], names) or _listed(place[-1], names)}"
    if kind == "missing":
        needed = str(item["loc"][-1])
        return f"needs {needed!r}" + (
            "; begin with schema: loopwright/1" if needed == "schema" else ""
        )
    if "kinds" in item:
        expected = " or ".join(item["kinds"])
        return f"expected {expected}, not {shorten(_for_display(item['input']))}"
    if kind == "too_short":
        return f"list should have at least {_items(item['ctx']['min_length'])}, not {item['ctx']['actual_length']}"
    if kind in ("literal_error", "enum"):
        expected = item["ctx"]["expected"]
        words = expected.replace("'", "").replace(" or ", ", ").split(", ")
        near = nearest(str(item["input"])[:60], words) if len(words) > 1 else ""
        return f"{shorten(_for_display(item['input']))} is not {expected}{near}"
    if kind == "string_pattern_mismatch":
        return f"{shorten(_for_display(item['input']))} is not a name; use letters, digits, _, - and spaces, starting with a letter"
    message: str = item["msg"][0].lower() + item["msg"][1:]
    if kind in ("address", "action", "misplaced", "check", "evaluate", "adapt", "duration", "loop"):
        return message
    display = _for_display(item["input"])
    return message if len(display) > _LONG else f"{message}, not {display}"


def _for_display(value: Json) -> str:
    """Return how a value looks in a message; what is long is not written out only to be cut."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[: _LONG + 1])
    if isinstance(value, list | dict) and len(value) > _LONG:
        return repr(type(value)(islice(value.items() if isinstance(value, dict) else value, _LONG)))
    return repr(value)


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _listed(key: str | int, names: list[str]) -> str:
    return listed(str(key), names, more="see loopwright schema")


def _keys_at(model: type[BaseModel], place: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the model at a place takes."""
    kinds: list[type[BaseModel]] = [model]
    for part in place:
        if isinstance(part, int):
            continue
        for kind in kinds:
            kind.model_rebuild()  # models are built when they are needed, and so are their types
        kinds = [
            inner
            for kind in kinds
            for name, field in kind.model_fields.items()
            if part in (name, field.alias)
            for inner in _models_in(field.annotation)
        ]
    return list(dict.fromkeys(f.alias or n for kind in kinds for n, f in kind.model_fields.items()))


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, list, dict, Annotated):
        return [m for inner in get_args(annotation) for m in _models_in(inner)]
    return []


_NAME = regex.compile(r"[\p{L}_][\p{L}\p{M}\p{N}_. -]{0,63}")  # as `fields.Identifier` has it
_BY_NAME = ("tools", "servers", "prices")  # whose entries are left out one by one


@dataclass(frozen=True)
class Gaps:
    """What is left out of a document: `steps` by their paths, and what they and the head may have supplied.

    `names` says that a step has no name that can be read, `head` that a key of the document itself
    is wrong, which may have named the model or the tools; `tools` are those that are left out.
    """

    steps: frozenset[Location] = frozenset()
    names: bool = False
    head: bool = False
    tools: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.steps or self.names or self.head or self.tools)


NOTHING_LEFT_OUT = Gaps()


@dataclass(frozen=True)
class Kind(Generic[Model]):
    """A kind of document: the lists of its steps, what must be in its head, and what stands for a step."""

    model: type[Model]
    lists: frozenset[str]
    head: Mapping[str, Json]
    stand_in: Callable[[str, str, Json], Json]
    version: str
    hint: Hint = field(default=no_hint)


def placeholder(name: str) -> dict[str, Json]:
    """Return a step that supplies whatever a step of that name could."""
    return {"name": name, "loop": {"execute": {"set": None}, "max_iterations": 1}}


def readable(
    kind: Kind[Model], value: Json, source: Source
) -> tuple[Model | None, list[Problem], Gaps]:
    """Return a document, what is wrong in it, and what is left out of it; None if nothing can be read."""
    result, wrong = checked(kind.model, value, source, (), kind.hint)
    if not wrong:
        return result, [], NOTHING_LEFT_OUT
    problems = list(wrong.values())
    paths = list(dict.fromkeys(path for path, _ in wrong))
    total = not any(path[:1] == (kind.version,) for path in paths)
    rest = {**copy.deepcopy(value)} if total else {}
    gaps = NOTHING_LEFT_OUT
    for path in paths if total else ():
        gaps = _leave_out(kind, rest, path, gaps)
    rest = {**kind.head, **rest}
    result, more = checked(kind.model, rest, source, (), kind.hint) if total else (None, {})
    return (None if more else result), problems, gaps


def _leave_out(kind: Kind[Model], value: dict[str, Json], path: Location, gaps: Gaps) -> Gaps:
    """Take what is wrong out of a document: the step around it, or a part of its head."""
    end = _end_of_step(kind, path)
    if end:
        return _leave_step_out(kind, value, path[:end], gaps)
    if not path:
        return replace(gaps, head=True)
    key = str(path[0])
    inner = value.get(key)
    if key in _BY_NAME and len(path) > 1 and isinstance(inner, dict):
        inner.pop(path[1], None)
        return replace(gaps, tools=gaps.tools | {str(path[1])})
    value.pop(key, None)
    return replace(gaps, head=True)


def _end_of_step(kind: Kind[Model], path: Location) -> int:
    """Return where the path of the innermost step on a path ends; 0 if there is none."""
    ends = (n for n in range(len(path), 1, -1) if isinstance(path[n - 1], int))
    return next((n for n in ends if path[n - 2] in kind.lists), 0)


def _leave_step_out(kind: Kind[Model], value: dict[str, Json], at: Location, gaps: Gaps) -> Gaps:
    outer: Json = value
    for part in at[:-1]:
        try:
            outer = outer[part]
        except (KeyError, IndexError, TypeError):
            return gaps  # the step around it is left out already
    index = int(at[-1])
    if not isinstance(outer, list) or index >= len(outer):
        return gaps
    raw = outer[index]
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        name = f"step {index + 1}"
        gaps = replace(gaps, names=True)
    outer[index] = kind.stand_in(str(at[-2]), name, raw)
    return replace(gaps, steps=gaps.steps | {at})
