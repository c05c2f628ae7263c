"""Candidates of documents: each way to choose, with models that follow a script, also after kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from documents.playing import crashed_everywhere, loaded, play
from engine.support import KeepingJournal, entries_of

LOOP = """\
- name: title
  loop:
    execute: {{prompt: "A title, {{{{ loop.vary }}}} {{{{ loop.candidate }}}}", temperature: 1.0}}
    evaluate: {{score: {{pattern: "([0-9]+)/10", scale: [0, 10]}}}}
    max_iterations: 2
    until: [{{score_at_least: 1.0}}]
    candidates: {{n: 3, at_once: 1, vary: [plain, bold]{more}}}
"""
DRAFTS = {"step": "*/candidate-*/execute*", "replies": ["a 4/10", "b 6/10", "c 5/10"] * 2}
PICKS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "score": ("", [DRAFTS], ["b 6/10", 2]),
    "first_pass": (", pick: first_pass", [DRAFTS], ["b 6/10", 2]),
    "stop_rest": (", stop_rest: {score_at_least: 0.5}", [DRAFTS], ["b 6/10", 2]),
    "duel": (
        ', pick: duel, judge: {criterion: "Which is more exact?"}',
        [{"step": "*/choice/*", "replies": [
            {"json": {"winner": winner}} for winner in ("second", "first") * 2]}, DRAFTS],
        ["c 5/10", 3],
    ),
    "combine": (
        ', pick: combine, combine: {prompt: "The best of: {{ value }}"}',
        [{"step": "*/candidate-4/execute*", "replies": ["d 9/10"] * 2}, DRAFTS],
        ["d 9/10", 4],
    ),
    "python": (', pick: {python: "rules:last"}, min_ok: 2, budget: {calls: 2}', [DRAFTS], ["c 5/10", 3]),
}  # fmt: skip


@pytest.mark.parametrize("pick", PICKS)
def test_each_way_to_choose(pick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document chooses as the same loop of Python does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rules.py").write_text("def last(rows):\n    return rows[-1].number\n")
    more, replies, (output, number) = PICKS[pick]
    result = play(loaded(tmp_path, LOOP.format(more=more)), replies, "a release")
    item = result.loops["title"].history[0]
    assert (item.output, item.candidate) == (output, number)
    assert [row.vary for row in item.candidates[:3]] == ["plain", "bold", "plain"]


@pytest.mark.parametrize("pick", ["duel", "combine"])
def test_a_killed_document_chooses_the_same(pick: str, tmp_path: Path) -> None:
    """Candidates that are asked one after the other get the same replies, and so does the judge."""
    more, replies, _ = PICKS[pick]
    text = LOOP.format(more=more).replace("max_iterations: 2", "max_iterations: 1")
    crashed_everywhere(loaded(tmp_path, text), replies, "a release")


def test_a_conversation_goes_on_from_that_of_the_chosen_one(tmp_path: Path) -> None:
    """The next iteration's candidates continue what the chosen one said, also after a resume."""
    text = (
        "- name: talk\n  loop:\n    execute: {prompt: 'Go on, {{ loop.candidate }}', conversation: carried}\n"
        "    evaluate: {score: {pattern: '([0-9]+)/10', scale: [0, 10]}}\n    until: [{max_iterations: 2}]\n"
        "    candidates: {n: 2, at_once: 1}\n"
    )
    replies = [{"replies": ["one 1/10", "two 7/10", "three 3/10", "four 4/10"]}]
    found = loaded(tmp_path, text)
    crashed_everywhere(found, replies, "x")
    journal = KeepingJournal()
    play(found, replies, "x", journal=journal, run_id="r")
    asked = [
        dict(entry.value) for entry in entries_of(journal, "r")
        if entry.kind == "started" and isinstance(entry.value, dict) and "roles" in entry.value
    ]  # fmt: skip
    texts = [[item[key] for key in sorted(item) if key.startswith("text-")] for item in asked]
    assert texts[2] == ["Go on, 2", "two 7/10", "Go on, 1"]
    assert texts[3] == ["Go on, 2", "two 7/10", "Go on, 2"]
