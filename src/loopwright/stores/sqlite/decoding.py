"""Rows and entries out of their compact JSON text; `encoding` says what stands in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...codec import Json
from ...journal import Entry
from ...records import NOTHING, Failure, Iteration, Usage, as_evaluation
from .encoding import DEPTHS, KINDS

__all__ = ["decode_entry", "decode_row", "fingerprint_of", "references", "unfold", "value_of"]

_WORDS = {letter: word for word, letter in KINDS.items()}


def references(value: Json, kind: str = "") -> Iterator[int]:
    """Yield the id of every content that the decoded value of an entry of `kind` refers to."""
    yield from _references(value, DEPTHS.get(_WORDS.get(kind, kind), 0))


def _references(value: Json, depth: int) -> Iterator[int]:
    if type(value) is not dict:
        return
    found = _reference(value)
    if found:
        yield found[1]
    elif depth:
        for field in value.values():
            yield from _references(field, depth - 1)


def _reference(value: dict[str, Json]) -> tuple[str, int] | None:
    if len(value) == 1:
        for kind in ("$text", "$json"):
            if kind in value:
                return kind, value[kind]
    return None


def unfold(value: Json, bodies: Mapping[int, str], kind: str = "") -> Json:
    """Return the decoded value of an entry of `kind` with references replaced by contents."""
    return _unfold(value, DEPTHS.get(kind, 0), bodies)


def _unfold(value: Json, depth: int, bodies: Mapping[int, str]) -> Json:
    if type(value) is not dict:
        return value
    found = _reference(value)
    if found:
        body = bodies[found[1]]
        return body if found[0] == "$text" else json.loads(body)
    if depth:
        return {key: _unfold(field, depth - 1, bodies) for key, field in value.items()}
    return value


def _usage_of(data: Json) -> Usage:
    return Usage(*data) if data else NOTHING


def decode_row(body: bytes) -> list[Json]:
    """Return the elements of a row's body, with what stands in the same row put in its place."""
    row: list[Json] = json.loads(body)
    for raw in row:
        if raw[0] == "i" and type(value := value_of(raw)) is dict:
            here = value.get("evaluation")
            if type(here) is dict and "$here" in here:
                value["evaluation"] = value_of(row[here["$here"]])
    return row


def value_of(raw: Json) -> Json:
    """Return the value of an element, references and all."""
    return raw[5] if len(raw) > 5 else None


def fingerprint_of(raw: Json) -> Json:
    """Return the fingerprint of an element; 1 if it is that of its "started", 0 if it has none."""
    return raw[3] if len(raw) > 3 else 0


def decode_entry(raw: Json, seq: int, bodies: Mapping[int, str], intents: dict[str, str]) -> Entry:
    """Return the entry of a row's element, with references replaced from `bodies`.

    `intents` maps the paths of effects that were started before it to their fingerprints.
    """
    fields: list[Any] = [*raw, *_ABSENT[len(raw) :]]
    letter, path, at, of, took, folded, used, held, error = fields
    kind = _WORDS.get(letter, letter)
    value = unfold(folded, bodies, kind)
    if kind == "iteration" and type(value) is dict:
        value = _iteration_of(value)
    if of == 1:
        of = intents[path]
    elif kind == "started" and of:
        intents[path] = of
    return Entry(
        kind, path, at / 1e6, value, of or "", Failure.from_json(error), _usage_of(used),
        _usage_of(held), took / 1e6, seq,
    )  # fmt: skip


_ABSENT = (None, None, None, 0, 0, None, 0, 0, None)


def _iteration_of(data: dict[str, Json]) -> Iteration:
    evaluation = data.get("evaluation")
    return Iteration(
        data["iteration"],
        data.get("input"),
        data.get("output"),
        None if evaluation is None else as_evaluation(evaluation),
        Failure.from_json(data.get("error")),
        _usage_of(data.get("used")),
        data.get("took", 0) / 1e6,
        data.get("interrupted", False),
        data.get("truncated", False),
        data.get("steps"),
    )
