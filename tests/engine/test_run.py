"""Running: a journal in, a Result out."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
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
    Result,
    Status,
    Timeout,
    Usage,
    Workflow,
    resume,
    run,
    run_sync,
    step,
)
from loopwright.engine.run import new_run_id
from loopwright.engine.run_state import SystemClock
from loopwright.errors import ConfigurationError, StepError
from loopwright.testing import run_virtual

from .support import Script, echo, entries_of, play, scripted
from .test_resuming import FINISHED

# What a run is given and gives back.


def test_a_function_is_the_simplest_run() -> None:
    """Its output is the result's, its reason is that it completed."""
    result = play(echo, {"a": (1, 2)})
    assert (result.status, result.reason, result.detail) == (
        Status.SATISFIED, Reason.COMPLETED, "echo completed",
    )  # fmt: skip
    assert (result.output, result.name) == ({"a": [1, 2]}, "echo")
    assert result.unwrap() == {"a": [1, 2]}


def test_a_run_that_fails_is_a_result() -> None:
    """An error of the root step has status failed and says where; nothing is raised."""
    result = play(Script([StepError("no")]))
    assert (result.status, result.reason, result.detail) == (
        Status.FAILED, Reason.ERROR, "Script: no",
    )  # fmt: skip


def test_plain_code_runs_without_an_event_loop() -> None:
    """run_sync starts an event loop for the run."""
    assert run_sync(lambda value: value * 2, 4).output == 8


def test_an_error_of_run_sync_stands_alone() -> None:
    """What is raised does not drag along how run_sync looked for an event loop."""
    with pytest.raises(ConfigurationError) as caught:
        run_sync(echo, 1, run_id="a b")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run_id": "a/b"},
         "run_id: 'a/b' is not a run ID; use 1 to 64 letters, digits, - and _"),
        ({"run_id": "x" * 65}, None),
        ({"value": b"bytes"},
         ("input: bytes is not a JSON value; return text, finite numbers, booleans, lists, "
         "objects with text keys, dataclasses or pydantic models")),
        ({"value": float("nan")}, None),
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_cannot_be_is_refused(options: dict[str, Any], message: str | None) -> None:
    """I10: an id or input that cannot be is a ConfigurationError before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        play(Script([1]), options.pop("value", None), **options)
    assert message is None or str(caught.value) == message


def test_run_ids_sort_by_time_and_do_not_collide() -> None:
    """A thousand runs of one second have a thousand ids."""
    ids = [new_run_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]{6}", run_id) for run_id in ids)


def test_run_ids_of_a_forked_process_differ() -> None:
    """A child that was forked has other ids, also if both processes seed `random` alike."""
    received, sent = os.pipe()
    pid = os.fork()
    random.seed(1)
    if pid == 0:
        os.write(sent, " ".join(new_run_id()[-6:] for _ in range(3)).encode())
        os._exit(0)
    ours = [new_run_id()[-6:] for _ in range(3)]
    os.waitpid(pid, 0)
    assert set(ours).isdisjoint(os.read(received, 100).decode().split())
    os.close(received)
    os.close(sent)


def test_a_run_has_a_budget_of_its_own() -> None:
    """The cap on the whole run binds everything in it; what ended it is the run's reason."""

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1))
        return "x"

    made = step(spends, reserve=Usage(calls=1), name="s")
    loop = Loop(made, name="l", until=MaxIterations(9))
    result = play(loop, budget=Budget(calls=3))
    assert (result.status, result.reason, result.usage.calls, result.output) == (
        Status.EXHAUSTED, Reason.BUDGET, 3, "x",
    )  # fmt: skip
    flow = play(Workflow("w", dict.fromkeys("abcd", made)), budget=Budget(calls=2))
    assert (flow.status, flow.reason, flow.steps) == (
        Status.EXHAUSTED, Reason.BUDGET, {"a": "x", "b": "x"},
    )  # fmt: skip


def test_a_run_that_was_cut_shows_what_its_loops_have() -> None:
    """Without an end of its own a workflow's output is that of the last loop that has one."""
    flow = Workflow("w", {
        "loop": scripted([0.4], until=MaxIterations(1)), "slow": Script(["x"], seconds=60),
    })  # fmt: skip
    outer = Loop(flow, name="outer", until=Timeout(5))
    assert play(outer).output is None

    async def work() -> Result:
        journal = MemoryJournal()
        task = asyncio.ensure_future(run(flow, journal=journal, run_id="r"))
        await asyncio.sleep(2)
        await journal.cancel("r")
        return await task

    result = run_virtual(work())
    assert (result.status, result.output) == (Status.CANCELLED, "output 0.4")


def test_resources_reach_the_steps_that_need_them() -> None:
    """Models, tools and settings are passed in, by name; nothing is global."""

    async def act(value: Any, ctx: Context) -> Any:
        return ctx.run.resources["word"]

    assert play(act, resources={"word": "given"}).output == "given"


