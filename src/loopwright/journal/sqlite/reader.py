"""Reads an SQLite journal over a connection that cannot write.

Statements are constants, so that a test can ask SQLite for their query plans.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from ...records import codec
from ...records.codec import Json
from ..protocol import Posted, RunInfo
from ..recorded.encoding import RunRow, Value, read_row
from ..recorded.reader import RowReader
from ..recorded.rows import present
from ..views import Wanted
from .database import find_run, posted
from .leases import owner_at, owners_at
from .schema import read_content

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
    "WHERE ?1>0 AND id IN (SELECT value FROM json_each(?2))",
}
_LIVE = "owner IN (SELECT value FROM json_each(?))"
# An ended run keeps the key of its last owner, which no longer holds it.
_HELD = "status='running' AND owner IN (SELECT id FROM owners WHERE host||':'||pid=?)"
End = tuple[str, str]  # a status and a reason, as they are stored


def run_terms(
    wanted: Wanted, end: End | None, live: str, *, live_only: bool
) -> tuple[list[str], list[Value]]:
    """Return the terms that select runs by name, queue and worker and by an end, and their values.

    `live` is a JSON list of the keys of live owners: the owner of a running run must be in it, or
    must not be in it if `live_only` is false.
    """
    terms: list[str] = []
    values: list[Value] = []
    if end:
        terms += ["status=?", "reason=?"]
        values += end
        if end[0] == "running":
            terms.append(_LIVE if live_only else f"{_LIVE} IS NOT TRUE")
            values.append(live)
    if wanted.name:
        terms.append("name=?")
        values.append(wanted.name)
    if wanted.queue:
        terms.append("queue=?")
        values.append(wanted.queue)
    if wanted.worker:
        terms.append(_HELD)
        values.append(wanted.worker)
    return terms, values


def runs_query(
    wanted: Wanted, end: End | None, live: str, *, live_only: bool
) -> tuple[str, list[Value]]:
    """Return the statement for the newest runs and its values; those of LIMIT and OFFSET follow."""
    terms, values = run_terms(wanted, end, live, live_only=live_only)
    where = [" WHERE ", " AND ".join(terms)] if terms else []
    return "".join(["SELECT * FROM runs", *where, " ORDER BY id DESC LIMIT ? OFFSET ?"]), values


class RunReader(RowReader):
    """A connection that cannot write, for one thread at a time."""

    def __init__(self, db: sqlite3.Connection, files: Path, now: Callable[[], float]) -> None:
        self._db = db
        self._files = files
        self._now = now

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        """Return the rows of a statement; see RowReader."""
        return self._db.execute(STATEMENTS[statement], values).fetchall()

    def body_elsewhere(self, digest: bytes) -> bytes | None:
        """Return a content stored as a file; see RowReader."""
        return read_content(self._files, digest)

    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""
        return posted(self._db, row.key)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run. Raises RunNotFound."""
        return find_run(self._db, run_id)

    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""
        row = self.row(run_id)
        return row, present(row, owner_at(self._db, row.owner, self._now()))

    def runs(self, wanted: Wanted, offset: int) -> list[RunInfo]:
        """Return a page of runs, newest first."""
        limit, status, text = wanted.limit, wanted.status, wanted.text.lower()
        owners = owners_at(self._db, self._now())
        live = json.dumps([key for key, owner in owners.items() if owner.alive])
        # Several ends are merged below, so each needs the rows up to the end of the page.
        page = [-1, 0] if text else [limit + offset, 0] if status else [limit, offset]
        rows: list[RunRow] = []
        for end, live_only in self.ends(status):
            query, values = runs_query(wanted, end, live, live_only=live_only)
            rows += map(read_row, self._db.execute(query, [*values, *page]))
        rows.sort(key=lambda row: -row.key)
        if status and not text:
            rows = rows[offset : offset + limit]
        infos = (self.complete(row, present(row, owners.get(row.owner or 0))) for row in rows)
        if not text:
            return list(infos)
        # Here and not in SQL: the input may be a content, and the text must match the printed row.
        matching = (info for info in infos if text in codec.text_of(info.to_json()).lower())
        return list(islice(matching, offset, offset + limit))

    def ends(self, status: str, reason: str = "") -> list[tuple[End | None, bool]]:
        """Return the stored (status, reason) pairs that a status means, each with `live_only`.

        An empty status is every run: one pair, None. A running run without a live owner is stored
        as running, and counts as interrupted.
        """
        if not status:
            return [(None, True)]
        pairs: list[tuple[End | None, bool]] = [(end, True) for end in self._ends(status, reason)]
        if status == "interrupted":
            # The row of a killed process still says running.
            pairs += [(end, False) for end in self._ends("running", reason)]
        return pairs

    def _ends(self, status: str, reason: str) -> list[End]:
        if reason:
            return [(status, reason)]
        ends: list[End] = []
        [(raw,)] = self.select("first reason", status)
        # One step per reason over the index, which takes as long for a million runs as for ten.
        while raw is not None:
            ends.append((status, raw.decode("utf-8", "replace")))
            [(raw,)] = self.select("next reason", *ends[-1])
        return ends
