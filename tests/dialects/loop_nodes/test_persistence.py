"""What outlives a run: entries of past rounds, and memories."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from dialects.workflow_v2.support import Listening
from loopwright import Result, run, run_sync
from loopwright.documents import Settings, load
from loopwright.journal import open_memory
from loopwright.memory import InMemory
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


def once(file: Path, value: str, run_id: str, memory: Any) -> tuple[Result, list[str]]:
    """Run it once with a memory; return the result and what the worker was asked."""
    found = load(file, Settings())
    model = Listening(REPLIES)
    resources = {**found.resources, "models": Models(model), "memory": memory}
    result = run_virtual(run(found.step, value, resources=resources, run_id=run_id))
    return result, [r.prompt for r in model.asked if "worker" in r.path]


def test_rounds_of_earlier_runs_are_seen(tmp_path: Path) -> None:
    """With persist_across_runs the entries of earlier runs come first, and rounds number from 1 again."""
    file, memory = written(tmp_path), InMemory()
    _, first = once(file, "a", "one", memory)
    result, second = once(file, "b", "two", memory)
    assert first == ["1:", "2: a-1"]
    assert second == ["1: a-1 a-2", "2: a-1 a-2 b-1"]
    assert [entry["note"] for entry in result.output["past_loops"]] == ["a-1", "a-2", "b-1", "b-2"]


def test_without_persistence_nothing_is_kept(tmp_path: Path) -> None:
    """By default a run leaves no entries behind."""
    file, memory = (
        written(
            tmp_path, DOCUMENT.replace("persist_across_runs: true", "persist_across_runs: false")
        ),
        InMemory(),
    )
    once(file, "a", "one", memory)
    assert once(file, "b", "two", memory)[1] == ["1:", "2: b-1"]
    assert asyncio.run(memory.spaces()) == {}


def test_the_journal_keeps_them(tmp_path: Path) -> None:
    """A run with a journal remembers in the journal's own store, without being told where."""
    file, url = written(tmp_path), f"sqlite:{tmp_path / 'runs.db'}"
    for value in ("a", "b"):
        found = load(file, Settings())
        resources = {**found.resources, "models": Models(Listening(REPLIES))}
        result = run_sync(found.step, value, resources=resources, journal=url)
    assert [entry["note"] for entry in result.output["past_loops"]] == ["a-1", "a-2", "b-1", "b-2"]
    assert asyncio.run(_notes(url)) == ["a-1", "a-2", "b-1", "b-2"]


async def _notes(url: str) -> list[str]:
    async with open_memory(url) as memory:
        return [item.value["note"] for item in await memory.entries("past_loops:host.refine")]


def test_concurrent_runs_keep_every_entry(tmp_path: Path) -> None:
    """K runs of M rounds at a time leave K times M entries, none torn (invariant I46)."""
    file, url = written(tmp_path), f"sqlite:{tmp_path / 'runs.db'}"

    async def many() -> None:
        async with open_memory(url) as memory:

            async def one(number: int) -> None:
                found = load(file, Settings())
                models = Models(Listening(REPLIES))
                resources = {**found.resources, "models": models, "memory": memory}
                await run(found.step, f"n{number}", resources=resources, run_id=f"r{number}")

            await asyncio.gather(*(one(number) for number in range(12)))

    asyncio.run(many())
    kept = sorted(asyncio.run(_notes(url)))
    assert kept == sorted(f"n{run_}-{number}" for run_ in range(12) for number in (1, 2))


def test_a_damaged_entry_is_left_out(tmp_path: Path) -> None:
    """An entry that no longer matches its checksum is left out with a warning, and others are appended."""
    file, path = written(tmp_path), tmp_path / "runs.db"

    def play(value: str) -> tuple[Result, list[str]]:
        found = load(file, Settings())
        model = Listening(REPLIES)
        resources = {**found.resources, "models": Models(model)}
        result = run_sync(found.step, value, resources=resources, journal=f"sqlite:{path}")
        return result, [r.prompt for r in model.asked if "worker" in r.path]

    play("a")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE memories SET value=replace(value,'a-2','z-2')")
        db.commit()
    result, seen = play("b")
    assert seen[0] == "1: a-1"
    assert any("1 damaged entries" in warning for warning in result.warnings)
    assert play("c")[1][0] == "1: a-1 b-1 b-2"


def test_memory_needs_a_store(tmp_path: Path) -> None:
    """Without a journal and without a memory the run says what to give it."""
    found = load(written(tmp_path), Settings())
    resources: dict[str, Any] = {"models": Models(Listening(REPLIES))}
    result = run_sync(found.step, "a", resources=resources)
    assert result.status.value == "failed"
    assert "use a journal, or resources={'memory': …}" in result.detail
