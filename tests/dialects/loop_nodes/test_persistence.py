"""What outlives a run: entries of past rounds, and memories."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from dialects.workflow_v2.support import Listening
from loopwright import Result, run, run_sync
from loopwright.documents import Settings, load
from loopwright.models import Models
from loopwright.testing import run_virtual

DOCUMENT = """
orchestrator: {id: host, model: gpt-4o, agents: [refine]}
agents:
  - id: refine
    type: loop
    max_loops: 2
    score_threshold: 1.0
    score_extraction_pattern: "SCORE: ([0-9.]+)"
    persist_across_runs: true
    past_loops_metadata: {note: "{{ input }}-{{ loop_number }}"}
    internal_workflow:
      orchestrator: {id: inner, agents: [worker, scorer]}
      agents:
        - id: worker
          type: openai-answer
          prompt: "{{ loop_number }}:{% for loop in get_past_loops() %} {{ loop.note }}{% endfor %}"
        - {id: scorer, type: openai-answer, prompt: Rate}
"""
REPLIES = [{"step": "*scorer*", "replies": ["SCORE: 0.5"]}, {"replies": ["work"]}]


def written(folder: Path, text: str = DOCUMENT) -> Path:
    """Write the document."""
    file = folder / "main.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def once(file: Path, value: str, run_id: str) -> tuple[Result, list[str]]:
    """Run it once; return the result and what the worker was asked."""
    found = load(file, Settings())
    model = Listening(REPLIES)
    resources = {**found.resources, "models": Models(model)}
    result = run_virtual(run(found.step, value, resources=resources, run_id=run_id))
    return result, [r.prompt for r in model.asked if "worker" in r.path]


def test_rounds_of_earlier_runs_are_seen(tmp_path: Path) -> None:
    """With persist_across_runs the entries of earlier runs come first, and rounds number from 1 again."""
    file = written(tmp_path)
    _, first = once(file, "a", "one")
    result, second = once(file, "b", "two")
    assert first == ["1:", "2: a-1"]
    assert second == ["1: a-1 a-2", "2: a-1 a-2 b-1"]
    assert [entry["note"] for entry in result.output["past_loops"]] == ["a-1", "a-2", "b-1", "b-2"]


def test_without_persistence_nothing_is_kept(tmp_path: Path) -> None:
    """By default a run leaves no entries behind."""
    file = written(
        tmp_path, DOCUMENT.replace("persist_across_runs: true", "persist_across_runs: false")
    )
    once(file, "a", "one")
    assert once(file, "b", "two")[1] == ["1:", "2: b-1"]
    assert not (tmp_path / ".loopwright" / "memory").exists()


def test_concurrent_runs_keep_every_entry(tmp_path: Path) -> None:
    """K runs of M rounds at a time leave K times M entries, none torn (invariant I46)."""
    file = written(tmp_path)

    async def many() -> None:
        async def one(number: int) -> None:
            found = load(file, Settings())
            resources = {**found.resources, "models": Models(Listening(REPLIES))}
            await run(found.step, f"n{number}", resources=resources, run_id=f"r{number}")

        await asyncio.gather(*(one(number) for number in range(12)))

    asyncio.run(many())
    lines = (_only(tmp_path)).read_text(encoding="utf-8").splitlines()
    kept = sorted(json.loads(line)["entry"]["note"] for line in lines)
    assert kept == sorted(f"n{run_}-{number}" for run_ in range(12) for number in (1, 2))


def _only(folder: Path) -> Path:
    files = list((folder / ".loopwright" / "memory").iterdir())
    assert len(files) == 1
    return files[0]


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    """A line that a crash cut short is skipped with a warning, and what is appended after it is whole."""
    file = written(tmp_path)
    once(file, "a", "one")
    memory = _only(tmp_path)
    with memory.open("a", encoding="utf-8") as torn:
        torn.write('{"key": "x", "ent')
    result, seen = once(file, "b", "two")
    assert seen[0] == "1: a-1 a-2"
    assert any("no entry" in warning for warning in result.warnings)
    assert once(file, "c", "three")[1][0] == "1: a-1 a-2 b-1 b-2"


def test_an_entry_written_twice_counts_once(tmp_path: Path) -> None:
    """An append that was in flight at a crash may be there twice, under one key."""
    file = written(tmp_path)
    once(file, "a", "one")
    memory = _only(tmp_path)
    first = memory.read_text(encoding="utf-8").splitlines()[0]
    with memory.open("a", encoding="utf-8") as again:
        again.write(first + "\n")
    assert once(file, "b", "two")[1][0] == "1: a-1 a-2"


def test_memory_needs_a_folder(tmp_path: Path) -> None:
    """Without a folder for memories the run says what to give it."""
    found = load(written(tmp_path), Settings())
    resources: dict[str, Any] = {"models": Models(Listening(REPLIES))}
    result = run_sync(found.step, "a", resources=resources)
    assert result.status.value == "failed"
    assert "memory_folder" in result.detail
