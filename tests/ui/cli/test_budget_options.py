"""Limits on the command line: issue 11, section 4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = """
schema: loopwright/1
name: talk
model: openai:gpt-4o-mini
steps:
  - name: l
    loop:
      execute: {prompt: Say hello.}
      until: [{max_iterations: 9}]
"""
REPLIES = "- replies: ['hello to all']\n"


@pytest.fixture
def talk(project: Any) -> Any:
    """A project with a document that asks a scripted model up to nine times."""
    Path(project.folder, "talk.yaml").write_text(DOCUMENT)
    Path(project.folder, "replies.yaml").write_text(REPLIES)
    return project


def _run(talk: Any, *words: str) -> Any:
    return talk.call("run", "talk.yaml", "--replies", "replies.yaml", *words)


@pytest.mark.parametrize(
    ("option", "value", "raised", "iterations"),
    [
        ("--max-calls", "2", "4", 2),
        ("--max-effects", "4", "8", 4),
        ("--max-total-tokens", "4150", "8300", None),
    ],
)
def test_a_limit_of_the_command_line_ends_the_run_and_the_hint_names_it(
    talk: Any, option: str, value: str, raised: str, iterations: int | None
) -> None:
    """The run is exhausted by its budget; the hint is the option that raises it, with twice the limit, and no other."""
    answer = _run(talk, option, value)
    assert answer.code == 3
    (hint,) = [line for line in answer.out.splitlines() if line.startswith("continue:")]
    assert hint.endswith(f" {option} {raised}")
    told = json.loads(talk.call("show", "last", "--json").out)
    assert told["reason"] == "budget"
    if iterations is not None:
        assert told["iterations"] == iterations


def test_a_raised_limit_goes_on_from_where_the_run_ended(talk: Any) -> None:
    """`resume --max-calls 5` after `run --max-calls 2`: three calls more."""
    _run(talk, "--max-calls", "2")
    answer = talk.call("resume", "last", "--max-calls", "5", "--json")
    told = json.loads(answer.out)
    assert (told["reason"], told["iterations"], told["usage"]["calls"]) == ("budget", 5, 5)


def test_a_limit_that_did_not_end_the_run_is_refused(talk: Any) -> None:
    """Calls ran out, so dollars cannot be raised: the sentence says what ended it."""
    _run(talk, "--max-calls", "2")
    answer = talk.call("resume", "last", "--max-effects", "50")
    assert answer.code == 2
    assert "no budget of effects ended it" in answer.err


def test_check_remarks_on_a_budget_that_cannot_bind(project: Any) -> None:
    """Dollars over a command, calls over plain functions: `check` says `budget_cannot_bind`."""
    Path(project.folder, "shell.yaml").write_text(
        "schema: loopwright/1\nname: s\nbudget: {usd: 1}\nsteps:\n  - {name: a, shell: ['true']}\n"
    )
    Path(project.folder, "plain.py").write_text("def f(value):\n    return value\n")
    Path(project.folder, "plain.yaml").write_text(
        "schema: loopwright/1\nname: p\nsteps:\n  - name: l\n    loop:\n"
        "      execute: {python: 'plain:f'}\n      until: [{max_iterations: 2}, {budget: {calls: 3}}]\n"
    )
    for name in ("shell.yaml", "plain.yaml"):
        answer = project.call("check", name)
        assert "budget_cannot_bind" in answer.err, name
    Path(project.folder, "fine.yaml").write_text(
        "schema: loopwright/1\nname: s\nbudget: {usd: 1}\n"
        "steps:\n  - {name: a, shell: ['true'], usage: file}\n"
    )
    assert "budget_cannot_bind" not in project.call("check", "fine.yaml").err
