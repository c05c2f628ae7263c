"""A journal in a PostgreSQL database, which several machines may share.

1. `append` joins the batch of this pass of the event loop. One thread writes, and everything that
   waits becomes one statement or one transaction (`recorded/writer`, `database`).
2. A commit whose answer was lost is repeated or looked up, for `patience` seconds (`database`).
3. One owner writes a run: the statement that inserts its rows locks the row of the run and compares
   its epoch (`database`). The leases of owners are in the time of the database (`ownership`).
4. Rows, checksums and contents are those of an SQLite journal (`recorded/rows`), except that no
   content is a file. Every query uses an index (`connection` has the tables, `journal` the queries).
5. Memories have numbers that become visible in order, under a lock of their space (`journal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._extras import needs

if TYPE_CHECKING:
    from .journal import PostgresJournal


def open_url(url: str) -> PostgresJournal:
    """Return the journal at a `postgres:` URL; nothing is connected before the first use.

    Raises:
        ConfigurationError: if the URL or one of its options is not valid, or the extra is missing.
    """
    with needs("a journal in PostgreSQL", "postgres"):
        from .journal import PostgresJournal
    return PostgresJournal(url)
