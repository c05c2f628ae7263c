"""What is seldom met: questions that nobody waits for any more, what a run is lent, raised limits of
runs that never ended, inputs that are no JSON."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Usage,
    resume,
    run,
    step,
)
from loopwright import (
    _regex as patterns,
)
from loopwright.engine.run_record import raise_limit, rewind_with_input
from loopwright.engine.run_state import RunResources
from loopwright.errors import ConfigurationError, listed
from loopwright.journal import Entry, RunInfo, open_memory
from loopwright.journal.questions import answer, pending


async def recorded(*entries: Entry) -> MemoryJournal:
    """Return a journal with a run `r` that was left with these entries."""
    journal = MemoryJournal()
    log = await journal.open(RunInfo("r", "r"))
    for entry in entries:
        log.append(entry)
    await log.close(log.info)
    return journal


ASKED = {"request": {"kind": "free"}, "detail": "who?", "since": 3.0}


@pytest.mark.parametrize(
    "after",
    [
        Entry("ended", "", 1.0, {"stop": Reason.ERROR.value}),
        Entry("finished", "flow/publish", 1.0, "done"),
        Entry("ended", "flow", 1.0, {"stop": Reason.ERROR.value}),
    ],
    ids=["the run", "the step", "the loop"],
)
async def test_nobody_waits_for_a_question_of_what_has_ended(after: Entry) -> None:
    """A question is open only while what asked it may still go on."""
    asked = Entry("asked", "flow/publish/q", 0.5, ASKED)
    open_still = await recorded(Entry("started", "flow/publish", 0.1), asked)
    (question,) = await pending(open_still, "r")
    assert question.to_json()["path"] == "flow/publish/q"
    assert question.to_json()["since"] == 3.0
    over = await recorded(Entry("started", "flow/publish", 0.1), asked, after)
    assert await pending(over, "r") == []
    with pytest.raises(ConfigurationError, match="no question of this run is open"):
        await answer(over, "r", "flow/publish/q", "Ann")


async def test_a_step_may_ask_as_if_between_rounds() -> None:
    """A question of that kind from a step that is in no loop is asked without a record to show."""

    @step
    async def publish(value: Any, ctx: Context) -> Any:
        return ctx.ask("q", {"kind": "iteration"}, "good?")

    journal = MemoryJournal()
    await run(publish, "x", journal=journal, run_id="r")
    (question,) = await pending(journal, "r")
    assert dict(question.request) == {"kind": "iteration"}


@pytest.mark.parametrize("more", [True, {"approve": True, "more": 1}])
async def test_a_loop_without_scores_asks_at_its_limit_too(more: Any) -> None:
    """What is asked says no score where there is none, and the loop goes on once a person says so."""
    journal = MemoryJournal()
    loop = Loop(lambda value: f"{value}x", until=MaxIterations(2), name="refine", approve="limit")
    first = await run(loop, "a", journal=journal, run_id="r")
    (question,) = await pending(journal, "r")
    assert "best" not in question.detail
    await answer(journal, "r", question.path, more)
    again = await run(loop, journal=journal, run_id="r")
    assert first.iterations == 2
    assert again.iterations > 2


async def test_nobody_waits_for_a_question_of_a_round_that_is_over() -> None:
    """A round that was recorded, without the answer, leaves no question open."""
    asked = Entry("asked", "flow/1/execute/q", 0.5, ASKED)
    round_over = Entry("iteration", "flow", 1.0, Iteration(1, output="x", truncated=True))
    assert len(await pending(await recorded(asked), "r")) == 1
    assert await pending(await recorded(asked, round_over), "r") == []


async def test_a_run_is_lent_its_resources_and_a_memory() -> None:
    """All that is given and the journal's own memory, each once; a URL is opened when it is asked for."""
    store = MemoryJournal()
    both = RunResources({"model": "m", "memory": None}, store)
    assert sorted(both) == ["memory", "model"]
    assert len(both) == 2
    assert both
    assert both["memory"] is store.memory
    assert both["model"] == "m"
    mine = open_memory("memory:")
    assert RunResources({"memory": mine}, store)["memory"] is mine
    none = RunResources(None, None)
    assert list(none) == []
    with pytest.raises(KeyError):
        none["memory"]
    opened = RunResources({"memory": "memory:"}, None)
    assert opened.opened is None
    assert opened["memory"] is opened["memory"] is opened.opened
    await opened.opened.close()


