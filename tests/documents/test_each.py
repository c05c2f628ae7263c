"""Going over the items of a list: in order, several at once, with limits, and again after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.playing import crashed_everywhere, loaded, play, scripted
from engine.support import DyingJournal
from loopwright import Budget, MemoryJournal, run
from loopwright.documents.steps import inside, items_of
from loopwright.engine.lists import ListRun
from loopwright.engine.loop import LoopRun
from loopwright.engine.run_record import raise_limit
from loopwright.errors import DocumentError, OwnershipLost, StepError
from loopwright.testing import run_virtual

EACH = """\
  - name: walk
    each:
      items: {items}
      execute: {{prompt: "do {{{{ loop.current }}}}", timeout: 50s}}
      {more}
"""
OUTER = """\
  - name: outer
    loop:
      guards: {{timeout: 9.5}}
      max_iterations: 5
      execute:
        steps:
          - name: walk
            each: {{items: [a, b, c], at_once: {at_once}, execute: {{prompt: "do {{{{ loop.current }}}}"}}}}
"""
TWICE = """\
  - name: walk
    each:
      items: [a, b, c]
      at_once: {at_once}
      execute:
        steps:
          - {{name: one, prompt: "do {{{{ loop.current }}}}"}}
          - {{name: two, prompt: "again"}}
"""
SIX = [{"replies": ["x"] * 6}]
THREE = [
    {"prompt": "do a", "replies": [{"text": "A", "after": 9}]},
    {"prompt": "do b", "replies": [{"text": "B", "after": 1}]},
    {"prompt": "do c", "replies": [{"text": "C", "after": 2}]},
]
BROKEN_B = [{"prompt": "do b", "replies": [{"error": "permanent"}]}, *THREE]


def each(folder: Path, items: str = "[a, b, c]", more: str = "") -> Any:
    """Return a loaded document of one walk."""
    return loaded(folder, EACH.format(items=items, more=more))


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("\n \n", []),
        ("one", ["one"]),
        (" a \r\n\n b\n", ["a", "b"]),
        ("[]", []),
        ('[1, "two", {"three": 3}]', [1, "two", {"three": 3}]),
        ('```json\n[1, 2]\n```', [1, 2]),
        ('{"a": 1}\n\n[2]\n', [{"a": 1}, [2]]),
        ('{"a": 1}\nnot json', ['{"a": 1}', "not json"]),
        ("[1, 2", ["[1, 2"]),
        ("007\n1.10", ["007", "1.10"]),
        ([1, None], [1, None]),
    ],
)  # fmt: skip
def test_a_text_is_an_array_or_objects_or_lines(text: Any, items: list[Any]) -> None:
    """What looks like JSON and is, is read as such; everything else is lines of text."""
    assert items_of(text) == items


@pytest.mark.parametrize("value", [None, 3, True, {"a": 1}])
def test_what_is_no_list_is_refused(value: Any) -> None:
    """A number or an object is no list, and nobody guesses one."""
    with pytest.raises(StepError, match="expected a list, a JSON array or lines of text") as caught:
        items_of(value)
    assert not caught.value.retryable


@given(st.text())
def test_any_text_is_some_list(text: str) -> None:
    """No text raises, and no item of lines is empty."""
    assert all(item != "" for item in items_of(text) if isinstance(item, str) and "[" not in text)


def test_files_stay_inside_the_root(tmp_path: Path) -> None:
    """A path that leaves the root, also by a link, is none."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    root = tmp_path / "in"
    assert inside(root, "a.txt", root) == (root / "a.txt").resolve()
    for name in ("../a.txt", "link/a.txt", "/etc/passwd", str(tmp_path / "inner")):
        assert inside(root, name, root) is None


def test_a_list_runs_on_the_loop() -> None:
    """Rule: one machine for iterations. A list has no other way to iterate, begin or admit than a loop."""
    assert issubclass(ListRun, LoopRun)
    assert ListRun.iterate is LoopRun.iterate
    assert ListRun.begin is LoopRun.begin
    assert ListRun.admit is LoopRun.admit


