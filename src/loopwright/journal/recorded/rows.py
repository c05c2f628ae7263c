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
6. Every row is checked against its chain and every content against its digest before it is used.

A store derives its reader from `RowReader`, which names the statements that it answers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...errors import JournalDamaged
from ...records import NOTHING, Failure, Iteration, Measure, Usage, as_evaluation
from ...records.codec import Json, encode
from ..protocol import Entry, Posted, RunInfo, surviving, without_folded
from ..views import tags_text

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
    "folded": 1,
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
        evaluation = value.get("evaluation")
        value = Iteration(
            number=value["iteration"],
            input=value.get("input"),
            output=value.get("output"),
            evaluation=None if evaluation is None else as_evaluation(evaluation),
            error=Failure.from_json(value.get("error")),
            usage=_usage_of(value.get("used")),
            seconds=value.get("took", 0) / 1e6,
            interrupted=value.get("interrupted", False),
            truncated=value.get("truncated", False),
            steps=value.get("steps"),
            files=value.get("files"),
            measures=Measure.listed(value.get("measures")),
            accepted=value.get("accepted"),
            explored=value.get("explored", False),
            **Iteration.lineage_of(value),
        )
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
    return hashlib.blake2b(before + first.to_bytes(8, "big") + body, digest_size=_SUM).digest()


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
        key, *sealed = values[: len(_COLUMNS) + 1]
        checksum, owner, _, queue, priority, wake_at, deliveries, tags = values[len(_COLUMNS) + 1 :]
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
        if tags:
            fields["tags"] = json.loads(tags)
        return RunRow(key=key, info=RunInfo(**fields), owner=owner, **own)


def listed_row(values: Sequence[Json]) -> RunRow:
    """Return the run of a row of a list. A damaged one has no more than its names, because the others must be listed."""
    try:
        return read_row(values)
    except JournalDamaged as error:
        run_id, name = (value.decode("utf-8", "replace") for value in values[1:3])
        return RunRow(
            values[0], RunInfo(run_id, name).as_damaged(error), "null", "{}", 0.0, 0, b"", None
        )


