"""Loops over a checklist: only what fails is made again, and a resumed run does nothing twice."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from recipe_steps import NEEDS, UNDISTURBED, Crash, Kitchen, plus, share

from loopwright import (
    Evaluation,
    Iteration,
    MemoryJournal,
    Reason,
    Result,
    Status,
    run,
    run_sync,
    step,
)
from loopwright.errors import ConfigurationError
from loopwright.evaluators import score
from loopwright.recipes import _plan, checklist_loop


def test_only_what_fails_is_made_and_looked_at_again() -> None:
    """What passed stays; the rest is made again from what was said of it."""
    kitchen = Kitchen(NEEDS)
    result = run_sync(kitchen.loop(), "dinner")
    assert (result.status, result.output) == (
        Status.SATISFIED,
        {"soup": 1, "roast": 3, "cake": 2},
    )
    assert kitchen.asked == UNDISTURBED
    assert [item.score for item in result.history] == [
        pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0
    ]  # fmt: skip
    assert kitchen.tasks["roast"] == [
        "dinner",
        {
            "input": "dinner",
            "item": "roast",
            "previous": 1,
            "feedback": "roast is at 1",
            "improvements": ["not met"],
        },
        {
            "input": "dinner",
            "item": "roast",
            "previous": 2,
            "feedback": "roast is at 2",
            "improvements": ["not met"],
        },
    ]


async def crashed(kitchen: Kitchen, **options: Any) -> tuple[Result, list[str]]:
    """Run the kitchen's loop until it is through, however often it dies."""
    journal = MemoryJournal()
    value: Any = "dinner"
    while True:
        try:
            loop = kitchen.loop(**options)
            result = await run(loop, value, journal=journal, run_id="r")
        except Crash:
            journal.crash()
            value = None
        else:
            entries = await journal.entries("r")
            return result, [entry.path for entry in entries if entry.kind == "finished"]


def test_items_may_be_made_together() -> None:
    """With at_once, so many items are in the making at a time, and none when nothing is missing."""
    making: list[int] = [0, 0]

    async def make(task: Any) -> str:
        making[0] += 1
        making[1] = max(making)
        await asyncio.sleep(0)
        making[0] -= 1
        return "made"

    replies = iter([Evaluation(undecided=True), *[Evaluation(1.0, True)] * 5])
    names = "abcde"
    look = step(lambda text: next(replies), inline=True)
    loop = checklist_loop(dict.fromkeys(names, make), dict.fromkeys(names, look), at_once=2)
    result = run_sync(loop)
    assert (result.satisfied, result.iterations, making[1]) == (True, 2, 2)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("moment", range(1, len(UNDISTURBED) + 1))
def test_a_resumed_checklist_does_nothing_twice(moment: int, at_once: int) -> None:
    """Wherever the process dies, what was done stays done, and the result is the same."""
    expected, paths = asyncio.run(crashed(Kitchen(NEEDS), at_once=at_once))
    kitchen = Kitchen(NEEDS, dies=moment)
    result, found = asyncio.run(crashed(kitchen, at_once=at_once))
    assert sorted(kitchen.asked) == sorted(UNDISTURBED)
    assert sorted(found) == sorted(paths)
    assert result.output == expected.output
    # `seconds` is the only thing that another run may have otherwise.
    strip = lambda item: {k: v for k, v in item.to_json().items() if k != "seconds"}
    assert [strip(i) for i in result.history] == [strip(i) for i in expected.history]


def test_each_item_is_an_effect_under_its_name() -> None:
    """The journal has one effect for each item that was made, and one for each look."""
    _, paths = asyncio.run(crashed(Kitchen({"soup": 1, "roast": 2}), name="menu"))
    assert paths == [
        "menu/1/execute/soup",
        "menu/1/execute/roast",
        "menu/1/evaluate/soup",
        "menu/1/evaluate/roast",
        "menu/2/adapt",
        "menu/2/execute/roast",
        "menu/2/evaluate/roast",
    ]


def test_a_fix_makes_what_failed() -> None:
    """With a fix, one for all or one by name, the maker is asked once."""
    kitchen = Kitchen({"soup": 2, "roast": 2})
    fixed: list[str] = []

    def repair(task: dict[str, Any]) -> int:
        fixed.append(task["item"])
        return 9

    result = run_sync(kitchen.loop(fix=repair), "dinner")
    assert (result.output, fixed) == ({"soup": 9, "roast": 9}, ["soup", "roast"])
    result = run_sync(Kitchen({"soup": 2, "roast": 2}).loop(fix={"soup": repair}), "dinner")
    assert result.output == {"soup": 9, "roast": 2}