def test_items_are_done_in_order(tmp_path: Path) -> None:
    """The output is the list of outputs; each item is a record with its number, input and output."""
    result = play(each(tmp_path), THREE)
    assert result.output == ["A", "B", "C"]
    assert [(i.number, i.input, i.output) for i in result.loops["walk"].history] == [
        (1, "a", "A"), (2, "b", "B"), (3, "c", "C"),
    ]  # fmt: skip
    assert result.seconds == pytest.approx(12)


def test_several_at_once_keep_the_order(tmp_path: Path) -> None:
    """What is done first waits for those before it; time is that of the slowest."""
    result = play(each(tmp_path, more="at_once: 3"), THREE)
    assert result.output == ["A", "B", "C"]
    assert [i.number for i in result.loops["walk"].history] == [1, 2, 3]
    assert result.seconds == pytest.approx(9)


@pytest.mark.parametrize(("at_once", "calls"), [(1, 2), (3, 3)])
def test_halt_ends_at_the_first_failure(tmp_path: Path, at_once: int, calls: int) -> None:
    """No other item begins, those in flight are cut off, and the error is that of the item."""
    result = play(each(tmp_path, more=f"at_once: {at_once}"), BROKEN_B)
    walk = result.loops["walk"]
    assert (result.status, walk.reason) == ("failed", "error")
    assert walk.detail.startswith("item 2: ")
    assert result.usage.calls <= calls


@pytest.mark.parametrize(
    ("rate", "reason", "status"),
    [(0.6, "completed", "satisfied"), (0.7, "items_failed", "failed")],
)
def test_the_share_that_must_succeed(tmp_path: Path, rate: float, reason: str, status: str) -> None:
    """With two of three done, a rate of 0.6 is met and one of 0.7 is not."""
    result = play(
        each(
            tmp_path,
            more=f"{{on_failure: continue, min_success_rate: {rate}}}"[1:-1].replace(
                ", ", "\n      "
            ),
        ),
        BROKEN_B,
    )
    assert (result.loops["walk"].reason, result.status) == (reason, status)
    assert result.loops["walk"].output == ["A", None, "C"]


def test_all_failed_is_failed(tmp_path: Path) -> None:
    """Every item failed: the walk has failed too, also where failures are gone on from."""
    result = play(
        each(tmp_path, more="on_failure: continue"), [{"replies": [{"error": "permanent"}]}]
    )
    assert (result.status, result.loops["walk"].reason) == ("failed", "items_failed")


def test_retry_is_per_item(tmp_path: Path) -> None:
    """An item is tried again, and the others are not."""
    replies = [{"prompt": "do b", "replies": [*[{"error": "transient"}] * 5, "B"]}, *THREE]
    result = play(each(tmp_path, more="on_failure: retry"), replies)
    assert result.output == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("at_once", "seconds", "output", "rows"),
    [(1, 9.5, ["A", None, None], 2), (2, 5, [None, "B", "C"], 3)],
)
def test_time_that_runs_out_keeps_what_is_done(
    tmp_path: Path, at_once: int, seconds: float, output: list[str | None], rows: int
) -> None:
    """At its timeout it ends as exhausted with the outputs so far; what was in flight is cut off."""
    result = play(each(tmp_path, more=f"timeout: {seconds}\n      at_once: {at_once}"), THREE)
    walk = result.loops["walk"]
    assert (result.status, walk.reason, walk.output) == ("exhausted", "timeout", output)
    assert result.seconds == pytest.approx(seconds)
    assert walk.detail == f"walk took longer than its {seconds:g} s"
    assert [item.interrupted for item in walk.history].count(True) == 1
    assert len(walk.history) == rows


def test_an_item_has_its_own_time(tmp_path: Path) -> None:
    """item_timeout fails the item, not the walk."""
    result = play(each(tmp_path, more="item_timeout: 5s\n      on_failure: continue"), THREE)
    assert result.output == [None, "B", "C"]
    assert result.loops["walk"].history[0].error.kind == "timeout"


