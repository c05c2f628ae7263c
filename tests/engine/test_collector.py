"""The garbage collector, and when it rests."""

from __future__ import annotations

import gc

import pytest

from loopwright.collector import resting


def test_the_collector_rests_and_is_then_as_it_was() -> None:
    """While it rests nothing is collected; what was made in between is left be, and it goes on, or stays off."""
    before = gc.get_freeze_count()
    try:
        with pytest.raises(ZeroDivisionError), resting():
            _ = 1 // int(gc.isenabled())
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        gc.disable()
        with resting():
            pass
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
