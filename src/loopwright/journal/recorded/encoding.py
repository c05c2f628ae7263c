"""Rows of a durable journal: their format, their checksums, and how they are decoded.

`log` writes the rows of entries. Rules of the format:

1. The body of a row is an array of entries, each
   `[kind, path, at, fingerprint, seconds, value, usage, reserved, error]`. Empty fields are null or 0,
   or left off at the end. Kinds are letters (`KINDS`), times are whole microseconds, a usage is an
   array in the order of the fields of `Usage`. In the outcome of an effect, the fingerprint 1 stands
   for the fingerprint of its "started".
2. A value longer than 256 characters of JSON is stored once per run, by the digest of its bytes, and referred to:
   `{"$text": id}` is text stored as it is, `{"$json": id}` any other value stored as JSON. A short
   value that contains `"$` is stored that way too, so that no output of a step is read as a reference.
3. An iteration has a `rank`: its number among the current iterations of the run and of its loop. A
   reader of one page of iterations checks it for gaps.
4. References can replace the value, the fields of an iteration and of a "started", and
   the `output` and each of the `steps` of an "ended". The evaluation of an iteration may be
   `{"$here": i}`: the value of element i of the same row.
5. A row has the checksum of the row before it, its first entry number and its body. The row of a run
   is sealed by the checksum of its values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import JournalDamaged
from ...records import NOTHING, Failure, Iteration, Measure, Usage, as_evaluation
from ...records.codec import Json, encode
from ..entries import Entry
from ..protocol import Posted, RunInfo

Value = str | bytes | int | float | None  # what a column holds
_SUM = 8  # bytes of a checksum: it detects accidental damage, not forgery
# The encoder of the standard library: `codec.encode` may change, the seals of old journals may not.
_seal_text = json.JSONEncoder(separators=(",", ":"), default=bytes.hex).encode
KINDS = {
    "started": "s", "finished": "f", "cut": "c", "iteration": "i", "ended": "e",
    "suspended": "p", "answered": "a", "accepted": "o", "rewound": "r",
}  # fmt: skip
_WORDS = {letter: word for word, letter in KINDS.items()}
DEPTHS = {
    "ended": 2,
    "iteration": 1,
    "started": 1,
    "tuned": 1,
}  # levels of fields that may be references
_ABSENT: tuple[Json, ...] = (None, None, None, 0, 0, None, 0, 0, None)

_COLUMNS = (
    "run_id", "name", "status", "reason", "detail", "input", "source", "fingerprint", "created",
    "updated", "active", "epoch", "iterations", "score", "usage", "opened", "last", "head",
)  # fmt: skip
_TEXTS = (*range(8), 14)  # positions of the text among the sealed values


def utf8(text: str) -> tuple[str, bytes]:
    """Return text and its bytes; half of a surrogate pair becomes U+FFFD."""
    try:
        return text, text.encode()
    except UnicodeEncodeError:
        # SQLite refuses half of a pair. Recorded values are clean already; names and texts of
        # errors may not be.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text, text.encode()


def content_digest(data: bytes) -> bytes:
    """Return the 20-byte BLAKE2b digest that identifies a content."""
    return hashlib.blake2b(data, digest_size=20).digest()


def references(value: Json, kind: str = "") -> Iterator[int]:
    """Yield the ids of the contents that the decoded value of an entry of `kind` refers to."""
    yield from _references(value, DEPTHS.get(_WORDS.get(kind, kind), 0))


def _references(value: Json, depth: int) -> Iterator[int]:
    if type(value) is not dict:
        return
    if reference := _reference(value):
        yield reference[1]
    elif depth:
        for field in value.values():
            yield from _references(field, depth - 1)


def _reference(value: dict[str, Json]) -> tuple[str, int] | None:
    if len(value) == 1:
        for kind in ("$text", "$json"):
            if kind in value:
                return kind, value[kind]
    return None


def unfold(value: Json, bodies: Mapping[int, str], depth: int = 0) -> Json:
    """Return a decoded value with references, down to `depth` levels, replaced by contents."""
    if type(value) is not dict:
        return value
    if reference := _reference(value):
        body = bodies[reference[1]]
        return body if reference[0] == "$text" else json.loads(body)
    if depth:
        return {key: unfold(field, bodies, depth - 1) for key, field in value.items()}
    return value


def _usage_of(data: Json) -> Usage:
    return Usage(*data) if data else NOTHING


def decode_row(body: bytes) -> list[Json]:
    """Return the elements of a row's body, with `$here` replaced by the value it names."""
    row: list[Json] = json.loads(body)
    for raw in row:
        if raw[0] == "i" and type(value := value_of(raw)) is dict:
            here = value.get("evaluation")
            if type(here) is dict and "$here" in here:
                value["evaluation"] = value_of(row[here["$here"]])
    return row


def value_of(raw: Json) -> Json:
    """Return the value of an element, with its references."""
    return raw[5] if len(raw) > 5 else None


def fingerprint_of(raw: Json) -> Json:
    """Return the fingerprint of an element; 1 is that of its "started", 0 is none."""
    return raw[3] if len(raw) > 3 else 0


