"""A finished run id belongs to its input and code (issue 11, section 2; contract 13)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, MemoryJournal, Workflow, run, step
from loopwright.errors import ReplayMismatch
from loopwright.journal.sqlite import SqliteJournal
from loopwright.testing import run_virtual

from .support import play


def double(value: Any) -> Any:
    """Return the value twice."""
    return value * 2


def triple(value: Any) -> Any:
    """Return the value three times."""
    return value * 3


def finished(**options: Any) -> MemoryJournal:
    """Return a journal with the finished run r: one loop over `double`, of the input 2."""
    journal = MemoryJournal()
    play(Loop(double, until=MaxIterations(1), name="l"), 2, journal=journal, run_id="r", **options)
    return journal


def test_a_finished_run_is_refused_with_another_input() -> None:
    """Rule: another input is refused as for an unfinished run, and both inputs are named."""
    journal = finished()
    with pytest.raises(
        ReplayMismatch, match="r: its input was 2 when it was recorded, now it is 3"
    ):
        play(Loop(double, until=MaxIterations(1), name="l"), 3, journal=journal, run_id="r")
    assert run_virtual(journal.find("r")).status == "exhausted"


def test_a_finished_run_is_refused_with_other_code() -> None:
    """Rule: other code is refused as for an unfinished run, and the functions are named."""
    journal = finished()
    before = run_virtual(journal.find("r"))
    with pytest.raises(ReplayMismatch, match="l changed since the run was recorded") as caught:
        play(Loop(triple, until=MaxIterations(1), name="l"), 2, journal=journal, run_id="r")
    assert "the function l/double, the function l/triple" in str(caught.value)
    assert (caught.value.recorded, caught.value.now == before.fingerprint) == (
        before.fingerprint,
        False,
    )
    again = play(
        Loop(triple, until=MaxIterations(1), name="l"), 2,
        journal=journal, run_id="r", accept_changes=True,
    )  # fmt: skip
    assert again.output == 4  # the recorded result: nothing of a finished run is done again


def test_a_finished_run_is_refused_with_another_step() -> None:
    """Rule: a step of another name is refused, and both names are named."""
    with pytest.raises(ReplayMismatch, match="recorded as 'l', not as 'double'"):
        play(step(double), 2, journal=finished(), run_id="r")


def test_a_refused_run_keeps_its_row_in_sqlite(tmp_path: Path) -> None:
    """Rule: a refusal changes nothing: status, reason and result stay as they were."""

    async def story() -> None:
        async with SqliteJournal(tmp_path / "runs.db") as journal:
            work = Workflow("w", {"a": step(double)})
            first = await run(work, 2, journal=journal, run_id="r")
            before = await journal.find("r")
            with pytest.raises(ReplayMismatch):
                await run(work, 3, journal=journal, run_id="r")
            after = await journal.find("r")
            assert (after.status, after.reason, after.detail) == (
                before.status, before.reason, before.detail,
            )  # fmt: skip
            assert (await run(work, 2, journal=journal, run_id="r")).output == first.output

    asyncio.run(story())