def test_more_items_than_allowed(tmp_path: Path) -> None:
    """Beyond max_items they are left out with a warning; without it a thousand are the most."""
    result = play(each(tmp_path, more="max_items: 2"), THREE)
    assert result.output == ["A", "B"]
    assert result.warnings == (
        "items_left_out: main/walk: only the first 2 of 3 items are done, because the limit is 2",
    )
    found = each(tmp_path, items='"{{ input }}"')
    result = play(found, value=list(range(1001)))
    assert "1001 items are more than 1000; set max_items to allow them" in result.detail


def test_keep_last_is_the_last_output(tmp_path: Path) -> None:
    """keep: last makes the output that of the last item that was done, or none."""
    assert play(each(tmp_path, more="keep: last"), THREE).output == "C"
    assert play(each(tmp_path, items="[]", more="keep: last")).output is None
    assert play(each(tmp_path, items="[]")).output == []


def test_items_may_come_from_a_file(tmp_path: Path) -> None:
    """Only a template that begins with file:// names a file; a value never chooses one."""
    (tmp_path / "list.txt").write_text("a\nb\nc\n")
    assert play(each(tmp_path, items='"file://list.txt"'), THREE).output == ["A", "B", "C"]
    found = each(tmp_path, items='"{{ input }}"')
    result = play(found, [{"replies": ["x"]}], value="file://list.txt")
    assert result.loops["walk"].history[0].input == "file://list.txt"


