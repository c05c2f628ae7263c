"""The journal: what happened, written before anyone acts on it.

Rules:

1. Effects are keyed by *path* (`refine/2/execute`); a finished one is never performed again.
2. `append` orders, `sync` makes durable. Nothing acts on the world before its "started" entry is
   durable; the "finished" of one effect and the "started" of the next share a commit.
3. One owner writes a run: a lease with an epoch, checked with every write.
4. Entries are set aside by `rewind`, never deleted.
"""

from .cancel import cancel_suspended
from .entries import Entry, is_at, is_note, set_aside, surviving
from .in_memory import MemoryJournal, MemoryLog, NoLog
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
