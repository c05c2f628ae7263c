"""How documents end: failures that they go on after, lists, and what their steps came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from documents.playing import crashed_everywhere, loaded, play
from loopwright import MemoryJournal, Result
from loopwright.errors import DocumentError

DRAFTS = """\
  - name: draft
    {more}
    loop:
      execute: {{prompt: "Draft {{{{ loop.iteration }}}}"}}
      evaluate: {{score: {{}}}}
      on_failure: continue
      until: [{{score_at_least: 0.9}}, {{max_iterations: 9}}]
  - {{name: after, set: "after {{{{ draft }}}}"}}
"""
ERROR = {"error": "permanent"}
BREAKS = [{"replies": ["score: 0.4", ERROR]}]


def drafted(folder: Path, more: str, replies: Any = BREAKS) -> Result:
    """Run a loop that has a draft and then fails three times in a row, and a step after it."""
    return play(loaded(folder, DRAFTS.format(more=more)), replies)


def test_a_failed_loop_that_is_gone_on_after_is_the_status(tmp_path: Path) -> None:
    """Issue 11, 2: later steps run with the best output, and the run has failed."""
    result = drafted(tmp_path, "on_failure: continue")
    assert (result.status, result.reason, result.output) == (
        "failed", "repeated_failure", "after score: 0.4",
    )  # fmt: skip
    assert result.detail.startswith("draft: 3 iterations in a row failed")
    assert "goes on with the best that it has" in result.warnings[0]


def test_an_accepted_failure_does_not_count(tmp_path: Path) -> None:
    """Ruling 1.2: the same with accept is satisfied; without on_failure the workflow ends."""
    result = drafted(tmp_path, "on_failure: continue\n    accept: [failed]")
    assert (result.status, result.output) == ("satisfied", "after score: 0.4")
    halted = drafted(tmp_path, "accept: failed")
    assert (halted.status, list(halted.steps)) == ("failed", [])


def test_a_required_failure_ends_the_workflow_all_the_same(tmp_path: Path) -> None:
    """Ruling 1.2: required stops it, with the loop's status and output."""
    result = drafted(tmp_path, "on_failure: continue\n    required: true")
    assert (result.status, result.output, list(result.steps)) == ("failed", "score: 0.4", [])


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_changes_no_status(tmp_path: Path, before: bool) -> None:
    """I35: killed at every journal write, a run that goes on after a failure ends the same."""
    found = loaded(tmp_path, DRAFTS.format(more="on_failure: continue"))
    crashed_everywhere(
        found,
        [{"prompt": "Draft 1", "replies": ["score: 0.4"]}, {"replies": [ERROR]}],
        before=before,
    )


CHILD = """\
schema: loopwright/1
name: child
model: openai:gpt-4o
steps:
  - name: draft
    {more}
    loop: {{execute: {{prompt: go}}, max_iterations: 2}}
  - {{name: last, set: done}}
"""
CALLER = """\
schema: loopwright/1
name: main
model: openai:gpt-4o
steps:
  - {{name: call, workflow: child{more}}}
  - {{name: after, set: "{{{{ call }}}}"}}
"""


@pytest.mark.parametrize(
    ("child", "caller", "output"),
    [("on_failure: continue", "", "done"), ("", ", on_failure: continue", None)],
)
def test_the_loops_of_called_documents_count(
    tmp_path: Path, child: str, caller: str, output: Any
) -> None:
    """Ruling 1.1: wherever it is gone on after, in the called document or by its caller."""
    files = {"main.yaml": CALLER.format(more=caller), "child.yaml": CHILD.format(more=child)}
    result = play(loaded(tmp_path, files), [{"replies": [ERROR]}])
    assert (result.status, result.reason, result.output) == ("failed", "error", output)
    assert result.detail.startswith("call: ")
    files["main.yaml"] = files["main.yaml"].replace(
        "workflow: child", "workflow: child, accept: failed"
    )
    assert play(loaded(tmp_path, files), [{"replies": [ERROR]}]).satisfied == bool(child or caller)


def test_a_step_that_is_no_loop_is_a_warning(tmp_path: Path) -> None:
    """Decision 0015: a prompt that failed under continue is a warning, and no status."""
    steps = "  - {name: a, prompt: go, on_failure: continue}\n  - {name: b, set: 1}\n"
    result = play(loaded(tmp_path, steps), [{"replies": [ERROR]}])
    assert (result.status, result.output) == ("satisfied", 1)
    assert "the workflow goes on without it" in result.warnings[0]


def test_a_fallback_of_loops_that_fail_has_failed(tmp_path: Path) -> None:
    """Ruling 1.1: a composite has one status, and what the best of its loops has."""
    loop = "loop: {execute: {prompt: go}, max_iterations: 1}"
    steps = f"  - {{name: f, on_failure: continue, fallback: [{{name: a, {loop}}}, {{name: b, {loop}}}]}}\n"
    result = play(loaded(tmp_path, steps + "  - {name: end, set: 1}\n"), [{"replies": [ERROR]}])
    assert (result.status, result.reason, result.output) == ("failed", "all_failed", 1)


