"""Runs that ended and go on: limits raised, inputs edited, ends taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    ScoreAtLeast,
    Status,
    Usage,
    Workflow,
    resume,
    run,
    step,
)
from loopwright.engine.run_record import raise_limit, rewind_with_input
from loopwright.errors import ConfigurationError, ReplayMismatch, RunNotFound
from loopwright.journal import open_journal

from .counted_work import Work


def told(result: Any) -> Any:
    """Return a result as JSON, without its times, which a store keeps to the microsecond."""
    data = result.to_json()
    for loop in [data, *data["loops"].values()]:
        for row in [loop, *loop.get("history", [])]:
            row.pop("seconds", None)
    return data


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_exhausted_run_goes_on_with_a_raised_limit(kind: str, tmp_path: Path) -> None:
    """Nothing is done again; the result is that of a loop with the higher limit; without the option
    the run is returned as it ended (I40), and the code is the same (I41)."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    journal: Any = MemoryJournal() if kind == "memory" else open_journal(url)
    work, other = Work(), Work()
    first = await run(work.loop(), "a", journal=journal, run_id="r")
    assert first.reason is Reason.MAX_ITERATIONS
    assert told(await run(work.loop(), journal=journal, run_id="r")) == told(first)
    more = await resume(work.loop(), "r", journal=journal, max_iterations=5)
    assert work.calls == ["a", "ax", "axx", "axxx", "axxxx"]
    straight = await run(other.loop(limit=5), "a")
    assert [r.output for r in more.history] == [r.output for r in straight.history]
    assert (more.reason, more.detail) == (straight.reason, straight.detail)
    info = await journal.find("r")
    assert (info.status, info.iterations) == ("exhausted", 5)
    assert told(await run(work.loop(), journal=journal, run_id="r")) == told(more)
    assert len(work.calls) == 5
    if kind == "sqlite":
        pairs = await journal.iterations("r")
        assert [item.number for _, item in pairs] == [1, 2, 3, 4, 5]
        await journal.close()


async def test_what_followed_a_reopened_loop_is_done_again_with_its_new_output() -> None:
    """In a workflow the steps behind the loop see what it has now; those before it are not repeated."""
    work, journal, told = Work(), MemoryJournal(), []

    def report(value: Any) -> Any:
        told.append(value)
        return f"report on {value}"

    def made() -> Workflow:
        steps = {"first": lambda value: f"{value}1", "refine": work.loop(), "report": report}
        return Workflow("w", steps, needs={"refine": ["first"], "report": ["refine"]})

    first = await run(made(), "a", journal=journal, run_id="r")
    assert (first.status, first.output) == (Status.EXHAUSTED, "report on a1xxx")
    more = await resume(made(), "r", journal=journal, max_iterations=4)
    assert (more.output, told) == ("report on a1xxxx", ["a1xxx", "a1xxxx"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"max_iterations": 3},
            "is not above the 3 iterations that refine has used; use 4 or more",
        ),
        ({"max_iterations": 5000}, "above the ceiling of 1000"),
        ({"max_iterations": 5, "loop": "refin"}, "did you mean 'refine'"),
        ({"max_usd": 3.0}, "no budget of dollars ended it, but max_iterations"),
        ({"max_iterations": 4, "max_calls": 0}, "max_calls"),
    ],
)
async def test_a_limit_that_cannot_be_raised_changes_nothing(
    options: dict[str, Any], said: str
) -> None:
    """The sentence says why, and the run stays as it ended."""
    work, journal = Work(), MemoryJournal()
    first = await run(work.loop(), "a", journal=journal, run_id="r")
    with pytest.raises(ConfigurationError) as error:
        await raise_limit(journal, "r", **options)
    assert said in str(error.value)
    assert await run(work.loop(), journal=journal, run_id="r") == first


async def test_a_limit_is_not_raised_for_another_step() -> None:
    """A resume that is refused because the step changed leaves the run as it ended."""
    work, journal = Work(), MemoryJournal()
    first = await run(work.loop(), "a", journal=journal, run_id="r")
    with pytest.raises(ReplayMismatch):
        await resume(work.loop(limit=2), "r", journal=journal, max_iterations=4)
    assert await run(work.loop(), journal=journal, run_id="r") == first


