"""Entries as the compact JSON text of a row, and contents that rows only refer to.

Rules:

1. A row's body is an array of entries, each `[kind, path, at, value, more]`; `at` and `seconds` are whole microseconds,
   usages are arrays in the order of Usage's fields, and what says nothing is left off the end.
2. A value longer than INLINE is kept once per run, by the BLAKE2b digest of its bytes, and referred to: `{"$text": id}`
   is text kept as it is, `{"$json": id}` anything else kept as JSON. A short value that holds `"$` is referred to as
   well, so that nothing a step produced can be taken for a reference.
3. References stand where outputs stand: the value itself; the fields of an iteration; the `output` and each of the
   `steps` of an ending.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring as quote
from typing import Any

from ... import codec
from ...codec import Json
from ...journal import Entry
from ...records import NOTHING, Failure, Iteration, Usage

INLINE = 256
FILE = 1 << 20
_RECENT = 4
_DEPTHS = {"ended": 2, "iteration": 1}
_USAGE = ("calls", "input_tokens", "output_tokens", "usd", "unpriced", "estimated")


def utf8(text: str) -> tuple[str, bytes]:
    """Return text and its bytes; half of a surrogate pair becomes U+FFFD."""
    try:
        return text, text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text, text.encode()


def content_digest(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b digest by which a content is known."""
    return hashlib.blake2b(data, digest_size=32).digest()


class Contents:
    """The long values of one open run: what is stored already, and what waits to be.

    `waiting` collects `(id, digest, size, body)` of new contents until `take`.
    """

    __slots__ = ("_known", "_next", "_recent", "waiting")

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next = next_id
        self._known: dict[tuple[str, bytes], int] = {}
        self._recent: list[tuple[object, str]] = []
        self.waiting: list[tuple[int, bytes, int, str]] = []

    def know(self, kind: str, digest: bytes, content_id: int) -> None:
        """Remember a content that is stored already."""
        self._known.setdefault((kind, digest), content_id)

    def take(self) -> list[tuple[int, bytes, int, str]]:
        """Return the contents that wait, and forget that they do."""
        taken, self.waiting = self.waiting, []
        return taken

    def fold(self, value: Json) -> str:
        """Return the JSON text of a value, or of a reference if it is long."""
        if type(value) is str:
            if len(value) <= INLINE:
                return quote(value)
            return self._recall(value) or self._refer(value, value, text="\0" not in value)
        text = codec.encode(value)
        if len(text) <= INLINE and '"$' not in text:
            return text
        return self._refer(value, text, text=False)

    def fold_fields(self, value: Json, depth: int) -> str:
        """Return the JSON text of an object whose fields, `depth` levels down, may be long."""
        if not depth or type(value) is not dict or any(key.startswith("$") for key in value):
            return self.fold(value)
        fields = [f"{quote(k)}:{self.fold_fields(v, depth - 1)}" for k, v in value.items()]
        return "{" + ",".join(fields) + "}"

    def _recall(self, value: object) -> str:
        for known, reference in self._recent:
            if known is value:  # only text gets here: it cannot have changed since
                return reference
        return ""

    def _refer(self, value: Json, body: str, *, text: bool) -> str:
        kind = "$text" if text else "$json"
        if type(value) is str and not text:
            body = codec.encode(value)
        body, data = utf8(body)
        key = (kind, content_digest(data))
        content_id = self._known.get(key)
        if content_id is None:
            content_id = self._known[key] = self._next()
            self.waiting.append((content_id, key[1], len(data), body))
        reference = f'{{"{kind}":{content_id}}}'
        if type(value) is str:
            self._recent.append((value, reference))
            del self._recent[:-_RECENT]
        return reference


def _usage_text(usage: Usage) -> str:
    text = f"{usage.calls},{usage.input_tokens},{usage.output_tokens},{usage.usd!r}"
    if usage.unpriced or usage.estimated:
        return f"[{text},{usage.unpriced},{usage.estimated}]"
    return f"[{text}]"


def _usage_of(data: Json) -> Usage:
    return Usage(*data) if data else NOTHING


