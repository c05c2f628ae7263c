"""`for_each`: a step on each item of a list, with the entries and the rules of `each` in a document."""

import dataclasses
from typing import Any

import pytest

from loopwright import (
    Context,
    Iteration,
    Loop,
    MaxIterations,
    Passed,
    Workflow,
    for_each,
    run_sync,
    sequence,
    step,
)
from loopwright.documents import load
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal

from .support import DyingJournal, crashed_after, entries_of, play


@dataclasses.dataclass
class Brief:
    topic: str


@dataclasses.dataclass
class Draft:
    title: str


def write(brief: Brief) -> Draft:
    return Draft(brief.topic.upper())


def broken_b(text: str) -> str:
    if text == "b":
        raise ValueError("b is broken")
    return text.upper()


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_output_has_the_order_of_the_items(at_once: int) -> None:
    """The list is the input, and each item has a row in the table of the result."""
    result = run_sync(for_each(str.upper, at_once=at_once), ["a", "b", "c"])
    assert (result.status, result.output) == ("satisfied", ["A", "B", "C"])
    assert [(row.index, row.item, row.output) for row in result.items] == [
        (0, "a", "A"), (1, "b", "B"), (2, "c", "C"),
    ]  # fmt: skip


def test_a_function_makes_the_items_from_the_input() -> None:
    """`items` takes the input of the list, and its result is recorded."""
    called: list[Any] = []

    def rows(data: dict[str, Any], ctx: Context) -> list[int]:
        called.append(ctx.path)
        return list(data["rows"])

    made = for_each(lambda n: n + 1, items=rows, name="rows")
    journal = MemoryJournal()
    for _ in range(2):
        result = run_sync(made, {"rows": [1, 2]}, journal=journal, run_id="r")
        assert result.output == [2, 3]
    assert called == ["rows/items"]


@pytest.mark.parametrize("at_once", [1, 2])
def test_values_arrive_in_their_declared_types(at_once: int) -> None:
    """Items, outputs, the result and the table have the types of `execute`, live and replayed."""
    received: list[object] = []

    def publish(drafts: list[Draft | None]) -> str:
        received.append(drafts)
        return ", ".join(draft.title for draft in drafts if draft)

    drafts = for_each(write, at_once=at_once, name="drafts")
    flow = Workflow("flow", {"drafts": drafts, "post": publish}, needs={"post": ["drafts"]})
    journal = MemoryJournal()
    for _ in range(2):
        result = run_sync(flow, [Brief("a"), Brief("b")], journal=journal, run_id="r")
        assert result.of(drafts) == [Draft("A"), Draft("B")]
        walk = result.loops["drafts"]
        assert [row.item for row in walk.items] == [Brief("a"), Brief("b")]
        assert [row.output for row in walk.items] == [Draft("A"), Draft("B")]
        assert [item.input for item in walk.history] == [Brief("a"), Brief("b")]
    assert received == [[Draft("A"), Draft("B")]]


def test_items_have_the_type_of_the_step_before() -> None:
    """A function without annotations receives the items as the step before declares them."""

    def plan(topic: str) -> list[Brief]:
        return [Brief(topic), Brief(topic * 2)]

    received: list[object] = []
    both = sequence(plan, for_each(lambda brief: received.append(brief) or brief.topic))
    assert run_sync(both, "a").output == ["a", "aa"]
    assert received == [Brief("a"), Brief("aa")]


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_crash_anywhere_changes_nothing(at_once: int) -> None:
    """I35: killed after each entry and resumed, typed values and the result are the same."""
    inner = Loop(write, lambda draft: draft.title == "A", until=Passed() | MaxIterations(2))
    made = for_each(inner, at_once=at_once, name="walk", min_success_rate=0.5)
    value = [Brief("a"), Brief("b")]
    journal = DyingJournal()
    live = play(made, value, journal=journal, run_id="r")
    assert live.output == [Draft("A"), Draft("B")]
    for at in range(1, journal.appended):
        dying = DyingJournal(at)
        crashed_after(dying, made, at, value)
        dying.at = 0
        again = play(made, value, journal=dying, run_id="r")
        assert again.output == live.output
        assert [row.status for row in again.items] == ["satisfied", "exhausted"]


