"""What the command line refuses whatever else it is given, and what it writes for other programs."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright.ui.cli import COMMANDS, main

from ..asking import ASKS, KEY
from .conftest import Project
from .test_processes import on_terminal, until


@pytest.fixture
def asking(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A run that waits for a person, and an environment with a key."""
    monkeypatch.setenv("SERVICE_KEY", KEY)
    (project.folder / "asks.yaml").write_text(ASKS, "utf-8")
    answer = project.run("run", "asks.yaml", "-i", "a", "--run-id", "r")
    assert answer.code == 4, answer.err
    return project


def in_journal(project: Project) -> bool:
    """Return whether the key is in any file of the journal."""
    files = (project.folder / ".loopwright").iterdir()
    return any(KEY.encode() in file.read_bytes() for file in files if file.is_file())


@pytest.mark.parametrize(
    "words",
    [
        ("approve", "r", "--edit", f'{{"output": "{KEY}"}}'),
        ("approve", "r", "--edit", f"Write {KEY} into it"),
        ("approve", "r", "--no", "--reason", f"no {KEY}"),
        ("rewind", "r", "grow/1", "--input", f"with {KEY}"),
        ("run", "asks.yaml", "--input", KEY),
    ],
)
def test_an_answer_or_edited_input_with_a_key_is_refused(
    asking: Project, words: tuple[str, ...]
) -> None:
    """I49: keys are not recorded; the message names the variable and never shows the key."""
    answer = asking.run(*words)
    assert answer.code == 2, answer
    assert "SERVICE_KEY" in answer.err and "pass_env" in answer.err
    assert KEY not in answer.out + answer.err
    assert not in_journal(asking)


def test_an_answer_typed_at_a_terminal_with_a_key_is_refused(asking: Project) -> None:
    """The question stays open, and is asked again."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "loopwright", "approve", "r"], cwd=asking.folder,
        env=asking.environ({"COLUMNS": "80", "TERM": "xterm"}), stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, f"use {KEY}\n\n".encode())
    shown = b""
    with suppress(OSError):
        while read := os.read(ours, 65536):
            shown += read
    os.close(ours)
    process.wait()
    assert b"SERVICE_KEY" in shown
    assert b"the question stays open" in shown
    assert not in_journal(asking)


LEADS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "x\r=1+1"]


def test_no_cell_of_a_csv_is_a_formula(project: Project) -> None:
    """What begins like a formula has an apostrophe before it; a negative number stays a number."""
    (project.folder / "cells.py").write_text(
        f"LEADS = {LEADS!r} + ['-2.5', 'plain']\n"
        "from loopwright import Evaluation, Loop, MaxIterations\n"
        "def give(value, ctx):\n    return LEADS[ctx.iteration - 1]\n"
        "def judge(output):\n    return Evaluation(0.5, False, output)\n"
        "cells = Loop(give, judge, until=MaxIterations(9), name='cells')\n",
        "utf-8",
    )
    assert project.run("run", "cells:cells", "--run-id", "r").code == 3
    rows = list(csv.DictReader(io.StringIO(project.run("export", "r", "-f", "csv").out, "")))
    cells = [*(f"'{lead}" for lead in LEADS[:5]), "'\n=1", "x\n=1+1", "-2.5", "plain"]
    assert [row["output"] for row in rows] == cells
    assert [row["feedback"] for row in rows][:4] == [f"'{lead}" for lead in LEADS[:4]]
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_a_database_that_is_lost_during_a_run_ends_it_with_an_error(project: Project) -> None:
    """The exit code is 1, and the sentence names the file; nothing goes on into a file without a name."""
    process = project.start("run", "steps:waits", "-i", "x", "--run-id", "r")
    until(process.stdout, "waits 2")
    for file in (project.folder / ".loopwright").glob("runs.db*"):
        file.unlink()
    (project.folder / "go.txt").write_text("go")
    _, said = process.communicate()
    assert process.returncode == 1, said
    assert "runs.db" in said
    assert "Traceback" not in said


def test_an_output_with_escapes_is_shown_on_a_terminal_and_written_as_it_is(
    project: Project,
) -> None:
    """`show --output`: a terminal obeys nothing that a step returned; a pipe gets every byte."""
    assert project.run("run", "steps:strange", "--run-id", "r").code == 0
    output = "\x1b[31mred\x1b[0m \u65e5\u672c\u8a9e\x07"
    assert project.run("show", "r", "--output").out.rstrip("\n") == output
    _, shown = on_terminal(project, "show", "r", "--output", NO_COLOR="1")
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "red" in shown and "\u65e5\u672c\u8a9e" in shown


WORDS = st.one_of(
    st.sampled_from(
        ["\0", "a\0b", "\udcff", "x\ud800y", "9" * 5000, "-" + "9" * 400, "1e999", "nan", "inf", "--", "-", "",
         "{", "[[[[", "a" * 200_000, "sqlite:\0", "r", "--journal", "sqlite:/nowhere/x.db", "--input", "--max-usd",
         "--max-calls", "--json", "--loop", "--iteration", "--edit", "--limit", "\u202e", "../..", "%s%n", "{{ 1/0 }}",
         "steps:refine", "steps:nothing", "no.yaml", "--run-id", "--format", "csv"]
    ),
    st.text(max_size=20),
    st.integers().map(str),
)  # fmt: skip
NAMES = sorted(command.name for command in COMMANDS if command.name not in ("ui", "mcp", "serve"))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(NAMES), words=st.lists(WORDS, max_size=4))
def test_no_command_line_ends_in_a_traceback(project: Project, name: str, words: list[str]) -> None:
    """NUL, surrogates, huge numbers and very long words over all commands: a sentence and an exit code."""
    answer = project.call(*name.split(), *words)
    assert answer.code in (0, 1, 2, 3, 4, 5), (name, words)
    assert "Traceback (most recent call last)" not in answer.err
    assert len(answer.err) < 20_000
    (answer.out + answer.err).encode("utf-8", "strict")


def test_main_is_total() -> None:
    """An empty command line is a call for help."""
    with suppress(SystemExit):
        assert main([]) == 0