async def test_what_another_condition_ended_is_not_reopened_by_a_limit() -> None:
    """A loop that stopped improving would stop again: rewinding is the way."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(limit=9, until=ScoreAtLeast(0.2))
    await run(loop, "a", journal=journal, run_id="r")
    with pytest.raises(ConfigurationError, match="it ended for another reason"):
        await raise_limit(journal, "r", max_iterations=20)


PRICE = Usage(calls=1, usd=0.4)


@pytest.mark.parametrize("where", ["loop", "run"])
async def test_a_run_out_of_money_goes_on_with_more(where: str) -> None:
    """The round that the budget cut short is gone on with: what it paid for is not paid again."""
    paid: list[str] = []

    async def pay(value: Any, ctx: Context) -> str:
        paid.append(ctx.path)
        ctx.spend(PRICE)
        return f"{value}x"

    def grade(value: Any) -> float:
        return 0.5

    def made() -> Loop:
        body = step(pay, reserve=PRICE)
        judge = step(pay, name="judge", reserve=PRICE)
        guards = Budget(usd=1.3) if where == "loop" else None
        both = Workflow("both", {"write": body, "check": judge}, needs={"check": ["write"]})
        return Loop(both, grade, until=MaxIterations(2), guards=guards, name="refine")

    journal = MemoryJournal()
    cap: Any = Budget(usd=1.3) if where == "run" else None
    first = await run(made(), "a", journal=journal, run_id="r", budget=cap)
    assert (first.reason, len(paid)) == (Reason.BUDGET, 3)
    with pytest.raises(ConfigurationError, match="is not above"):
        await raise_limit(journal, "r", max_usd=1.0)
    more = await resume(made(), "r", journal=journal, max_usd=5.0, budget=cap)
    assert (more.reason, more.iterations) == (Reason.MAX_ITERATIONS, 2)
    assert (len(paid), len(set(paid))) == (4, 4)
    assert more.usage.usd == pytest.approx(1.6)


async def test_a_rewound_loop_takes_a_lower_limit() -> None:
    """A limit above the iterations that count is the limit, also where the loop had a higher one; a replay keeps it."""
    work, journal = Work(), MemoryJournal()
    await run(work.loop(), "a", journal=journal, run_id="r")  # three iterations
    await journal.rewind("r", "refine/2")
    less = await resume(work.loop(), "r", journal=journal, max_iterations=2)
    assert (less.iterations, less.reason, len(work.calls)) == (2, Reason.MAX_ITERATIONS, 4)
    assert told(await run(work.loop(), journal=journal, run_id="r")) == told(less)
    # Before its first iteration, only a change of limits finds the loop.
    await journal.rewind("r", "refine/1")
    with pytest.raises(ConfigurationError, match="change its limits with loopwright limits r$"):
        await resume(work.loop(), "r", journal=journal, max_iterations=2)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_iteration_is_run_again_on_an_edited_input(kind: str, tmp_path: Path) -> None:
    """Rounds before it stay as they are; the edit stands in for adapt, in every later resume too."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    journal: Any = MemoryJournal() if kind == "memory" else open_journal(url)
    work = Work()
    await run(work.loop(), "a", journal=journal, run_id="r")
    done = await rewind_with_input(journal, "r", "refine/2", "edited")
    assert done.entries > 0
    result = await run(work.loop(), journal=journal, run_id="r")
    assert work.calls == ["a", "ax", "axx", "edited", "editedx"]
    assert [item.input for item in result.history] == ["a", "edited", "editedx"]
    await rewind_with_input(journal, "r", "refine/1", "new")
    again = await run(work.loop(), journal=journal, run_id="r")
    assert [item.input for item in again.history] == ["new", "newx", "newxx"]
    if kind == "sqlite":
        await journal.close()


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("refine", ConfigurationError, "not an iteration of a loop"),
        ("refine/2/execute", ConfigurationError, "refine/2"),
        ("refine/9", ConfigurationError, "refine/3"),
        ("other/1", ConfigurationError, "such as refine/3"),
    ],
)
async def test_only_an_iteration_can_be_given_another_input(
    path: str, kind: type[Exception], said: str
) -> None:
    """Another path is refused, with the nearest, before anything is set aside."""
    work, journal = Work(), MemoryJournal()
    first = await run(work.loop(), "a", journal=journal, run_id="r")
    with pytest.raises(kind) as error:
        await rewind_with_input(journal, "r", path, "x")
    assert said in str(error.value)
    assert await run(work.loop(), journal=journal, run_id="r") == first


async def test_the_end_of_a_loop_can_be_taken_back_by_its_name() -> None:
    """`rewind LOOP/ended` sets aside the end and what followed; other code is still refused (I41)."""
    work, journal = Work(), MemoryJournal()
    await run(work.loop(), "a", journal=journal, run_id="r")
    done = await journal.rewind("r", "refine/ended")
    assert done.entries == 2
    with pytest.raises(ReplayMismatch):
        await run(work.loop(limit=4), journal=journal, run_id="r")
    assert (await run(work.loop(), journal=journal, run_id="r")).iterations == 3
    with pytest.raises(RunNotFound):
        await journal.rewind("r", "refine/7/record")
