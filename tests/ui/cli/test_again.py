"""`again` runs a recorded run anew, and filters take many runs, one line for each."""

from __future__ import annotations

import json

import pytest

from .conftest import Project

GREET = """schema: loopwright/1
name: greet
inputs:
  who: {}
  tone: {choices: [calm, dry], default: calm}
steps:
  - {name: say, set: "{{ input.tone }} {{ input.who }}"}
"""
BREAKS = """schema: loopwright/1
name: breaks
steps:
  - {name: begin, shell: 'true'}
  - {name: try, shell: 'echo "$X" >> done; test ! -e broken', env: {X: "{{ input }}"}}
"""


def inputs_of(project: Project) -> list[tuple[str, object]]:
    """Return the runs of the journal with their inputs, oldest first."""
    rows = project.call("runs", "--json").json["runs"]
    shown = [project.call("show", row["run_id"], "--json").json for row in reversed(rows)]
    return [(one["run_id"], one["input"]) for one in shown]


def test_a_run_is_run_again_with_other_inputs(project: Project) -> None:
    """What is not given is as recorded; a text is the one text; the new run has an ID of its own."""
    (project.folder / "greet.yaml").write_text(GREET)
    project.call("run", "greet.yaml", "--set", "who=Ann", "--set", "tone=dry", "--run-id", "one")
    for words, output in (
        ([], "dry Ann"),
        (["--set", "who=Ben"], "dry Ben"),
        (["--input", '{"tone": "calm"}'], "calm Ann"),
        (["--input", "Ben"], None),
    ):
        answer = project.call("again", "one", *words, "--json")
        if output is None:  # two inputs are texts, and one of them is required
            assert answer.json["output"] == "dry Ben"
        else:
            assert answer.json["output"] == output
    assert len({run_id for run_id, _ in inputs_of(project)}) == 5
    refused = project.call("again", "one", "--set", "tone=wet")
    assert (refused.code, refused.out) == (2, "")
    assert "input tone: 'wet' is not one of" in refused.err


def test_a_run_has_the_same_settings_again(project: Project) -> None:
    """Limits, tags and variables are those of the run; an option of the command replaces one."""
    (project.folder / "vary.yaml").write_text(
        "schema: loopwright/1\nname: vary\nsteps: [{name: a, set: '{{ word }} {{ input }}'}]\n"
    )
    words = (
        "--set",
        "word=red",
        "--max-effects",
        "9",
        "-i",
        "x",
        "--tag",
        "team=a",
        "--run-id",
        "one",
    )
    project.call("run", "vary.yaml", *words)
    assert project.call("again", "one", "--json").json["output"] == "red x"
    assert project.call("again", "one", "--set", "word=blue", "--json").json["output"] == "blue x"
    assert project.call("show", "last", "--json").json["source"]["max_effects"] == 9
    assert [one["tags"] for one in project.call("runs", "--json").json["runs"]] == [
        {"team": "a"}
    ] * 3
    # A step of a module is found by its name.
    project.call("run", "steps:echo", "-i", "hello", "--run-id", "two")
    assert project.call("again", "two", "--json").json["output"] == "hello"


def test_a_run_that_cannot_be_run_again_says_how(project: Project) -> None:
    """A document that is gone, and a step that only a Python program has."""
    (project.folder / "greet.yaml").write_text(GREET)
    project.call("run", "greet.yaml", "--set", "who=Ann", "--run-id", "one")
    (project.folder / "greet.yaml").unlink()
    refused = project.call("again", "one")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "greet.yaml is gone. Put it back, or run another one: loopwright run FILE" in refused.err
    program = (
        "from loopwright import run_sync\n"
        "run_sync(lambda x: x, 1, journal='sqlite:.loopwright/runs.db', run_id='three')\n"
    )
    exec(program)
    refused = project.call("again", "three")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "Run it again there: run_sync(step, …, journal=…)" in refused.err


@pytest.fixture
def failed(project: Project) -> Project:
    """Three failed runs of one document, and a failed one of another that has changed since."""
    (project.folder / "breaks.yaml").write_text(BREAKS)
    (project.folder / "other.yaml").write_text(BREAKS)
    (project.folder / "broken").touch()
    for number in "123":
        project.call("run", "breaks.yaml", "--yes", "-i", number, "--run-id", f"run-{number}")
    project.call("run", "other.yaml", "--yes", "-i", "4", "--run-id", "run-4")
    (project.folder / "other.yaml").write_text(BREAKS.replace("try", "tries"))
    (project.folder / "broken").unlink()
    return project


def test_many_runs_are_retried_and_a_refusal_stops_none(failed: Project) -> None:
    """A line for each run and a count; the code is 2 if one was refused; those that match no more are left."""
    asked = failed.call("retry", "--status", "failed")
    assert asked.code == 2
    assert "retry 4 runs:" in asked.err
    assert "repeat with --yes" in asked.err
    answer = failed.call("retry", "--status", "failed", "--source", "breaks.yaml", "--yes")
    assert answer.code == 0
    assert answer.out.splitlines() == [
        *(f"run-{number}: satisfied: breaks completed" for number in "123"),
        "3 runs: 3 satisfied",
    ]
    assert (failed.folder / "done").read_text().split() == ["1", "2", "3", "4", "1", "2", "3"]
    answer = failed.call("retry", "--status", "failed", "--yes", "--json")
    assert (answer.code, answer.json["matched"], answer.json["runs"]) == (2, 1, [])
    assert "changed since the run was recorded" in answer.json["refused"]["run-4"]
    nothing = failed.call("retry", "--source", "breaks.yaml", "--yes")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no run matches\n")


def test_many_runs_are_run_again(failed: Project) -> None:
    """Each line has the new run; the input may be another one for all of them."""
    answer = failed.call("again", "--name", "breaks", "--source", "breaks.yaml", "-i", "5", "--yes")
    assert answer.code == 0
    *lines, count = answer.out.splitlines()
    assert count == "3 runs: 3 satisfied"
    assert [line.split(" again as ")[0] for line in lines] == ["run-1", "run-2", "run-3"]
    assert [value for _, value in inputs_of(failed)].count("5") == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("retry",), "Name either a RUN, or select runs with --queue, --status, --name, --since, --tag, --search or --source."),
        (("again", "run-1", "--status", "failed"), "Name either a RUN, or select runs"),
        (("again", "run-1", "--tag", "a=b"), "To tag a run, use loopwright tag RUN NAME=VALUE."),
        (("retry", "--status", "failed", "--item", "1", "--yes"), "--item is for one RUN"),
        (("retry", "--status", "satisfied", "--yes"), "--status: this is not for satisfied runs; use one of failed"),
    ],
)  # fmt: skip
def test_filters_with_a_mistake_run_nothing(
    failed: Project, words: tuple[str, ...], sentence: str
) -> None:
    """A run and filters exclude each other, and some statuses have nothing to do again."""
    before = json.dumps(failed.call("runs", "--json").json)
    refused = failed.call(*words)
    assert (refused.code, refused.out) == (2, "")
    assert sentence in refused.err
    assert json.dumps(failed.call("runs", "--json").json) == before
