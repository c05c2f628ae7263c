"""Records that are filled before they are frozen are those of the constructor, with every field."""

from __future__ import annotations

import pytest

from loopwright import Evaluation, Iteration, Usage
from loopwright.records import as_evaluation
from loopwright.records.iteration import new_iteration


def test_an_iteration_of_the_engine_is_one_of_the_constructor() -> None:
    """A field that is added to the class and not to the draft is missing here."""
    usage = Usage(calls=1)
    made = new_iteration(
        2, "in", "out", None, None, usage=usage, seconds=1.5, interrupted=False, steps=None
    )
    assert made == Iteration(number=2, input="in", output="out", usage=usage, seconds=1.5)
    assert type(made) is Iteration
    with pytest.raises(AttributeError):
        made.number = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "evaluation"), [(0.5, Evaluation(score=0.5)), (True, Evaluation(passed=True))]
)
def test_a_simple_evaluation_is_one_of_the_constructor(
    value: object, evaluation: Evaluation
) -> None:
    """A number and a truth value become the same records as the constructor makes."""
    made = as_evaluation(value)
    assert made == evaluation
    assert repr(made) == repr(evaluation)
