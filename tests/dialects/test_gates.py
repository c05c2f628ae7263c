"""Questions of imported workflows to people, and a workflow whose agents are programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from loopwright import MemoryJournal, Status, resume, run
from loopwright.documents import Settings, load
from loopwright.journal.questions import answer, pending
from loopwright.models import Models, ScriptedModel
from loopwright.testing import fake_agent

LETTER = """
workflow: {name: letter, entry_point: writer, runtime: {provider: openai, default_model: gpt-5.2}}
agents:
  - name: writer
    prompt: "Write.{% if gate is defined %} {{ gate.output.feedback }}{% endif %}"
    routes: [{to: gate}]
  - name: gate
    type: human_gate
    prompt: "Send {{ writer.output }}?"
    options:
      - {label: Send it, value: send, route: $end}
      - {label: Change it, value: change, route: writer, prompt_for: feedback}
"""


def test_a_person_chooses_and_a_wrong_answer_is_asked_for_again(tmp_path: Path) -> None:
    """An answer is the value or the label of an option, with the text that the option asks for."""
    file = tmp_path / "letter.yaml"
    file.write_text(LETTER)
    loaded, journal = load(file, Settings()), MemoryJournal()
    model = ScriptedModel([{"replies": ["one", "two"]}])
    resources = {**loaded.resources, "models": Models(model)}

    async def answered(value: object) -> object:
        (question,) = await pending(journal, "r")
        await answer(journal, "r", question.path, value, who="desk")
        return (await resume(loaded.step, "r", journal=journal, resources=resources)).status

    async def conversation() -> None:
        first = await run(loaded.step, journal=journal, resources=resources, run_id="r")
        assert (
            first.status is Status.SUSPENDED
            and "Send one? Answer with send or change" in first.detail
        )
        assert await answered("perhaps") is Status.SUSPENDED
        assert await answered({"selected": "Change it", "text": "shorter"}) is Status.SUSPENDED
        assert await answered("SEND") is Status.SATISFIED
        last = await resume(loaded.step, "r", journal=journal, resources=resources)
        assert last.output["writer"] == "two" and last.output["gate"]["selected"] == "send"

    asyncio.run(conversation())


def test_a_rejected_approval_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of the person is the reason of the failure."""
    monkeypatch.chdir(tmp_path)  # where the workspace has its store
    file = tmp_path / "gate.yaml"
    file.write_text(
        "name: gate\nworktree: {enabled: false}\nnodes:\n  - {id: gate, approval: {message: Go on?}}\n"
    )
    loaded, journal = load(file, Settings()), MemoryJournal()

    async def conversation() -> None:
        await run(loaded.step, "x", journal=journal, resources=loaded.resources, run_id="r")
        (question,) = await pending(journal, "r")
        await answer(
            journal, "r", question.path, {"selected": "reject", "text": "too early"}, who="desk"
        )
        last = await resume(loaded.step, "r", journal=journal, resources=loaded.resources)
        assert (
            last.error is not None and last.error.kind == "rejected" and "too early" in last.detail
        )

    asyncio.run(conversation())


def test_a_loop_of_archon_runs_a_program_until_its_check_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coding agent changes files of the folder, and the check of the shell ends the loop."""
    calls = [[{"write": {"answer.txt": text}}, {"say": "It is written."}] for text in ("41", "42")]
    (tmp_path / "script.json").write_text(json.dumps(calls))
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    words = f"{sys.executable} -P -m {fake_agent.__name__} --as claude --script {tmp_path / 'script.json'}"
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    file = folder / "fix.yaml"
    file.write_text(
        "name: fix\nworktree: {enabled: false}\nnodes:\n"
        '  - {id: fix, loop: {prompt: Write it, until_bash: "grep -q 42 answer.txt", max_iterations: 3}}\n'
        '  - {id: last, bash: "cat answer.txt", depends_on: [fix]}\n'
    )
    loaded = load(file, Settings())
    result = asyncio.run(run(loaded.step, "", journal=MemoryJournal(), resources=loaded.resources))
    assert (result.status, result.output, result.total) == (Status.SATISFIED, "42", 2), (
        result.detail
    )
