"""A journal in one SQLite file.

1. `append` joins the batch of this pass of the event loop. One thread writes, and everything that
   waits becomes one transaction (`recorded/writer`, `database`). Durable means committed with
   `synchronous=FULL`.
2. Rows are small. A value longer than 256 bytes is stored once per run by its digest, above 1 MiB as
   a file (`recorded/log`, `tables`). Lists, timelines and pages of iterations use indexes
   (`tables`, `journal`).
3. Every row has a checksum of the row before it, its number and its body. The row of a run is
   sealed, and contents match their digests. All of this is checked before use (`recorded/rows`).
4. One owner writes a run: the transaction of every write compares its epoch (`database`). Leases
   decide only when another process may take it without `takeover` (`ownership`, `database`).
5. Memories have tables of their own and share the writer's transactions (`journal`).
"""

from .journal import SqliteJournal, SqliteMemory
from .ownership import Clocks

__all__ = ["Clocks", "SqliteJournal", "SqliteMemory"]