LIST = """\
  - name: walk
    on_failure: continue
    each:
      items: [a, b, c]
      {more}
      execute:
        name: polish
        loop:
          execute: {{prompt: "do {{{{ loop.current }}}}"}}
          evaluate: {{check: {{contains: "!"}}}}
          max_iterations: 2
          {loop}
"""
ITEMS = [
    {"prompt": "do a", "replies": ["A!"]},
    {"prompt": "do b", "replies": ["B"]},
    {"prompt": "do c", "replies": [ERROR]},
]
TWO = [{"prompt": "do c", "replies": ["c", "C!"]}, *ITEMS]


def listed(
    folder: Path, more: str = "on_failure: continue", loop: str = "", replies: Any = ITEMS
) -> Result:
    """Run a list of three loops."""
    return play(loaded(folder, LIST.format(more=more, loop=loop)), replies)


@pytest.mark.parametrize(
    ("rate", "replies", "status", "reason"),
    [
        ("", ITEMS, "failed", "items_failed"),
        ("min_success_rate: 0.3", ITEMS, "satisfied", "completed"),
        ("min_success_rate: 0.34", ITEMS, "failed", "items_failed"),
        ("", TWO, "exhausted", "items_exhausted"),
        ("min_success_rate: 0.6", TWO, "satisfied", "completed"),
        ("min_success_rate: 0.9\n      unmet: failed", TWO, "failed", "success_rate_not_met"),
    ],
)
def test_the_share_of_satisfied_items_decides(
    tmp_path: Path, rate: str, replies: Any, status: str, reason: str
) -> None:
    """Ruling 1.3: an exhausted item is not satisfied; 1.0 is the default."""
    result = listed(tmp_path, f"on_failure: continue\n      {rate}", replies=replies)
    assert (result.status, result.loops["walk"].reason) == (status, reason)


def test_what_an_unreached_share_says(tmp_path: Path) -> None:
    """It says how many had to, as a number of items."""
    detail = listed(tmp_path, replies=TWO).loops["walk"].detail
    assert detail == "2 of 3 items succeeded, and at least 3 must; item 2: 2 of 2 iterations used"


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_list_has_a_table_of_its_items(tmp_path: Path, at_once: int) -> None:
    """Issue 11, 2: one row per item at its place, and outputs there too, null where there is none."""
    result = listed(tmp_path, f"on_failure: continue\n      at_once: {at_once}")
    assert result.output == ["A!", "B", None]
    table = result.loops["walk"].items
    assert [(r.index, r.item, r.status, r.reason, r.output) for r in table] == [
        (0, "a", "satisfied", "condition_met", "A!"),
        (1, "b", "exhausted", "max_iterations", "B"),
        (2, "c", "failed", "error", None),
    ]
    assert table[2].error is not None
    data = result.to_json()
    assert data["steps"] == {"walk": ["A!", "B", None]}
    assert data["outcomes"]["walk"]["items"] == [row.to_json() for row in table]
    assert list(data["outcomes"]["walk"]["items"][0]) == [
        "index", "item", "status", "reason", "detail", "output", "error",
    ]  # fmt: skip


def test_a_required_item_keeps_its_index(tmp_path: Path) -> None:
    """A required loop that is not satisfied fails its item, which stays in its place."""
    result = listed(tmp_path, loop="required: true")
    assert result.output == ["A!", None, None]
    assert [row.status for row in result.loops["walk"].items] == ["satisfied", "failed", "failed"]
    halted = listed(tmp_path, "on_failure: halt", loop="required: true")
    assert halted.output == ["A!", None, None]
    assert [row.status for row in halted.loops["walk"].items] == ["satisfied", "failed", None]


def test_items_that_cannot_be_read_are_a_failure(tmp_path: Path) -> None:
    """Issue 11, 2: also where the workflow goes on."""
    steps = (
        "  - {name: walk, on_failure: continue, each: {items: '{{ input }}', execute: {set: 1}}}\n"
    )
    result = play(loaded(tmp_path, steps), value=3)
    assert (result.status, result.loops["walk"].reason) == ("failed", "error")
    assert (
        "its items cannot be read: items: expected a list, a JSON array or lines of text, not int"
        in result.detail
    )


