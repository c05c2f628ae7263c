"""The same loop as make_tests_pass.yaml: `python examples/make_tests_pass/make_tests_pass.py`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from repair import next_edit, propose

from loopwright import Iteration, Loop, MaxIterations, ScoreAtLeast, run_sync
from loopwright.evaluators.test_report import share_passing

RUN_TESTS = Path(__file__).parent / "run_tests.py"


def tell(item: Iteration) -> None:
    """Print a round once it is recorded."""
    if item.score is None:
        print(f"{item.number:2}  failed  {item.feedback}")
    else:
        print(f"{item.number:2}  {item.score:.3f}   {item.output['tried']}")


repair = Loop(
    propose,
    share_passing([sys.executable, str(RUN_TESTS)], timeout=60),
    next_edit,
    until=ScoreAtLeast(1.0) | MaxIterations(20),
    name="repair",
    on_failure="continue",
)

if __name__ == "__main__":
    result = run_sync(replace(repair, on_iteration=tell), {"edits": []})
    print(f"{result.status} after {result.iterations} iterations: {result.detail}\n")
    print(result.output["diff"], end="")
