"""What bash, zsh and fish complete: commands, options, and what the journal knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import Project

LAST = "last"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_program(project: Project, shell: str) -> None:
    """It is the whole output, and asks this program for words; another shell is refused."""
    printed = project.call("completion", shell)
    assert (printed.code, printed.err) == (0, "")
    assert f"_LOOPWRIGHT_COMPLETE=complete_{shell} " in printed.out
    refused = project.call("completion", "csh")
    assert refused.code == 2 and "csh" in refused.err


@pytest.fixture
def recorded(project: Project) -> Project:
    """Two runs of three iterations."""
    for run_id in ("first", "second"):
        assert project.call("run", "steps:refine", "-i", "x", "--run-id", run_id).code == 0
    return project


def completed(project: Project, patch: pytest.MonkeyPatch, line: str, shell: str) -> list[str]:
    """Return what a shell offers for the last word of a line."""
    variables = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    with patch.context() as set_:
        set_.setenv("_LOOPWRIGHT_COMPLETE", f"complete_{shell}")
        for name, value in variables.items():
            set_.setenv(name, value)
        answer = project.call()
    assert (answer.code, answer.err) == (0, "")
    if shell == "zsh":
        return re.findall(r'"([^"]+)":"', answer.out) or re.findall(r'"([^"]+)"', answer.out)
    return [text.split("\t")[0] for text in answer.out.splitlines() if text]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("loopwright files re", ["restore"]),
        ("loopwright show ", [LAST, "second", "first"]),
        ("loopwright compare first s", ["second"]),
        ("loopwright files diff f", ["first"]),
        ("loopwright rewind first refine/2", ["refine/2", "refine/2/evaluate", "refine/2/execute"]),
        ("loopwright fork first refine/3/ex", ["refine/3/execute"]),
        ("loopwright runs --status sa", ["satisfied"]),
        ("loopwright cancel --queue ", []),
        ("loopwright show --journal sqlite:none.db ", []),
        ("loopwright rewind third ", []),
    ],
)
def test_a_shell_completes_what_the_journal_knows(
    recorded: Project, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str], shell: str
) -> None:
    """A journal or a run that does not exist completes nothing, without a message."""
    assert completed(recorded, monkeypatch, line, shell) == words


POEM = """\
schema: loopwright/1
name: poem
inputs:
  topic: {description: What it is about.}
  tone: {description: How it sounds., choices: [calm, dry], default: calm}
  rhyme: {description: Whether lines rhyme., type: boolean, default: false}
steps: [{name: a, set: 1}]
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run poem.yaml --set t", ["topic=", "tone="]),
        ("submit poem.yaml --set rhy", ["rhyme="]),
        ("check poem.yaml --set tone=d", ["tone=dry"]),
        ("run poem.yaml --set rhyme=", ["rhyme=true", "rhyme=false"]),
        ("run poem.yaml --set topic=", []),
        ("run none.yaml --set t", []),
        ("run --set t", []),
    ],
)
def test_a_shell_completes_the_inputs_of_a_document(
    project: Project, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    """Their names, and behind the `=` their choices, also where bash breaks the words there."""
    (project.folder / "poem.yaml").write_text(POEM)
    for shell in ("zsh", "fish"):
        assert completed(project, monkeypatch, f"loopwright {line}", shell) == words
    broken = f"loopwright {line}".replace("=", " = ").removesuffix(" ")
    assert completed(project, monkeypatch, broken, "bash") == words


@pytest.mark.parametrize(
    ("line", "offered"),
    [("--set tone = d", "dry"), ("--set tone =", "dry"), ("--set tone", "tone=dry")],
)
def test_bash_receives_what_stands_behind_the_equals_sign(
    project: Project, tmp_path: Path, line: str, offered: str
) -> None:
    """Its function inserts at the cursor, where the name of the input stands already."""
    script = project.call("completion", "bash").out
    (tmp_path / "loopwright").write_text("#!/bin/sh\necho tone=dry\n")
    (tmp_path / "loopwright").chmod(0o755)
    call = f"COMP_WORDS=(loopwright {line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n"
    call += f'_loopwright_completion {tmp_path}/loopwright; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{call}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, offered)


def test_queues_are_those_of_the_latest_runs(
    project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are offered to the commands that filter runs and to those that pause a queue."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    assert project.call("submit", "steps:refine", "-i", "x", "--queue", "nightly").code == 0
    for line in ("runs --queue ", "cancel --queue n", "worker queues ", "submit --queue "):
        assert completed(project, monkeypatch, f"loopwright {line}", "bash") == ["nightly"], line
