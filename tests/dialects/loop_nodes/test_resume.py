"""Loop nodes whose process dies: the resumed run is the uninterrupted one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal
from loopwright import Result, run
from loopwright.documents import Settings, load
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual

DOCUMENT = """
orchestrator: {id: host, model: gpt-4o, agents: [refine]}
agents:
  - id: refine
    type: loop
    max_loops: 3
    score_threshold: 0.8
    score_extraction_pattern: "SCORE: ([0-9.]+)"
    persist_across_runs: true
    past_loops_metadata: {note: "{{ loop_number }}-{{ score }}"}
    internal_workflow:
      orchestrator: {id: inner, agents: [split, together, scorer]}
      agents:
        - {id: split, type: fork, targets: [left, right]}
        - {id: left, type: openai-answer, prompt: "L{% for loop in get_past_loops() %} {{ loop.note }}{% endfor %}"}
        - {id: right, type: openai-answer, prompt: "R {{ score }}"}
        - {id: together, type: join}
        - {id: scorer, type: openai-answer, prompt: "{{ previous_outputs.together }}"}
"""


class Echo(ScriptedModel):
    """A model whose replies are a function of what it is asked, so that a call made twice answers the same."""

    def __init__(self) -> None:
        super().__init__(
            [
                {"prompt": "left: said left 1", "replies": ["SCORE: 0.5"]},
                {"prompt": "left: said left 2", "replies": ["SCORE: 0.9"]},
                {"prompt": "^L 1-0.5", "replies": ["said left 2"]},
                {"prompt": "^L$", "replies": ["said left 1"]},
                {"prompt": "No score could be read", "replies": ["SCORE: 0.9"]},
                {"replies": ["said right"]},
            ]
        )


def play(file: Path, journal: Any) -> Result:
    """Run the document in virtual time."""
    found = load(file, Settings())
    resources = {**found.resources, "models": Models(Echo())}
    return run_virtual(run(found.step, "tea", resources=resources, journal=journal, run_id="run"))


def facts(result: Result) -> Any:
    """Return what must not depend on where the process died."""
    data = json.loads(json.dumps(result.to_json()))
    loop = data["loops"]["refine"]
    entries = [
        {k: v for k, v in e.items() if k != "timestamp"} for e in data["output"]["past_loops"]
    ]
    return (
        data["status"],
        data["output"]["response"],
        entries,
        [row["score"] for row in loop["history"]],
    )


@pytest.mark.parametrize("before", [False, True])
def test_a_death_at_any_entry_changes_nothing(tmp_path: Path, before: bool) -> None:
    """Whatever entry the process dies at, before or after it is written, scores and entries are the same."""
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "main.yaml").write_text(DOCUMENT, encoding="utf-8")
    counting = DyingJournal()
    wanted = facts(play(whole / "main.yaml", counting))
    assert wanted[0] == "satisfied"
    assert wanted[3] == [0.5, 0.9]
    for at in range(1, counting.appended + 1):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        file = folder / "main.yaml"
        file.write_text(DOCUMENT, encoding="utf-8")
        journal = DyingJournal(at, before=before)
        try:
            found = facts(play(file, journal))
        except asyncio.CancelledError:
            journal.at = 0
            found = facts(play(file, journal))
        assert found == wanted, f"died at entry {at}"
        kept = asyncio.run(journal.memory.entries("past_loops:host.refine"))
        assert [e.value["note"] for e in kept] == ["1-0.5", "2-0.9"], f"died at entry {at}"


ASKED_AGAIN = """
orchestrator: {id: host, model: gpt-4o, agents: [refine]}
agents:
  - id: refine
    type: loop
    score_missing: re_ask
    score_extraction_pattern: "SCORE: ([0-9.]+)"
    internal_workflow:
      orchestrator: {id: inner, agents: [worker, scorer]}
      agents:
        - {id: worker, type: openai-answer, prompt: "Work on {{ input }}"}
        - {id: scorer, type: openai-answer, prompt: "Rate {{ previous_outputs.worker }}"}
"""


def test_a_run_that_died_while_asking_again_ends_as_one_without(tmp_path: Path) -> None:
    """The second question is an effect like any other: killed at any write, the run comes to the same."""
    file = tmp_path / "again.yaml"
    file.write_text(ASKED_AGAIN, encoding="utf-8")
    whole = DyingJournal()
    wanted = play(file, whole)
    assert wanted.output["final_score"] == 0.9
    for at in range(1, whole.appended + 1):
        journal = DyingJournal(at)
        with pytest.raises(asyncio.CancelledError):
            play(file, journal)
        journal.at = 0
        again = play(file, journal)
        assert again.output["final_score"] == 0.9, f"died at write {at}"
        assert again.output["response"] == wanted.output["response"]
