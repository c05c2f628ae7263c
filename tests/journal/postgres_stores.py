"""Journals on one PostgreSQL database, each as a process of its own."""

from __future__ import annotations

from typing import Any

import psycopg

from loopwright.journal.postgres.journal import PostgresJournal


def query(url: str, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on a database."""
    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


class PostgresStore:
    """PostgresJournals on one database; to a later one, the earlier ones have ended."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[PostgresJournal] = []
        self.journal = self._another()

    def _another(self) -> PostgresJournal:
        self._made.append(PostgresJournal(self.url))
        return self._made[-1]

    def crash(self) -> PostgresJournal:
        """Let the earlier journals look dead; their sessions and beats go on."""
        query(self.url, "UPDATE loopwright.owners SET closed=true")
        return self._another()

    async def reopen(self) -> PostgresJournal:
        await self._made[-1].close()
        return self._another()

    async def close(self) -> None:
        for journal in self._made:
            await journal.close()
