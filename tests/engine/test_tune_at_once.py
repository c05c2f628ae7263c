"""Tuned numbers of jobs at a time: parallel steps, workflows, checklists and lists, raised and lowered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loopwright import (
    Context,
    MemoryJournal,
    Status,
    Usage,
    Workflow,
    change_limits,
    for_each,
    parallel,
)
from loopwright.errors import ConfigurationError
from loopwright.recipes import checklist_loop
from loopwright.testing import run_virtual

from .support import DyingJournal, KeepingJournal, crashed_after, entries_of, play

Make = Callable[[Callable[..., Any], int], Any]
NAMES = "abcdefgh"


def _named(step: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return eight steps by name, each a function of another number."""

    def of(number: int) -> Callable[..., Any]:
        async def job(value: object, ctx: Context) -> object:
            return await step(number, ctx)

        return job

    return {name: of(number) for number, name in enumerate(NAMES, start=1)}


KINDS: dict[str, Make] = {
    "parallel": lambda step, most: parallel(name="jobs", at_once=most, **_named(step)),
    "workflow": lambda step, most: Workflow("jobs", _named(step), at_once=most),
    "checklist": lambda step, most: checklist_loop(
        _named(step), dict.fromkeys(NAMES, lambda output: True), at_once=most, name="jobs"
    ),
    "list": lambda step, most: for_each(step, at_once=most, name="jobs"),
}


class Work:
    """Jobs that take 100 s each; the first requests another number of jobs and notes how many run then."""

    def __init__(self, journal: MemoryJournal, most: int) -> None:
        self.journal = journal
        self.most = most
        self.running: set[int] = set()
        self.counts: list[int] = []

    async def __call__(self, number: int, ctx: Context) -> int:
        self.running.add(number)
        self.counts.append(len(self.running))
        if number == 1:
            await change_limits("r", journal=self.journal, at_once=self.most)
            await asyncio.sleep(1)  # the time within which a live run takes a limit
            self.counts = [len(self.running)]
        await asyncio.sleep(100 + number)
        self.running.discard(number)
        return number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("declared", "most"), [(2, 5), (4, 1)])
def test_a_new_number_counts_within_a_second(kind: str, declared: int, most: int) -> None:
    """More jobs begin before one ends, and a lowered number lets running jobs end first."""
    journal = KeepingJournal()
    work = Work(journal, most)
    result = play(
        KINDS[kind](work, declared), [*range(1, 9)] if kind == "list" else 1,
        journal=journal, run_id="r",
    )  # fmt: skip
    assert result.satisfied
    if most > declared:
        assert work.counts[0] == max(work.counts) == most
    else:
        assert work.counts[0] == declared
        assert work.counts[1:] == [1] * 4


def test_a_list_of_one_item_at_a_time_runs_several() -> None:
    """The outputs keep the order of the items; items that began alone see those before, others see none."""
    journal = KeepingJournal()
    work = Work(journal, 3)
    seen: dict[int, int] = {}

    async def item(number: int, ctx: Context) -> int:
        seen[number] = len(ctx.history)
        return await work(number - 1, ctx)

    # The second item requests the change, so it is the first that sees another.
    result = play(for_each(item, name="jobs"), [*range(1, 9)], journal=journal, run_id="r")
    assert result.output == [*range(8)]
    assert seen == {1: 0, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0}
    assert work.counts[0] == max(work.counts) == 3
    rows = run_virtual(change_limits("r", journal=journal)).limits
    assert [(row.loop, row.key, row.limit) for row in rows] == [("jobs", "at_once", 3)]


