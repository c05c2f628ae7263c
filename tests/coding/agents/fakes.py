"""Scripts of the fake agent, and steps that run it in place of each program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, Passed, agent
from loopwright.coding.agents import AgentStep, Manifest
from loopwright.testing.fake_agent import manifest

FORMATS = ("claude", "codex", "gemini", "qwen", "opencode", "aider", "acp", "text")
WITH_END = ("claude", "codex", "gemini", "qwen", "opencode", "acp")
RESUMABLE = (*WITH_END, "aider")


def scripted(tmp_path: Path, name: str, *calls: list[dict[str, Any]], **changes: Any) -> Manifest:
    """Return a manifest of the fake agent that follows these calls, one per iteration."""
    script = tmp_path / f"script-{name}.json"
    script.write_text(json.dumps(list(calls)))
    return Manifest.model_validate({**manifest(name, script), **changes})


def working(tmp_path: Path) -> Path:
    """Return a new folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return folder


def fake(tmp_path: Path, name: str, *calls: list[dict[str, Any]], **options: Any) -> AgentStep:
    """Return an agent step that follows these calls in a folder of its own."""
    made = scripted(tmp_path, name, *calls, **options.pop("manifest", {}))
    prompt = options.pop("prompt", "Fix it. {{ value }}")
    return agent(made, prompt, workspace="here", cwd=working(tmp_path), **options)


def until_42(step: AgentStep, folder: Path, **options: Any) -> Loop:
    """Return a loop around the step whose check is the content of a file."""
    until = options.pop("until", Passed() | MaxIterations(3))
    return Loop(step, lambda: (folder / "answer.txt").read_text() == "42", until=until, **options)


WRONG_THEN_RIGHT = (
    [{"write": {"answer.txt": "41"}}, {"spend": {"input_tokens": 100, "output_tokens": 20}}, {"say": "Done."}],
    [{"write": {"answer.txt": "42"}}, {"spend": {"input_tokens": 200, "output_tokens": 30}}, {"say": "Fixed."}],
)  # fmt: skip
