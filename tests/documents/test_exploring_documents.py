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
    """At load, with the position of the key."""
    with pytest.raises(DocumentError, match=rf"note.yaml:10:14: .*\.explore: .*{sentence}"):
        load(written(tmp_path, execute, more))


EACH = """
schema: loopwright/1
name: note
workspace: {kind: snapshot}
steps:
- name: all
  each:
    items: [a]
    at_once: AT_ONCE
    execute:
      loop: {execute: {shell: make}, until: [{max_iterations: 3}], explore: 0.1}
"""


def test_a_workspace_makes_commands_safe(tmp_path: Path) -> None:
    """The files are put back to those of the normal end: of the loop, of its document or of a caller."""
    loop = written(tmp_path, "{shell: make}")
    own = loop.read_text()
    loop.write_text(own + "    workspace: {kind: snapshot}\n")
    assert load(loop)
    loop.write_text(own + "workspace: {kind: snapshot}\n")
    assert load(loop)
    loop.write_text(own)
    caller = tmp_path / "caller.yaml"
    text = "schema: loopwright/1\nname: caller\nsteps:\n- {name: call, workflow: note.yaml}\n"
    caller.write_text(text)
    with pytest.raises(DocumentError, match="note.yaml:10:14: .*acts outside the run"):
        load(caller)
    caller.write_text(text + "workspace: {kind: snapshot}\n")
    assert load(caller)


def test_items_that_run_at_the_same_time_have_no_workspace(tmp_path: Path) -> None:
    """Nothing puts back what they change."""
    file = tmp_path / "note.yaml"
    file.write_text(EACH.replace("AT_ONCE", "1"))
    assert load(file)
    file.write_text(EACH.replace("AT_ONCE", "2"))
    with pytest.raises(DocumentError, match="acts outside the run"):
        load(file)
