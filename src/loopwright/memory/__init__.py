"""What outlives a run: working memory, episodes and facts, as one append-only log per store.

Rules:

1. Nothing is ever changed or deleted: what is known is folded out of what was appended (`view`). A
   fact that was superseded, a working memory that was cleared, an episode that was cleaned up are
   still in the log.
2. An entry with a key is appended once per space, however often it is tried.
3. Time is a value of each entry; nothing here looks at a clock.
"""

from .entries import Memory, MemoryEntry, entry
from .in_memory import InMemory
from .lessons import Lessons, lessons_of
from .records import Episode, Fact, Feedback, Note, SuccessRate, fact_id
from .search import ranked
from .space import Space
from .view import View, view_of

__all__ = [
    "Episode",
    "Fact",
    "Feedback",
    "InMemory",
    "Lessons",
    "Memory",
    "MemoryEntry",
    "Note",
    "Space",
    "SuccessRate",
    "View",
    "entry",
    "fact_id",
    "lessons_of",
    "ranked",
    "view_of",
]
