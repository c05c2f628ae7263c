"""What a journal holds, read by a connection that cannot write.

Everything is checked before it is used: rows against the chain of their run, contents against their
digests, the row of a run against its seal. Statements are constants, so that a test can ask SQLite
how it goes about them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import JournalDamaged
from ...records import Iteration, codec
from ...records.codec import Json
from .. import Entry, Posted, RunInfo
from .encoding import (
    content_digest,
    decode_entry,
    decode_row,
    fingerprint_of,
    references,
    unfold,
    value_of,
)
from .errors import as_damage
from .files import read_content
from .inbox import posted
from .leases import read_owners
from .rows import RunRow, chain_start, chained, read_row
from .run_ownership import find_row, present

__all__ = ["STATEMENTS", "Reader", "RecordedEntries", "runs_query"]

STATEMENTS = {
    "timeline": "SELECT first, body, sum FROM entries WHERE run=? AND first>=? "
    "ORDER BY first LIMIT ?",
    "row of": "SELECT max(first) FROM entries WHERE run=? AND first<=?",
    "row before": "SELECT sum FROM entries WHERE run=? AND first<? ORDER BY first DESC LIMIT 1",
    "iterations": "SELECT mark, first FROM entries WHERE id IN (SELECT id FROM entries "
    "WHERE run=? AND loop IS NOT NULL ORDER BY mark LIMIT ? OFFSET ?) ORDER BY mark",
    "iterations of a loop": "SELECT mark, first FROM entries WHERE run=? AND loop=? "
    "ORDER BY mark LIMIT ? OFFSET ?",
    "first reason": "SELECT min(reason) FROM runs WHERE status=?",
    "next reason": "SELECT min(reason) FROM runs WHERE status=? AND reason>?",
    "contents": "SELECT id, digest, size, body FROM contents "
    "WHERE id IN (SELECT value FROM json_each(?))",
}
_LIVE = "owner IN (SELECT value FROM json_each(?))"
_DEAD = f"{_LIVE} IS NOT TRUE"
_AT_ONCE = 200  # contents by one statement

Numbered = tuple[int, Json]  # an entry's number and its element of a row


@dataclass(frozen=True, slots=True)
class RecordedEntries:
    """All entries of a run, the number of the last, its row's sum, ids of contents by digest."""

    entries: Sequence[Entry]
    last: int
    head: bytes
    contents: Mapping[bytes, int]


class _Blank(dict[int, str]):
    """Contents that nobody asked for."""

    def __missing__(self, key: int) -> str:
        return "null"


def runs_query(
    name: str, end: tuple[str, str] | None, live: str, *, live_only: bool
) -> tuple[str, list[Any]]:
    """Return the statement for the newest runs with a status and a reason, and its values.

    `live` is a JSON list of the keys of live owners: a running run's owner must be one of them, or
    with `live_only` false must not. The values of LIMIT and OFFSET follow.
    """
    conditions, values = [], list[Any]()
    if end:
        conditions += ["status=?", "reason=?"]
        values += end
    if end and end[0] == "running":
        conditions.append(_LIVE if live_only else _DEAD)
        values.append(live)
    if name:
        conditions.append("name=?")
        values.append(name)
    where = [" WHERE ", " AND ".join(conditions)] if conditions else []
    return "".join(["SELECT * FROM runs", *where, " ORDER BY id DESC LIMIT ? OFFSET ?"]), values


