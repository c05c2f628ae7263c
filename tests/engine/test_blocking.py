"""Deadlines of steps that hold the event loop: nobody can end them, so they are reported."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from loopwright import Loop, MaxIterations, Timeout, run_sync
from loopwright.engine.deadlines import Watched
from loopwright.prompts.tool_prompt import tool_step
from loopwright.tools import tool


class Heard(logging.Handler):
    """Lets a step go on once it was reported."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = threading.Event()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.reported.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("loopwright").addHandler(handler)
    yield handler
    logging.getLogger("loopwright").removeHandler(handler)


def waiting(heard: Heard) -> None:
    heard.reported.wait(60)


@pytest.mark.slow
def test_a_step_that_blocks_past_its_deadline_is_reported_with_its_stack(heard: Heard) -> None:
    """The report names the function and the line, while it lasts and as a warning of the run."""

    async def holds(value: object) -> object:
        waiting(heard)
        return value

    line = holds.__code__.co_firstlineno + 1
    loop = Loop(holds, name="held", until=MaxIterations(1) | Timeout(0.05))
    result = run_sync(loop, 1)
    (warning,) = result.warnings
    assert warning.startswith(
        "blocking_event_loop: held/1/execute: it blocks the event loop past its deadline"
    )
    assert f"holds (test_blocking.py:{line}) > waiting (test_blocking.py:" in warning
    assert warning.endswith("or make it a plain function, which runs in a thread")
    (said,) = heard.said
    assert said.startswith(warning.removeprefix("blocking_event_loop: "))
    assert "waiting(heard)\n" in said


@pytest.mark.slow
def test_a_tool_that_blocks_past_its_time_limit_is_reported(heard: Heard) -> None:
    """The time limit of a tool is a deadline too."""

    @tool(timeout=0.05)
    async def holds(word: str) -> str:
        waiting(heard)
        return word

    result = run_sync(tool_step(holds), {"word": "a"})
    assert [w for w in result.warnings if "holds (test_blocking.py:" in w]


def test_without_a_deadline_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step outside of every deadline costs nothing more."""
    made: list[object] = []
    monkeypatch.setattr(Watched, "__init__", lambda *given: made.append(given))

    async def quick(value: int) -> int:
        return value + 1

    assert run_sync(Loop(quick, until=MaxIterations(3)), 1).iterations == 3
    assert made == []


def test_a_step_that_awaits_is_not_reported() -> None:
    """One that lets the loop go on is ended at its deadline, and there is nothing to report."""
    import asyncio

    async def awaits(value: object) -> None:
        await asyncio.sleep(60)

    result = run_sync(Loop(awaits, until=MaxIterations(1) | Timeout(0.05)), 1)
    assert (result.reason.value, result.warnings) == ("timeout", ())
