"""The phased agent: its limits, its caps, and what of them could not mean anything."""

from __future__ import annotations

from typing import Any

import pytest
from phased_steps import NAMES, agent, counted, limits, play

from loopwright import Reason, Status
from loopwright.agents import ROLES
from loopwright.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "explicit", "total", "effective"),
    [
        ((1, 5, 2), None, 8, 9),  # the text of the format says 8, its formula 9
        ((2, 3, 1), None, 6, 7),
        ((1, 1, 1), None, 3, 4),
        ((1, 0, 0), None, 1, 2),
        ((5, 10, 4), None, 19, 20),
        ((5, 10, 5), None, 20, 22),
        ((10, 30, 19), None, 59, 64),
        ((1, 5, 2), 5, 8, 5),
        ((1, 5, 2), 8, 8, 8),
        ((3, 8, 3), 15, 14, 15),
    ],
)
def test_the_effective_cap_is_the_sum_and_a_tenth_more(
    given: tuple[int, int, int], explicit: int | None, total: int, effective: int
) -> None:
    """sum + max(1, int(sum * 0.1)), and an explicit cap wins."""
    made = agent(**limits(*given), max_iterations=explicit)
    assert (made.phase_sum, made.max_iterations_effective) == (total, effective)


@pytest.mark.parametrize("preset", ROLES)
def test_every_preset_runs_its_phases_to_their_limits(preset: str) -> None:
    """By default the cap never binds: the run takes exactly the sum of the phases."""
    made = agent(preset=preset)
    result = play(made)
    assert counted(result) == [made.limits[phase] for phase in NAMES]
    report = result.agents["agent"]
    assert report["total_iterations"] == report["phase_sum"] == made.phase_sum
    assert (result.status, result.reason) == (Status.SATISFIED, Reason.COMPLETED)
    assert result.warnings == ()


def test_complexity_is_over_the_preset_and_what_is_given_over_both() -> None:
    """high is 2, 3, 2 in 300 s and low 1, 1, 1 in 120 s, whatever the preset; arguments win."""
    high = agent(preset="qa_specialist", task_complexity="high", max_planning_iterations=4)
    assert list(high.limits.values()) == [4, 3, 2]
    assert high.max_duration_seconds == 300
    low = agent(task_complexity="low", max_duration_seconds=7)
    assert (low.phase_sum, low.max_duration_seconds) == (3, 7)
    assert agent(preset="qa_specialist", task_complexity="medium").phase_sum == 8


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"preset": "qa_specialist", "max_iterations": 5}, [1, 4, 0]),
        ({**limits(1, 2, 1), "max_iterations": 3}, [1, 2, 0]),
        ({"max_iterations": 3}, [2, 1, 0]),
        ({"preset": "qa_specialist", "max_iterations": 5, "reserve_refinement": True}, [1, 3, 1]),
        ({"preset": "qa_specialist", "max_iterations": 5, "reserve_refinement": 2}, [1, 2, 2]),
        ({"max_iterations": 1, "reserve_refinement": 1}, [0, 0, 1]),
        ({"max_iterations": 2, "reserve_refinement": 5}, [1, 0, 1]),
    ],
)
def test_a_cap_below_the_sum_is_told_and_refinement_can_be_reserved(
    fields: dict[str, Any], expected: list[int]
) -> None:
    """The configurations that the format's project ships starve refinement: that is a warning, and
    a reserve keeps the answer."""
    result = play(agent(**fields))
    assert counted(result) == expected
    whole = expected == [1, 2, 2]  # every phase had its turn, refinement to its limit
    assert result.reason is (Reason.COMPLETED if whole else Reason.MAX_ITERATIONS)
    assert "below the" in result.warnings[0]
    assert (result.output or "").startswith("answer" if expected[2] else "found")


def test_a_cap_that_is_the_sum_ends_like_the_phases() -> None:
    """The cap is met in the last round of refinement: that is the end of the work, not a cut."""
    result = play(agent(max_iterations=6))
    assert (counted(result), result.reason, result.warnings) == ([2, 3, 1], Reason.COMPLETED, ())


def test_the_configurations_of_the_format_are_taken_as_they_are() -> None:
    """The three example configurations run: two warn of nothing, none starves refinement."""
    for fields, expected in (
        ({"max_iterations": 5, **limits(1, 3, 1)}, [1, 3, 1]),
        ({"max_iterations": 10, **limits(2, 5, 2)}, [2, 5, 2]),
        ({"max_iterations": 15, **limits(3, 8, 3)}, [3, 8, 3]),
    ):
        result = play(agent(**fields))
        assert (counted(result), result.warnings) == (expected, ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_iterations": 0}, "phased agent: max_iterations: 0"),
        (limits(0, 0, 0), "no phase has an iteration"),
        ({"max_planning_iterations": -1}, "max_planning_iterations: -1"),
        ({"max_planning_iterations": 1001}, "the maximum is 1000"),
        ({"max_planning_iterations": True}, "max_planning_iterations"),
        ({"preset": "qa_specalist"}, "did you mean 'qa_specialist'"),
        ({"task_complexity": "hihg"}, "did you mean 'high'"),
        ({"min_confidence_threshold": 85}, "min_confidence_threshold: 85"),
        ({"max_duration_seconds": 0}, "max_duration_seconds: 0"),
        ({"token_budget": 0}, "token_budget: 0"),
        ({"token_split": (0.5, 0.6, 0.1)}, "is above 1"),
        ({"token_split": (0.5, 0.5)}, "use three shares"),
        ({"token_budget": 5}, "token_budget: 5: with its share 0.1, planning has no tokens"),
        ({"planning": None, "max_planning_iterations": 2}, "there is no planning step"),
        ({"evaluate": {"exection": 1}}, "did you mean 'execution'"),
        ({"name": "a/b"}, "slash"),
        ({"capabilities": [object()]}, "is not a capability"),
        ({"tools": [print]}, "only a prompt calls tools"),
        ({"planning": 3}, "3 cannot be a step"),
    ],
)  # fmt: skip
def test_what_could_not_mean_anything_is_refused(fields: dict[str, Any], message: str) -> None:
    """Wrong settings are an error when the agent is made, with the value and what to do."""
    with pytest.raises(ConfigurationError, match=message):
        agent(**fields)
