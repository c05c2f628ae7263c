"""A few of the faults that `faults_program.py` makes from a seed, so that it keeps working."""

from __future__ import annotations

import pytest
from faults_program import program


@pytest.mark.usefixtures("loopback")
async def test_made_up_faults_are_replies_or_faults() -> None:
    """Whatever is made from a seed is a reply or a fault, with one request, no key and no cut reply."""
    outcomes, wrong = await program(60, seed=7, at_once=4)
    assert wrong == []
    assert sum(outcomes.values()) == 60
