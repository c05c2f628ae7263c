"""Waits: what is recorded, what wakes a run, and that nothing is paid or lost meanwhile."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Status,
    Workflow,
    parallel,
    resume,
    run,
    signal,
    step,
    wait,
)
from loopwright.engine.run_record import fresh_row
from loopwright.engine.step import as_step
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A journal of each kind that needs no server."""
    return MemoryJournal() if request.param == "memory" else open_journal(f"sqlite:{tmp_path}/j.db")


async def registered(journal: Any, run_id: str) -> None:
    """Return once a run waits."""
    while not await journal.waits(run_id):
        await asyncio.sleep(0.01)


def kinds(entries: Any) -> list[tuple[str, str]]:
    return [(entry.kind, entry.path) for entry in entries]


@pytest.mark.parametrize("early", [True, False])
async def test_a_run_takes_an_event_that_came_before_or_after_its_wait(
    early: bool, journal: Any
) -> None:
    """Its value is the output, and a replay returns the same bytes without another look."""

    async def first(value: Any) -> None:
        if early:
            assert (await signal("done", {"ok": True}, key="k", journal=journal)).waiting == 0

    flow = Workflow(
        "flow",
        {
            "first": step(first),
            "ci": wait("ci", event="done", key="k", timeout="1h"),
            "after": step(lambda v, ctx: ctx.outputs["ci"]),
        },
    )
    task = asyncio.ensure_future(run(flow, journal=journal, run_id="r"))
    if not early:
        await registered(journal, "r")
        assert (await signal("done", {"ok": True}, key="k", journal=journal)).waiting == 1
    result = await asyncio.wait_for(task, 10)
    assert (result.output["ended"], result.output["value"]) == ("event", {"ok": True})
    assert await journal.waits("r") == []
    await journal.rewind("r", "flow/after")
    again = await run(flow, journal=journal, run_id="r")
    assert again.output == result.output
    written = kinds(await journal.entries("r"))
    assert written.count(("waiting", "flow/ci")) == written.count(("woken", "flow/ci")) == 1


async def test_a_run_that_leaves_holds_nothing_and_takes_the_event_later(tmp_path: Path) -> None:
    """It is suspended with the reason `waiting`; the time of the run stands; two events end two waits."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    done: list[Any] = []

    async def twice(value: Any, ctx: Context) -> Any:
        first = await ctx.wait("one", event="done")
        await ctx.call("note", lambda v: done.append(v), first["value"])
        second = await ctx.wait("two", event="done")
        return [first["value"], second["value"]]

    left = await run(twice, journal=journal, run_id="r", on_wait="leave")
    if isinstance(
        journal, MemoryJournal
    ):  # it ends with its process, so the run stayed and was cancelled
        pytest.skip("NOT TESTED: a journal in memory cannot be left")
    assert (left.status, left.reason) == (Status.SUSPENDED, Reason.WAITING)
    assert "waits for the event done until" in left.detail
    for n in (1, 2):
        await signal("done", n, key="r", journal=journal)
    result = await resume(twice, "r", journal=journal, on_wait="leave")
    assert (result.output, done) == ([1, 2], [1])
    assert result.seconds < 5


async def test_a_timeout_fails_or_has_a_default() -> None:
    """After the recorded time the wait ends; with a default the step is satisfied."""
    result = await run(
        wait("w", event="never", timeout=0.05, default={"n": 0}), journal=MemoryJournal()
    )
    assert (result.output["ended"], result.output["value"]) == ("timeout", {"n": 0})
    failed = await run(wait("w", event="never", timeout=0.05), journal=MemoryJournal())
    assert failed.status is Status.FAILED
    assert failed.error is not None
    assert (failed.error.kind, "its time limit of 50 ms is over" in failed.error.message) == (
        "wait_timeout",
        True,
    )


async def test_the_first_of_several_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a tie, the one that is declared first wins."""
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    both = {"late": {"for": "1h"}, "file": {"file": "there"}, "now": {"for": 0}}
    result = await run(wait("w", first_of=both), journal=MemoryJournal())
    assert (result.output["ended"], result.output["which"]) == ("file", "file")
    outside = await run(wait("w", file="../x"), journal=MemoryJournal())
    assert outside.error is not None
    assert "is outside of" in outside.error.message


async def test_a_time_has_no_time_limit_of_its_own(tmp_path: Path) -> None:
    """A wait for ten days is not cut after seven; whoever continues runs looks at a file again."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    long = await run(wait("w", for_="10d"), journal=journal, run_id="long", on_wait="leave")
    [row] = await journal.waits("long")
    assert row.due - time.time() > 9.9 * 86_400
    assert long.reason is Reason.WAITING
    await run(wait("w", file="none"), journal=journal, run_id="file", on_wait="leave")
    [row] = await journal.waits("file")
    assert row.due - time.time() < 61


async def test_a_branch_at_work_keeps_the_wait_in_the_process(tmp_path: Path) -> None:
    """With `leave`, the run is suspended once the other branch has ended, and not before."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")

    async def works(value: Any) -> str:
        await registered(journal, "r")
        assert (await journal.find("r")).status == "running"
        return "done"

    both = parallel(wait("w", event="done"), step(works, name="works"), name="both")
    result = await run(both, journal=journal, run_id="r", on_wait="leave")
    assert result.reason is Reason.WAITING
    assert ("finished", "both/works") in kinds(await journal.entries("r"))
    await signal("done", 1, key="r", journal=journal)
    ended = await resume(both, "r", journal=journal)
    assert ended.output["works"] == "done"