async def test_dollars_of_a_run_that_was_left_can_be_raised() -> None:
    """A run that never ended goes on with more dollars from where it was."""
    price = Usage(calls=1, usd=0.4)

    async def pay(value: Any, ctx: Context) -> str:
        ctx.spend(price)
        if ctx.path.startswith("refine/2/"):
            ctx.ask("q", {"kind": "free"}, "go on?")
        return f"{value}x"

    loop = Loop(step(pay, reserve=price), until=MaxIterations(3), name="refine")
    journal = MemoryJournal()
    await run(loop, "a", journal=journal, run_id="r", budget=Budget(usd=1.0))
    await answer(journal, "r", "refine/2/execute/q", "yes")
    await raise_limit(journal, "r", max_usd=3.0)
    done = await resume(loop, "r", journal=journal, budget=Budget(usd=1.0))
    assert (done.reason, done.iterations) == (Reason.MAX_ITERATIONS, 3)


async def test_an_input_that_is_no_json_changes_nothing() -> None:
    """An edited input is refused before anything is set aside."""
    journal = MemoryJournal()
    loop = Loop(lambda value: f"{value}x", until=MaxIterations(2), name="refine")
    first = await run(loop, "a", journal=journal, run_id="r")
    with pytest.raises(ConfigurationError, match="input"):
        await rewind_with_input(journal, "r", "refine/1", object())
    assert await run(loop, journal=journal, run_id="r") == first


async def test_a_resumed_run_warns_of_what_its_earlier_life_warned_of() -> None:
    """A warning is part of the record and is in the result of every later life, once."""
    journal = MemoryJournal()

    @step
    async def ask(value: Any, ctx: Context) -> Any:
        ctx.run.warn("the oven is hot")
        return ctx.ask("q", {"kind": "free"}, "take it out?")

    await run(ask, "x", journal=journal, run_id="r")
    await answer(journal, "r", "ask/q", "yes")
    result = await run(ask, journal=journal, run_id="r")
    assert result.warnings == ("the oven is hot",)


async def test_what_was_opened_for_a_run_is_closed_at_its_end() -> None:
    """The latest first, and a failure to close changes no outcome."""
    closed: list[str] = []

    class Thing:
        def __init__(self, name: str) -> None:
            self.name = name

        async def aclose(self) -> None:
            closed.append(self.name)
            raise OSError("gone already")

    @step
    async def work(value: Any, ctx: Context) -> Any:
        for name in ("first", "second"):
            ctx.run.owned[name] = Thing(name)
        return value

    assert (await run(work, "x")).output == "x"
    assert closed == ["second", "first"]


def test_of_many_names_those_that_fit_a_line_are_told() -> None:
    """The nearest come first, the others are counted, and no name is cut by the end of the line."""
    names = [f"number-{number:03}" for number in range(60)]
    told = listed("number-059", names, more="all: list")
    assert told.startswith("; known here: number-059, ")
    assert len(told) < 120
    assert told.endswith(" more (all: list)")
    shown = told.removeprefix("; known here: ").split(" and ")[0].split(", ")
    assert set(shown) <= set(names)
    assert f"and {len(names) - len(shown)} more" in told


async def test_a_person_may_say_what_to_do_about_a_round_that_failed() -> None:
    """What a person writes as feedback is what adapt is told in place of the error."""
    told: list[str] = []

    def write(value: str) -> str:
        if value == "a":
            raise ValueError("too much")
        return value

    def adapt(last: Iteration) -> str:
        told.append(last.feedback)
        return "b"

    journal = MemoryJournal()
    loop = Loop(
        write, adapt=adapt, until=MaxIterations(2), on_failure="continue", approve="iteration",
        name="refine",
    )  # fmt: skip
    await run(loop, "a", journal=journal, run_id="r")
    (question,) = await pending(journal, "r")
    await answer(journal, "r", question.path, {"approve": True, "feedback": "take b"})
    await run(loop, journal=journal, run_id="r")
    assert told == ["take b"]


def test_a_thread_whose_clock_is_gone_counts_as_not_working() -> None:
    """Who has ended, or has not begun, used no time; where no thread has a clock only the wall tells."""
    no_clock = 1 << 20
    with pytest.raises(OSError, match="Invalid"):
        time.clock_gettime(no_clock)
    assert patterns._processor_seconds([no_clock]) == 0.0
    assert patterns._processor_seconds([]) == 0.0
    assert patterns._processor_seconds([-1]) == math.inf
    ended = threading.Thread(target=list)
    ended.start()
    ended.join()
    patterns._lower_priority(ended)


def test_a_name_that_the_package_does_not_have_is_none_of_its_attributes() -> None:
    """Agents are found when they are asked for; what is misspelt is an AttributeError that names it."""
    import loopwright

    assert loopwright.PhasedAgent.__name__ == "PhasedAgent"
    with pytest.raises(AttributeError, match="'PhasedAgnt'"):
        loopwright.PhasedAgnt  # noqa: B018
