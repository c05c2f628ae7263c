"""A journal in one SQLite file.

How it keeps its promises:

1. `append` makes a line of JSON and joins the batch of this pass of the event loop (`log`); one
   thread writes, and all that waits becomes one transaction (`writer`, `database`). Durable means
   committed with `synchronous=FULL`.
2. Rows are small. Values longer than 256 bytes are kept once per run by their digest, above 1 MiB
   as files (`encoding`, `files`); lists, timelines and pages of iterations go by index (`schema`,
   `reader`).
3. Every row carries a checksum of the row before it, its number and its body; the row of a run is
   sealed; contents match their digests. Nothing is used before it is checked (`rows`, `reader`).
4. One owner writes a run: its epoch is compared in the transaction of every write (`database`).
   Leases only say when it may be taken without asking (`owners`, `ownership`).
5. Memories are in tables of their own, and share the writer's transactions (`memories`).
"""

from .journal import SqliteJournal
from .leases import Clocks
from .memory import SqliteMemory

__all__ = ["Clocks", "SqliteJournal", "SqliteMemory"]
