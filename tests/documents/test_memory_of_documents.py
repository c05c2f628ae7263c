"""Documents that remember: loops that persist across runs, and facts as steps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from documents.playing import crashed_everywhere, loaded, play, written
from loopwright import MemoryJournal
from loopwright.documents import Settings, load
from loopwright.errors import DocumentError
from loopwright.memory import Space

LOOP = """
  - name: draft
    loop:
      %s
      execute: {prompt: "Write. {{ memory.text }}|{{ memory.lessons | length }}"}
      evaluate: {score: {}}
      until: [{score_at_least: 0.9}, {max_iterations: 2}]
"""
REPLIES = [
    {"prompt": r"[|]0", "replies": ["score: 0.5", "score: 0.4"]},
    {"replies": ["score: 0.95"]},
]


@pytest.mark.parametrize("given", ["persist_across_runs: true", "memory: {}", "memory: {most: 3}"])
def test_a_loop_is_given_lessons(tmp_path: Path, given: str) -> None:
    """persist_across_runs and memory give prompts what earlier runs tried, with scores and feedback."""
    found, journal = loaded(tmp_path, LOOP % given), MemoryJournal()
    first = play(found, REPLIES, journal=journal)
    second = play(found, REPLIES, journal=journal)
    assert (first.status.value, second.status.value) == ("exhausted", "satisfied")
    assert second.output == "score: 0.95"
    episodes = asyncio.run(Space(journal.memory, "main/draft").episodes())
    assert [(e.outcome, e.score) for e in episodes] == [("partial", 0.5), ("success", 0.95)]
    assert [t["score"] for t in episodes[0].tried] == [0.5, 0.4]


def test_loops_may_share_a_space(tmp_path: Path) -> None:
    """Loops that name one space learn from each other, each from its own kind of episode."""
    found, journal = loaded(tmp_path, LOOP % "memory: {space: desk}"), MemoryJournal()
    play(found, REPLIES, journal=journal)
    assert list(asyncio.run(journal.memory.spaces())) == ["desk"]


def test_without_it_nothing_is_kept(tmp_path: Path) -> None:
    """By default a run leaves nothing behind, and `memory` is no name of templates."""
    plain = "  - {name: draft, loop: {execute: {set: a}, until: [{max_iterations: 1}]}}\n"
    journal = MemoryJournal()
    play(loaded(tmp_path, plain), journal=journal)
    assert asyncio.run(journal.memory.spaces()) == {}
    with pytest.raises(DocumentError, match="'memory' is not defined"):
        loaded(tmp_path, LOOP % "required: false")


FACTS = """
  - {name: keep, memory: {operation: remember, namespace: office, category: mail, text: "{{ input }}"}}
  - {name: find, memory: {operation: recall, namespace: office, text: "when does mail come"}}
"""


def test_facts_are_steps(tmp_path: Path) -> None:
    """A step remembers a fact, another finds it by words; remembered again it is surer."""
    found, journal = loaded(tmp_path, FACTS), MemoryJournal()
    play(found, value="mail comes at nine", journal=journal)
    result = play(found, value="Mail comes at  nine", journal=journal)
    assert result.output["response"] == "- mail comes at nine"
    assert result.output["facts"][0]["confidence"] == pytest.approx(0.6)
    assert result.output["facts"][0]["category"] == "mail"


@pytest.mark.parametrize("before", [False, True])
def test_a_death_changes_nothing(tmp_path: Path, before: bool) -> None:
    """A document killed at any journal write and taken up again ends as one that was not."""
    made = loaded(tmp_path, LOOP % "persist_across_runs: true")
    crashed_everywhere(made, REPLIES, before=before)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("memory: {operation: recal}", "did you mean 'recall'"),
        ("memory: {operation: write, category: x}", "category does not belong to write"),
        ("memory: {operation: recall, metadata: {a: 1}}", "metadata does not belong to recall"),
        ("memory: {operation: read, limit: 0}", "limit"),
    ],
)
def test_wrong_memories_are_refused(tmp_path: Path, step: str, told: str) -> None:
    """A wrong memory step is a problem at its place, before anything runs."""
    file = written(tmp_path, f"  - {{name: a, {step}}}\n")
    with pytest.raises(DocumentError) as caught:
        load(file, Settings())
    assert any(told in str(p) and p.line == 5 for p in caught.value.problems), caught.value


def test_remembering_nothing_fails(tmp_path: Path) -> None:
    """A fact without words is refused, with the step's name."""
    result: Any = play(loaded(tmp_path, FACTS), value="  ", journal=MemoryJournal())
    assert result.status.value == "failed" and "no text to remember" in result.detail
