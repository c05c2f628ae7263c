"""`loopwright run --dry-run`: no command runs, no module is imported, nothing is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopwright.ui.cli import main

DOCUMENT = """
schema: loopwright/1
name: fix
tools:
  search: {python: "helpers:search"}
steps:
- name: refine
  loop:
    execute: {prompt: "Fix it", tools: [search]}
    evaluate: {check: {command: [touch, ran]}}
    until: {max_iterations: 3}
- {name: publish, shell: [touch, ran]}
"""
RULES = """
- {step: "*/execute/*", replies: [{tool_calls: [{name: search, arguments: {q: a}}]}, done]}
- {step: "*/call-1", output: [a, b]}
- {step: "*/1/evaluate", exit: 1, output: 1 failed}
- {step: "*/evaluate", exit: 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a document whose Python module leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fix.yaml").write_text(DOCUMENT)
    (tmp_path / "helpers.py").write_text(
        "open('imported', 'w').close()\ndef search(q: str): return q\n"
    )
    (tmp_path / "rules.yaml").write_text(RULES + "- {step: '*/publish', output: published}\n")
    return tmp_path


def test_a_dry_run_needs_no_approval_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All results come from the rules."""
    before = {path.name for path in folder.iterdir()}
    assert main(["run", "fix.yaml", "--dry-run", "--replies", "rules.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["output"], found["iterations"]) == ("satisfied", "published", 2)
    assert {path.name for path in folder.iterdir()} == before
    # Nor does it make the files of a workspace, or run the commands that prepare them.
    place = "workspace: {kind: snapshot, setup: touch ran, merge: patch}"
    of_loop = DOCUMENT.replace("  loop:", f"  loop:\n    {place}")
    for document in (f"{place}\n{DOCUMENT}", of_loop.replace("check: {command", "tests: {command")):
        (folder / "fix.yaml").write_text(document)
        words = ["run", "fix.yaml", "--dry-run", "--replies", "rules.yaml", "--json"]
        assert main(words) == 0, document
        found = json.loads(capsys.readouterr().out)
        assert (found["output"], found["iterations"]) == ("published", 2)
        assert {path.name for path in folder.iterdir()} == before


def test_an_effect_without_a_rule_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and the rule to add with the name of the file."""
    (folder / "rules.yaml").write_text(RULES)
    assert main(["run", "fix.yaml", "--dry-run", "--replies", "rules.yaml"]) == 1
    assert "add a rule to rules.yaml, such as {step: 'fix/publish'" in capsys.readouterr().out


def test_a_dry_run_needs_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert folder
    assert main(["run", "fix.yaml", "--dry-run"]) == 2
    assert "--dry-run needs --replies FILE" in capsys.readouterr().err


def test_a_python_step_has_dry_runs_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its module is imported, because it is named; its functions are not called."""
    (folder / "own_step.py").write_text("def act(value):\n    open('ran', 'w').close()\n")
    (folder / "rules.yaml").write_text("- {output: 5}\n")
    assert main(["run", "own_step:act", "--dry-run", "--replies", "rules.yaml"]) == 0
    assert "output:\n5\n" in capsys.readouterr().out
    assert not (folder / "ran").exists()


def test_a_python_condition_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would have to be imported; the message names the way from Python."""
    document = DOCUMENT.replace("{max_iterations: 3}", '{python: "helpers:Own"}')
    (folder / "fix.yaml").write_text(document)
    with (folder / "helpers.py").open("a") as file:
        file.write("class Own: pass\n")
    assert main(["run", "fix.yaml", "--dry-run", "--replies", "rules.yaml"]) == 2
    assert "helpers:Own is a Python condition" in capsys.readouterr().err