def sealed_values(row: RunRow) -> list[Value]:
    """Return the values of a row in the order of its columns, without its key."""
    info, usage = row.info, row.info.usage
    spent = [
        usage.calls, usage.input_tokens, usage.output_tokens, usage.usd,
        usage.unpriced, usage.estimated, *((usage.cached, usage.saved) if usage.cached else ()),
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
    """Return the values of the columns of a row that follow `sealed_values`: its place in a queue, and its tags."""
    queue = utf8(info.queue)[0]
    return [queue, info.priority, float(info.wake_at), info.deliveries, tags_text(info.tags)]


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


_AT_ONCE = 200  # contents read by one statement
_PAGE = 250  # rows that are decoded at a time, because what is folded must not fill the memory
Numbered = tuple[int, Json]  # the number of an entry and its element of a row


@dataclass(frozen=True, slots=True)
class RecordedEntries:
    """The entries of a run: the number of the last, the checksum of its row, content ids by digest.

    `ranks` are the numbers of iterations among those that were left out, by loop; "" is for all.
    """

    entries: Sequence[Entry]
    last: int
    head: bytes
    contents: Mapping[bytes, int]
    ranks: Mapping[str, int]


class NullContents(dict[int, str]):
    """Contents for a reader that does not need them: those that are absent read as null."""

    def __missing__(self, key: int) -> str:
        return "null"


class _NoFingerprints(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


class RowReader(ABC):
    """Reads the entries of runs from the rows of a store; for one thread at a time.

    All methods raise JournalDamaged, which names the run and the entry, for damaged rows.
    """

    @abstractmethod
    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        """Return the rows of a statement. Text is returned as bytes, so that it can be checked.

        Statements and their columns:

        - `timeline` (run, first, limit): first, body, sum of the rows from entry `first` on
        - `row of` (run, entry): the first entry of the row that contains an entry, or null
        - `row before` (run, first): sum of the row before
        - `iterations` (run, limit, offset): mark, first of the rows with a current iteration
        - `iterations of a loop` (run, loop, limit, offset): the same of one loop
        - `contents` (run, JSON list of ids): id, digest, size, body; a null body is in another place
        """

    @abstractmethod
    def body_elsewhere(self, digest: bytes) -> bytes | None:
        """Return a content that is stored outside its table; None if it is missing."""

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        """Return the run of a row with its input and source."""
        value, source = json.loads(row.input), json.loads(row.source)
        ids = dict.fromkeys([*references(value), *references(source)], 0)
        bodies, _ = self.contents(ids, row)
        return replace(info, input=unfold(value, bodies), source=unfold(source, bodies))

    def in_list(self, row: RunRow, info: RunInfo) -> RunInfo:
        """Return the run of a row of a list with its input and source; see `listed_row`."""
        try:
            return self.complete(row, info)
        except JournalDamaged as error:
            return info.as_damaged(error)

    def recorded(
        self, row: RunRow, *, values: bool = True, folded: bool = False
    ) -> RecordedEntries:
        """Return all entries of a run.

        Args:
            row: the run.
            values: whether long values are read; else they are None.
            folded: whether to leave out the entries that one of kind `folded` stands for. Those of a run that was
                rewound stay, because the rewind may name one of them.
        """
        numbered: list[Numbered] = []
        ranks: dict[str, int] = {}
        last, head, is_complete = 0, chain_start(row.info.run_id), not row.last
        page = _PAGE
        while page == _PAGE:
            rows = self._rows(row, last + 1, _PAGE)
            page = len(rows)
            for first, raws, head in rows:
                last = first + len(raws) - 1
                is_complete = is_complete or (last == row.last and head == row.head)
            numbered += _numbered(rows)
            kinds = {raw[0] for _, raws, _ in rows for raw in raws} if folded else ()
            if "r" in kinds:
                return self.recorded(row, values=values)
            if "folded" in kinds:
                kept = without_folded(numbered, _place_of)
                _count_ranks(ranks, numbered, kept)
                numbered = kept
        # The chain cannot show that its last rows are missing; the sealed row of the run can.
        if not is_complete:
            raise damaged(row.info.run_id, row.last, "is missing")
        bodies: dict[int, str] = NullContents()
        stored: dict[bytes, int] = {}
        if values:
            bodies, stored = self.contents(_content_ids(numbered), row)
        intents: dict[str, str] = {}
        entries = [decode_entry(raw, seq, bodies, intents) for seq, raw in numbered]
        return RecordedEntries(entries, last, head, stored, ranks)

    def entries(self, row: RunRow, after: int, limit: int) -> list[Entry]:
        """Return the entries of a run after a number; a `limit` of 0 is all."""
        until = after + limit if limit else sys.maxsize
        numbered = self._numbered_after(row, after, until)
        last = numbered[-1][0] if numbered else after
        if last < min(row.last, until):
            raise damaged(row.info.run_id, last + 1, "is missing")
        return self._decoded(row, numbered)

    def light_entries(self, row: RunRow, after: int, limit: int) -> list[Entry]:
        """Return the entries after a number without long values; a negative `limit` is all."""
        until = after + limit if limit >= 0 else sys.maxsize
        nothing, intents = NullContents(), _NoFingerprints()
        numbered = self._numbered_after(row, after, until)
        return [decode_entry(raw, seq, nothing, intents) for seq, raw in numbered]

    def _numbered_after(self, row: RunRow, after: int, until: int) -> list[Numbered]:
        # From the start of the row that contains the entry: a row is checked as a unit.
        [(first,)] = self.select("row of", row.key, after + 1)
        limit = -1 if until == sys.maxsize else until - after + 1
        rows = self._rows(row, first or 1, limit, until)
        return [(seq, raw) for seq, raw in _numbered(rows) if after < seq <= until]

    def iterations(
        self, row: RunRow, loop: str, offset: int, limit: int
    ) -> list[tuple[str, Iteration]]:
        """Return a page of (loop path, iteration) pairs; an empty `loop` is all loops."""
        if loop:
            marks = self.select("iterations of a loop", row.key, loop, limit, offset)
        else:
            marks = self.select("iterations", row.key, limit, offset)
        numbered: list[Numbered] = []
        order: list[int] = []
        for mark, first in marks:
            [(_, raws, _)] = self._rows(row, first, 1)
            raw = raws[mark - first]
            place = offset + len(numbered)
            if value_of(raw)["rank"][bool(loop)] != place + 1:
                # A retry leaves gaps between the ranks. All entries together show the order then.
                entries = [] if order else surviving(self.recorded(row, values=False).entries)
                order = order or [
                    e.seq for e in entries if e.kind == "iteration" and loop in ("", e.path)
                ]
                if order[place : place + 1] != [mark]:
                    raise damaged(row.info.run_id, mark, "does not follow the iteration before it")
            numbered.append((mark, raw))
        return [(entry.path, entry.value) for entry in self._decoded(row, numbered)]

    def _decoded(self, row: RunRow, numbered: list[Numbered]) -> list[Entry]:
        bodies, _ = self.contents(_content_ids(numbered), row)
        intents = self._intents(row, numbered)
        return [decode_entry(raw, seq, bodies, intents) for seq, raw in numbered]

    def _intents(self, row: RunRow, numbered: list[Numbered]) -> dict[str, str]:
        """Return the fingerprints, by path, of effects that finished here and were started before."""
        started: set[str] = set()
        missing: set[str] = set()
        for _, raw in numbered:
            if raw[0] == "s":
                started.add(raw[1])
            elif fingerprint_of(raw) == 1 and raw[1] not in started:
                missing.add(raw[1])
        intents: dict[str, str] = {}
        first = numbered[-1][0] if numbered else 1
        # Backwards row by row: the "started" of an effect is usually in the row before.
        while missing - set(intents) and first > 1:
            [(first,)] = self.select("row of", row.key, first - 1)
            [(_, raws, _)] = self._rows(row, first, 1)
            for raw in reversed(raws):
                if raw[0] == "s" and fingerprint_of(raw):
                    intents.setdefault(raw[1], fingerprint_of(raw))
        return intents

    def _rows(
        self, row: RunRow, first: int, limit: int, until: int = sys.maxsize
    ) -> list[tuple[int, list[Json], bytes]]:
        """Return (first, elements, sum) of a run's rows from entry `first` to `until`, checked."""
        run_id, rows = row.info.run_id, []
        with as_damage(f"{run_id}: entry {first}"):
            before = self.select("row before", row.key, first)
            # The page is checked against the row before it, so its own first row cannot be
            # exchanged.
            head = before[0][0] if before else chain_start(run_id)
            for start, body, total in self.select("timeline", row.key, first, limit):
                if first > until:
                    break
                head = chained(head, start, body)
                if start != first or head != total:
                    raise damaged(run_id, first, "does not match its checksum")
                raws = decode_row(body)
                first += len(raws)
                rows.append((start, raws, head))
        return rows

    def contents(
        self, ids: Mapping[int, int], row: RunRow
    ) -> tuple[dict[int, str], dict[bytes, int]]:
        """Return the bodies of contents by id, and their ids by digest.

        `ids` maps an id to the number of the entry that refers to it.
        """
        run_id = row.info.run_id
        bodies: dict[int, str] = {}
        stored: dict[bytes, int] = {}
        keys = list(ids)
        for i in range(0, len(keys), _AT_ONCE):
            part = json.dumps(keys[i : i + _AT_ONCE])
            for key, digest, size, kept in self.select("contents", row.key, part):
                with as_damage(_place(run_id, ids[key])):
                    body = self.body_elsewhere(digest) if kept is None else kept
                    # Checked at each read, because a file or a page of the database can be damaged
                    # at any time.
                    if body is None or len(body) != size or content_digest(body) != digest:
                        raise damaged(run_id, ids[key], "has a value that is damaged or gone")
                    bodies[key] = body.decode()
                    stored[digest] = key
        for key in keys:
            if key not in bodies:
                raise damaged(run_id, ids[key], "has a value that is gone")
        return bodies, stored


def _numbered(rows: Iterable[tuple[int, list[Json], bytes]]) -> list[Numbered]:
    return [(first + i, raw) for first, raws, _ in rows for i, raw in enumerate(raws)]


def _place_of(item: Numbered) -> tuple[str, str]:
    return item[1][0], item[1][1]


def _count_ranks(ranks: dict[str, int], before: list[Numbered], after: list[Numbered]) -> None:
    """Add the iterations that are left out of a list of entries."""
    known = {seq for seq, _ in after}
    for seq, raw in before:
        if raw[0] == "i" and seq not in known:
            for loop in ("", raw[1]):
                ranks[loop] = ranks.get(loop, 0) + 1


def _content_ids(numbered: Iterable[Numbered]) -> dict[int, int]:
    ids: dict[int, int] = {}
    for seq, raw in numbered:
        for content in references(value_of(raw), raw[0]):
            ids.setdefault(content, seq)
    return ids


def _place(run_id: str, seq: int) -> str:
    return f"{run_id}: entry {seq}" if seq else f"{run_id}: its input or source"


def damaged(run_id: str, seq: int, problem: str) -> JournalDamaged:
    """Return the error for a damaged entry; 0 is the run's own row."""
    return JournalDamaged(f"{_place(run_id, seq)} {problem}; restore the journal from a backup")