# Clocks and stores.


def test_the_system_clock_is_the_machines() -> None:
    """Outside of virtual time seconds are those of the machine, and a pause is a pause."""

    async def work() -> list[float]:
        clock = SystemClock()
        began, wall = clock.monotonic(), clock.wall()
        await clock.sleep(0)
        return [began, clock.monotonic(), wall]

    before = time.monotonic()
    began, ended, wall = asyncio.run(work())
    assert before <= began <= ended <= time.monotonic()
    assert wall > 1.7e9


def test_a_journal_may_be_given_by_its_url(tmp_path: Path) -> None:
    """A URL opens the store for this run and closes it after; what is in it can be resumed."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    first = run_sync(echo, "x", journal=url, run_id="r")
    assert run_sync(echo, journal=url, run_id="r").output == first.output == "x"
    assert asyncio.run(resume(echo, "r", journal=url)).output == "x"


def test_entries_tell_the_whole_story_of_a_run() -> None:
    """I3: exactly one terminal event, and nothing after it, for every kind of ending."""
    for kind, made in FINISHED.items():
        journal = MemoryJournal()
        play(made(), "x", journal=journal, run_id="r")
        entries = entries_of(journal, "r")
        ends = [number for number, e in enumerate(entries) if e.kind == "ended" and not e.path]
        assert ends == [len(entries) - 1], kind


@pytest.mark.parametrize("listeners", [[], [lambda entry: None]])
def test_a_run_that_keeps_nothing_can_be_cancelled_from_outside(listeners: list[Any]) -> None:
    """Without a journal there is nothing to resume; the cancellation is the caller's to see, and
    no less where somebody listens."""

    async def work() -> None:
        task = asyncio.ensure_future(run(Loop(Script(["x"], seconds=9)), listeners=listeners))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(work())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 5}, "run: budget: 5 is not a Budget; use one, such as Budget(usd=0.5)"),
        ({"in_doubt": "rerum"},
         "run: in_doubt: 'rerum' is neither suspend nor rerun; did you mean 'rerun'?"),
        ({"listeners": ["x"]}, "run: listeners: 'x' is not a function"),
        ({"listeners": print},
         "run: listeners: <built-in function print> is not a list; use a list"),
        ({"resources": ["model"]},
         "run: resources: ['model'] is not a mapping; use objects by name, such as {'model': …}"),
        ({"journal": 5},
         "journal: 5 is not a journal; use a Journal, a URL such as sqlite:runs.db, or None"),
        ({"run_id": 5}, "run_id: 5 is not a run ID; use 1 to 64 letters, digits, - and _"),
    ],
)  # fmt: skip
def test_an_option_of_another_kind_is_refused(options: dict[str, Any], message: str) -> None:
    """Options of a run are checked before anything is opened, and say what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        run_sync(echo, 1, **options)
    assert str(caught.value) == message


async def test_a_resume_without_a_journal_is_refused() -> None:
    """There is nothing to go on from."""
    with pytest.raises(ConfigurationError, match="use the journal"):
        await resume(echo, "r", journal=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("journal", [False, True])
def test_a_step_that_cancels_itself_has_failed(journal: bool) -> None:
    """A cancellation that nobody asked for is an error of the step, not the end of the program."""

    async def broken(value: Any) -> Any:
        raise asyncio.CancelledError

    store = MemoryJournal() if journal else None
    result = run_sync(Loop(broken, on_failure="continue"), 1, journal=store)
    assert (result.reason, result.history[0].feedback) == (
        Reason.REPEATED_FAILURE, "CancelledError",
    )  # fmt: skip
    result = run_sync(Loop(broken, guards=Timeout(9)), 1, journal=store)
    assert result.detail == "iteration 1: execute: CancelledError"


class Gone(BaseException):
    """What is no error of a step: it ends the run where it is."""


class CancelledWhileClosed(MemoryJournal):
    """A journal in which somebody cancels a run while it is given back."""

    async def open(self, info: Any, **options: Any) -> Any:
        log = await super().open(info, **options)
        close = log.close

        async def closing(row: Any) -> None:
            log.on_cancel()
            await asyncio.sleep(0)
            await close(row)

        log.close = closing  # type: ignore[method-assign]
        return log


def test_a_cancel_comes_too_late_for_a_run_that_is_over() -> None:
    """What ended a run is told, and its row is written, whoever cancels it while it is given back."""

    async def leaves(value: Any) -> Any:
        raise Gone

    journal = CancelledWhileClosed()
    with pytest.raises(Gone):
        asyncio.run(run(leaves, "x", journal=journal, run_id="r"))
    assert asyncio.run(journal.find("r")).status == "interrupted"
