"""`approve` with a verdict in place of a judge that could not decide, also after a kill."""

from __future__ import annotations

import signal
import sys

import pytest

from .conftest import Project

DOCUMENT = """
schema: loopwright/1
name: note
steps:
- name: write
  loop:
    execute: {shell: "echo made >> made.txt; echo text"}
    evaluate: {python: "unsure:judge"}
    until: [passed, {score_at_least: 0.9}, {max_iterations: 3}]
    undecided: {after: 1, then: pause}
"""
JUDGE = """
import os, signal
def judge(text):
    if os.path.exists("kill"):
        os.remove("kill")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"undecided": True, "feedback": "the judge is not reachable"}
"""


@pytest.fixture
def paused(project: Project) -> Project:
    """A folder with a loop whose judge never decides."""
    (project.folder / "note.yaml").write_text(DOCUMENT)
    (project.folder / "unsure.py").write_text(JUDGE)
    sys.modules.pop("unsure", None)
    return project


def started(project: Project) -> None:
    answer = project.call("run", "note.yaml", "--yes", "--input", "x", "--run-id", "one")
    assert answer.code == 4, answer


@pytest.mark.parametrize(
    ("options", "code", "evaluation"),
    [
        (["--passed"], 0, (None, True)),
        (["--score", "0.95"], 0, (0.95, None)),
        (["--failed", "--reason", "no date"], 4, (None, False)),
    ],
)
def test_a_person_judges_in_place_of_the_judge(
    paused: Project, options: list[str], code: int, evaluation: tuple[object, object]
) -> None:
    """The verdict is recorded with the iteration, and the run continues with it."""
    started(paused)
    shown = paused.call("approve", "one")
    assert "the judge could not decide on iteration 1" in shown.out
    assert "--passed" in shown.out
    assert paused.call("approve", "one", *options, "--resume").code == code
    data = paused.call("show", "one", "--json").json
    item = next(iter(data["loops"].values()))["history"][0]
    assert (item["score"], item["passed"]) == evaluation
    assert item["feedback"] == ("no date" if "--reason" in options else "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--yes"], "asks for a verdict. Use --passed, --failed or --score X."),
        (["--score", "7"], "score"),
        (["--passed", "--failed"], "give one of"),
        (["--passed", "--reason", "x"], "--reason needs --no or --failed"),
        (["--value", '{"passed": 1}'], "is not an answer to this question"),
    ],
)
def test_a_wrong_verdict_is_one_sentence(
    paused: Project, options: list[str], sentence: str
) -> None:
    """It changes nothing, and the question stays open."""
    started(paused)
    answer = paused.call("approve", "one", *options)
    assert (answer.code, sentence in answer.err) == (2, True), answer.err
    assert len(paused.call("approve", "one", "--json").json["questions"]) == 1


def test_a_verdict_belongs_to_its_question(project: Project) -> None:
    """Other questions do not take one."""
    (project.folder / "ask.yaml").write_text(
        DOCUMENT.replace("undecided: {after: 1, then: pause}", "approve: iteration").replace(
            'evaluate: {python: "unsure:judge"}', "evaluate: {check: {min_words: 9}}"
        )
    )
    project.call("run", "ask.yaml", "--yes", "--input", "x", "--run-id", "one")
    answer = project.call("approve", "one", "--passed")
    assert "--passed, --failed and --score apply to verdicts" in answer.err


def test_a_kill_before_the_question_repeats_no_work(paused: Project) -> None:
    """The killed run is resumed, asks once, and its draft is not made twice."""
    (paused.folder / "kill").touch()
    killed = paused.run("run", "note.yaml", "--yes", "--input", "x", "--run-id", "one")
    assert killed.code == -signal.SIGKILL, killed.err
    assert paused.call("resume", "one").code == 4
    assert len(paused.call("approve", "one", "--json").json["questions"]) == 1
    assert paused.call("approve", "one", "--passed", "--resume").code == 0
    assert (paused.folder / "made.txt").read_text().split() == ["made"]
