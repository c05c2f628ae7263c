"""Sessions of workers, and of the engine that delivers their runs, in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal.protocol import session_options

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

__all__ = ["connected", "is_pooled"]


async def connected(url: str, role: str) -> psycopg.AsyncConnection[TupleRow]:
    """Return a session that commits each statement; see `session_options`."""
    import psycopg  # comes with an extra

    return await psycopg.AsyncConnection.connect(**session_options(url, role), autocommit=True)


async def is_pooled(db: psycopg.AsyncConnection[TupleRow]) -> bool:
    """Return whether a pooler is between this process and the server; it may change the session."""
    # A pooler answers the start of the connection itself, so the two numbers differ.
    [(pid,)] = await (await db.execute("SELECT pg_backend_pid()")).fetchall()
    return bool(pid != db.info.backend_pid)
