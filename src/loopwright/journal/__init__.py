"""The journal: a durable record of runs, written before any result is used.

1. Effects are keyed by *path* (`refine/2/execute`); a finished effect is never performed again.
2. `append` fixes the order of entries, `sync` makes them durable. No effect begins before its
   "started" entry is durable; the "finished" of one effect and the "started" of the next share a
   commit.
3. One owner writes a run: a lease with an epoch, checked with every write.
4. `rewind` sets entries aside and never deletes them.

`open_journal(URL)` opens a store. `recorded/` is the part that all durable stores share, `sqlite/` the store in
one file, `postgres/` the store in a database.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of
from .protocol import Entry, FileStore, Journal, Posted, Rewind, RunInfo, RunLog
from .protocol import NoLog as NoLog
from .protocol import is_note as is_note
from .protocol import surviving as surviving

if TYPE_CHECKING:
    from .in_memory import MemoryJournal, MemoryLog
    from .open import OpenMemory, open_journal, open_memory

# The other names are for packages of Loopwright only.
__all__ = [
    "Entry",
    "FileStore",
    "Journal",
    "MemoryJournal",
    "MemoryLog",
    "OpenMemory",
    "Posted",
    "Rewind",
    "RunInfo",
    "RunLog",
    "open_journal",
    "open_memory",
]

# Loaded at first use: a run without a journal needs none of them.
_MODULES = {
    ".in_memory": ("MemoryJournal", "MemoryLog"),
    ".open": ("OpenMemory", "open_journal", "open_memory"),
}

if not TYPE_CHECKING:  # a type checker knows the names above, and reports every other
    __getattr__ = names_of(__name__, _MODULES)
