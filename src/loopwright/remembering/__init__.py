"""A run's way to its memory: every read and write is a journaled effect.

Rules:

1. What a run read is on record, so a resumed run sees the same lessons, whatever was appended since.
2. What a run writes bears the key of its effect, so an append that was in flight at a crash is there
   once.
3. The memory is the resource `memory` of the run, else that of its journal.
4. A loop that cannot read or write its lessons goes on without, with a warning; a step that asks for
   its memory by itself gets the error.
"""

from .effects import Operation, memory_of
from .facts import RecallFacts, RememberFact
from .loops import Remembering, lessons, remembering
from .spaces import RunSpace, remembered

__all__ = [
    "Operation",
    "RecallFacts",
    "RememberFact",
    "Remembering",
    "RunSpace",
    "lessons",
    "memory_of",
    "remembered",
    "remembering",
]
