"""`agents` lists coding agents, shows their manifests, and tries one on a small task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from loopwright.testing.fake_agent import manifest
from loopwright.ui.cli import main


def fake(tmp_path: Path, *actions: dict[str, object]) -> str:
    script, file = tmp_path / "script.yaml", tmp_path / "mine.yaml"
    script.write_text(yaml.safe_dump([list(actions)]))
    file.write_text(yaml.safe_dump(manifest("claude", script)))
    return str(file)


def test_the_list_has_every_built_in_agent(capsys: pytest.CaptureFixture[str]) -> None:
    """A row names the program, whether it is installed, and how to install it."""
    assert main(["agents", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["agents"]
    assert [row["name"] for row in rows] == [
        "claude",
        "codex",
        "gemini",
        "qwen",
        "opencode",
        "aider",
    ]
    assert all(row["install"] for row in rows)
    assert main(["agents", "list"]) == 0
    assert "Claude Code" in capsys.readouterr().out


def test_show_prints_a_manifest_that_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed manifest is valid YAML, to copy and change."""
    assert main(["agents", "show", "codex"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["per"] == "thread"


def test_a_trial_runs_the_agent_in_a_new_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It works if the agent wrote the file of the task."""
    good = fake(
        tmp_path,
        {"write": {"answer.txt": "done"}},
        {"spend": {"input_tokens": 5, "output_tokens": 2}},
        {"say": "ok"},
    )
    assert main(["agents", "try", good, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] and data["result"]["usage"]["input_tokens"] == 5
    assert main(["agents", "try", fake(tmp_path, {"fail": "401 Invalid API key"})]) == 1
    assert "permanent" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["shw"], ["show"], ["try", "clade"]])
def test_a_wrong_command_line_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown action or agent names the nearest one."""
    assert main(["agents", *words]) == 2
    assert capsys.readouterr().err
