"""Tracebacks of users' functions on the command line."""

from __future__ import annotations

import pytest

from .conftest import Project

RUN = ("run", "steps:fails", "--input", "x", "--run-id", "one")


def test_run_tells_where_the_users_code_failed(project: Project) -> None:
    """The end of a failed run names file, line and message, and the command that shows all."""
    answer = project.call(*RUN)
    assert answer.code == 1
    lines = answer.out.splitlines()
    told = next(line for line in lines if line.startswith("failed at: "))
    assert told.startswith("failed at: steps.py, line ")
    assert told.endswith(", in broken: ValueError: no such thing")
    assert "traceback: loopwright show one --traceback" in lines


def test_a_run_kept_nowhere_shows_its_traceback_at_once(project: Project) -> None:
    """With a journal in memory no later command could show it."""
    out = project.call(*RUN, "--journal", "memory:").out
    assert "Traceback (most recent call last):" in out
    assert 'raise ValueError("no such thing")' in out


def test_show_has_the_traceback(project: Project) -> None:
    """`show --traceback` and `show --iteration` show it; a run without failures says so."""
    project.call(*RUN)
    for words in (["--traceback"], ["--iteration", "1"]):
        out = project.call("show", "one", *words).out
        assert 'raise ValueError("no such thing")' in out
        assert "ValueError: no such thing" in out
    shown = project.call("show", "one").out
    assert "failed at: " in shown, shown
    assert "steps.py, line " in shown
    project.call("run", "steps:echo", "--input", "x", "--run-id", "two")
    assert "no function of yours failed" in project.call("show", "two", "--traceback").out


def test_json_has_the_traceback(project: Project) -> None:
    """`run --json`, `show --json`, of an iteration and of all failures have the field."""
    first = project.call(*RUN, "--json").json
    assert first["error"]["exception"] == "ValueError"
    assert "in broken" in first["error"]["traceback"]
    shown = project.call("show", "one", "--json").json
    assert shown["error"] == first["error"]
    assert shown["loops"]["fails"]["history"][0]["error"] == first["error"]
    one = project.call("show", "one", "--iteration", "1", "--json").json
    assert one["error"] == first["error"]
    every = project.call("show", "one", "--traceback", "--json").json
    assert every["failures"][0]["traceback"] == first["error"]["traceback"]


def test_a_finished_run_that_is_resumed_tells_its_traceback(project: Project) -> None:
    """What is on record of the failure is told again."""
    project.call(*RUN)
    assert "failed at: steps.py, line " in project.call("resume", "one").out
    assert "in broken" in project.call("resume", "one", "--json").json["error"]["traceback"]


def test_the_export_has_the_traceback(project: Project) -> None:
    """JSON and the report hold the traceback of a failed iteration."""
    project.call(*RUN)
    assert "in broken" in project.call("export", "one").out
    assert "in broken" in project.call("export", "one", "--format", "html").out


def test_debug_shows_the_traceback_at_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LOOPWRIGHT_DEBUG=1 `run` and `show` print the traceback itself, not where it is."""
    monkeypatch.setenv("LOOPWRIGHT_DEBUG", "1")
    for answer in (project.call(*RUN), project.call("show", "one")):
        assert "Traceback (most recent call last):" in answer.out
        assert 'raise ValueError("no such thing")' in answer.out


FAILING = """
from loopwright import Loop, MaxIterations, Workflow

def once(value, ctx):
    if ctx.iteration == 2 and not Path("mended").exists():
        raise KeyError(value)
    return value

inner = Loop(once, name="inner", until=MaxIterations(3))
outer = Loop(inner, name="outer", until=MaxIterations(1))
flow = Workflow("flow", {"first": lambda value: value, "second": inner}, needs={"second": ["first"]})
"""


@pytest.mark.parametrize("step", ["inner", "outer", "flow"])
def test_a_failed_run_names_the_command_that_repeats_what_failed(
    project: Project, step: str
) -> None:
    """What was done before the failure is kept, and the command works as printed."""
    (project.folder / "failing.py").write_text(f"from pathlib import Path\n{FAILING}")
    first = project.run("run", f"failing:{step}", "--input", "x", "--run-id", "one")
    line = "continue: loopwright retry one"
    for told in (first, project.run("resume", "one"), project.run("show", "one")):
        assert told.out.splitlines()[-1] == line
    (project.folder / "mended").touch()
    assert project.run(*line.split()[2:]).code in (0, 3)
    assert "continue: loopwright retry" not in project.run("show", "one").out
