"""Annotations of the Python functions that a document names: values in their types, and notes of `check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright import Result, Status, run_sync
from loopwright.documents import Loaded, Settings, check, load
from loopwright.errors import DocumentError
from loopwright.ui.cli import main

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal
from loopwright import History, Iteration, step
from loopwright.conditions import Condition

if TYPE_CHECKING:
    from decimal import Decimal

received = []

@dataclass
class Draft:
    title: str
    due: date

def write(value: str) -> Draft:
    return Draft(value, date(2026, 11, 22))

def publish(draft: Draft) -> str:
    received.append(type(draft).__name__)
    return f"{draft.title} {draft.due.year}"

def better(draft: Draft) -> Draft:
    received.append(type(draft).__name__)
    return Draft(draft.title + "!", draft.due)

def judge(draft: Draft) -> bool:
    received.append(type(draft).__name__)
    return draft.title.endswith("!!")

def again(last: Iteration[Draft, Draft]) -> Draft:
    received.append(type(last.output).__name__)
    return last.output

class Ready(Condition):
    def check(self, history: History[Draft, Draft]) -> None:
        received.append(type(history.last.output).__name__)

def number(value: str) -> int:
    return "no number"

def missing(value: Missing) -> str: ...
def missing_output(value: str) -> list["Missing"]: ...
def for_checkers(value: Decimal) -> str: ...
@step
def decorated(value: Missing) -> str: ...
def readable(value: Literal["Missing"], ctx: Missing) -> Annotated[str, "Missing"]: ...
def no_annotation(value): ...

class Plain: ...
def no_json_form(value: Plain) -> str: ...
"""

HEAD = "schema: loopwright/1\nname: typed\nsteps:\n"
WRITE = '  - {name: write, python: "own:write"}\n'


def _file(folder: Path, steps: str) -> Path:
    (folder / "own.py").write_text(MODULE)
    file = folder / "document.yaml"
    file.write_text(HEAD + steps)
    return file


def _run(folder: Path, steps: str) -> tuple[Result, list[str], Loaded]:
    """Return the result of a document, the names of the types that its functions received, and the document."""
    loaded = load(_file(folder, steps))
    result = run_sync(loaded.step, "hi", journal=f"sqlite:{folder}/runs.db", run_id="r")
    import own  # type: ignore[import-not-found]

    return result, own.received, loaded


def test_a_step_receives_and_returns_its_declared_types(tmp_path: Path) -> None:
    """Templates read the recorded JSON; `input:` passes the value on, and the reader decodes it."""
    steps = WRITE + (
        '  - {name: shown, set: "{{ write.title }} {{ write.due }}"}\n'
        '  - {name: publish, python: "own:publish", input: "{{ write }}"}\n'
    )
    result, received, _ = _run(tmp_path, steps)
    assert result.output == "hi 2026"
    assert result.steps["shown"] == "hi 2026-11-22"
    assert received == ["Draft"]


@pytest.mark.parametrize(
    "evaluate",
    [
        '{python: "own:judge"}',
        '{check: {python: "own:judge"}}',
        '{checklist: [{python: "own:judge"}]}',
        '[{python: "own:judge"}, {check: {python: "own:judge"}}]',
    ],
)
def test_loops_pass_declared_types_to_every_function(tmp_path: Path, evaluate: str) -> None:
    """Evaluators, adapt and conditions receive the type that `execute` declares."""
    loop = (
        "  - name: refine\n"
        "    loop:\n"
        '      execute: {python: "own:better"}\n'
        f"      evaluate: {evaluate}\n"
        '      adapt: {python: "own:again"}\n'
        '      until: [passed, {python: "own:Ready"}, {max_iterations: 4}]\n'
        '    input: "{{ write }}"\n'
    )
    result, received, _ = _run(tmp_path, WRITE + loop)
    assert (result.status, result.output.title) == (Status.SATISFIED, "hi!!")
    assert set(received) == {"Draft"}


def test_a_replayed_document_returns_the_same_types(tmp_path: Path) -> None:
    """The finished run is read from the journal, and its output is decoded again."""
    result, _, loaded = _run(tmp_path, WRITE)
    again = run_sync(loaded.step, "hi", journal=f"sqlite:{tmp_path}/runs.db", run_id="r")
    assert again.output == result.output
    assert type(again.output).__name__ == "Draft"


def test_a_default_output_is_json(tmp_path: Path) -> None:
    """`otherwise` may have another type than the function, so the step declares none."""
    steps = '  - {name: write, python: "own:write", if: "input", otherwise: none}\n'
    result, _, _ = _run(tmp_path, steps)
    assert result.output == {"title": "hi", "due": "2026-11-22"}


def test_an_output_of_another_type_is_an_error(tmp_path: Path) -> None:
    """A declared type is checked where the function returns."""
    result, _, _ = _run(tmp_path, WRITE + '  - {name: publish, python: "own:publish", input: 3}\n')
    assert result.error is not None
    assert result.error.kind == "bad_input"


def test_the_terminal_prints_typed_outputs_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class of the output has no text form."""
    file = _file(tmp_path, WRITE)
    code = main(
        ["run", str(file), "--input", "hi", "--yes", "--journal", f"sqlite:{tmp_path}/a.db"]
    )
    assert code == 0
    assert '"title": "hi"' in capsys.readouterr().out


@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("missing", True),
        ("missing_output", True),
        ("for_checkers", True),
        ("decorated", True),
        ("readable", False),
        ("no_annotation", False),
        ("write", False),
    ],
)
def test_an_unreadable_annotation_is_noted(
    tmp_path: Path, name: str, noted: bool, execute: bool
) -> None:
    """Rule: `load` and `check` note its document, line and module, with and without an import."""
    loaded = load(
        _file(tmp_path, f'  - {{name: a, python: "own:{name}"}}\n'), Settings(execute=execute)
    )
    notes = [(n.code, n.line, n.path) for n in loaded.notes]
    assert notes == ([("annotation_unreadable", 4, "steps[0].python")] if noted else [])
    assert all("own.py:" in note.message for note in loaded.notes)


def test_a_class_without_a_json_form_is_noted_at_load(tmp_path: Path) -> None:
    """The class must be imported to know this, so `check` does not report it."""
    file = _file(tmp_path, '  - {name: a, python: "own:no_json_form"}\n')
    assert [note.code for note in load(file).notes] == ["annotation_unreadable"]
    assert load(file, Settings(execute=False)).notes == ()


def test_a_strict_check_refuses_an_unreadable_annotation(tmp_path: Path) -> None:
    """Notes are problems there, for continuous integration."""
    file = _file(
        tmp_path, '  - name: x\n    loop: {execute: {python: "own:missing"}, max_iterations: 1}\n'
    )
    problems = check(file, Settings(execute=False, strict=True))
    assert [(p.line, p.code) for p in problems] == [(5, "annotation_unreadable")]
    with pytest.raises(DocumentError):
        load(file, Settings(strict=True))
