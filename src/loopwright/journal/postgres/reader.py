"""Reads a PostgreSQL journal: single runs, pages of the run list, and what changed.

Statements are constants, so that a test can ask PostgreSQL for their query plans.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import psycopg

from ...records import Reason, codec
from ...records.codec import Json
from ..protocol import Posted, RunInfo
from ..recorded.encoding import RunRow, Value, read_row
from ..recorded.pages import FIRST, WINDOW, PageReader
from ..views import Wanted
from .connection import Connection, Server
from .owners import CommitListener
from .runs import COLUMNS, answers_of, find_run, presents

_LIMIT = "LIMIT NULLIF(%s::bigint, -1)"
STATEMENTS = {
    "timeline": "SELECT first, body, sum FROM loopwright.entries WHERE run=%s AND first>=%s "
    f"ORDER BY first {_LIMIT}",
    "row of": "SELECT max(first) FROM loopwright.entries WHERE run=%s AND first<=%s",
    "row before": "SELECT sum FROM loopwright.entries WHERE run=%s AND first<%s "
    "ORDER BY first DESC LIMIT 1",
    "iterations": "SELECT mark, first FROM loopwright.entries WHERE run=%s AND loop IS NOT NULL "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    "iterations of a loop": "SELECT mark, first FROM loopwright.entries WHERE run=%s AND loop=%s "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    # Those of the run and of the runs that it was forked from; an id is unique over all runs.
    "contents": "WITH r AS (SELECT %s::bigint AS id) SELECT c.id, digest, size, body "
    "FROM loopwright.contents c WHERE c.run IN (SELECT id FROM r UNION ALL "
    "SELECT origin FROM loopwright.forks f JOIN r ON f.run=r.id) "
    "AND c.id=ANY(ARRAY(SELECT json_array_elements_text(%s::json)::bigint))",
    "newest key": "SELECT max(id) FROM loopwright.runs",
    "names": "SELECT min(name) FROM loopwright.runs WHERE name>%s",
    "next loop": "SELECT min(loop) FROM loopwright.entries WHERE run=%s AND loop>%s",
    "extent of a loop": "SELECT count(*) FROM loopwright.entries WHERE run=%s AND loop=%s",
    "extent of a run": "SELECT count(*) FROM loopwright.entries WHERE run=%s AND loop IS NOT NULL",
    "mark": "SELECT mark FROM loopwright.entries WHERE run=%s AND loop=%s "
    "ORDER BY mark LIMIT 1 OFFSET %s",
    "outline": "SELECT mark, first, body, sum, (SELECT p.sum FROM loopwright.entries p "
    "WHERE p.run=e.run AND p.first<e.first ORDER BY p.first DESC LIMIT 1) FROM loopwright.entries e "
    f"WHERE run=%s AND loop=%s AND mark>=%s ORDER BY mark {_LIMIT}",
    "marks": "SELECT mark FROM loopwright.entries WHERE run=%s AND loop=%s "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    "tried again": "SELECT first, body FROM loopwright.entries WHERE run=%s AND first>=%s "
    "AND (body ~ '/attempt-([2-9]|1[0-9])' OR body LIKE '[[\"r\",%%') ORDER BY first",
    "latest row": "SELECT first, body FROM loopwright.entries WHERE run=%s "
    "ORDER BY first DESC LIMIT 1",
}
LIVE = "SELECT coalesce(array_agg(id), '{}') FROM loopwright.owners_now WHERE alive"
WATCHED = (
    "SELECT status, updated, epoch, cancel, (SELECT max(first) FROM loopwright.entries "
    "WHERE run=runs.id) FROM loopwright.runs WHERE run_id=%s"
)
# An ended run keeps the key of its last owner, which no longer holds it.
_HELD = "status='running' AND owner IN (SELECT id FROM loopwright.owners WHERE host||':'||pid=%s)"
_INPUT = (  # a long input is a content
    "coalesce((SELECT body FROM loopwright.contents c WHERE c.run=runs.id AND runs.input LIKE '{\"$%%' "
    "AND c.id=coalesce((runs.input::json->>'$text'), (runs.input::json->>'$json'))::bigint), runs.input)"
)
_TEXTS = ("run_id", "name", "detail", _INPUT)
# The text of a run is not indexed, so the search reads rows until the page is full.
_MANY = 200  # rows that a search for text reads at a time

T = TypeVar("T")


def _stored(text: str) -> str:
    """Return a text as a row has it: no text of PostgreSQL can hold NUL."""
    return text.replace("\0", "\ufffd")


def run_terms(wanted: Wanted, live: list[int]) -> tuple[list[str], list[object]]:
    """Return the terms that select runs, and their values.

    A running run without a live owner is stored as running, and counts as interrupted.
    """
    terms: list[str] = []
    values: list[object] = []
    reason = wanted.reason
    status = wanted.status or (Reason(reason).status.value if reason else "")
    if status == "running":
        terms.append("status='running' AND owner=ANY(%s)")
        values.append(live)
    elif status == "interrupted":
        terms.append("(status='interrupted' OR (status='running' AND owner=ANY(%s) IS NOT TRUE))")
        values.append(live)
    elif status:
        terms.append("status=%s")
        values.append(status)
    if reason:
        terms.append("reason=%s")
        values.append(reason)
    if wanted.name:
        terms.append("name=%s")
        values.append(_stored(wanted.name))
    if wanted.queue:
        terms.append("queue=%s")
        values.append(_stored(wanted.queue))
    if wanted.worker:
        terms.append(_HELD)
        values.append(_stored(wanted.worker))
    return terms, values


def page_query(wanted: Wanted, live: list[int], columns: str) -> tuple[str, list[object]]:
    """Return the statement for a page of runs, and its values."""
    newer = bool(wanted.after)
    low, high = wanted.after, wanted.before or FIRST
    if wanted.text:
        low, high = (low, min(high, low + WINDOW)) if newer else (max(low, high - WINDOW), high)
    terms, values = run_terms(wanted, live)
    terms += ["id<%s", "id>%s"]
    values += [high, low]
    if wanted.text:
        text = _stored(wanted.text).replace("\\", "\\\\")
        like = "%" + text.replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(f"({' OR '.join(f'{column} ILIKE %s' for column in _TEXTS)})")
        values += [like] * len(_TEXTS)
    order = f" ORDER BY id {'ASC' if newer else 'DESC'} LIMIT %s"
    where = " AND ".join(terms)
    query = "".join(["SELECT ", columns, " FROM loopwright.runs WHERE ", where, order])
    return query, [*values, wanted.limit]


class Reader(PageReader):
    """A connection that only reads, for one thread at a time."""

    def __init__(self, db: Connection) -> None:
        super().__init__()
        self.db = db

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside at one moment."""
        # Otherwise a page could show an iteration whose run row is from before it.
        self.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if not self.db.closed:
                self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        """Return the rows of a statement; see RowReader."""
        return self._rows_of(STATEMENTS[statement], values)

    def _rows_of(self, query: str, values: Sequence[object]) -> list[tuple[Json, ...]]:
        return self.db.execute(query, values).fetchall()

    def body_elsewhere(self, digest: bytes) -> bytes | None:
        """Return None: every content is in its table."""
        return None

    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""
        return answers_of(self.db, row.key)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run. Raises RunNotFound."""
        return find_run(self.db, run_id)

    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""
        [shown] = presents(self.db, [self.row(run_id)])
        return shown

    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        """Return the rows and present states of a page of runs."""
        query, values = page_query(wanted, self._live(), COLUMNS)
        return presents(self.db, list(map(self.checked, self._rows_of(query, values))))

    def runs(self, wanted: Wanted, offset: int) -> list[RunInfo]:
        """Return a page of runs, newest first."""
        terms, values = run_terms(wanted, self._live())
        limit, text = wanted.limit, wanted.text.lower()
        if not text:
            return list(self._runs(terms, values, limit, offset))
        found = (
            info
            for start in self._starts()
            for info in self._runs(terms, values, _MANY, start)
            if text in codec.text_of(info.to_json()).lower()
        )
        return list(islice(found, offset, offset + limit))

    def _starts(self) -> range:
        [(count,)] = self._rows_of("SELECT count(*) FROM loopwright.runs", ())
        return range(0, count, _MANY)

    def _runs(
        self, terms: list[str], values: list[object], limit: int, offset: int
    ) -> Iterator[RunInfo]:
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        query = f"SELECT {COLUMNS} FROM loopwright.runs{where} ORDER BY id DESC LIMIT %s OFFSET %s"
        rows = [read_row(row) for row in self._rows_of(query, [*values, limit, offset])]
        return (self.complete(row, info) for row, info in presents(self.db, rows))

    def _live(self) -> list[int]:
        [(live,)] = self._rows_of(LIVE, ())
        return list(live)


class PostgresWatch:
    """Detects commits of any process: announced at most once per beat of each; see Watch."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: CommitListener | None = None
        self._db: Connection | None = None
        self._lock = threading.Lock()

    def version(self) -> int:
        if self._listener is None:
            self._listener = CommitListener(self._server)
        return self._listener.count

    async def state(self, run_id: str) -> object:
        return await self._ask(lambda db: db.execute(WATCHED, (run_id,)).fetchone())

    async def list_state(self, wanted: Wanted) -> object:
        if wanted.text:
            return await self._ask(lambda db: db.execute(STATEMENTS["newest key"]).fetchone())
        query, values = page_query(replace(wanted, status="", reason=""), [], "id, status, epoch")
        return await self._ask(lambda db: tuple(db.execute(query, values).fetchall()))

    async def _ask(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._answer, work)

    def _answer(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            try:
                if self._db is None:
                    self._db = self._server.connect("watch")
                return work(self._db)
            except psycopg.Error as error:
                if self._db is not None:
                    self._db.close()
                    self._db = None
                raise self._server.error(error) from error

    def close(self) -> None:
        """Close the connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None
