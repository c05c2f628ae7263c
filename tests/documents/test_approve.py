"""`approve:` of native loops, and what is said aloud while a document runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import MemoryJournal, Status, run
from loopwright.documents import Settings, load
from loopwright.documents.load import to_native_yaml
from loopwright.errors import DocumentError
from loopwright.journal.questions import answer, pending

TEXT = """
schema: loopwright/1
name: letter
model: openai:gpt-4o
steps:
  - name: write
    loop:
      execute: {prompt: "Write a letter to {{ loop.initial }}.{% if loop.last %} {{ loop.last.feedback }}{% endif %}"}
      evaluate: {judge: It is polite}
      until: [passed, {max_iterations: 2}]
      approve: APPROVE
"""
REPLIES = """
- {step: "*/execute", replies: ["Hey.", "Dear Ann.", "Dearest Ann."]}
- {replies: [{json: {verdict: "no", score: 30, reason: "rude"}}]}
"""


def loaded(folder: Path, approve: str, **settings: Any) -> Any:
    """Load the document from a folder, on scripted replies."""
    (folder / "letter.yaml").write_text(TEXT.replace("APPROVE", approve))
    (folder / "replies.yaml").write_text(REPLIES)
    return load(
        str(folder / "letter.yaml"), Settings(replies=str(folder / "replies.yaml"), **settings)
    )


@pytest.mark.parametrize(
    ("approve", "paths"),
    [
        ("iteration", ["letter/write/1/approve"]),
        ("limit", ["letter/write/2/limit"]),
        ("[iteration, limit]", ["letter/write/1/approve", "letter/write/2/limit"]),
    ],
)
async def test_a_loop_of_a_document_asks(tmp_path: Path, approve: str, paths: list[str]) -> None:
    """Between rounds, at the limit, or both; the person's feedback is what the template renders."""
    journal, asked = MemoryJournal(), []
    result = None
    while result is None or result.status is Status.SUSPENDED:
        made = loaded(tmp_path, approve)
        models = made.resources["models"]
        if result is not None:
            models.model.continued("r", await journal.entries("r"))
        value = "Ann" if result is None else None
        result = await run(made.step, value, journal=journal, run_id="r", resources=made.resources)
        for question in await pending(journal, "r"):
            asked.append(question.path)
            said: Any = {"approve": question.kind == "iteration"}
            if question.kind == "iteration":
                said["feedback"] = "Be kind."
            await answer(journal, "r", question.path, said)
    assert asked == paths
    assert result.status is Status.EXHAUSTED
    asks = [
        e.value for e in await journal.entries("r") if e.kind == "started" and "execute" in e.path
    ]
    assert len(asks) == 2
    assert ("Be kind." in str(asks[1])) is ("iteration" in approve)


def test_a_moment_that_does_not_exist_is_told_with_its_place(tmp_path: Path) -> None:
    """Line, column and what can stand there."""
    with pytest.raises(DocumentError, match=r"letter.yaml:11:16: .*approve"):
        loaded(tmp_path, "always")


def test_approve_is_part_of_the_native_form(tmp_path: Path) -> None:
    """convert prints it."""
    made = loaded(tmp_path, "[iteration, limit]")
    document = yaml.safe_load(to_native_yaml(next(iter(made.documents.values()))))
    assert document["steps"][0]["loop"]["approve"] == ["iteration", "limit"]


async def test_who_watches_hears_models_as_they_speak(tmp_path: Path) -> None:
    """The `on_text` resource is told each piece with the path of the attempt; the journal is not."""
    heard: list[tuple[str, str]] = []
    journal = MemoryJournal()
    made = loaded(tmp_path, "[]")
    resources = {**made.resources, "on_text": lambda path, text: heard.append((path, text))}
    await run(made.step, "Ann", journal=journal, run_id="r", resources=resources)
    assert heard[0] == ("letter/write/1/execute/attempt-1", "Hey.")
    paths = {path for path, _ in heard}
    assert paths <= {entry.path for entry in await journal.entries("r") if entry.kind == "started"}
    assert any("evaluate" in path for path in paths)
