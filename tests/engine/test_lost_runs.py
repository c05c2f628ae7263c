"""A run that another owner takes over: its call in flight is cancelled, and the other owner repeats it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import Context, Loop, MaxIterations, run, step
from loopwright.errors import ConfigurationError, OwnershipLost
from loopwright.journal import Journal, MemoryJournal, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.recorded.log import DurableLog
from loopwright.journal.sqlite import SqliteJournal

STORES = ("memory", "sqlite", "postgres")


def journals(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Journal, Journal]:
    """Return two journals on one store, as two processes have them."""
    if kind == "memory":
        journal = MemoryJournal()
        return journal, journal
    if kind == "sqlite":
        return SqliteJournal(tmp_path / "r.db", beat=0.05), SqliteJournal(tmp_path / "r.db")
    url = request.getfixturevalue("postgres_url")
    return PostgresJournal(url, beat=0.05), PostgresJournal(url)


@pytest.mark.parametrize("kind", STORES)
async def test_a_lost_run_cancels_its_call(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The former owner's call ends without waiting for its result, and `run` raises OwnershipLost."""
    one, two = journals(kind, tmp_path, request)
    begun = asyncio.Event()
    cancelled: list[int] = []

    async def slow(value: Any, ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(ctx.iteration)
            raise
        return "never"

    async def quick(value: Any) -> str:
        return "done"

    def loop(step: Any) -> Loop[Any, Any]:
        return Loop(step, until=MaxIterations(1), name="work")

    first = asyncio.ensure_future(run(loop(slow), "x", journal=one, run_id="r"))
    await begun.wait()
    result = await run(
        loop(quick), journal=two, run_id="r", takeover=True, accept_changes=True, in_doubt="rerun"
    )
    assert result.output == "done"
    with pytest.raises(OwnershipLost, match="another owner took this run over"):
        await asyncio.wait_for(first, 10)
    assert cancelled == [1]
    await one.close()
    await two.close()
    assert (await two.find("r")).status == "exhausted"
    await two.close()


async def test_a_loss_is_told_once(tmp_path: Path) -> None:
    """However often the store finds the other owner: each time would cancel the run again while it is released."""
    async with SqliteJournal(tmp_path / "r.db") as journal:
        log = await journal.open(RunInfo("r", "work", None))
        assert isinstance(log, DurableLog)
        told: list[int] = []
        log.on_lost = lambda: told.append(1)
        for _ in range(2):
            log.take_away()
            await asyncio.sleep(0)
        assert told == [1]


@pytest.mark.parametrize("kind", STORES)
async def test_a_step_may_finish_its_call(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With `on_lost="finish"` a call of the former owner ends before `run` raises; its result is not recorded."""
    one, two = journals(kind, tmp_path, request)
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def pay(value: Any) -> str:
        begun.set()
        await may_end.wait()
        ended.append("former")
        return "former"

    async def other(value: Any) -> str:
        may_end.set()
        return "new"

    def loop(function: Any) -> Loop[Any, Any]:
        paying = step(function, name="pay", fingerprint="pay/1", on_lost="finish")
        return Loop(paying, until=MaxIterations(1), name="work")

    first = asyncio.ensure_future(run(loop(pay), "x", journal=one, run_id="r"))
    await begun.wait()
    result = await run(loop(other), journal=two, run_id="r", takeover=True, in_doubt="rerun")
    with pytest.raises(OwnershipLost):
        await asyncio.wait_for(first, 10)
    assert (result.output, ended) == ("new", ["former"])
    outputs = [entry.value for entry in await two.entries("r") if entry.kind == "finished"]
    assert outputs == ["new"]
    await one.close()
    await two.close()


async def test_a_run_lost_before_its_last_commit_raises(tmp_path: Path) -> None:
    """The end of a run that another owner has is not recorded, so `run` raises OwnershipLost and returns no result."""
    one, two = SqliteJournal(tmp_path / "r.db"), SqliteJournal(tmp_path / "r.db")

    async def take_over(result: object) -> None:
        log = await two.open(await two.find("r"), takeover=True)
        await log.close(log.info)

    loop = Loop(lambda value: value, until=MaxIterations(1), name="l", on_terminate=take_over)
    with pytest.raises(OwnershipLost, match="another owner took this run over"):
        await run(loop, "x", journal=one, run_id="r")
    await one.close()
    assert [e.path for e in await two.entries("r") if e.kind == "ended"] == ["l"]
    await two.close()


def test_another_policy_is_refused() -> None:
    """`on_lost` has two values."""
    with pytest.raises(ConfigurationError, match="on_lost: 'wait' is not 'cancel' or 'finish'"):
        step(print, on_lost="wait")


@pytest.mark.parametrize("kind", STORES)
async def test_a_queued_run_begins_with_its_own_input(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`run` with the id of a queued run starts it with the input that was submitted."""
    from loopwright.journal import RunInfo

    one, two = journals(kind, tmp_path, request)
    loop = Loop(lambda value: value * 2, until=MaxIterations(1), name="double")
    await one.create([RunInfo("r", "double", 21, queue="q", created=1.0, updated=1.0)])
    result = await run(loop, journal=two, run_id="r")
    assert result.output == 42
    assert (await one.find("r")).queue == "q"
    await one.close()
    await two.close()
