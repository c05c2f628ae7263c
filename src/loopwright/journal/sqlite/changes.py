"""Whether something was committed, by whichever process: asked many times a second, at no cost."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from .schema import connect_reader, expect_journal
from .views import PAGE_STATEMENTS, Wanted, page_query

__all__ = ["LIST_COLUMNS", "WATCH_STATEMENT", "Watch"]

WATCH_STATEMENT = (
    "SELECT status, updated, epoch, (SELECT max(first) FROM entries WHERE run=runs.id) "
    "FROM runs WHERE run_id=?"
)
LIST_COLUMNS = "id, status, epoch"
NEWEST_STATEMENT = PAGE_STATEMENTS["newest key"]


class Watch:
    """A look at a journal's commits, for one thread; all it does may raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def version(self) -> int:
        """Return a number that is another one after each commit of another connection."""
        db = self._connected()
        return int(db.execute("PRAGMA data_version").fetchone()[0]) if db is not None else 0

    def state(self, run_id: str) -> Any:
        """Return what is another value once something of a run was committed."""
        db = self._connected()
        return db.execute(WATCH_STATEMENT, (run_id,)).fetchone() if db is not None else None

    def list_state(self, wanted: Wanted) -> Any:
        """Return what is another value once a run came into a page of the list, left it or ended.

        Of a list by status or reason it is that of the page without them, of a search that a run came.
        """
        db = self._connected()
        if db is None:
            return None
        if wanted.text:
            return db.execute(NEWEST_STATEMENT).fetchone()
        among = replace(wanted, status="", reason="")
        query, values = page_query(among, None, "[]", live_only=False, columns=LIST_COLUMNS)
        return tuple(db.execute(query, values).fetchall())

    def _connected(self) -> sqlite3.Connection | None:
        if self._db is None and expect_journal(self._path):
            self._db = connect_reader(self._path)[0]
        return self._db

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None
