"""`run` and `resume`: what is printed, what is kept, which code is left with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .conftest import Project

KEYS = {
    "run_id", "status", "reason", "detail", "output", "iterations", "best", "loops", "steps",
    "usage", "warnings",
}  # fmt: skip
LOOP_KEYS = {"iterations", "exit_reason", "score", "best_iteration", "output", "history"}
ROUND_KEYS = {"iteration", "score", "passed", "feedback", "error", "output"}


@pytest.mark.parametrize(
    ("step", "code", "status", "reason"),
    [
        ("refine", 0, "satisfied", "condition_met"),
        ("echo", 0, "satisfied", "completed"),
        ("short", 3, "exhausted", "max_iterations"),
        ("fails", 1, "failed", "error"),
        ("asking", 4, "suspended", "approval"),
    ],
)
def test_the_exit_code_is_the_status(
    project: Project, step: str, code: int, status: str, reason: str
) -> None:
    """0 satisfied, 3 exhausted, 1 failed, 4 suspended; the object says the same."""
    answer = project.call("run", f"steps:{step}", "--input", "x", "--json")
    assert answer.code == code
    assert (answer.json["status"], answer.json["reason"]) == (status, reason)


def test_the_object_has_the_fields_of_the_contract(project: Project) -> None:
    """The run, its loops, their rounds and what was spent, by the names others rely on."""
    data = project.call("run", "steps:refine", "--input", "x", "--json").json
    assert data.keys() >= KEYS
    loop = data["loops"]["refine"]
    assert loop.keys() >= LOOP_KEYS
    assert all(item.keys() >= ROUND_KEYS for item in loop["history"])
    assert data["best"] == {"iteration": 3, "score": 0.9}
    assert [item["score"] for item in loop["history"]] == [0.25, 0.5, 0.9]
    assert data["usage"] == {"calls": 3, "input_tokens": 30, "output_tokens": 15, "usd": 0.03}
    assert data["output"] == "draft 3\nof x"


def test_a_suspended_run_says_what_it_asks(project: Project) -> None:
    """The object has the request, and people read it too."""
    data = project.call("run", "steps:asking", "--json").json
    assert data["request"] == {"path": "asking", "question": "Publish?"}
    lines = project.call("run", "steps:asking").out.splitlines()
    assert 'waiting at asking: {"question": "Publish?"}' in lines


def test_a_pipe_gets_plain_lines(project: Project) -> None:
    """One line per iteration, then the end; no line on conditions, which another dialect documents."""
    answer = project.call("run", "steps:refine", "--input", "x", "--run-id", "one")
    lines = [
        line for line in answer.out.splitlines() if not line.startswith(("refine ", "refine:"))
    ]
    rows = [line for line in answer.out.splitlines() if line.startswith(("refine ", "refine:"))]
    assert rows[0] == "refine: run one in sqlite:.loopwright/runs.db"
    assert [row.split(",")[0] for row in rows[1:]] == [
        "refine 1: score 0.25", "refine 2: score 0.50", "refine 3: score 0.90",
    ]  # fmt: skip
    assert rows[3].endswith(": round 3 is long")
    assert lines[0].startswith("Satisfied: score 0.9 is at least 0.9 (3 iterations, ")
    assert lines[1:] == [
        "output:", "draft 3", "of x", "journal: sqlite:.loopwright/runs.db",
        "details: loopwright show one",
    ]  # fmt: skip
    assert answer.err == ""


def test_under_json_people_read_stderr(project: Project) -> None:
    """Rows and conditions are there too, on the other stream."""
    answer = project.call("run", "steps:short", "--json")
    assert "short 2: score 0.50, not yet, $0.0100" in answer.err
    json.loads(answer.out)


def test_verbose_tells_every_effect(project: Project) -> None:
    """A line per effect: where, how long, what it cost and gave."""
    out = project.call("run", "steps:short", "--input", "x", "--verbose").out
    assert "  short/1/execute: " in out
    assert ", $0.0100: draft 1 of x" in out
    assert "  short/2/evaluate: " in out
    assert "[INFO]" not in out


def test_nested_loops_are_indented_and_their_ends_told(project: Project) -> None:
    """Rounds of an inner loop come before the round they are part of, two spaces in."""
    out = project.call("run", "steps:outer").out
    labels = [line.split(":")[0] for line in out.splitlines() if not line.startswith("[")]
    assert labels[1:5] == ["  inner 1", "  inner 2", "  inner exhausted", "outer 1"]


def test_a_workflow_tells_its_steps(project: Project) -> None:
    """The object has each step's output by name, and the loops inside."""
    data = project.call("run", "steps:both", "--input", "x", "--json").json
    assert data["steps"] == {"first": "x", "second": "draft 3\nof x"}
    assert data["loops"]["refine"]["exit_reason"] == "condition_met"


