"""Candidates at the command line: a person chooses one, sees all of them, and changes their number."""

from __future__ import annotations

import pytest

from .conftest import Project

DOCUMENT = """
schema: loopwright/1
name: titles
steps:
- name: title
  loop:
    execute: {set: "{{ loop.initial }}{{ loop.vary }}"}
    evaluate: {check: {contains: "!"}}
    until: [{max_iterations: 2}]
    min_iterations: 2
    candidates: {n: 3, vary: ["", "!", "!!"], pick: ask}
"""


@pytest.fixture
def asking(project: Project) -> Project:
    """A folder with a run that waits for a choice."""
    (project.folder / "titles.yaml").write_text(DOCUMENT)
    answer = project.call("run", "titles.yaml", "--input", "a", "--run-id", "one")
    assert answer.code == 4, answer
    return project


def test_a_person_chooses_with_all_of_them_side_by_side(asking: Project) -> None:
    """The outputs and scores are shown, and the answer is the number of one of them."""
    shown = asking.call("approve", "one").out
    for text in ("candidate 1, score 0", "candidate 3, score 1: a!!", "--pick N"):
        assert text in shown
    for words, said in (
        (["--pick", "4"], "with the number of a candidate: 1, 2, 3"),
        (["--yes"], "asks for a candidate. Use --pick N."),
        (["--pick", "1", "--yes"], "give one of"),
    ):
        refused = asking.call("approve", "one", *words)
        assert refused.code == 2
        assert said in refused.err
    assert asking.call("approve", "one", "--pick", "3", "--resume").code == 4
    assert asking.call("approve", "one", "--value", "2", "--resume").code == 0
    history = next(iter(asking.call("show", "one", "--json").json["loops"].values()))["history"]
    assert [item["candidate"] for item in history] == [3, 2]
    assert [item["output"] for item in history] == ["a!!", "a!"]


def test_pick_is_for_candidates_only(asking: Project) -> None:
    """Another question refuses it, and says what it is."""
    (asking.folder / "plain.yaml").write_text(
        "schema: loopwright/1\nname: plain\nsteps:\n- name: s\n"
        "  loop: {execute: {set: x}, until: [{max_iterations: 2}], approve: iteration}\n"
    )
    assert asking.call("run", "plain.yaml", "--run-id", "two").code == 4
    refused = asking.call("approve", "two", "--pick", "1")
    assert (refused.code, "of the kind iteration" in refused.err) == (2, True)


def test_the_number_of_candidates_changes_from_the_next_iteration_on(asking: Project) -> None:
    """`limits --candidates` shows, changes and refuses the number."""
    assert "candidates                    3" in asking.call("limits", "one").out
    for words, said in (
        (["--candidates", "2000"], "above the ceiling of 1024"),
        (["--candidates", "clear"], "always has a number; it can be changed for: title"),
    ):
        refused = asking.call("limits", "one", *words)
        assert (refused.code, said in refused.err) == (2, True), refused
    assert "candidates 3 to 2" in asking.call("limits", "one", "--candidates", "2").out
    assert asking.call("approve", "one", "--pick", "2", "--resume").code == 4
    assert asking.call("approve", "one", "--pick", "2", "--resume").code == 0
    history = next(iter(asking.call("show", "one", "--json").json["loops"].values()))["history"]
    assert [len(item["candidates"]) for item in history] == [3, 2]


def test_show_has_all_candidates_of_an_iteration(asking: Project) -> None:
    """Each with its state, score and variation, and what it did below."""
    asking.call("approve", "one", "--pick", "2", "--resume")
    shown = asking.call("show", "one", "--iteration", "1").out
    assert "candidate 2 of 3" in shown
    lines = [line.split() for line in shown.splitlines() if line.startswith("candidate")]
    assert [(line[1], line[2]) for line in lines] == [("1", "0.00"), ("2", "1.00"), ("3", "1.00")]
    assert ["lost" in line for line in lines] == [True, False, True]
    assert "chosen" in lines[1]
    assert shown.count("check evaluate") == 3
