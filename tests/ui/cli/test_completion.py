"""What bash, zsh and fish complete: commands, options, and what the journal knows."""

from __future__ import annotations

import re

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


def test_queues_are_those_of_the_latest_runs(
    project: Project, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are offered to the commands that filter runs and to those that pause a queue."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", postgres_url)
    assert project.call("submit", "steps:refine", "-i", "x", "--queue", "nightly").code == 0
    for line in ("runs --queue ", "cancel --queue n", "worker queues ", "submit --queue "):
        assert completed(project, monkeypatch, f"loopwright {line}", "bash") == ["nightly"], line
