"""The keys of the source of a submitted run; that of its schedule is in `journal.inbox`."""

from __future__ import annotations

__all__ = ["CARRIED", "SUBMITTED_AS"]

CARRIED = "carried"
"""The documents of the run, with their digest."""
SUBMITTED_AS = "submitted_as"
"""The key with which it was submitted."""