class Reader:
    """A connection that cannot write, for one thread at a time; all it does may find damage.

    Raises:
        JournalDamaged: naming the run and the entry that do not match.
    """

    def __init__(self, db: sqlite3.Connection, files: Path) -> None:
        self._db = db
        self._files = files

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._db.execute(STATEMENTS[statement], values).fetchall()

    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""
        return posted(self._db, row.key)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run. Raises RunNotFound."""
        return find_row(self._db, run_id)

    def find(self, run_id: str, now: float) -> RunInfo:
        """Return a run as it is now. Raises RunNotFound."""
        row = self.row(run_id)
        return self.complete(row, present(row, read_owners(self._db), now))

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        """Return the run of a row with its input and source."""
        given, source = json.loads(row.input), json.loads(row.source)
        wanted = dict.fromkeys([*references(given), *references(source)], 0)
        bodies, _ = self._contents(wanted, info.run_id)
        return replace(info, input=unfold(given, bodies), source=unfold(source, bodies))

    def runs(
        self, now: float, *, limit: int, offset: int, name: str, status: str, text: str
    ) -> list[RunInfo]:
        """Return a page of runs, newest first."""
        owners = read_owners(self._db)
        live = json.dumps([key for key, owner in owners.items() if owner.alive(now)])
        if status:
            asked = [runs_query(name, end, live, live_only=True) for end in self.ends(status)]
            if status == "interrupted":  # what a dead process was running is so too
                dead = self.ends("running")
                asked += [runs_query(name, end, live, live_only=False) for end in dead]
        else:
            asked = [runs_query(name, None, live, live_only=True)]
        page = [-1, 0] if text else [limit + offset, 0] if status else [limit, offset]
        found = [row for sql, values in asked for row in self._db.execute(sql, [*values, *page])]
        rows = sorted(map(read_row, found), key=lambda row: -row.key)
        if status and not text:
            rows = rows[offset : offset + limit]
        infos = (self.complete(row, present(row, owners, now)) for row in rows)
        if not text:
            return list(infos)
        text = text.lower()
        matching = (info for info in infos if text in codec.text_of(info.to_json()).lower())
        return list(islice(matching, offset, offset + limit))

    def ends(self, status: str, reason: str = "") -> list[tuple[str, str]]:
        """Return a status as it is written, with the reason, or each that runs have with it."""
        if reason:
            return [(status, reason)]
        found: list[tuple[str, str]] = []
        [(raw,)] = self._all("first reason", status)
        while raw is not None:
            found.append((status, raw.decode("utf-8", "replace")))
            [(raw,)] = self._all("next reason", *found[-1])
        return found

    def recorded(self, row: RunRow, *, values: bool = True) -> RecordedEntries:
        """Return everything recorded of a run; long values are None on request."""
        rows = self._rows(row, 1, -1)
        ends = {first + len(raws) - 1: head for first, raws, head in rows}
        if row.last and ends.get(row.last) != row.head:
            raise _damaged(row.info.run_id, row.last, "is missing")
        if not rows:
            return RecordedEntries([], 0, chain_start(row.info.run_id), {})
        numbered = _numbered(rows)
        bodies: dict[int, str] = _Blank()
        known: dict[bytes, int] = {}
        if values:
            bodies, known = self._contents(_wanted(numbered), row.info.run_id)
        intents: dict[str, str] = {}
        entries = [decode_entry(raw, seq, bodies, intents) for seq, raw in numbered]
        return RecordedEntries(entries, entries[-1].seq, rows[-1][2], known)

    def entries(self, row: RunRow, after: int, limit: int) -> list[Entry]:
        """Return the entries of a run after a number."""
        [(first,)] = self._all("row of", row.key, after + 1)
        until = after + limit if limit else sys.maxsize
        rows = self._rows(row, first or 1, limit + 1 if limit else -1, until)
        numbered = [(seq, raw) for seq, raw in _numbered(rows) if seq > after]
        seen = numbered[-1][0] if numbered else after
        if seen < min(row.last, until):
            raise _damaged(row.info.run_id, seen + 1, "is missing")
        return self._decoded(row, numbered[:limit] if limit else numbered)

    def iterations(
        self, row: RunRow, loop: str, offset: int, limit: int
    ) -> list[tuple[str, Iteration]]:
        """Return a page of (loop path, iteration) pairs."""
        if loop:
            marks = self._all("iterations of a loop", row.key, loop, limit, offset)
        else:
            marks = self._all("iterations", row.key, limit, offset)
        numbered: list[Numbered] = []
        for mark, first in marks:
            [(_, raws, _)] = self._rows(row, first, 1)
            raw = raws[mark - first]
            if value_of(raw)["rank"][bool(loop)] != offset + len(numbered) + 1:
                raise _damaged(row.info.run_id, mark, "does not follow the iteration before it")
            numbered.append((mark, raw))
        return [(entry.path, entry.value) for entry in self._decoded(row, numbered)]

    def _decoded(self, row: RunRow, numbered: list[Numbered]) -> list[Entry]:
        bodies, _ = self._contents(_wanted(numbered), row.info.run_id)
        intents = self._intents(row, numbered)
        return [decode_entry(raw, seq, bodies, intents) for seq, raw in numbered]

    def _intents(self, row: RunRow, numbered: list[Numbered]) -> dict[str, str]:
        """Return the fingerprints, by path, of effects finished among these, started before."""
        found: dict[str, str] = {}
        known: set[str] = set()
        missing: set[str] = set()
        for _, raw in numbered:
            if raw[0] == "s":
                known.add(raw[1])
            elif fingerprint_of(raw) == 1 and raw[1] not in known:
                missing.add(raw[1])
        first = numbered[-1][0] if numbered else 1
        while missing - set(found) and first > 1:
            [(first,)] = self._all("row of", row.key, first - 1)
            [(_, raws, _)] = self._rows(row, first, 1)
            for raw in reversed(raws):
                if raw[0] == "s" and fingerprint_of(raw):
                    found.setdefault(raw[1], fingerprint_of(raw))
        return found

    def _rows(
        self, row: RunRow, first: int, limit: int, until: int = sys.maxsize
    ) -> list[tuple[int, list[Json], bytes]]:
        """Return (first, elements, sum) of a run's rows from entry `first` to `until`, checked."""
        with as_damage(f"{row.info.run_id}: entry {first}"):
            return self._checked(row, first, limit, until)

    def _checked(
        self, row: RunRow, first: int, limit: int, until: int
    ) -> list[tuple[int, list[Json], bytes]]:
        run_id = row.info.run_id
        before = self._all("row before", row.key, first)
        head = before[0][0] if before else chain_start(run_id)
        found = []
        for start, body, total in self._all("timeline", row.key, first, limit):
            if first > until:
                break
            head = chained(head, start, body)
            if start != first or head != total:
                raise _damaged(run_id, first, "does not match its checksum")
            raws = decode_row(body)
            first += len(raws)
            found.append((start, raws, head))
        return found

    def _contents(
        self, wanted: Mapping[int, int], run_id: str
    ) -> tuple[dict[int, str], dict[bytes, int]]:
        """Return the bodies of contents by id, and their ids by digest.

        `wanted` maps an id to the number of the entry that names it.
        """
        bodies: dict[int, str] = {}
        known: dict[bytes, int] = {}
        keys = list(wanted)
        for i in range(0, len(keys), _AT_ONCE):
            part = json.dumps(keys[i : i + _AT_ONCE])
            for key, digest, size, kept in self._all("contents", part):
                with as_damage(_place(run_id, wanted[key])):
                    body = read_content(self._files, digest) if kept is None else kept
                    if body is None or len(body) != size or content_digest(body) != digest:
                        raise _damaged(run_id, wanted[key], "has a value that is damaged or gone")
                    bodies[key] = body.decode()
                    known[digest] = key
        for key in keys:
            if key not in bodies:
                raise _damaged(run_id, wanted[key], "has a value that is gone")
        return bodies, known


def _numbered(rows: Iterable[tuple[int, list[Json], bytes]]) -> list[Numbered]:
    return [(first + i, raw) for first, raws, _ in rows for i, raw in enumerate(raws)]


def _wanted(numbered: Iterable[Numbered]) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for seq, raw in numbered:
        for content in references(value_of(raw), raw[0]):
            wanted.setdefault(content, seq)
    return wanted


def _place(run_id: str, seq: int) -> str:
    return f"{run_id}: entry {seq}" if seq else f"{run_id}: its input or source"


def _damaged(run_id: str, seq: int, what: str) -> JournalDamaged:
    return JournalDamaged(f"{_place(run_id, seq)} {what}; restore the journal from a backup")
