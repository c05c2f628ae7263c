"""The skill of the package: a coding CLI offers it to its model, which writes, checks and runs a loop with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from coding.agents.provider import Provider
from coding.agents.real import real_agent
from coding.agents.test_real_agent import PROGRAMS
from loopwright import run_sync

SKILL = files("loopwright") / ".agents/skills/loopwright/SKILL.md"


def texts(value: Any) -> Iterator[str]:
    """Iterate over the texts of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


class Model(Provider):
    """A model that knows nothing of Loopwright: it asks for the skill, and does what the skill says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.offered = ""
        self.results: list[str] = []

    def wants_tool(self, body: dict[str, Any]) -> bool:
        """Continue until the document has run."""
        if any(m["role"] == "tool" for m in body["messages"][-1:]):
            self.results.append("\n".join(texts(body["messages"][-1]["content"])))
        return len(self.results) < 3

    def tool(self, names: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Read the skill, then write, check and run its first document."""
        if not self.results:
            self.offered = "\n".join(texts(names["skill"]))
            return "skill", {"skill": "loopwright"}
        skill = self.results[0]
        blocks = re.findall(r'^```yaml title="([^"]*)"\n(.*?)^```', skill, re.MULTILINE | re.DOTALL)
        name, document = blocks[0]
        if len(self.results) == 1:
            return "write_file", {"file_path": str(self.folder / name), "content": document}
        commands = re.findall(rf"^\$ (loopwright .*{name}.*)$", skill, re.MULTILINE)
        return "run_shell_command", {"command": " && ".join(commands), "is_background": False}


@pytest.mark.slow
@pytest.mark.skipif(
    PROGRAMS is None and not os.environ.get("CI"),
    reason="NOT TESTED: no coding CLI reads the skill: run make npm",
)
def test_a_coding_cli_writes_checks_and_runs_a_loop_with_the_skill(tmp_path: Path) -> None:
    """Qwen Code finds the skill in the project, and the model does no more than follow it."""
    work = tmp_path / "work"
    project = work / ".qwen/skills/loopwright"
    project.mkdir(parents=True)
    shutil.copy(str(SKILL), project / "SKILL.md")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "loopwright").symlink_to(Path(sys.executable).parent / "loopwright")
    model = Model(work)
    try:
        assert PROGRAMS is not None, "make npm installs Qwen Code"
        (programs / "qwen").symlink_to((PROGRAMS / "qwen").resolve())
        step = real_agent(
            "qwen",
            model,
            tmp_path,
            programs=programs,
            prompt="Write a loop that counts words.",
            timeout=240,
        )
        result = run_sync(step, "")
    finally:
        model.close()
    assert result.satisfied, result.detail
    assert "work must repeat until tests pass" in model.offered
    printed = model.results[-1]
    assert "loop.yaml: can run" in printed
    assert "refine satisfied" in printed


def test_the_skill_keeps_to_the_format_of_skills() -> None:
    """https://agentskills.io/specification: its name is that of its folder, and the description has at most 1,024 characters."""
    _, head, body = SKILL.read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert set(about) == {"name", "description"}
    assert about["name"] == "loopwright"
    assert 50 < len(about["description"]) <= 1024
    # Programs have readers of their own for this line: no quotes, no folding, nothing that YAML reads as a key.
    assert f"\ndescription: {about['description']}\n" in head
    assert ": " not in about["description"]
    assert len(body.splitlines()) < 500
    assert "<" not in json.dumps(about)
