"""Memory beyond a run: working memory, episodes and facts, as one append-only log per store.

Rules:

1. Entries are never changed or deleted. A `View` is computed from all entries in order, so superseded
   facts, cleared working memory and retired episodes stay in the log.
2. An entry with a key is appended once per space, however often the append is repeated.
3. Time is a value of each entry; this package does not read a clock.
"""

from typing import TYPE_CHECKING

from .._lazy import names_of
from .entries import InMemory, Memory, MemoryEntry, entry

if TYPE_CHECKING:
    from ..journal import open_memory
    from .space import Lesson, Lessons, Space, lessons_of, ranked
    from .view import Episode, Fact, Feedback, Note, SuccessRate, View, fact_id, view_of

__all__ = [
    "Episode",
    "Fact",
    "Feedback",
    "InMemory",
    "Lesson",
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
    "open_memory",
    "ranked",
    "view_of",
]

# Loaded at first use: a journal needs the entries only, and `open_memory` belongs to a layer above.
_MODULES = {
    "..journal": ("open_memory",),
    ".space": (
        "Lesson",
        "Lessons",
        "Space",
        "lessons_of",
        "ranked",
    ),
    ".view": (
        "Episode",
        "Fact",
        "Feedback",
        "Note",
        "SuccessRate",
        "View",
        "fact_id",
        "view_of",
    ),
}

if not TYPE_CHECKING:
    __getattr__ = names_of(__name__, _MODULES)
