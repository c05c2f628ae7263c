"""The garbage collector, for processes that run thousands of loops at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["resting", "tune_collector"]


def tune_collector() -> None:
    """Let the collector look less often, and never again at what is loaded so far.

    A loop makes no reference cycles, but ten thousand of them in flight, with their results, are over
    half a million objects, and the collector walks them over and over: about a third of the time. It
    looks again once a million objects are new; garbage in cycles, of other code, waits that long.
    For a server or a batch that owns its process, called once before it starts; a library should
    leave the collector to its user.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)


@contextmanager
def resting() -> Iterator[None]:
    """Let the collector rest while much is made that stays, such as modules and documents; then leave that be.

    It would walk all of it many times over, and find nothing. What is made in between is never looked at again.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()
