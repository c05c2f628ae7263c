"""Agents on the command line: how they ended, and the executions of those that reason."""

from __future__ import annotations

import pytest

from .conftest import Project

DOCUMENT = """\
schema: loopwright/1
name: both
model: openai:any
steps:
  - name: research
    phased:
      planning: {prompt: "Plan {{ task }}"}
      refinement: {prompt: "Answer {{ task }}"}
      max_planning_iterations: 1
  - name: think
    reasoning: {prompt: "Improve {{ research }}", max_iterations: 2}
"""
REPLIES = """\
- {step: "*planning*", replies: ["a plan"]}
- {step: "*refinement*", replies: ["an answer"]}
- {step: "*think*", replies: ["hm", "hm again"]}
"""


@pytest.fixture
def done(project: Project) -> Project:
    """A folder with one run of both agents."""
    (project.folder / "both.yaml").write_text(DOCUMENT)
    (project.folder / "replies.yaml").write_text(REPLIES)
    words = ("--input", "it", "--replies", "replies.yaml", "--run-id", "one")
    assert project.call("run", "both.yaml", *words).code == 3
    return project


def test_show_tells_how_the_agents_ended(done: Project) -> None:
    """A line for each agent, under the rounds."""
    out = done.call("show", "one").out
    assert (
        "agent research: planning 1, execution 0, refinement 1; 2 of at most 3 (the phases: 2); "
        "ended in refinement" in out
    )
    assert "agent think: completed, 2 interactions, the last " in out
    assert "the limit was reached without a final answer" in " ".join(out.split())


def test_show_gives_reports_and_executions_to_programs(done: Project) -> None:
    """`agents` by name, `executions` in order; neither where there is no agent."""
    found = done.call("show", "one", "--json").json
    assert found["agents"]["research"]["phase_iterations"] == {
        "planning": 1, "execution": 0, "refinement": 1,
    }  # fmt: skip
    (execution,) = found["executions"]
    assert (execution["prompt"], execution["result"], execution["limit_reached"]) == (
        "Improve an answer", "hm again", True,
    )  # fmt: skip
    done.call("run", "steps:short", "--run-id", "two")
    other = done.call("show", "two", "--json").json
    assert "agents" not in other
    assert "executions" not in other


def test_runs_lists_executions(done: Project) -> None:
    """A line each: run, status, agent, interactions, when, prompt and result; as JSON; by status."""
    (line,) = done.call("runs", "--executions").out.splitlines()
    assert line.split()[:5] == ["one", "completed", "think", "2", "interactions"]
    assert "Improve an answer" in line
    rows = done.call("runs", "--executions", "--json").json["executions"]
    assert [row["path"] for row in rows] == ["both/think"]
    assert done.call("runs", "--executions", "--status", "failed", "--json").json == {
        "executions": []
    }
    wrong = done.call("runs", "--executions", "--status", "satisfied")
    assert wrong.code == 2
    assert "is not a status" in wrong.err


def test_a_folder_without_a_journal_has_no_executions(project: Project) -> None:
    """Looking makes nothing and is no error."""
    answer = project.call("runs", "--executions")
    assert (answer.code, answer.out) == (0, "")
    assert "no executions of agents" in answer.err