def test_a_cap_on_money_ends_the_run(project: Project) -> None:
    """--max-usd bounds a step of Python too, and is what resume goes on with."""
    (project.folder / "dear.py").write_text(
        "from loopwright import Loop, Usage, step\n"
        "async def pay(value, ctx):\n    ctx.spend(Usage(1, 0, 0, 0.02))\n    return 'paid'\n"
        "dear = Loop(step(pay, reserve=Usage(1, 0, 0, 0.02)), name='dear')\n"
    )
    answer = project.call("run", "dear:dear", "--max-usd", "0.05", "--json")
    assert (answer.code, answer.json["reason"]) == (3, "budget")
    assert answer.json["usage"]["usd"] == 0.04


def test_the_default_journal_is_private_and_unversioned(project: Project) -> None:
    """It stands in a folder that only its owner can open and version control does not see."""
    project.call("run", "steps:echo")
    folder = project.folder / ".loopwright"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "runs.db").exists()


def test_the_journal_is_the_option_or_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--journal names it, else LOOPWRIGHT_JOURNAL; commands to go on with name it too."""
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL", "sqlite:env.db")
    assert "sqlite:env.db" in project.call("run", "steps:echo", "--run-id", "a").out
    out = project.call("run", "steps:echo", "--run-id", "b", "--journal", "sqlite:own.db").out
    assert "details: loopwright show b --journal sqlite:own.db" in out
    assert [r["run_id"] for r in project.call("runs", "--json").json["runs"]] == ["a"]
    assert not (project.folder / ".loopwright").exists()


def test_a_finished_run_is_told_again_and_not_run(project: Project) -> None:
    """resume, and run with its id, call nothing and print the same object, document or not."""
    first = project.call("run", "steps:refine", "--input", "x", "--run-id", "one", "--json")
    effects = project.effects()
    again = project.call("run", "steps:refine", "--input", "x", "--run-id", "one", "--json")
    (project.folder / "steps.py").unlink()
    resumed = project.call("resume", "one", "--json")
    assert first.out == again.out == resumed.out
    assert (again.code, resumed.code) == (0, 0)
    assert project.effects() == effects


def test_a_suspended_run_goes_on_from_the_command_line(project: Project) -> None:
    """resume loads the step again by what is kept with the run, from any folder."""
    project.call("run", "steps:asking", "--run-id", "one")
    answer = project.call("resume", "one")
    assert answer.code == 4
    assert "resume: loopwright resume one" in answer.out


def test_a_changed_step_is_refused_and_can_be_accepted(project: Project) -> None:
    """What is on record is not mixed with other code, unless somebody says so."""
    project.call("run", "steps:asking", "--run-id", "one")
    text = (project.folder / "steps.py").read_text().replace("a person must", "someone must")
    (project.folder / "steps.py").write_text(text)
    refused = project.run("resume", "one")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(
        "loopwright: one: asking changed since the run was recorded: the function asking;"
    )
    assert refused.err.endswith("; on the command line: --accept-changes\n")
    accepted = project.run("resume", "one", "--accept-changes")
    assert accepted.code == 4
    assert "someone must say yes" in accepted.out


def test_a_run_of_a_python_program_is_left_to_it(project: Project) -> None:
    """A step with objects of its program cannot be loaded here; the sentence says where it can."""
    (project.folder / "program.py").write_text(
        "import steps\nfrom loopwright import run_sync\n"
        "run_sync(steps.asking, journal='sqlite:.loopwright/runs.db', run_id='own', "
        "resources={'of': 'the program'})\n"
    )
    (project.folder / ".loopwright").mkdir()
    subprocess.run([sys.executable, "program.py"], check=True)
    answer = project.call("resume", "own")
    assert answer.code == 2
    assert answer.err == (
        "loopwright: own was started by a Python program, which is the only one that has its step. "
        "Resume it there: resume_sync(step, 'own', journal=…)\n"
    )


def test_a_terminal_is_never_made_to_obey(project: Project) -> None:
    """Rows have no sequences of the model in them, even on a pipe; the output there is whole."""
    (project.folder / "odd.py").write_text(
        "from steps import strange\nfrom loopwright import Loop, MaxIterations\n"
        "odd = Loop(strange, until=MaxIterations(1), name='odd')\n"
    )
    out = project.call("run", "odd:odd").out
    assert "odd 1: " in out
    assert "\x1b" not in next(line for line in out.splitlines() if line.startswith("odd 1"))
    assert "\x1b[31mred" in out


def test_what_is_kept_nowhere_is_not_to_be_looked_at(project: Project) -> None:
    """A journal in memory ends with the process: no command is told that would not find the run."""
    answer = project.call("run", "steps:echo", "--input", "x", "--journal", "memory:")
    assert answer.code == 0
    assert answer.out.endswith("not saved: a memory: journal ends with its process\n")
    assert "loopwright show" not in answer.out
