"""What tests of loops need: time that jumps instead of passing, a journal in memory, scripted models.

`models` has the scripted model, `fixtures` is the pytest plugin.
"""

from ..journal import MemoryJournal
from .clock import Deadlock, VirtualClock, VirtualLoop, run_virtual

__all__ = ["Deadlock", "MemoryJournal", "VirtualClock", "VirtualLoop", "run_virtual"]
