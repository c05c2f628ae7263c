"""Replay says of a policy what happens when the loop really runs with it."""

from __future__ import annotations

from typing import Any

import pytest

from insight.executed_policies import PROGRAMS, comparisons


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pair_is_what_the_executed_policy_does(program: Any) -> None:
    """A sample; `make bench-insight` compares more seeds."""
    exact = [one for seed in (3, 6) for one in comparisons(program, seed)]
    assert exact
