"""`files:` of a prompt in a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import Models, run_sync
from loopwright.documents import Settings, load
from loopwright.errors import DocumentError
from loopwright.models import Reply, Request

DOCUMENT = """schema: loopwright/1
name: look
input: {picture: chart.png}
steps:
- name: see
  prompt: What is on it?
  model: openai:m
  files: [notes.txt, "{{ input.picture }}", "https://example.org/a.png"]
"""


class Keeper:
    """A model that keeps its request."""

    def __init__(self) -> None:
        self.contents: list[Any] = []

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        del on_text
        files = request.messages[-1].files
        self.contents = [f.url or request.contents[f.digest] for f in files]
        return Reply("seen")


def write(folder: Path, text: str = DOCUMENT) -> str:
    (folder / "notes.txt").write_bytes(b"notes")
    (folder / "chart.png").write_bytes(b"png")
    (folder / "look.yaml").write_text(text, encoding="utf-8")
    return str(folder / "look.yaml")


def test_a_document_names_files_by_path_template_and_address(tmp_path: Path) -> None:
    """Paths are relative to the folder of the document, not to the working folder."""
    keeper = Keeper()
    loaded = load(write(tmp_path), settings=Settings(environ={}))
    result = run_sync(loaded.step, loaded.default_input, models=Models(keeper))
    assert result.satisfied, result.detail
    assert keeper.contents == [b"notes", b"png", "https://example.org/a.png"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("[none.txt]", "'none.txt' is not a file in the document's folder"),
        ("[../x.txt]", "is outside the project folder"),
        ("[a.zip]", "cannot be sent"),
        ('["{{ nothing }}"]', "nothing"),
    ],
)
def test_a_wrong_file_is_a_problem_at_its_place(files: str, words: str, tmp_path: Path) -> None:
    """The problem has the line and column of the file."""
    text = DOCUMENT.replace(
        '[notes.txt, "{{ input.picture }}", "https://example.org/a.png"]', files
    )
    with pytest.raises(DocumentError) as caught:
        load(write(tmp_path, text), settings=Settings(environ={}))
    assert words in str(caught.value)
    assert ":8:" in str(caught.value)


def test_the_environment_names_the_model_of_a_document(tmp_path: Path) -> None:
    """A document without a model uses LOOPWRIGHT_MODEL."""
    text = DOCUMENT.replace("  model: openai:m\n", "")
    path = write(tmp_path, text)
    with pytest.raises(DocumentError, match="LOOPWRIGHT_MODEL"):
        load(path, settings=Settings(environ={}))
    loaded = load(path, settings=Settings(environ={"LOOPWRIGHT_MODEL": "ollama:qwen"}))
    assert [asked.models for _, asked in loaded.asks] == [("ollama:qwen",)]
