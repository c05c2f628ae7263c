"""Inputs: what the command line is given becomes the run's input, by stated rules only."""

from __future__ import annotations

import io
import json
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
