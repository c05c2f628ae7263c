"""Functions inside `check`, `gates` and `checklist` receive values in their declared types."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from loopwright import Loop, check, checklist, run_sync
from loopwright.evaluators import gates
from loopwright.types import Step


@dataclass
class Draft:
    """An output with a type."""

    title: str


def write(value: str) -> Draft:
    """Return a draft."""
    return Draft(value)


def annotated(draft: Draft) -> bool:
    """Pass a draft."""
    return type(draft) is Draft


def unannotated(draft):  # type: ignore[no-untyped-def]
    """Pass a draft; the writer declares its type."""
    return type(draft) is Draft


@pytest.mark.parametrize(
    "evaluator",
    [
        check(annotated),
        check(unannotated),
        gates(annotated, check(unannotated)),
        checklist({"one": annotated, "two": check(unannotated)}),
        gates(checklist({"one": unannotated})),
    ],
)
def test_a_function_inside_an_evaluator_receives_the_declared_type(evaluator: Step) -> None:
    """Rule: the annotation of the reader, else the type of the writer, as for an evaluator itself."""
    result = run_sync(Loop(write, evaluate=evaluator, max_iterations=1), "x")
    assert result.satisfied


def test_a_check_refuses_a_value_of_another_type() -> None:
    """The error names the reader and its type."""
    result = run_sync(Loop(lambda value: 3, evaluate=check(annotated), max_iterations=1), "x")
    assert result.error is not None
    assert result.error.kind == "bad_input"