def test_every_loop_of_a_list_is_kept(tmp_path: Path) -> None:
    """Issue 11, 8: one result per item, under its path; iterations are those on record, all of them."""
    journal = MemoryJournal()
    found = loaded(tmp_path, LIST.format(more="on_failure: continue", loop=""))
    result = play(found, ITEMS, journal=journal, run_id="r")
    paths = [f"main/walk/{number}/execute/polish" for number in (1, 2, 3)]
    assert list(result.loops) == [*paths, "walk"]
    assert [result.loops[path].iterations for path in paths] == [1, 2, 1]
    assert result.to_json()["iterations"] == 1 + 2 + 1 + 3
    again = play(found, ITEMS, journal=journal, run_id="r")
    assert again.to_json() == result.to_json()


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_changes_no_item(tmp_path: Path, before: bool) -> None:
    """I35: killed at every journal write, the table of a list is that of a run without."""
    crashed_everywhere(
        loaded(tmp_path, LIST.format(more="on_failure: continue", loop="")), ITEMS, before=before
    )


def test_the_item_is_known_in_loops_inside_a_list(tmp_path: Path) -> None:
    """Findings 5: loop.current there is the item, as check says."""
    steps = """\
  - name: walk
    each:
      items: [red, green]
      execute:
        loop:
          execute: {set: "{{ loop.current }} {{ loop.index }}/{{ loop.count }} {{ loop.iteration }}"}
          max_iterations: 1
"""
    assert play(loaded(tmp_path, steps)).output == ["red 0/2 1", "green 1/2 1"]
    with pytest.raises(DocumentError, match=r"'loop\.current' is not defined"):
        loaded(tmp_path, "  - {name: a, set: '{{ loop.current }}'}\n")


def test_the_first_round_has_no_last_and_no_best(tmp_path: Path) -> None:
    """Issue 11, 2: both are false in iteration 1, and their fields are empty."""
    text = (
        "{% if loop.last %}last{% endif %}{% if loop.best %}best{% endif %}[{{ loop.last.output }}]"
    )
    steps = f"  - {{name: a, loop: {{execute: {{set: '{text}'}}, keep: last, until: [{{max_iterations: 2}}]}}}}\n"
    result = play(loaded(tmp_path, steps))
    assert [item.output for item in result.loops["a"].history] == ["[]", "lastbest[[]]"]


def test_what_is_executed_may_have_a_name(tmp_path: Path) -> None:
    """Findings 5: the name of a loop inside is how results call it."""
    steps = (
        "  - name: outer\n    loop:\n      max_iterations: 2\n      execute:\n        name: inner\n"
        "        loop: {execute: {name: plain, set: 1}, max_iterations: 1}\n"
    )
    assert list(play(loaded(tmp_path, steps)).loops) == ["inner", "outer"]


@pytest.mark.parametrize(("output", "value"), [("last", 1), ("all", {"a": 1})])
def test_what_a_group_inside_a_loop_hands_on(tmp_path: Path, output: str, value: Any) -> None:
    """Findings 5: output: last is that of the step that ran last, in execute too."""
    group = (
        f"{{output: {output}, steps: [{{name: a, set: 1}}, {{name: b, if: input == 'x', set: 2}}]}}"
    )
    steps = f"  - {{name: l, loop: {{max_iterations: 1, execute: {group}}}}}\n"
    result = play(loaded(tmp_path, steps), value="y")
    assert result.loops["l"].output == value


def test_the_steps_of_a_workflow_have_outcomes(tmp_path: Path) -> None:
    """Findings 5: each with its status and duration; one that was left out has none."""
    steps = (
        "  - {name: tests, set: ok}\n  - {name: build, prompt: x}\n  - {name: publish, set: 1}\n"
    )
    journal = MemoryJournal()
    found = loaded(tmp_path, steps)
    replies = [{"replies": [{**ERROR, "after": 3}]}]
    result = play(found, replies, journal=journal, run_id="r")
    told = {name: (one.status, one.output, one.seconds) for name, one in result.outcomes.items()}
    assert told == {
        "tests": ("satisfied", "ok", 0), "build": ("failed", None, 3), "publish": (None, None, 0),
    }  # fmt: skip
    assert play(found, replies, journal=journal, run_id="r").outcomes == result.outcomes


@pytest.mark.parametrize(
    ("until", "warned"),
    [
        ("until: [{max_iterations: 2}]", True),
        ("until: [{no_improvement: 2}]", True),
        ("until: {all_of: [{no_improvement: 2}, {max_iterations: 3}]}", True),
        ("until: [{score_at_least: 0.8}]", False),
        ("guards: [{score_at_least: 0.8}]", False),
        ("until: [The text is short.]", False),
        ("termination: {type: max_iterations, limit: 3}", True),
        ("termination: {type: confidence, threshold: 0.8}", False),
    ],
)
def test_check_warns_of_scores_without_a_goal(tmp_path: Path, until: str, warned: bool) -> None:
    """Ruling 1.4: the place is the evaluator, and the sentence says what to give."""
    steps = (
        f"  - {{name: a, loop: {{execute: {{prompt: x}}, evaluate: {{score: {{}}}}, {until}}}}}\n"
    )
    codes = [problem.code for problem in loaded(tmp_path, steps).lints()]
    assert ("no_goal" in codes) is warned
