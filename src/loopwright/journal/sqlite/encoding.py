"""Entries as the compact JSON text of a row, and contents that rows only refer to.

Rules:

1. A row's body is an array of entries, each `[kind, path, at, of, took, value, used, held, error]`;
   what says nothing is null, or left off at the end. Kinds are letters (`KINDS`), times whole
   microseconds, usages arrays in the order of Usage's fields. `of` is the fingerprint; in the
   outcome of an effect, 1 says that it is that of its "started".
2. A value longer than INLINE is kept once per run, by the digest of its bytes, and referred to:
   `{"$text": id}` is text kept as it is, `{"$json": id}` anything else kept as JSON. A short value
   that holds `"$` is referred to as well, so that nothing a step produced can be taken for a
   reference.
3. An iteration has its `rank` among those of the run and of its loop that no rewind set aside, so
   that a page can be checked for gaps.
4. References stand where outputs stand: the value itself; the fields of an iteration and of what a
   "started" asks; the `output` and each of the `steps` of an ending that is long in all. An iteration's evaluation may
   be `{"$here": i}`, the value of element i of its own row.

Rows and entries out of their compact JSON text; `encoding` says what stands in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring as quote
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ...records import NOTHING, Evaluation, Failure, Iteration, Usage, as_evaluation, codec
from ...records.codec import Json
from .. import Entry

__all__ = [
    "DEPTHS",
    "FILE",
    "INLINE",
    "KINDS",
    "Content",
    "Contents",
    "content_digest",
    "decode_entry",
    "decode_row",
    "entry_text",
    "fingerprint_of",
    "json_text",
    "references",
    "unfold",
    "utf8",
    "value_of",
]


INLINE = 256
FILE = 1 << 20
Content = tuple[int, bytes, int, str | None]  # id, digest, size in bytes, body unless it is a file
KINDS = {
    "started": "s", "finished": "f", "cut": "c", "iteration": "i", "ended": "e",
    "suspended": "p", "answered": "a", "accepted": "o", "rewound": "r",
}  # fmt: skip
_RECENT = 4
DEPTHS = {"ended": 2, "iteration": 1, "started": 1}


def utf8(text: str) -> tuple[str, bytes]:
    """Return text and its bytes; half of a surrogate pair becomes U+FFFD."""
    try:
        return text, text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text, text.encode()


def content_digest(data: bytes) -> bytes:
    """Return the 20-byte BLAKE2b digest by which a content is known."""
    return hashlib.blake2b(data, digest_size=20).digest()


def json_text(value: Json) -> str:
    """Return compact JSON text of a normalised value, as `codec.encode` does, and sooner."""
    kind = type(value)
    if kind is int or kind is float:
        return repr(value)
    if kind is dict or kind is list:
        try:
            return to_json(value).decode()
        except (PydanticSerializationError, ValueError):  # half of a surrogate pair
            return codec.encode(value)
    return codec.encode(value)


class Contents:
    """The long values of one open run: what is stored already, and what waits to be.

    `waiting` collects new contents until `take`; `here` are the values of the row that is being
    made, `intents` the fingerprints of effects in flight by path, `ranks` the numbers of iterations
    so far by loop, "" for all.
    """

    __slots__ = ("_known", "_next", "_recent", "here", "intents", "ranks", "waiting")

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next = next_id
        self._known: dict[bytes, int] = {}
        self._recent: list[tuple[object, str]] = []
        self.here: list[str] = []
        self.intents: dict[str, str] = {}
        self.ranks: dict[str, int] = {}
        self.waiting: list[Content] = []

    def know(self, stored: Mapping[bytes, int]) -> None:
        """Remember contents that are stored already, by their digests."""
        self._known.update(stored)

    def rank(self, loop: str) -> tuple[int, int]:
        """Count an iteration of a loop; return its rank in the run and in the loop."""
        ranks = self.ranks
        ranks[loop] = in_loop = ranks.get(loop, 0) + 1
        if loop:
            ranks[""] = ranks.get("", 0) + 1
        return ranks[""], in_loop

    def take(self) -> list[Content]:
        """Return the contents that wait, and forget that they do."""
        taken, self.waiting = self.waiting, []
        return taken

    def fold(self, value: Json) -> str:
        """Return the JSON text of a value, or of a reference if it is long."""
        if type(value) is str:
            if len(value) > INLINE:
                return self._recall(value) or self._refer(value, value)
            if value.isprintable() and '"' not in value and "\\" not in value:
                return f'"{value}"'  # what most values are, and quicker than to look for escapes
            return quote(value)
        text = json_text(value)
        if len(text) <= INLINE and '"$' not in text:
            return text
        return self._refer(value, text)

    def fold_fields(self, value: Json, depth: int) -> str:
        """Return the JSON text of an object whose fields, `depth` levels down, may be long."""
        if not depth or type(value) is not dict or any(key.startswith("$") for key in value):
            return self.fold(value)
        fields = [f"{quote(k)}:{self.fold_fields(v, depth - 1)}" for k, v in value.items()]
        return "{" + ",".join(fields) + "}"

    def fold_evaluation(self, value: Evaluation) -> str:
        """Return the JSON text of an evaluation, or where in this row what it was read from is."""
        here = self.here
        passed, score = value.passed, value.score
        if passed is None and score is not None and value.says_only_score:
            text = repr(score)  # a mere number is a score
            if text in here:
                return f'{{"$here":{here.index(text)}}}'
        text = self.fold(value.to_json())
        forms = [text]
        if passed is None:
            forms.append(text.replace('"passed":null,', "", 1))
        for form in forms:
            if form in here:
                return f'{{"$here":{here.index(form)}}}'
        return text

    def _recall(self, value: object) -> str:
        for known, reference in self._recent:
            if known is value:  # only text gets here: it cannot have changed since
                return reference
        return ""

    def _refer(self, value: Json, body: str) -> str:
        kind = "$text" if value is body else "$json"
        if "\0" in body:  # SQLite's tools take text to end there
            kind, body = "$json", codec.encode(value)
        body, data = utf8(body)
        digest = content_digest(data)
        content_id = self._known.get(digest)
        if content_id is None:
            content_id = self._known[digest] = self._next()
            self.waiting.append((content_id, digest, len(data), body))
        reference = f'{{"{kind}":{content_id}}}'
        if type(value) is str:
            self._recent.append((value, reference))
            del self._recent[:-_RECENT]
        return reference


def _usage_text(usage: Usage) -> str:
    text = f"[{usage.calls},{usage.input_tokens},{usage.output_tokens},{usage.usd!r}"
    if usage.unpriced or usage.estimated:
        return f"{text},{usage.unpriced},{usage.estimated}]"
    return text + "]"


def entry_text(entry: Entry, contents: Contents) -> str:
    """Return an entry as compact JSON text; its long values go to `contents`."""
    kind, path, value = entry.kind, entry.path, entry.value
    text = f'["{KINDS.get(kind, kind)}",{quote(path)},{int(entry.at * 1e6 + 0.5)}'
    of = "0"
    if fingerprint := entry.fingerprint:
        if kind == "started":
            contents.intents[path] = fingerprint
            of = quote(fingerprint)
        else:
            same = contents.intents.pop(path, "") == fingerprint
            of = "1" if same else quote(fingerprint)
    took = int(entry.seconds * 1e6 + 0.5)
    folded = "null" if value is None else _value_text(entry, contents)
    contents.here.append(folded)
    if entry.error is not None or entry.reserved is not NOTHING:
        held = _usage_text(entry.reserved) if entry.reserved else "0"
        error = f",{codec.encode(entry.error.to_json())}" if entry.error is not None else ""
        return f"{text},{of},{took},{folded},{_usage_text(entry.usage)},{held}{error}]"
    if entry.usage is not NOTHING:
        return f"{text},{of},{took},{folded},{_usage_text(entry.usage)}]"
    if value is not None or took:
        return f"{text},{of},{took},{folded}]"
    return f"{text},{of}]" if of != "0" else f"{text}]"


def _value_text(entry: Entry, contents: Contents) -> str:
    value = entry.value
    if type(value) is str:
        return contents.fold(value)
    if entry.kind == "ended" and (text := _short_ending(value)):
        return text
    if entry.kind == "iteration" and isinstance(value, Iteration):
        return _iteration_text(value, entry.path, contents)
    return contents.fold_fields(value, DEPTHS.get(entry.kind, 0))


def _short_ending(value: Json) -> str:
    """Return the JSON text of an ending without long values, as most are; "" of another."""
    if type(value) is not dict or value.get("steps"):
        return ""
    output = value.get("output")
    if type(output) in (dict, list) or (type(output) is str and len(output) > INLINE):
        return ""
    text = json_text(value)
    return text if len(text) <= 4 * INLINE and '"$' not in text else ""


def _iteration_text(item: Iteration, loop: str, contents: Contents) -> str:
    parts = [f'{{"iteration":{item.number}']
    if item.input is not None:
        parts.append(f'"input":{contents.fold(item.input)}')
    if item.output is not None:
        parts.append(f'"output":{contents.fold(item.output)}')
    if item.evaluation is not None:
        parts.append(f'"evaluation":{contents.fold_evaluation(item.evaluation)}')
    if item.error is not None:
        parts.append(f'"error":{codec.encode(item.error.to_json())}')
    if item.usage:
        parts.append(f'"used":{_usage_text(item.usage)}')
    if item.seconds:
        parts.append(f'"took":{int(item.seconds * 1e6 + 0.5)}')
    if item.interrupted:
        parts.append('"interrupted":true')
    if item.truncated:
        parts.append('"truncated":true')
    if item.steps:
        parts.append(f'"steps":{contents.fold(dict(item.steps))}')
    in_run, in_loop = contents.rank(loop)  # last: nothing fails after it
    parts.append(f'"rank":[{in_run},{in_loop}]')
    return ",".join(parts) + "}"


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
        kind=kind,
        path=path,
        at=at / 1e6,
        value=value,
        fingerprint=of or "",
        error=Failure.from_json(error),
        usage=_usage_of(used),
        reserved=_usage_of(held),
        seconds=took / 1e6,
        seq=seq,
    )


_ABSENT = (None, None, None, 0, 0, None, 0, 0, None)


def _iteration_of(data: dict[str, Json]) -> Iteration:
    evaluation = data.get("evaluation")
    return Iteration(
        number=data["iteration"],
        input=data.get("input"),
        output=data.get("output"),
        evaluation=None if evaluation is None else as_evaluation(evaluation),
        error=Failure.from_json(data.get("error")),
        usage=_usage_of(data.get("used")),
        seconds=data.get("took", 0) / 1e6,
        interrupted=data.get("interrupted", False),
        truncated=data.get("truncated", False),
        steps=data.get("steps"),
    )
