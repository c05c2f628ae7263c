"""The garbage collector, and when it rests."""

from __future__ import annotations

import gc

import pytest

from loopwright.collector import resting, tune_collector


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


def test_a_tuned_collector_looks_less_often_and_not_at_what_was_loaded() -> None:
    """What is there is set aside for good, and the thresholds are far above the usual ones."""
    before, usual = gc.get_freeze_count(), gc.get_threshold()
    try:
        tune_collector()
        assert gc.get_freeze_count() > before
        assert gc.get_threshold()[0] > usual[0]
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