@pytest.mark.parametrize(
    ("name", "what"),
    [("no.txt", "cannot be read: No such file"), ("{{ input }}", "file://../up.txt is outside /")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, what: str) -> None:
    """The error says which file and why; it is an error of the walk."""
    result = play(each(tmp_path, items=f'"file://{name}"'), value="../up.txt")
    assert (result.status, what in result.detail) == ("failed", True)


def test_a_file_outside_is_refused_at_load(tmp_path: Path) -> None:
    """A constant path that leaves the project is a problem of the document."""
    with pytest.raises(
        DocumentError, match=r"main.yaml:7:14: .*file:///etc/passwd is outside the project"
    ):
        each(tmp_path, items='"file:///etc/passwd"')


def test_fields_of_items_are_known_inside_only(tmp_path: Path) -> None:
    """loop.current has no meaning in a loop of rounds, and says so before anything runs."""
    with pytest.raises(DocumentError, match="'loop.current' is not defined"):
        loaded(tmp_path, '  - name: x\n    loop: {execute: {prompt: "{{ loop.current }}"}}\n')


def test_inside_there_is_more_than_the_item(tmp_path: Path) -> None:
    """index from 0, count, and what succeeded before; afterwards the walk is a loop by name."""
    text = (
        EACH.format(items="[a, b]", more="keep: last").replace(
            "do {{ loop.current }}",
            "{{ loop.index }}/{{ loop.count }} {{ loop.stats.succeeded }} {{ loop.output }}",
        )
        + '  - {name: end, prompt: "{{ loops.walk.iterations }} {{ loop.name }} {{ loop.outputs }} {{ walk }}"}\n'
    )
    models = scripted([{"replies": ["x", "y", "z"]}])["models"]
    seen: list[str] = []
    models.transcript = lambda record: seen.append(record["messages"][0]["content"])
    run_virtual(run(loaded(tmp_path, text).step, resources={"models": models}))
    assert seen == ["0/2 0 ", "1/2 1 x", '2 walk ["x", "y"] y']


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_anywhere_changes_nothing(tmp_path: Path, at_once: int, before: bool) -> None:
    """I35: killed at every journal write and taken up again, the result is that of a run without."""
    more = f"at_once: {at_once}\n      on_failure: continue"
    crashed_everywhere(each(tmp_path, more=more), BROKEN_B, before=before)


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_after_the_time_ran_out_changes_nothing(tmp_path: Path, before: bool) -> None:
    """I35: killed after the record of an interrupted item, a list still ends by its time, not by an error."""
    crashed_everywhere(each(tmp_path, more="timeout: 10.5"), THREE, before=before)


@pytest.mark.parametrize("at_once", [2, 3])
@pytest.mark.parametrize("before", [True, False])
def test_a_crash_between_two_records_loses_no_finished_item(
    tmp_path: Path, at_once: int, before: bool
) -> None:
    """I35: items that had finished when the time of the list ran out are recorded after the crash."""
    slow = [{"prompt": "do a", "replies": [{"text": "A", "after": 20}]}, *THREE]
    more = f"timeout: 10.5\n      at_once: {at_once}"
    found = each(tmp_path, more=more)
    assert play(found, slow).loops["walk"].output == [None, "B", "C"]
    crashed_everywhere(found, slow, before=before)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_used_up_budget_keeps_an_item_that_ran_before_the_crash(
    tmp_path: Path, at_once: int
) -> None:
    """I35: an item whose call is recorded is not admitted again after a crash, so its output stays."""
    journal, budget = DyingJournal(5, before=True), Budget(calls=1)
    found = each(tmp_path, more=f"at_once: {at_once}")
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(found, THREE, journal=journal, run_id="r", budget=budget)
    journal.at = 0
    result = play(found, THREE, journal=journal, run_id="r", budget=budget)
    assert (result.reason, result.loops["walk"].output) == ("budget", ["A", None, None])


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_raised_budget_continues_with_the_interrupted_item(tmp_path: Path, at_once: int) -> None:
    """An item that a budget interrupted is not done: with a raised budget it runs again."""
    journal, budget = MemoryJournal(), Budget(calls=3)
    found = loaded(tmp_path, TWICE.format(at_once=at_once))
    first = play(found, SIX, journal=journal, run_id="r", budget=budget)
    assert first.reason == "budget"
    asyncio.run(raise_limit(journal, "r", max_calls=9))
    result = play(found, SIX, journal=journal, run_id="r", budget=budget)
    assert (result.status, result.loops["walk"].output) == ("satisfied", ["x", "x", "x"])


def test_a_finished_walk_is_returned_and_not_done_again(tmp_path: Path) -> None:
    """I40: asked for again it calls nothing and gives the same."""
    journal = MemoryJournal()
    found = each(tmp_path, more="keep: last")
    first = play(found, THREE, journal=journal, run_id="r")
    again = play(found, [{"replies": [{"error": "permanent"}]}], journal=journal, run_id="r")
    assert again.to_json() == first.to_json()
    assert again.loops["walk"].output == "C"


def test_a_file_of_items_has_a_most(tmp_path: Path) -> None:
    """A file beyond five million bytes is refused, not read."""
    (tmp_path / "list.txt").write_bytes(b"x" * 5_000_001)
    result = play(each(tmp_path, items='"file://list.txt"'))
    assert "file://list.txt has more than 5,000,000 bytes; split it" in result.detail


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_outer_loop_binds_what_is_inside(tmp_path: Path, at_once: int) -> None:
    """The time of a loop around it cuts the walk off, which shows how far it came."""
    result = play(
        loaded(tmp_path, OUTER.format(at_once=at_once)), [{"replies": [{"text": "x", "after": 4}]}]
    )
    assert (result.status, result.loops["outer"].reason) == ("exhausted", "timeout")
    assert result.seconds == pytest.approx(9.5)
    assert result.loops["outer"].history[-1].interrupted


def test_a_cancelled_walk_says_how_far_it_came(tmp_path: Path) -> None:
    """A run that is cancelled ends as cancelled, with the items that were done on record."""
    journal = MemoryJournal()
    found = each(tmp_path)

    async def cancelled() -> Any:
        work = asyncio.ensure_future(
            run(found.step, None, journal=journal, run_id="r", resources=scripted(THREE))
        )
        await asyncio.sleep(9.5)
        await journal.cancel("r")
        return await work

    result = run_virtual(cancelled())
    assert (result.status, result.loops["walk"].output) == ("cancelled", ["A", None, None])
