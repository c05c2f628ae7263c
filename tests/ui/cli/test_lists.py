"""Lists and the steps of workflows as the command line tells them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from .conftest import Project

LIST = """\
schema: loopwright/1
name: walks
model: scripted:any
steps:
  - name: walk
    each:
      items: [alpha, beta, gamma]
      at_once: 2
      on_failure: continue
      execute:
        name: polish
        loop:
          execute: {prompt: "do {{ loop.current }}"}
          evaluate: {check: {contains: "!"}}
          max_iterations: 2
"""
REPLIES = """\
- {prompt: alpha, replies: ["alpha!"]}
- {prompt: beta, replies: [beta]}
- {prompt: gamma, replies: [{error: permanent}]}
"""
STEPS = """\
schema: loopwright/1
name: ci
steps:
  - {name: tests, shell: [echo, fine]}
  - {name: build, shell: ["false"]}
  - {name: publish, shell: [echo, out]}
"""


@pytest.fixture
def walked(project: Project) -> Project:
    """A folder with a run over a list in its journal."""
    (project.folder / "walks.yaml").write_text(LIST)
    (project.folder / "replies.yaml").write_text(REPLIES)
    found = project.call("run", "walks.yaml", "--replies", "replies.yaml")
    assert found.code == 1
    return project


def shown(project: Project, *command: str) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(project.call(*command).out)


def test_every_command_counts_the_same_iterations(walked: Project) -> None:
    """Issue 11, 8: run, runs, show, CSV and JSON agree: three items, and the rounds of their loops."""
    rows = list(csv.DictReader(io.StringIO(walked.call("export", "last", "-f", "csv").out)))
    assert len(rows) == 3 + 1 + 2 + 1
    assert shown(walked, "show", "last", "--json")["iterations"] == len(rows)
    assert shown(walked, "runs", "--json")["runs"][0]["iterations"] == len(rows)
    assert f"({len(rows)} iterations" in walked.call("show", "last").out
    assert sum(
        one["iterations"] for one in shown(walked, "show", "last", "--json")["loops"].values()
    ) == len(rows)


def test_every_row_of_a_list_names_its_item(walked: Project) -> None:
    """Issue 11, 8: in plain rows, in show, and in the CSV."""
    out = walked.call("run", "walks.yaml", "--replies", "replies.yaml").out
    assert "  polish 2 (beta): score 0.00, not yet" in out
    assert "walk 2 (beta): not yet" in out
    for line in walked.call("show", "last").out.splitlines():
        if line.split()[:1] in (["walk"], ["polish"]) and line.split()[1].isdigit():
            assert any(item in line for item in ("alpha", "beta", "gamma")), line
    rows = csv.DictReader(io.StringIO(walked.call("export", "last", "-f", "csv").out))
    assert {row["item"] for row in rows} == {"alpha", "beta", "gamma"}


def test_items_that_did_not_run_are_counted(walked: Project) -> None:
    """A list that its budget ended says so in show, for people and for programs; an inner loop is no item."""
    counted = "3 items: 1 passed, 1 cut short, 1 not run"
    replies = ("--replies", "replies.yaml")
    assert walked.call("run", "walks.yaml", *replies, "--max-calls", "2").code == 3
    assert f"\n{counted}\n" in walked.call("show", "last").out
    assert walked.call("show", "last", "--first", "1").out.startswith(counted)
    assert shown(walked, "show", "last", "--first", "1", "--json")["counts"] == {
        "passed": 1,
        "cut short": 1,
        "not run": 1,
    }
    refused = walked.call("show", "last", "--item", "3").err
    assert "walk has iterations 1 to 2, not 3" in refused


def test_json_keeps_every_loop_of_a_list(walked: Project) -> None:
    """Issue 11, 8: run --json, show --json: one result for each item, and the table of them."""
    data = shown(walked, "run", "walks.yaml", "--replies", "replies.yaml", "--json")
    again = shown(walked, "show", "last", "--json")
    for found in (data, again):
        assert sorted(found["loops"]) == [
            "walk", *(f"walks/walk/{number}/execute/polish" for number in (1, 2, 3)),
        ]  # fmt: skip
        table = found["outcomes"]["walk"]["items"]
        assert [row["status"] for row in table] == ["satisfied", "exhausted", "failed"]
    assert again["outcomes"] == data["outcomes"]


def test_a_workflow_without_loops_lists_its_steps(project: Project) -> None:
    """Issue 11, 8: show, runs and JSON have each step with status, duration and output."""
    (project.folder / "ci.yaml").write_text(STEPS)
    assert project.call("run", "ci.yaml", "--yes").code == 1
    rows = [line.split() for line in project.call("show", "last").out.splitlines()]
    told = {row[0]: row[1:] for row in rows if row and row[0] in ("tests", "build", "publish")}
    assert (told["tests"][0], told["tests"][-1]) == ("satisfied", "fine")
    assert told["build"][0] == "failed"
    assert told["publish"] == ["not", "run"]
    assert "1 of 3 steps" in project.call("runs").out
    data = shown(project, "show", "last", "--json")
    assert {name: one["status"] for name, one in data["outcomes"].items()} == {
        "tests": "satisfied", "build": "failed", "publish": None,
    }  # fmt: skip
    assert data["outcomes"]["tests"]["seconds"] >= 0
    assert data["steps"] == {"tests": "fine"}
    assert shown(project, "runs", "--json")["runs"][0]["outcomes"] == data["outcomes"]
