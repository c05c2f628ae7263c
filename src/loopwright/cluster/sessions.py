"""Sessions of workers, and of the engine that delivers their runs, in PostgreSQL."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from ..journal.postgres.connection import Server

__all__ = ["connected", "is_pooled"]


async def connected(url: str, role: str) -> psycopg.AsyncConnection[TupleRow]:
    """Return a session that commits each statement.

    Args:
        url: the URL of the database.
        role: what the session is for, as lists of sessions name it.
    """
    options = Server(url).options(role)
    return await psycopg.AsyncConnection.connect(**options, autocommit=True)


async def is_pooled(db: psycopg.AsyncConnection[TupleRow]) -> bool:
    """Return whether a pooler is between this process and the server; it may change the session."""
    # A pooler answers the start of the connection itself, so the two numbers differ.
    [(pid,)] = await (await db.execute("SELECT pg_backend_pid()")).fetchall()
    return bool(pid != db.info.backend_pid)
