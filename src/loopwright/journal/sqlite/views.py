"""The statements for pages of an SQLite journal; see `recorded/pages`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ...records import Reason
from ...records.codec import Json
from ..protocol import RunInfo
from ..recorded.encoding import RunRow, Value
from ..recorded.pages import FIRST, WINDOW, PageReader
from ..recorded.rows import present
from ..views import Wanted
from .leases import owners_at
from .reader import STATEMENTS, End, RunReader, run_terms
from .schema import connect_reader, expect_journal, journal_error

LIST_COLUMNS = "id, status, epoch"
WATCH_STATEMENT = (
    "SELECT status, updated, epoch, (SELECT max(first) FROM entries WHERE run=runs.id) "
    "FROM runs WHERE run_id=?"
)
_INPUT = (  # a long input is a content
    "coalesce((SELECT body FROM contents WHERE id=coalesce(json_extract(runs.input,'$.\"$text\"'),"
    "json_extract(runs.input,'$.\"$json\"'))),runs.input)"
)
_TEXTS = ("run_id", "name", "detail", _INPUT)
PAGE_STATEMENTS = {
    "newest key": "SELECT max(id) FROM runs",
    "names": "SELECT min(name) FROM runs WHERE name>?",
    "next loop": "SELECT min(loop) FROM entries WHERE run=? AND loop>?",
    "extent of a loop": "SELECT count(*) FROM entries WHERE run=? AND loop=?",
    "extent of a run": "SELECT count(*) FROM entries WHERE run=? AND loop>''",
    "mark": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT 1 OFFSET ?",
    "outline": "SELECT mark, first, body, sum, (SELECT p.sum FROM entries p WHERE p.run=e.run "
    "AND p.first<e.first ORDER BY p.first DESC LIMIT 1) FROM entries e "
    "WHERE run=? AND loop=? AND mark>=? ORDER BY mark LIMIT ?",
    "marks": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT ? OFFSET ?",
    "tried again": "SELECT first, body FROM entries WHERE run=? AND first>=? "
    "AND (body GLOB '*/attempt-[2-9]*' OR body GLOB '*/attempt-1[0-9]*' "
    "OR body GLOB '[[][[]\"r\",*') ORDER BY first",
    "latest row": "SELECT first, body FROM entries WHERE run=? ORDER BY first DESC LIMIT 1",
}

T = TypeVar("T")


def page_query(
    wanted: Wanted,
    end: End | None,
    live: str,
    *,
    live_only: bool,
    columns: str = "*",
) -> tuple[str, list[Value]]:
    """Return the statement for a page of runs, and its values.

    `end` is a stored status and reason: with both, the index returns the runs in the order of the
    page. See `run_terms` for `live` and `live_only`.
    """
    newer = bool(wanted.after)
    low, high = wanted.after, wanted.before or FIRST
    if wanted.text:
        # A text has no index: the window bounds the time of one request.
        low, high = (low, min(high, low + WINDOW)) if newer else (max(low, high - WINDOW), high)
    terms, values = run_terms(wanted, end, live, live_only=live_only)
    terms += ["id<?", "id>?"]
    values += [high, low]
    if wanted.text:
        # Characters with a meaning in patterns are escaped.
        like = "%" + wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(f"({' OR '.join(f'{column} LIKE ? ESCAPE ?' for column in _TEXTS)})")
        values += [like, "\\"] * len(_TEXTS)
    order = f" ORDER BY id {'ASC' if newer else 'DESC'} LIMIT ?"
    where = " AND ".join(terms)
    return "".join(["SELECT ", columns, " FROM runs WHERE ", where, order]), [*values, wanted.limit]


class SqliteWatch:
    """Detects commits of any process at the cost of microseconds; for one thread. See Watch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def version(self) -> int:
        return self._ask(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0])) or 0

    async def state(self, run_id: str) -> object:
        return self._ask(lambda db: db.execute(WATCH_STATEMENT, (run_id,)).fetchone())

    async def list_state(self, wanted: Wanted) -> object:
        if wanted.text:
            return self._ask(lambda db: db.execute(PAGE_STATEMENTS["newest key"]).fetchone())
        every = replace(wanted, status="", reason="")
        query, values = page_query(every, None, "[]", live_only=False, columns=LIST_COLUMNS)
        return self._ask(lambda db: tuple(db.execute(query, values).fetchall()))

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of `work` on the connection; None if no journal exists yet."""
        try:
            db = self._connected()
            return work(db) if db is not None else None
        except (sqlite3.Error, OSError) as error:
            raise journal_error(error, str(self._path)) from error

    def _connected(self) -> sqlite3.Connection | None:
        if self._db is None and expect_journal(self._path):
            self._db = connect_reader(self._path)[0]
        return self._db

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None


class Pages(RunReader, PageReader):
    """A reader that also answers the queries of pages."""

    def __init__(self, db: sqlite3.Connection, files: Path, now: Callable[[], float]) -> None:
        RunReader.__init__(self, db, files, now)
        PageReader.__init__(self)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside at one moment, and take the file's locks once."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        text = STATEMENTS.get(statement) or PAGE_STATEMENTS[statement]
        return self._db.execute(text, values).fetchall()

    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        owners = owners_at(self._db, self._now())
        live = json.dumps([key for key, owner in owners.items() if owner.alive])
        status = wanted.status or (Reason(wanted.reason).status.value if wanted.reason else "")
        rows: list[RunRow] = []
        for end, live_only in self.ends(status, wanted.reason):
            query, values = page_query(wanted, end, live, live_only=live_only)
            rows += map(self.checked, self._db.execute(query, values).fetchall())
        return [(row, present(row, owners.get(row.owner or 0))) for row in rows]