def test_a_checklist_that_runs_out_has_all_its_items() -> None:
    """What fails to the end is there too, beside what passed."""
    result = run_sync(Kitchen({"soup": 1, "roast": 99}).loop(max_iterations=3), "dinner")
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert result.output == {"soup": 1, "roast": 3}
    assert result.history[-1].feedback == "1 of 2 items are not met:\n- roast: roast is at 3"


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_a_failed_round_loses_no_item_that_was_whole(failing: int) -> None:
    """Under continue, the rounds before a failed one keep what they made and judged."""
    kitchen = Kitchen({"soup": 1, "roast": 2})
    calls: list[str] = []

    def flaky(inner: Any) -> Any:
        async def work(value: Any) -> Any:
            calls.append(inner.name)
            if len(calls) == failing:
                raise OSError("gas is out")
            return await inner.act(value, None)

        return step(work, name=inner.name)

    loop = checklist_loop(
        {name: flaky(kitchen.maker(name)) for name in kitchen.needs},
        {name: flaky(kitchen.look(name)) for name in kitchen.needs},
        on_failure="continue",
    )
    result = run_sync(loop, "dinner")
    assert (result.status, result.output) == (Status.SATISFIED, {"soup": 1, "roast": 2})
    assert [item.error is not None for item in result.history].count(True) == 1
    looks = kitchen.asked.count("look soup")
    assert looks == (2 if failing == 4 else 1)  # a look that was on record when its round failed


def test_what_could_not_be_judged_is_looked_at_again_and_not_made_again() -> None:
    """An undecided item keeps its output; only the look is repeated."""
    replies = iter(["what?", "score: 1"])
    made: list[str] = []

    def title(task: Any) -> str:
        made.append("title")
        return "LoopResults"

    look = step(lambda text: next(replies), inline=True, name="judge")
    verdict = checklist_loop({"title": title}, {"title": _passing(look)})
    result = run_sync(verdict, "write")
    assert (result.status, result.output, made) == (
        Status.SATISFIED,
        {"title": "LoopResults"},
        ["title"],
    )
    assert [item.undecided for item in result.history] == [True, False]


def _passing(judge: Any) -> Any:
    read = score(label="score")

    async def look(value: Any, ctx: Any) -> Any:
        found = await read.act(await judge.act(value, ctx), ctx)
        return Evaluation(found.score, found.score == 1.0) if found.score is not None else found

    return step(look, name="look")


def test_a_retry_is_of_the_item_and_not_of_the_round() -> None:
    """With on_failure="retry" the step that failed is tried again, the others are not."""
    calls: list[str] = []

    def soup(task: Any) -> str:
        calls.append("soup")
        return "soup"

    def roast(task: Any) -> str:
        calls.append("roast")
        if calls.count("roast") == 1:
            raise OSError("gas is out")
        return "roast"

    fine = {"soup": {"min_chars": 1}, "roast": {"min_chars": 1}}
    loop = checklist_loop(
        {"soup": soup, "roast": roast}, fine, on_failure="retry", max_retries=1, retry_delay=0
    )
    result = run_sync(loop, "dinner")
    assert (result.satisfied, result.iterations) == (True, 1)
    assert calls == ["soup", "roast", "roast"]


@pytest.mark.parametrize(
    ("items", "checks", "options", "message"),
    [
        ({}, {}, {}, "menu: {} has no steps. Use an object of steps."),
        (
            {"a/b": plus(1)},
            {"a/b": share},
            {},
            (
                "menu: 'a/b' is not a valid name. Names are parts of paths: "
                "use a text without a slash."
            ),
        ),
        ({"soup": plus(1)}, {}, {}, "menu: checks: 'soup' has no check. Add one for each item."),
        (
            {"soup": plus(1)},
            {"soop": share},
            {},
            "menu: checks: there is no item 'soop'; did you mean 'soup'?",
        ),
        (
            {"soup": plus(1)},
            {"soup": share},
            {"fix": {"cake": share}},
            "menu: fix: there is no item 'cake'",
        ),
        (
            {"soup": plus(1)},
            {"soup": share},
            {"at_once": 0},
            "menu: at_once: 0 is too small; give at least 1",
        ),
    ],
)
def test_items_and_checks_have_the_same_names(
    items: Any, checks: Any, options: Any, message: str
) -> None:
    """What does not fit together is refused when the loop is made."""
    with pytest.raises(ConfigurationError) as raised:
        checklist_loop(items, checks, name="menu", **options)
    assert str(raised.value) == message


def test_a_plan_is_the_same_from_a_record_that_was_stored() -> None:
    """The next plan follows from the JSON of the last record, so any journal can resume it."""
    kitchen = Kitchen(NEEDS)
    history = run_sync(kitchen.loop(), "dinner").history

    class Ctx:
        initial = "dinner"

    for item, following in itertools.pairwise(history):
        stored = Iteration.from_json(json.loads(json.dumps(item.to_json())))
        assert asyncio.run(_plan(stored, Ctx())) == following.input  # type: ignore[arg-type]
