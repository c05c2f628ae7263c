"""A loaded document runs like a step, with everything that it brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright import Budget, MemoryJournal, resume, run
from loopwright.documents import Loaded, Settings, load

pytestmark = pytest.mark.anyio

DOCUMENT = """
schema: loopwright/1
name: letter
model: scripted:any
input: Ann
budget: {calls: 2}
steps:
  - name: greet
    prompt: "Greet {{ input }}."
"""


@pytest.fixture
def letter(tmp_path: Path) -> Loaded:
    """A document with a default input, a budget and scripted replies."""
    (tmp_path / "letter.yaml").write_text(DOCUMENT, "utf-8")
    replies = tmp_path / "replies.yaml"
    replies.write_text("- {prompt: Ann, replies: [Hello Ann]}\n- {replies: [Hello you]}\n", "utf-8")
    return load(tmp_path / "letter.yaml", Settings(replies=str(replies)))


async def test_a_document_brings_its_models_its_input_and_its_source(letter: Loaded) -> None:
    """Nothing has to be named twice, and the journal knows how to load the document again."""
    journal = MemoryJournal()
    result = await run(letter, journal=journal, run_id="r")
    assert result.output == "Hello Ann"
    source = (await journal.find("r")).source
    assert {key: source[key] for key in letter.source} == letter.source
    # A scripted reply is free, so its price is known.
    assert result.usage.unpriced == 0


async def test_arguments_replace_what_a_document_brings(letter: Loaded) -> None:
    """An input and a budget of the caller count instead of those of the document."""
    assert (await run(letter, "Bob")).output == "Hello you"
    assert (await run(letter, budget=Budget(tokens=1))).reason.value == "budget"


async def test_a_run_of_a_document_is_resumed_without_its_input(letter: Loaded) -> None:
    """The default input is not compared with the recorded one: without an input, the recorded one counts."""
    journal = MemoryJournal()
    await run(letter, "Bob", journal=journal, run_id="r")
    assert (await run(letter, journal=journal, run_id="r")).output == "Hello you"
    assert (await resume(letter, "r", journal=journal)).output == "Hello you"
