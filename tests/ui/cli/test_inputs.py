"""Inputs: what the command line is given becomes the run's input, by stated rules only."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.ui.cli.output import Output
from loopwright.ui.inputs import input_value, read_input, variables

from .conftest import Project

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_an_object_or_list_in_json_is_read_as_such(value: Any) -> None:
    """Strict JSON that begins with a brace or a bracket is the value it says."""
    assert input_value(json.dumps(value)) == value
    assert input_value(f" \n{json.dumps(value)}\n") == value


@pytest.mark.parametrize(
    "text",
    ["", "hello", "12", "true", '"quoted"', "{", "[1,", "{name}", "[NaN]", '{"a": Infinity}',
     '{"a": 1, "a": 2}', "[1] and more", "[" * 100_000],
)  # fmt: skip
def test_everything_else_is_the_text_itself(text: str) -> None:
    """Scalars, templates, lax JSON and doubled keys stay text, to the letter."""
    assert input_value(text) == text


@pytest.mark.parametrize(
    ("text", "noted"),
    [('["a river",', True), ('{"a": NaN}', True), ("[1, 2", True), ("{name} writes", False),
     ("[URGENT] write", False), ('["a river"]', False), ("hello", False)],
)  # fmt: skip
def test_text_that_starts_like_json_is_noted(text: str, noted: bool) -> None:
    """A mistake in JSON would otherwise become a text silently; templates and headings are meant as text."""
    notes: list[str] = []
    input_value(text, notes.append)
    assert bool(notes) == noted
    assert all("used as text" in note for note in notes)


def test_variables_are_names_and_values() -> None:
    """The value is all behind the first `=`; of a name given twice the last value counts."""
    assert variables(["a=1", "b= x=y ", "a=2", "c="]) == {"a": "2", "b": " x=y ", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", " =1", ""])
def test_a_variable_without_a_name_is_refused(text: str) -> None:
    """The text that is no NAME=VALUE is named."""
    with pytest.raises(ConfigurationError) as caught:
        variables([text])
    assert str(caught.value) == f"--set: {text!r} is not NAME=VALUE"


def test_a_file_is_read_as_it_is(project: Project) -> None:
    """Its text whole, without the byte order mark that some editors put there."""
    (project.folder / "in.txt").write_text("two\nlines\n", "utf-8-sig")
    assert read_input(None, "in.txt", Output().note) == "two\nlines\n"


def test_a_file_that_is_no_text_is_refused(project: Project) -> None:
    """The option and the file are named."""
    (project.folder / "in.bin").write_bytes(b"\xff\xfe\x00")
    answer = project.call("run", "steps:echo", "--input-file", "in.bin")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "loopwright: --input-file: 'in.bin' is not UTF-8 text\n"


@pytest.mark.parametrize(
    ("piped", "value"),
    [(b"piped\n", "piped"), (b"two\n\n", "two\n"), (b'{"a": 1}\n', {"a": 1}), (b"", None),
     (b"\xef\xbb\xbfmarked\r\n", "marked")],
)  # fmt: skip
def test_stdin_is_the_input_when_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, piped: bytes, value: Any
) -> None:
    """What is piped is the input, without its last line end; an empty pipe is no input."""
    for file in (None, "-"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped)))
        assert read_input(None, file, Output().note) == value
    assert read_input("told", None, Output().note) == "told"


def test_a_pipe_reaches_the_step(project: Project) -> None:
    """The whole way, from the pipe into the run."""
    assert project.run("run", "steps:echo", "--json", given="[1, 2]\n").json["output"] == [1, 2]


POEM = """\
schema: loopwright/1
name: poem
inputs:
  topic: {description: What it is about.}
  tone: {choices: [calm, dry], default: calm}
  lines: {type: integer, default: 4}
steps:
  - {name: all, set: "{{ input.topic }} {{ input.tone }} {{ input.lines }}"}
"""


def test_help_lists_what_a_workflow_of_conductor_declares(project: Project) -> None:
    """As it lists the inputs of a native document."""
    slogan = Path(__file__).parents[3] / "examples/other_dialects/slogan.yaml"
    (project.folder / "slogan.yaml").write_text(slogan.read_text())
    listed = project.call("run", "slogan.yaml", "--help").out
    assert (
        "Inputs of slogan.yaml:\n  product  What the slogan is for.  [string; required]\n" in listed
    )
    assert "  tone     [string; default: warm]\n" in listed


def test_the_command_line_takes_what_a_document_declares(project: Project) -> None:
    """By name, as an object or as the one text; help lists it, and a missing one leaves no journal."""
    (project.folder / "poem.yaml").write_text(POEM)
    listed = project.call("run", "poem.yaml", "--help")
    assert "Inputs of poem.yaml:\n  topic  What it is about.  [string; required]\n" in listed.out
    assert "  tone   [calm|dry; default: calm]\n" in listed.out
    gone = project.call("run", "poems.yaml", "--help")
    assert (gone.code, gone.out) == (2, "")
    assert gone.err == "loopwright: there is no file 'poems.yaml'; did you mean 'poem.yaml'?\n"
    refused = project.call("run", "poem.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert "poem needs the input topic; give it with --set topic=…" in refused.err
    assert not (project.folder / ".loopwright").exists()
    for words, output in (
        (["--set", "topic=rain", "--set", "lines=2"], "rain calm 2"),
        (["--input", '{"topic": "rain", "tone": "dry"}'], "rain dry 4"),
        (["--input", "rain"], "rain calm 4"),
    ):
        done = project.call("run", "poem.yaml", *words, "--json")
        assert json.loads(done.out)["output"] == output
    # The input is recorded, so that a resume needs and takes none.
    shown = json.loads(project.call("show", "last", "--json").out)
    assert shown["input"] == {"topic": "rain", "tone": "calm", "lines": 4}
    assert "sets" not in shown["source"]
    assert project.call("check", "poem.yaml", "--set", "topc=a").code == 2
    checked = json.loads(project.call("check", "poem.yaml", "--json").out)["documents"][0]
    assert [one["name"] for one in checked["plan"]["inputs"]] == ["topic", "tone", "lines"]


def test_a_resumed_run_takes_no_other_inputs(project: Project) -> None:
    """The refusal names the command that runs it with others."""
    asks = POEM.replace('lines }}"}', "lines }}\"}\n  - {name: ask, python: 'steps:asking'}")
    (project.folder / "poem.yaml").write_text(asks)
    assert project.call("run", "poem.yaml", "--yes", "-i", "rain", "--run-id", "r").code == 4
    refused = project.call("resume", "r", "--set", "topic=snow")
    assert refused.code == 2
    assert "--set: r keeps its recorded inputs" in refused.err
    assert "loopwright again r" in refused.err
    # A fork takes the recorded ones too, also with a document of its own.
    project.call("run", "poem.yaml", "--yes", "-i", "rain", "--run-id", "f")
    for words in ([], ["--doc", "poem.yaml"]):
        refused = project.call("fork", "f", "poem/ask", "--yes", "--set", "topic=snow", *words)
        assert (refused.code, "--set: f keeps its recorded inputs" in refused.err) == (2, True)


def test_the_lines_of_a_submission_are_inputs(project: Project) -> None:
    """A line that the document refuses is named, and nothing is submitted."""
    (project.folder / "poem.yaml").write_text(POEM)
    (project.folder / "texts.jsonl").write_text('{"topic": "a"}\n{"topc": "b"}\n')
    refused = project.call("submit", "poem.yaml", "--inputs", "texts.jsonl")
    assert refused.code == 2
    assert "--inputs: line 2: poem has no input 'topc'; did you mean 'topic'?" in refused.err
