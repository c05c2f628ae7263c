"""`explore` in documents: its note, and the loops that cannot explore."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import load
from loopwright.errors import DocumentError

DOCUMENT = """
schema: loopwright/1
name: note
steps:
- name: write
  loop:
    execute: EXECUTE
    evaluate: {check: {min_words: 2}}
    until: [passed, {max_iterations: 3}]
    explore: 0.1
"""


def written(folder: Path, execute: str, more: str = "") -> Path:
    (folder / "steps.py").write_text("def make(value):\n    return value\n")
    file = folder / "note.yaml"
    file.write_text(DOCUMENT.replace("EXECUTE", execute) + more)
    return file


def test_python_functions_are_noted(tmp_path: Path) -> None:
    """They may act outside the run, which only the author knows."""
    loaded = load(written(tmp_path, '{python: "steps:make"}'))
    assert [(note.line, note.code) for note in loaded.lints()] == [(10, "explored_python")]
    assert not load(written(tmp_path, '{set: "a b"}')).lints()


@pytest.mark.parametrize(
    ("execute", "more", "sentence"),
    [
        ("{shell: make}", "", "acts outside the run"),
        ("{set: a}", "    approve: iteration\n", "asks a person cannot explore"),
        ("{set: a}", "    undecided: {then: pause}\n", "asks a person cannot explore"),
    ],
)
def test_loops_that_act_or_ask_are_refused(
    tmp_path: Path, execute: str, more: str, sentence: str
) -> None:
    """At load, with the place of the loop."""
    with pytest.raises(DocumentError, match=f"note.yaml:7:.*{sentence}"):
        load(written(tmp_path, execute, more))


def test_a_workspace_makes_commands_safe(tmp_path: Path) -> None:
    """The files are put back to those of the normal end."""
    assert load(written(tmp_path, "{shell: make}", "    workspace: {kind: snapshot}\n"))