@pytest.mark.parametrize("at", range(1, 24, 3))
def test_an_item_sees_the_same_after_a_kill(at: int) -> None:
    """A resumed item sees the items that it saw before the kill, and no finished item runs again."""
    journal = DyingJournal()
    seen: dict[int, set[int]] = {}
    ran: list[int] = []

    async def part(value: int) -> int:
        ran.append(value)
        await asyncio.sleep(10 + value)
        return value

    async def item(number: int, ctx: Context) -> int:
        seen.setdefault(number, set()).add(len(ctx.history))
        await ctx.call("first", part, number)
        if number == 2 and not (ctx.run.tuned and ctx.run.tuned.ids):
            await change_limits("r", journal=journal, at_once=3)
            await asyncio.sleep(1)
        return number

    items = for_each(item, name="jobs")
    crashed_after(journal, items, at, [1, 2, 3, 4])
    result = play(items, [1, 2, 3, 4], journal=journal, run_id="r", in_doubt="rerun")
    assert result.output == [1, 2, 3, 4]
    assert all(len(counts) == 1 for counts in seen.values()), seen
    assert len(ran) <= 4 + 3  # those in flight at the kill


def test_a_question_ends_a_list_of_one_item_at_a_time() -> None:
    """No later item begins; with several at a time, those that run go on."""
    began: list[int] = []

    async def item(number: int, ctx: Context) -> int:
        began.append(number)
        if number == 2:
            ctx.ask("sure", {"kind": "free"}, "sure?")
        return number

    for most, expected in ((1, [1, 2]), (2, [1, 2, 3, 4])):
        began.clear()
        items = for_each(item, name="jobs", at_once=most)
        result = play(items, [1, 2, 3, 4], journal=KeepingJournal(), run_id="r")
        assert result.status is Status.SUSPENDED
        assert began == expected


async def _spend(number: int, ctx: Context) -> int:
    ctx.spend(Usage(calls=1, input_tokens=10))
    await asyncio.sleep(1)
    return number


@pytest.mark.parametrize(
    ("limits", "done"), [({"max_effects": 5}, 4), ({"max_total_tokens": 40}, 4)]
)
def test_effects_and_tokens_are_limited_while_a_run_is_open(
    limits: dict[str, int], done: int
) -> None:
    """Both count what was used before the limit was set, also by an earlier process."""
    journal = DyingJournal()

    async def item(number: int, ctx: Context) -> int:
        if number == 3 and not (ctx.run.tuned and ctx.run.tuned.ids):
            await change_limits("r", journal=journal, **limits)
            await asyncio.sleep(1)
        return await _spend(number, ctx)

    items, values = for_each(item, name="jobs"), [*range(1, 10)]
    live = play(items, values, journal=journal, run_id="r")
    assert live.reason.value == "budget"
    assert len([one for one in live.output if one is not None]) == done
    journal = DyingJournal()
    crashed_after(journal, items, 6, values)
    resumed = play(items, values, journal=journal, run_id="r", in_doubt="rerun")
    assert resumed.reason.value == "budget"
    # A call that a kill interrupted counts once as an effect, and its tokens were not reported.
    assert resumed.output == live.output


def test_steps_whose_number_is_fixed() -> None:
    """A workflow and a checklist of one at a time have no such limit; a parallel step is not a loop."""
    one = {"workflow": KINDS["workflow"], "checklist": KINDS["checklist"]}
    for make in one.values():
        journal = KeepingJournal()

        async def asks(number: int, ctx: Context) -> int:
            return int(ctx.ask("sure", {"kind": "free"}, "sure?"))

        play(make(asks, 1), 1, journal=journal, run_id="r")
        with pytest.raises(ConfigurationError, match="it can be changed for: none"):
            run_virtual(change_limits("r", journal=journal, at_once=2))
        journal = KeepingJournal()
        play(make(asks, 2), 1, journal=journal, run_id="r")
        assert run_virtual(change_limits("r", journal=journal, at_once=3)).changes[0].old == 2
        with pytest.raises(ConfigurationError, match="did you mean 'jobs'"):
            run_virtual(change_limits("r", journal=journal, loop="job", at_once=2))
        assert [e.kind for e in entries_of(journal, "r")].count("tuned") == 0
    journal = KeepingJournal()
    play(parallel(asks, asks, name="both"), 1, journal=journal, run_id="r")
    with pytest.raises(ConfigurationError, match="both is not a loop"):
        run_virtual(change_limits("r", journal=journal, loop="both", timeout=3))
