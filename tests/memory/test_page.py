"""The page on memory: its examples run."""

from __future__ import annotations

import re
from pathlib import Path

from loopwright import MemoryJournal, run
from loopwright.documents import Settings, load
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual

PAGE = Path(__file__).parents[2] / "docs" / "memory.md"


def examples(language: str) -> list[str]:
    """The examples of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_in_python_run() -> None:
    """What the page says in Python is what happens."""
    found = examples("python")
    assert len(found) == 3
    for example in found:
        exec(compile(example, str(PAGE), "exec"), {})


def test_the_document_remembers(tmp_path: Path) -> None:
    """The page's document is given what its first run came to."""
    (text,) = examples("yaml")
    (tmp_path / "notes.yaml").write_text(text, encoding="utf-8")
    found = load(tmp_path / "notes.yaml", Settings())
    rules = [
        {"prompt": "What earlier runs came to", "replies": ["better, score: 0.95"]},
        {"replies": ["score: 0.5"]},
    ]
    journal = MemoryJournal()
    ended = []
    for _ in range(2):
        resources = {**found.resources, "models": Models(ScriptedModel(rules))}
        result = run_virtual(run(found.step, "1.2", resources=resources, journal=journal))
        ended.append(result.status.value)
    assert ended == ["exhausted", "satisfied"]
