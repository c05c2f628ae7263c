"""Rows of a durable journal: entries as compact JSON text, long values as contents, and checksums.

Rules of the format:

1. The body of a row is an array of entries, each
   `[kind, path, at, fingerprint, seconds, value, usage, reserved, error]`. Empty fields are null or 0,
   or left off at the end. Kinds are letters (`KINDS`), times are whole microseconds, a usage is an
   array in the order of the fields of `Usage`. In the outcome of an effect, the fingerprint 1 stands
   for the fingerprint of its "started".
2. A value longer than `INLINE` is stored once per run, by the digest of its bytes, and referred to:
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import JournalDamaged
from ...records import NOTHING, Evaluation, Failure, Iteration, Measure, Usage, as_evaluation
from ...records.codec import Json, encode
from ..entries import Entry
from ..protocol import Posted, RunInfo

Value = str | bytes | int | float | None  # what a column holds
_SUM = 8  # bytes of a checksum: it detects accidental damage, not forgery
# The encoder of the standard library: `codec.encode` may change, the seals of old journals may not.
_seal_text = json.JSONEncoder(separators=(",", ":"), default=bytes.hex).encode
INLINE = 256  # characters of JSON; a longer value becomes a content
Content = tuple[int, bytes, int, str | None]  # id, digest, size in bytes, body unless it is a file
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
_BLANK = ("", "", "", "0", "0", "null", "0", "0", "null")  # the text of an empty field
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


class Contents:
    """The long values of one open run: those already stored, and those waiting to be stored.

    `waiting` collects new contents until `take`. `here` has the values of the row in progress,
    `intents` the fingerprints of effects in flight by path, `ranks` the iterations so far by loop
    ("" for all loops).
    """

    __slots__ = ("_ids", "_next", "here", "intents", "ranks", "waiting")

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next = next_id
        self._ids: dict[bytes, int] = {}
        self.here: list[str] = []
        self.intents: dict[str, str] = {}
        self.ranks: dict[str, int] = {}
        self.waiting: list[Content] = []

    def add_stored(self, stored: Mapping[bytes, int]) -> None:
        """Add contents that are already stored, by digest."""
        self._ids.update(stored)

    def rank(self, loop: str) -> tuple[int, int]:
        """Count an iteration of a loop; return its rank in the run and in the loop."""
        ranks = self.ranks
        ranks[loop] = in_loop = ranks.get(loop, 0) + 1
        if loop:
            ranks[""] = ranks.get("", 0) + 1
        return ranks[""], in_loop

    def take(self) -> list[Content]:
        """Return the waiting contents and clear the list."""
        contents, self.waiting = self.waiting, []
        return contents

    def fold(self, value: Json) -> str:
        """Return the JSON text of a value, or of a reference to a long value."""
        # A long text is stored without quotes, so that its digest is that of the text.
        if type(value) is str:
            return self._refer(value, value) if len(value) > INLINE else encode(value)
        text = encode(value)
        if len(text) <= INLINE and '"$' not in text:
            return text
        return self._refer(value, text)

    def fold_fields(self, value: Json, depth: int) -> str:
        """Return the JSON text of an object with references down to `depth` levels of fields."""
        if not depth or type(value) is not dict or any(key.startswith("$") for key in value):
            return self.fold(value)
        text = encode(value)
        if len(text) <= INLINE and '"$' not in text:  # then so is each field
            return text
        fields = [f"{encode(k)}:{self.fold_fields(v, depth - 1)}" for k, v in value.items()]
        return "{" + ",".join(fields) + "}"

    def fold_evaluation(self, value: Evaluation) -> str:
        """Return the JSON text of an evaluation, or the place in this row of the value it was read from."""
        # An evaluation is usually the output of `evaluate`, which is in the same row: a number, or an object.
        if value.passed is None and value.has_only_score:
            number = repr(value.score)
            if number in self.here:
                return self._place(number)
        text = self.fold(value.to_json())
        forms = [text]
        if value.passed is None:
            forms.append(text.replace('"passed":null,', "", 1))
        return next((self._place(form) for form in forms if form in self.here), text)

    def _place(self, text: str) -> str:
        return f'{{"$here":{self.here.index(text)}}}'

    def _refer(self, value: Json, body: str) -> str:
        kind = "$text" if value is body else "$json"
        if "\0" in body:  # SQLite's tools end a text at NUL
            kind, body = "$json", encode(value)
        body, data = utf8(body)
        # The same text is stored once: the output of one iteration is often the input of the next.
        digest = content_digest(data)
        content_id = self._ids.get(digest)
        if content_id is None:
            content_id = self._ids[digest] = self._next()
            self.waiting.append((content_id, digest, len(data), body))
        return f'{{"{kind}":{content_id}}}'


def _usage_text(usage: Usage) -> str:
    text = f"[{usage.calls},{usage.input_tokens},{usage.output_tokens},{usage.usd!r}"
    if usage.unpriced or usage.estimated:
        return f"{text},{usage.unpriced},{usage.estimated}]"
    return text + "]"


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6 + 0.5)


def entry_text(entry: Entry, contents: Contents) -> str:
    """Return an entry as compact JSON text; its long values go to `contents`."""
    kind, value, reserved = entry.kind, entry.value, entry.reserved
    folded = "null" if value is None else _value_text(entry, contents)
    contents.here.append(folded)
    fields = [
        f'"{KINDS.get(kind, kind)}"',
        encode(entry.path),
        str(_microseconds(entry.at)),
        _fingerprint_text(entry, contents),
        str(_microseconds(entry.seconds)),
        folded,
        _usage_text(entry.usage) if entry.usage is not NOTHING else "0",
        _usage_text(reserved) if reserved is not NOTHING and reserved else "0",
        encode(entry.error.to_json()) if entry.error is not None else "null",
    ]
    # Most entries lack the last fields.
    while fields[-1] == _BLANK[len(fields) - 1]:
        fields.pop()
    return f"[{','.join(fields)}]"


def _fingerprint_text(entry: Entry, contents: Contents) -> str:
    if not entry.fingerprint:
        return "0"
    if entry.kind == "started":
        contents.intents[entry.path] = entry.fingerprint
    # Forgotten once it is used, so that the table has effects in flight only.
    elif contents.intents.pop(entry.path, "") == entry.fingerprint:
        return "1"
    return encode(entry.fingerprint)


def _value_text(entry: Entry, contents: Contents) -> str:
    if entry.kind == "iteration" and isinstance(entry.value, Iteration):
        return _iteration_text(entry.value, entry.path, contents)
    return contents.fold_fields(entry.value, DEPTHS.get(entry.kind, 0))


def _iteration_text(item: Iteration, loop: str, contents: Contents) -> str:
    parts = [f'{{"iteration":{item.number}']
    for name in ("input", "output"):
        value = getattr(item, name)
        if value is not None:
            parts.append(f'"{name}":{contents.fold(value)}')
    if item.evaluation is not None:
        parts.append(f'"evaluation":{contents.fold_evaluation(item.evaluation)}')
    if item.error is not None:
        parts.append(f'"error":{encode(item.error.to_json())}')
    if (usage := item.usage) is not NOTHING and usage:
        parts.append(f'"used":{_usage_text(usage)}')
    if item.seconds:
        parts.append(f'"took":{_microseconds(item.seconds)}')
    parts += [
        f'"{flag}":true' for flag in ("interrupted", "truncated", "explored") if getattr(item, flag)
    ]
    if steps := item.steps:
        parts.append(f'"steps":{contents.fold(dict(steps))}')
    if item.files is not None:
        parts.append(f'"files":{encode(dict(item.files))}')
    parts += _measures_text(item)
    in_run, in_loop = contents.rank(loop)  # last: a rank is used only if nothing above fails
    # A reader of one page compares it with the expected rank and so detects a missing row.
    parts.append(f'"rank":[{in_run},{in_loop}]')
    return ",".join(parts) + "}"


def _measures_text(item: Iteration) -> Iterator[str]:
    if item.measures:
        measures = {measure.name: measure.to_json() for measure in item.measures}
        yield f'"measures":{encode(measures)}'
    if item.accepted is not None:
        yield f'"accepted":{"true" if item.accepted else "false"}'


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


def sealed_row(entries: Sequence[str], before: bytes, first: int) -> tuple[str, bytes]:
    """Return the body of a row of entries from number `first` on, and its checksum."""
    body, data = utf8(f"[{','.join(entries)}]")
    return body, chained(before, first, data)


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