def entry_text(entry: Entry, contents: Contents) -> str:
    """Return an entry as compact JSON text; its long values go to `contents`."""
    text = f'["{entry.kind}",{quote(entry.path)},{int(entry.at * 1e6 + 0.5)}'
    value = entry.value
    more = _more_text(entry)
    if value is None:
        return f"{text},null,{more}]" if more else text + "]"
    if type(value) is str:
        body = contents.fold(value)
    elif entry.kind == "iteration" and isinstance(value, Iteration):
        body = _iteration_text(value, contents)
    else:
        body = contents.fold_fields(value, _DEPTHS.get(entry.kind, 0))
    return f"{text},{body},{more}]" if more else f"{text},{body}]"


def _more_text(entry: Entry) -> str:
    more = ""
    if entry.fingerprint:
        more = f',"fingerprint":{quote(entry.fingerprint)}'
    if entry.error is not None:
        more += f',"error":{codec.encode(entry.error.to_json())}'
    if entry.usage is not NOTHING and entry.usage:
        more += f',"usage":{_usage_text(entry.usage)}'
    if entry.reserved is not NOTHING and entry.reserved:
        more += f',"reserved":{_usage_text(entry.reserved)}'
    if entry.seconds:
        more += f',"seconds":{int(entry.seconds * 1e6 + 0.5)}'
    return f"{{{more[1:]}}}" if more else ""


def _iteration_text(item: Iteration, contents: Contents) -> str:
    parts = [f'{{"iteration":{item.number}']
    if item.input is not None:
        parts.append(f'"input":{contents.fold(item.input)}')
    if item.output is not None:
        parts.append(f'"output":{contents.fold(item.output)}')
    if item.evaluation is not None:
        parts.append(f'"evaluation":{contents.fold(item.evaluation)}')
    if item.error is not None:
        parts.append(f'"error":{codec.encode(item.error.to_json())}')
    if item.usage:
        parts.append(f'"usage":{_usage_text(item.usage)}')
    if item.seconds:
        parts.append(f'"seconds":{int(item.seconds * 1e6 + 0.5)}')
    if item.interrupted:
        parts.append('"interrupted":true')
    if item.truncated:
        parts.append('"truncated":true')
    return ",".join(parts) + "}"


def references(raw: Json) -> Iterator[tuple[str, int]]:
    """Yield the (kind, id) of every content that a decoded entry refers to."""
    if len(raw) > 3:
        yield from _references(raw[3], _DEPTHS.get(raw[0], 0))


def _references(value: Json, depth: int) -> Iterator[tuple[str, int]]:
    if type(value) is not dict:
        return
    found = _reference(value)
    if found:
        yield found
    elif depth:
        for field in value.values():
            yield from _references(field, depth - 1)


def _reference(value: dict[str, Json]) -> tuple[str, int] | None:
    if len(value) == 1:
        for kind in ("$text", "$json"):
            if kind in value:
                return kind, value[kind]
    return None


def decode_entry(raw: Json, seq: int, bodies: dict[int, str]) -> Entry:
    """Return the entry of a decoded row element, with references replaced from `bodies`."""
    kind, path, at = raw[0], raw[1], raw[2] / 1e6
    value: Any = _unfold(raw[3], _DEPTHS.get(kind, 0), bodies) if len(raw) > 3 else None
    if kind == "iteration" and type(value) is dict:
        value = _iteration_of(value)
    if len(raw) < 5:
        return Entry(kind, path, at, value, seq=seq)
    more = raw[4]
    return Entry(
        kind,
        path,
        at,
        value,
        fingerprint=more.get("fingerprint", ""),
        error=Failure.from_json(more.get("error")),
        usage=_usage_of(more.get("usage")),
        reserved=_usage_of(more.get("reserved")),
        seconds=more.get("seconds", 0) / 1e6,
        seq=seq,
    )


def _unfold(value: Json, depth: int, bodies: dict[int, str]) -> Json:
    if type(value) is not dict:
        return value
    found = _reference(value)
    if found:
        body = bodies[found[1]]
        return body if found[0] == "$text" else json.loads(body)
    if depth:
        return {key: _unfold(field, depth - 1, bodies) for key, field in value.items()}
    return value


def _iteration_of(data: dict[str, Json]) -> Iteration:
    usage = dict(zip(_USAGE, data.get("usage", ()), strict=False))
    return Iteration.from_json({**data, "usage": usage, "seconds": data.get("seconds", 0) / 1e6})
