"""What the command line says is what happened: conditions, warnings, options, lists of runs."""

from __future__ import annotations

import sys

import pytest

from loopwright import Evaluation
from loopwright.journal import Entry
from loopwright.records import Iteration
from loopwright.ui.cli.live import LinesView
from loopwright.ui.cli.output import Output

from .conftest import Project
from .test_views import watched

V2 = """\
$schema: "workflow/v2.0"
name: guide
version: 1.0.0
description: from the guide
execution: {provider: deepseek, model: deepseek-chat}
loops:
  - name: polish
    workflow: child
    with: {text: "{{input}}"}
    until: "The text is short"
    max_iterations: 3
"""
CHILD = """\
$schema: "workflow/v2.0"
name: child
execution: {provider: deepseek, model: deepseek-chat}
steps:
  - {name: only, run: "Write about {{text}}"}
"""
NATIVE = """\
schema: loopwright/1
name: native
input: x
env: {tone: dry}
steps:
  - name: greet
    shell: [cat]
    input: "{{ topic }} {{ env.tone }}"
"""
NO_MODEL = """\
schema: loopwright/1
name: ask
steps:
  - {name: say, prompt: "Say hello"}
"""
ASKS = """
from loopwright import Loop, MaxIterations, ScoreAtLeast

SCORES = [0.8, 0.3, 0.4]

async def draft(value, ctx):
    return f"draft {ctx.iteration}"

async def judge(output, ctx):
    return SCORES[ctx.iteration - 1]

asks = Loop(draft, judge, until=ScoreAtLeast(0.9) | MaxIterations(3), approve="iteration", name="asks")

async def noisy(value, ctx):
    ctx.warn("the address is used with /v1")
    return 1

warns = Loop(noisy, until=MaxIterations(3), name="warns")
"""


@pytest.fixture
def folder(project: Project) -> Project:
    """A folder with documents and steps that ask."""
    (project.folder / "native.yaml").write_text(NATIVE)
    (project.folder / "no_model.yaml").write_text(NO_MODEL)
    (project.folder / "replies.yaml").write_text('- {replies: ["hello"]}\n')
    (project.folder / "asks.py").write_text(ASKS)
    sys.modules.pop("asks", None)
    return project


def test_replies_need_no_model(folder: Project) -> None:
    """With --replies a document that names no model runs."""
    answer = folder.call("run", "no_model.yaml", "--replies", "replies.yaml", "--json")
    assert (answer.code, answer.json["output"]) == (0, "hello")
    assert folder.call("run", "no_model.yaml", "--yes").code == 2


def test_unknown_set_names_are_refused(folder: Project) -> None:
    """A variable that nothing uses is refused with the nearest name; constants can be set too."""
    answer = folder.call("run", "native.yaml", "--yes", "--set", "topc=a")
    assert answer.code == 2
    assert (
        "--set: the document does not use the variable 'topc'; did you mean 'topic'?" in answer.err
    )
    answer = folder.call("check", "native.yaml", "--set", "topic=a", "--set", "ton=b")
    assert answer.code == 2
    assert "did you mean 'tone'?" in answer.err
    words = ("run", "native.yaml", "--yes", "--set", "topic=a", "--set", "tone=warm", "--json")
    assert folder.call(*words).json["output"] == "a warm"
    assert "it takes no variables" in folder.call("check", "no_model.yaml", "--set", "a=b").err


def test_info_lines_appear_in_their_dialect_once(folder: Project) -> None:
    """`workflow/v2.0` documents a line per condition: it is written when the condition is answered,
    and not again when a run is resumed. Native documents have none."""
    (folder.folder / "guide.yaml").write_text(V2)
    (folder.folder / "child.yaml").write_text(CHILD)
    rules = '- {prompt: "Write about", replies: ["hello"]}\n- {replies: ["NO", "NO", "YES"]}\n'
    (folder.folder / "replies.yaml").write_text(rules)
    words = ("run", "guide.yaml", "--replies", "replies.yaml", "--run-id", "one")
    out = folder.call(*words, "--input", "it").out
    asked = "[INFO] Condition evaluation: 'The text is short' -> "
    assert asked in out
    assert asked not in folder.call("resume", "one").out
    heard = []
    view = LinesView(Output(), conditions=True)
    view._conditions = heard.append  # type: ignore[method-assign, assignment]
    votes = ({"condition": "short", "answer": "no"},)
    record = Entry(
        "iteration", "polish", 1.0, Iteration(1, evaluation=Evaluation(0.5, votes=votes))
    )
    view.recall("goes on", [record])
    view.show_entry(Entry("started", "polish/2/execute", 2.0))
    assert heard == []


def test_repeated_warnings_appear_once(folder: Project) -> None:
    """A warning that each iteration repeats is told once, with the path at which it held first."""
    data = folder.call("run", "asks:warns", "--json").json
    assert data["warnings"] == ["warns/1/execute: the address is used with /v1"]


def test_a_suspended_run_shows_the_output_that_it_asks_about(folder: Project) -> None:
    """Not the best output so far: the one of the iteration that is to be approved."""
    first = folder.call("run", "asks:asks", "--run-id", "one").out
    assert "output to review:\ndraft 1\n" in first
    folder.call("approve", "one", "--yes")
    assert "output to review:\ndraft 2\n" in folder.call("resume", "one").out
    assert "output to review:\ndraft 2\n" in folder.call("show", "one").out


def test_runs_on_a_pipe_are_whole(folder: Project) -> None:
    """A program that reads the list gets each line whole, however long it is."""
    long = "x" * 60
    (folder.folder / "long.yaml").write_text(NATIVE.replace("name: native", f"name: {long}"))
    folder.call("run", "long.yaml", "--yes", "--set", "topic=a", "--run-id", "one")
    line = folder.call("runs").out
    assert long in line
    assert "…" not in line
    assert f"{long} completed" in line


def test_runs_on_a_terminal_fit_it(folder: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a line is a line."""
    folder.call("run", "native.yaml", "--yes", "--set", "topic=a", "--run-id", "one")
    _, shown = watched(monkeypatch, "runs")
    assert all(len(line) <= 80 for line in shown.splitlines())
