"""The JSON of the loop controller, as its guide writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, run_sync
from loopwright.conditions import (
    AllOf,
    AnyOf,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
)
from loopwright.dialects.controller import controller_condition
from loopwright.documents import load
from loopwright.documents.yaml.reader import written
from loopwright.errors import DocumentError

CONFIDENCE = {"type": "confidence", "threshold": 0.85, "min_iterations": 1}
LIMIT = {"type": "max_iterations", "limit": 3}
TIME = {"type": "timeout", "duration_ms": 60000}
PATIENCE = {"type": "no_improvement", "patience": 2}


def read(data: Any) -> tuple[Any, str]:
    """Return the condition of the JSON, and its problems with their places."""
    problems: list[str] = []
    condition = controller_condition(
        data,
        (),
        lambda at, message: problems.append(f"{written(at)}: {message}".removeprefix(": ")),
    )
    return condition, "; ".join(problems)


def combined(*conditions: Any, operator: str = "OR") -> dict[str, Any]:
    """Return conditions combined."""
    return {"type": "combined", "operator": operator, "conditions": list(conditions)}


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (CONFIDENCE, ScoreAtLeast(0.85, 1)),
        ({"type": "confidence", "threshold": 0.9}, ScoreAtLeast(0.9)),
        (LIMIT, MaxIterations(3)),
        (TIME, Timeout(60.0)),
        (PATIENCE, NoImprovement(2)),
        (
            combined(CONFIDENCE, LIMIT, TIME, PATIENCE),
            AnyOf((ScoreAtLeast(0.85, 1), MaxIterations(3), Timeout(60.0), NoImprovement(2))),
        ),
        (
            combined(CONFIDENCE, LIMIT, operator="AND"),
            AllOf((ScoreAtLeast(0.85, 1), MaxIterations(3))),
        ),
        (combined(LIMIT), MaxIterations(3)),
        (
            combined(combined(CONFIDENCE, PATIENCE, operator="AND"), LIMIT),
            AnyOf((AllOf((ScoreAtLeast(0.85, 1), NoImprovement(2))), MaxIterations(3))),
        ),
    ],
)
def test_conditions_of_the_guide_are_read(data: Any, condition: Any) -> None:
    """Every form of the guide becomes the condition of that meaning; milliseconds become seconds."""
    assert read(data) == (condition, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("confidence", "'confidence' is not a condition; write an object with a type"),
        ({}, "type: unknown type null; the types are"),
        ({"type": "max_iteration", "limit": 3}, "type: unknown type 'max_iteration'; did you mean 'max_iterations'?"),
        ({"type": "max_iterations", "limits": 3}, "limits: max_iterations: unknown key 'limits'; did you mean"),
        ({"type": "confidence"}, "confidence: needs threshold"),
        ({"type": "confidence", "threshold": 85}, "score_at_least: threshold"),
        ({"type": "confidence", "threshold": float("nan")}, "score_at_least: threshold"),
        ({"type": "max_iterations", "limit": 0}, "max_iterations: limit"),
        ({"type": "timeout", "duration_ms": "60s"}, "timeout: duration_ms: '60s' is not a number of milliseconds"),
        ({"type": "timeout", "duration_ms": 0}, "timeout: seconds"),
        (combined(), "conditions: the list of conditions is empty"),
        (combined(LIMIT, operator="and"), "operator: 'and' is not AND or OR; did you mean 'AND'?"),
        (
            combined(CONFIDENCE, {"type": "max_iterations"}, combined({"type": "x"})),
            "conditions[1]: max_iterations: needs limit; conditions[2].conditions[0].type: unknown type 'x'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(data: Any, problem: str) -> None:
    """A condition that could not mean anything is refused, with place and nearest name."""
    condition, problems = read(data)
    assert condition is None
    assert problem in problems


def test_a_loop_runs_by_its_conditions() -> None:
    """The analysis loop of the guide: confidence 0.85, at most 3 iterations, 2 without improvement."""
    scores = iter([0.5, 0.7, 0.9])
    until, _ = read(combined(CONFIDENCE, LIMIT, TIME, PATIENCE))
    result = run_sync(
        Loop(lambda value: value, lambda _: {"confidence": next(scores)}, until=until), "x"
    )
    assert result.status.value == "satisfied"
    assert (result.iterations, result.best and result.best.score) == (3, 0.9)


def test_an_and_never_turns_a_limit_off() -> None:
    """Under AND a limit still ends the loop: it ends after 3 iterations without the confidence."""
    until, _ = read(combined(CONFIDENCE, LIMIT, operator="AND"))
    result = run_sync(Loop(str, lambda _: 0.1, until=until), "x")
    assert (result.status.value, result.iterations) == ("exhausted", 3)


DOCUMENT = """
schema: loopwright/1
name: main
steps:
  - name: refine
    loop:
      execute: {set: done}
      until: {type: combined, operator: OR, conditions: [{type: max_iterations, limit: %s}]}
      guards: {type: timeout, duration_ms: 1000}
"""


def test_documents_take_it_as_conditions(tmp_path: Path) -> None:
    """`until` and `guards` of native documents take the JSON of the controller."""
    file = tmp_path / "main.yaml"
    file.write_text(DOCUMENT % 4, encoding="utf-8")
    found = load(file)
    result = run_sync(found.step, None)
    assert result.loops["refine"].iterations == 4
    assert found.plan()["bounds"]["loops"] == {"refine": 4}


def test_documents_report_its_problems_in_place(tmp_path: Path) -> None:
    """A wrong condition is reported where it stands."""
    file = tmp_path / "main.yaml"
    file.write_text(DOCUMENT % 0, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load(file)
    assert "steps[0].loop.until.conditions[0]: max_iterations: limit" in str(caught.value)