def decode_entry(raw: Json, seq: int, bodies: Mapping[int, str], intents: dict[str, str]) -> Entry:
    """Return the entry of a row's element, with references replaced from `bodies`.

    `intents` maps the paths of effects that were started before it to their fingerprints.
    """
    fields: Json = [*raw, *_ABSENT[len(raw) :]]
    letter, path, at, fingerprint, seconds, folded, usage, reserved, error = fields
    kind = _WORDS.get(letter, letter)
    value = unfold(folded, bodies, DEPTHS.get(kind, 0))
    if kind == "iteration" and type(value) is dict:
        value = _iteration_of(value)
    if fingerprint == 1:
        fingerprint = intents[path]
    elif kind == "started" and fingerprint:
        intents[path] = fingerprint
    return Entry(
        kind,
        path,
        at / 1e6,
        value=value,
        fingerprint=fingerprint or "",
        error=Failure.from_json(error),
        usage=_usage_of(usage),
        reserved=_usage_of(reserved),
        seconds=seconds / 1e6,
        seq=seq,
    )


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
        files=data.get("files"),
        measures=Measure.listed(data.get("measures")),
        accepted=data.get("accepted"),
        explored=data.get("explored", False),
    )


@contextmanager
def as_damage(what: str) -> Iterator[None]:
    """Report values of a wrong type or shape, which only damage can produce, as JournalDamaged."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(
            f"{what} cannot be decoded; restore the journal from a backup"
        ) from error


def seal(values: Sequence[Value]) -> bytes:
    """Return the checksum of the values of a row."""
    return hashlib.blake2b(_seal_text(values).encode(), digest_size=_SUM).digest()


def chain_start(run_id: str) -> bytes:
    """Return the checksum that precedes the first row of a run."""
    return hashlib.blake2b(utf8(run_id)[1], digest_size=_SUM).digest()


def chained(before: bytes, first: int, body: bytes) -> bytes:
    """Return the checksum of a row from the one before it, its first entry number and its body."""
    # The entry number too: a row that was moved would not match.
    data = before + first.to_bytes(8, "big") + body
    return hashlib.blake2b(data, digest_size=_SUM).digest()


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run's own row: the run, and the fields that only the store uses.

    `last` and `head` are the number of the last entry and the checksum of its row at the last
    closing, `opened` is the owner's age in seconds at the last opening. `input` and `source` are
    JSON text, which may be a reference.
    """

    key: int
    info: RunInfo
    input: str
    source: str
    opened: float
    last: int
    head: bytes
    owner: int | None


def read_row(values: Sequence[Json]) -> RunRow:
    """Return the run of a row in the order of `sealed_values`; its `input` and `source` stay text.

    Raises:
        JournalDamaged: if the row does not match its checksum.
    """
    with as_damage(f"run {values[0]}"):
        return _read_row(values)


def _read_row(values: Sequence[Json]) -> RunRow:
    key, *sealed = values[: len(_COLUMNS) + 1]
    checksum, owner, _, queue, priority, wake_at, deliveries = values[len(_COLUMNS) + 1 :]
    for i in _TEXTS:
        sealed[i] = sealed[i].decode("utf-8", "replace")
    if seal(sealed) != checksum:
        raise JournalDamaged(
            f"{sealed[0]}: the row of this run does not match its checksum; "
            "restore the journal from a backup"
        )
    fields = dict(zip(_COLUMNS, sealed, strict=True))
    own = {name: fields.pop(name) for name in ("input", "source", "opened", "last", "head")}
    fields["usage"] = Usage(*json.loads(fields["usage"]))
    if queue or deliveries or wake_at:
        fields |= {"queue": queue.decode("utf-8", "replace"), "priority": priority}
        fields |= {"wake_at": wake_at, "deliveries": deliveries}
    return RunRow(key=key, info=RunInfo(**fields), owner=owner, **own)


def sealed_values(row: RunRow) -> list[Value]:
    """Return the values of a row in the order of its columns, without its key."""
    info, usage = row.info, row.info.usage
    spent = [
        usage.calls, usage.input_tokens, usage.output_tokens, usage.usd,
        usage.unpriced, usage.estimated,
    ]  # fmt: skip
    sealed: list[Value] = [
        info.run_id, info.name, info.status, info.reason, info.detail, row.input, row.source,
        info.fingerprint, float(info.created), float(info.updated), float(info.active), info.epoch,
        info.iterations, None if info.score is None else float(info.score), _seal_text(spent),
        float(row.opened), row.last, row.head,
    ]  # fmt: skip
    for i in _TEXTS:
        sealed[i] = utf8(str(sealed[i]))[0]
    return [*sealed, seal(sealed), row.owner, 0]


def queue_values(info: RunInfo) -> list[Value]:
    """Return the values of the columns of a row that follow `sealed_values`: its place in a queue."""
    return [utf8(info.queue)[0], info.priority, float(info.wake_at), info.deliveries]


def answer_values(run: int, answer: Posted) -> list[Value]:
    """Return the values of an answer's row in an inbox: run, asked, path, value, who, at, seal."""
    row: list[Value] = [
        run, answer.asked, answer.path, encode(answer.value), utf8(answer.who)[0], answer.at
    ]  # fmt: skip
    return [*row, seal(row)]


def read_answer(row: Sequence[Json]) -> Posted:
    """Return the answer of a row in an inbox. Raises JournalDamaged."""
    *values, checksum = row
    values = [value.decode() if isinstance(value, bytes) else value for value in values]
    if seal(values) != checksum:
        raise JournalDamaged(f"run {row[0]}: an answer in its inbox does not match its checksum")
    _, asked, path, value, who, at = values
    return Posted(path, asked, json.loads(value), who, at)
