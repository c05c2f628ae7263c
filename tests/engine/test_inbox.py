"""Answers go to the inbox of a run: the first counts, and a suspended run can be cancelled (issue 11; cluster.md 9.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Status,
    parallel,
    run,
    step,
)
from loopwright.errors import ConfigurationError
from loopwright.journal.questions import answer, pending
from loopwright.journal.sqlite import SqliteJournal

from .support import Script

Make = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: Any, tmp_path: Path) -> Make:
    """Return what opens one journal again and again."""
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path / "runs.db")
    kept = MemoryJournal()
    return lambda: kept


def asking() -> Loop:
    """Return a loop that asks a person after each of two rounds."""
    return Loop(Script(["a", "b"]), until=MaxIterations(2), approve="iteration", name="refine")


def ask(value: Any, ctx: Any) -> Any:
    """Ask a person for a word."""
    return ctx.ask("word", {"question": "which?"}, "say a word")


async def suspended(journal: Any) -> str:
    """Run until a person is asked; return the path of the question."""
    result = await run(asking(), journal=journal, run_id="r")
    assert result.status is Status.SUSPENDED
    (question,) = await pending(journal, "r")
    return question.path


def test_of_two_simultaneous_answers_the_first_counts(make: Make) -> None:
    """Rule: two people may answer at once; one is told clearly that he came second, and by whom."""

    async def story() -> None:
        path = await suspended(one := make())
        two = make()
        said = [
            answer(one, "r", path, True, who="ann"),
            answer(two, "r", path, {"approve": False}, who="bob"),
        ]
        found = await asyncio.gather(*said, return_exceptions=True)
        (refused,) = [each for each in found if isinstance(each, BaseException)]
        assert isinstance(refused, ConfigurationError)
        first = "bob" if isinstance(found[0], BaseException) else "ann"
        assert f"is answered already: {first} answered" in str(refused)
        assert "the first answer counts" in str(refused)
        assert await pending(one, "r") == []
        result = await run(asking(), journal=one, run_id="r")
        assert (result.reason is Reason.STOPPED) is (first == "bob")
        await one.close()
        await two.close()

    asyncio.run(story())


def test_a_run_can_be_answered_while_a_branch_beside_goes_on(make: Make) -> None:
    """Rule: an answer goes to the inbox whoever runs the run, and the next opening moves it to the entries."""

    async def story() -> None:
        journal = make()
        answered, begun = asyncio.Event(), asyncio.Event()

        async def slow(value: Any, ctx: Any) -> str:
            begun.set()
            await answered.wait()
            return "slow"

        both = parallel(step(ask, name="ask"), step(slow, name="slow"), name="both")
        going = asyncio.ensure_future(run(both, journal=journal, run_id="r"))
        await begun.wait()
        while not (questions := await pending(journal, "r")):
            await asyncio.sleep(0)
        await answer(journal, "r", questions[0].path, "yes", who="ann")
        assert await pending(journal, "r") == []
        with pytest.raises(ConfigurationError, match="ann answered yes at"):
            await answer(journal, "r", questions[0].path, "no", who="bob")
        answered.set()
        assert (await going).status is Status.SUSPENDED
        result = await run(both, journal=journal, run_id="r")
        assert result.output == {"ask": "yes", "slow": "slow"}
        entries = await journal.entries("r")
        assert [e.value for e in entries if e.kind == "answered"] == ["yes"]
        await journal.close()

    asyncio.run(story())


def test_a_question_that_is_asked_anew_can_be_answered_anew(make: Make) -> None:
    """Rule: an answer belongs to the question as it was asked: what a rewind set aside is answered again."""

    async def story() -> None:
        journal = make()
        path = await suspended(journal)
        await answer(journal, "r", path, True, who="ann")
        await journal.rewind("r", "refine/1/execute")
        assert await suspended(journal) == path
        await answer(journal, "r", path, {"approve": False}, who="bob")
        assert (await run(asking(), journal=journal, run_id="r")).reason is Reason.STOPPED
        await journal.close()

    asyncio.run(story())


def test_a_suspended_run_can_be_cancelled(make: Make) -> None:
    """Findings 1: `cancel` of a suspended run answered False; now it ends the run as cancelled, with what it had."""

    async def story() -> None:
        journal = make()
        path = await suspended(journal)
        assert await journal.cancel("r") is True
        info = await journal.find("r")
        assert (info.status, info.reason) == ("cancelled", "cancelled")
        assert await pending(journal, "r") == []
        with pytest.raises(ConfigurationError, match="no question of this run is open"):
            await answer(journal, "r", path, True)
        result = await run(asking(), journal=journal, run_id="r")
        assert (result.status, result.output) == (Status.CANCELLED, "a")
        assert await journal.cancel("r") is False
        await journal.close()

    asyncio.run(story())
