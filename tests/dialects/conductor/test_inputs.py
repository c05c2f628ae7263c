"""The inputs that a workflow of Conductor declares are those of its native form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from documents.playing import written
from loopwright import MemoryJournal, run_sync
from loopwright.documents import Loaded, Settings, convert, load
from loopwright.errors import ConfigurationError, DocumentError

THEIRS = """\
workflow:
  name: note
  entry_point: show
  input:
    topic: {type: string, description: What it is about.}
    count: {type: number, required: false, default: 3}
    draft: {type: boolean, required: false}
    words: {type: array, required: false, description: null}
    tone: {type: string, required: true, default: warm}
agents: [{name: show, type: script, command: "true", routes: [{to: $end}]}]
output:
  all: "{{ workflow.input.topic }} {{ workflow.input.count }} {{ workflow.input.draft }} {{ workflow.input.words }} {{ workflow.input.tone }}"
"""
CALL = "schema: loopwright/1\nname: outer\nsteps: [{name: c, workflow: note, with: {topic: rain, count: 7}}]\n"


def note(folder: Path, **sets: str) -> Loaded:
    """Load the workflow."""
    return load(written(folder, {"note.yaml": THEIRS}), Settings(sets=sets))


@pytest.mark.parametrize(
    ("sets", "value", "output"),
    [
        ({}, {"topic": "rain"}, "rain 3 False [] warm"),
        ({}, "rain", "rain 3 False [] warm"),
        ({"topic": "5", "count": "5", "draft": "true", "words": "[1]"}, None, "5 5 True [1] warm"),
    ],
)
def test_a_run_has_the_values_of_its_caller_and_the_defaults(
    tmp_path: Path, sets: dict[str, str], value: Any, output: str
) -> None:
    """An input that is not required is empty, and a default makes one optional; the native form does the same."""
    (tmp_path / "again").mkdir()
    found = note(tmp_path, **sets)
    again = written(tmp_path / "again", {"note.yaml": convert(tmp_path / "note.yaml")})
    assert run_sync(found, value).output == {"all": output}
    assert run_sync(load(again, Settings(sets=sets)), value).output == {"all": output}


def test_a_wrong_input_is_refused_before_the_run(tmp_path: Path) -> None:
    """With the sentence for a native document, and the journal has no run then."""
    journal = MemoryJournal()
    for value, sentence in ((None, "note needs the input topic"), ({"topic": 3}, "3 is not text")):
        with pytest.raises(ConfigurationError, match=sentence):
            run_sync(note(tmp_path), value, journal=journal)
    with pytest.raises(DocumentError, match="--set: input count: 'many' is not a number"):
        note(tmp_path, count="many")
    assert asyncio.run(journal.runs()) == []


def test_a_native_document_gives_the_inputs_in_with(tmp_path: Path) -> None:
    """A call completes them, as it does those of a native document."""
    (tmp_path / "note.yaml").write_text(THEIRS)
    assert run_sync(load(written(tmp_path, {"outer.yaml": CALL}))).output == {
        "all": "rain 7 False [] warm"
    }
