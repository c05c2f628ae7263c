"""The journal: a durable record of runs, written before any result is used.

Rules:

1. Effects are keyed by *path* (`refine/2/execute`); a finished effect is never performed again.
2. `append` fixes the order of entries, `sync` makes them durable. No effect begins before its
   "started" entry is durable; the "finished" of one effect and the "started" of the next share a
   commit.
3. One owner writes a run: a lease with an epoch, checked with every write.
4. `rewind` sets entries aside and never deletes them.

`open_journal(URL)` opens a store. `recorded/` is the part that all durable stores share, `sqlite/`
the store in one file.
"""

from .entries import Entry, is_at, is_note, set_aside, surviving
from .in_memory import MemoryJournal, MemoryLog, NoLog
from .inbox import cancel_suspended
from .open import open_journal, open_memory
from .protocol import Journal, Posted, Rewind, RunInfo, RunLog, missing_run

__all__ = [
    "Entry",
    "Journal",
    "MemoryJournal",
    "MemoryLog",
    "NoLog",
    "Posted",
    "Rewind",
    "RunInfo",
    "RunLog",
    "cancel_suspended",
    "is_at",
    "is_note",
    "missing_run",
    "open_journal",
    "open_memory",
    "set_aside",
    "surviving",
]
