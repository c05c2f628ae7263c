"""The corpus of Conductor's workflows: each case says what its document does, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialects.imported import cases, check_run, check_same, check_wrong
from dialects.workflow_v2.support import Case
from loopwright.documents import Settings, load

ALL = cases(Path(__file__).parent / "cases")
names = {"ids": lambda case: case.name}


@pytest.mark.parametrize("case", [c for c in ALL if c.problems], **names)
def test_wrong_documents_say_all_that_is_wrong(case: Case, tmp_path: Path) -> None:
    """Every problem has its line and column, and what to do."""
    check_wrong(case, tmp_path)


@pytest.mark.parametrize("case", [c for c in ALL if c.runs], **names)
def test_cases_run_as_they_say(case: Case, tmp_path: Path) -> None:
    """Calls, result, steps and notes are those of the case."""
    check_run(case, tmp_path)


@pytest.mark.parametrize("case", [c for c in ALL if c.runs], **names)
def test_the_native_form_does_the_same(case: Case, tmp_path: Path) -> None:
    """What convert prints makes the same calls and has the same result."""
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    check_same(case, tmp_path / "theirs", tmp_path / "ours")


def test_declared_inputs_are_those_of_the_native_document(tmp_path: Path) -> None:
    """A required input is asked for, an unknown one is refused, and the schema has all of them."""
    text = next(case for case in ALL if case.name == "01-a-sequence").files["main.yaml"]
    file = tmp_path / "main.yaml"
    file.write_text(text)
    loaded = load(file, Settings(execute=False))
    assert loaded.input_schema()["required"] == ["question"]
    assert list(loaded.input_schema()["properties"]) == ["question", "tone", "length"]