def test_the_entries_are_those_of_a_document(tmp_path: Any) -> None:
    """The journal of `for_each` has the kinds and paths that `each` in a document records."""
    (tmp_path / "names.py").write_text("def upper(text):\n    return text.upper()\n")
    document = tmp_path / "list.yaml"
    document.write_text(
        "schema: loopwright/1\nname: main\nsteps:\n  - name: walk\n    each:\n"
        '      items: "{{ input }}"\n      execute: {python: "names:upper"}\n'
    )
    loaded = load(document)
    flow = Workflow("main", {"walk": for_each(str.upper, name="walk")})
    recorded = []
    for made in (loaded.step, flow):
        journal = MemoryJournal()
        assert run_sync(made, ["a", "b"], journal=journal, run_id="r").output is not None
        recorded.append([(entry.kind, entry.path) for entry in entries_of(journal, "r")])
    assert recorded[0] == recorded[1]


@pytest.mark.parametrize(
    ("options", "status", "reason", "output"),
    [
        ({}, "failed", "error", ["A", None, None]),
        ({"on_failure": "continue"}, "failed", "items_failed", ["A", None, "C"]),
        (
            {"on_failure": "continue", "min_success_rate": 0.6},
            "satisfied",
            "completed",
            ["A", None, "C"],
        ),
        ({"on_failure": "continue", "unmet": "failed"}, "failed", "success_rate_not_met", None),
        ({"on_failure": "continue", "keep": "last"}, "failed", "items_failed", "C"),
        ({"max_items": 1}, "satisfied", "completed", ["A"]),
    ],
)
def test_the_options_are_those_of_a_document(
    options: dict[str, Any], status: str, reason: str, output: Any
) -> None:
    """Failures, shares, limits and the kept output mean the same as in `each`."""
    result = run_sync(for_each(broken_b, **options), ["a", "b", "c"])
    assert (result.status, result.reason) == (status, reason)
    assert output is None or result.output == output


def test_retry_repeats_an_item() -> None:
    """Under `retry`, an item that failed runs again, and the others do not."""
    tried: list[str] = []

    def unsteady(text: str) -> str:
        tried.append(text)
        if tried.count("b") == 1:
            raise ValueError("once")
        return text

    result = play(for_each(unsteady, on_failure="retry"), ["a", "b"])
    assert (result.output, tried) == (["a", "b"], ["a", "b", "b"])


def test_time_that_runs_out_keeps_the_finished_items() -> None:
    """`timeout` ends the list, and `item_timeout` one item."""

    async def wait(seconds: float, ctx: Context) -> float:
        await ctx.sleep(seconds)
        return seconds

    result = play(for_each(wait, timeout=5), [1.0, 9.0, 1.0])
    assert (result.reason, result.output) == ("timeout", [1.0, None, None])
    result = play(for_each(wait, item_timeout=5, on_failure="continue"), [1.0, 9.0, 2.0])
    assert result.output == [1.0, None, 2.0]


@pytest.mark.parametrize("value", ["text", {"a": 1}, None, 5])
def test_other_values_are_no_list(value: Any) -> None:
    """Only a list has items; the error says what to give."""
    result = run_sync(for_each(str.upper), value)
    assert result.status == "failed"
    assert "its items cannot be read" in result.detail


@pytest.mark.parametrize(
    "options",
    [
        {"at_once": 0},
        {"max_items": 0},
        {"min_success_rate": 1.5},
        {"unmet": "never"},
        {"on_failure": "stop"},
        {"keep": "first"},
        {"timeout": 0},
        {"item_timeout": -1},
        {"items": Loop(str.upper)},
    ],
    ids=str,
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    """Each option is checked when the list is made."""
    with pytest.raises(ConfigurationError):
        for_each(str.upper, **options)


def test_an_item_runs_once_for_each_iteration_of_the_loop_around_it() -> None:
    """A list nests in a loop, and a step of it reads its item as the input of its iteration."""
    seen: list[tuple[object, int]] = []

    @step(inline=True)
    def note(value: str, ctx: Context) -> str:
        seen.append((ctx.input, ctx.iteration))
        return value

    def again(last: Iteration) -> list[str]:
        return [*last.input, "c"]

    loop = Loop(for_each(note), lambda output: len(output) > 2, again, until=Passed())
    assert run_sync(loop, ["a", "b"]).output == ["a", "b", "c"]
    assert seen == [("a", 1), ("b", 2), ("a", 1), ("b", 2), ("c", 3)]
