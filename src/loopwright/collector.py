"""The garbage collector, for processes that run thousands of loops at once."""

from __future__ import annotations

import gc

__all__ = ["tune_collector"]


def tune_collector() -> None:
    """Let the collector look less often, and never again at what is loaded so far.

    A loop makes no reference cycles, but ten thousand of them in flight make the collector walk the
    same live objects over and over: about a third of the time. For a server or a batch that owns its
    process, called once before it starts; a library should leave the collector to its user.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