async def test_the_time_of_a_run_stands_while_it_waits() -> None:
    """A limit of time of a loop around a wait does not pass, and the records say so."""

    async def execute(value: Any, ctx: Context) -> Any:
        return await ctx.wait("pause", for_=0.6)

    from loopwright import Timeout

    loop = Loop(execute, lambda output: 0.0, until=Timeout(0.3) | MaxIterations(1), name="l")
    result = await run(loop, journal=MemoryJournal())
    assert result.reason is Reason.MAX_ITERATIONS
    assert result.seconds < 0.3


async def test_a_rewound_wait_takes_no_event_twice(tmp_path: Path) -> None:
    """The event before the rewind stays taken, so the wait needs another one."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    waits = wait("w", event="done", key="k", timeout="1h")
    task = asyncio.ensure_future(run(waits, journal=journal, run_id="r"))
    await registered(journal, "r")
    await signal("done", 1, key="k", journal=journal)
    assert (await task).output["value"] == 1
    await journal.rewind("r", "w")
    left = await run(waits, journal=journal, run_id="r", on_wait="leave")
    assert left.reason is Reason.WAITING
    await signal("done", 2, key="k", journal=journal)
    assert (await resume(waits, "r", journal=journal)).output["value"] == 2


async def test_an_event_that_does_not_fit_is_set_aside(tmp_path: Path) -> None:
    """It does not end the wait, a warning names it, and the next one that fits does."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    waits = wait("w", event="done", key="k", schema={"type": "object"}, timeout="1h")
    task = asyncio.ensure_future(run(waits, journal=journal, run_id="r"))
    await registered(journal, "r")
    await signal("done", "text", key="k", journal=journal)
    await signal("done", {}, key="k", journal=journal)
    result = await asyncio.wait_for(task, 10)
    assert result.output["value"] == {}
    assert any(warning.startswith("event_refused: w: event done") for warning in result.warnings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs exactly one of for, at, event, command, file, url, first_of, but has none"),
        ({"for_": 1, "event": "x"}, "but has for and event"),
        ({"for_": "soon"}, "'soon' is not a duration"),
        ({"for_": -1}, "-1 is not a duration"),
        ({"for_": float("nan")}, "nan is not a duration"),
        ({"at": "2026-12-01T08:00"}, "is not a time with an offset"),
        ({"event": ""}, "is not a name"),
        ({"event": "a b"}, "is not a name"),
        ({"event": "x", "since": "now"}, "neither run nor wait"),
        ({"for_": 1, "key": "k"}, "key belongs to event, not to for"),
        ({"file": {"path": "x", "is": "their"}}, "did you mean 'there'?"),
        ({"first_of": {"a": {"for": 1}}}, "needs two waits or more"),
        ({"first_of": {"a": {"for": 1}, "b": {"first_of": {}}}}, "but has first_of"),
        ({"evnt": "x"}, "did you mean 'event'?"),
    ],
)
def test_wrong_waits_are_refused_when_they_are_made(options: dict[str, Any], said: str) -> None:
    """Each problem has its place and what is expected."""
    with pytest.raises(ConfigurationError) as error:
        wait("w", **options)
    assert said in str(error.value)


async def test_listeners_hear_of_a_wait_while_it_waits(journal: Any) -> None:
    """A person at a terminal sees what the run waits for."""
    told: list[Any] = []
    task = asyncio.ensure_future(
        run(wait("w", event="go"), journal=journal, run_id="r", listeners=[told.append])
    )
    while not any(entry.kind == "waiting" for entry in told):
        await asyncio.sleep(0.01)
    await signal("go", key="r", journal=journal)
    assert (await asyncio.wait_for(task, 10)).satisfied


async def test_an_event_that_nobody_took_is_a_warning_at_the_end(journal: Any) -> None:
    """It was for the ID of the run, and no wait of the run has its name."""
    await signal("dnoe", key="r", journal=journal)
    result = await run(
        wait("w", event="done", timeout=0.05, default=None), journal=journal, run_id="r"
    )
    assert [warning.partition(":")[0] for warning in result.warnings] == ["events_left"]


async def test_a_run_of_a_machine_whose_clock_is_ahead_takes_events(tmp_path: Path) -> None:
    """It was created later than any event by that clock; those that come during the wait count."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    step_ = wait("w", event="go", timeout="1h")
    row = fresh_row(as_step(step_), None, "r")
    await journal.create([replace(row, status="queued", created=time.time() + 3600)])
    assert (await run(step_, journal=journal, run_id="r", on_wait="leave")).reason is Reason.WAITING
    await signal("go", 1, key="r", journal=journal)
    assert (await resume(step_, "r", journal=journal, on_wait="leave")).output["value"] == 1
