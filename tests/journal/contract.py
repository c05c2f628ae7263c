"""What every journal must do: one suite, run for each kind of store."""

from __future__ import annotations

from .contract_cache import CacheContract
from .contract_entries import EntriesContract
from .contract_events import EventsContract
from .contract_opening import OpeningContract
from .contract_reading import ReadingContract


class JournalContract(
    OpeningContract, EntriesContract, ReadingContract, EventsContract, CacheContract
):
    """The suite; a subclass has a fixture `store`, and `fresh` for tests of many examples."""
