"""Rows back to entries: every row is checked against its chain, every content against its digest.

A store derives its reader from `RowReader` and answers the statements that are named here.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import JournalDamaged
from ...records import Iteration
from ...records.codec import Json
from ..entries import Entry
from ..protocol import RunInfo
from .encoding import (
    RunRow,
    Value,
    as_damage,
    chain_start,
    chained,
    content_digest,
    decode_entry,
    decode_row,
    fingerprint_of,
    references,
    unfold,
    value_of,
)

_AT_ONCE = 200  # contents read by one statement
Numbered = tuple[int, Json]  # the number of an entry and its element of a row


@dataclass(frozen=True, slots=True)
class RecordedEntries:
    """All entries of a run: the number of the last, the checksum of its row, content ids by digest."""

    entries: Sequence[Entry]
    last: int
    head: bytes
    contents: Mapping[bytes, int]


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

    def recorded(self, row: RunRow, *, values: bool = True) -> RecordedEntries:
        """Return all entries of a run; without `values`, long values are None."""
        rows = self._rows(row, 1, -1)
        ends = {first + len(raws) - 1: head for first, raws, head in rows}
        # The chain cannot show that its last rows are missing; the sealed row of the run can.
        if row.last and ends.get(row.last) != row.head:
            raise damaged(row.info.run_id, row.last, "is missing")
        if not rows:
            return RecordedEntries([], 0, chain_start(row.info.run_id), {})
        numbered = _numbered(rows)
        bodies: dict[int, str] = NullContents()
        stored: dict[bytes, int] = {}
        if values:
            bodies, stored = self.contents(_content_ids(numbered), row)
        intents: dict[str, str] = {}
        entries = [decode_entry(raw, seq, bodies, intents) for seq, raw in numbered]
        return RecordedEntries(entries, entries[-1].seq, rows[-1][2], stored)

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
        for mark, first in marks:
            [(_, raws, _)] = self._rows(row, first, 1)
            raw = raws[mark - first]
            if value_of(raw)["rank"][bool(loop)] != offset + len(numbered) + 1:
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
