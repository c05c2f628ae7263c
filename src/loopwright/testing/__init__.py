"""What tests of loops need: time that jumps instead of passing."""

from .clock import Deadlock, VirtualClock, VirtualLoop, run_virtual

__all__ = ["Deadlock", "VirtualClock", "VirtualLoop", "run_virtual"]
