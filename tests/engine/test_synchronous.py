"""`run_sync` and `resume_sync` from synchronous code, also inside a running event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
import types
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, MemoryJournal, resume_sync, run_sync
from loopwright.errors import ConfigurationError, LoopwrightWarning

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("PLACE", default="")


def double(value: int) -> int:
    return value * 2


async def test_run_sync_inside_an_event_loop_has_a_result_and_a_warning() -> None:
    """The run has a thread; the result and Python both say that the event loop was blocked."""
    with pytest.warns(LoopwrightWarning, match="use: await run"):
        result = run_sync(double, 4)
    assert result.output == 8
    assert result.warnings[0].startswith("blocking_event_loop: ")


async def test_a_notebook_is_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython always runs an event loop, and a cell that waits is what its author wants."""
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = object
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert run_sync(double, 4).warnings == ()


@pytest.mark.filterwarnings("ignore::loopwright.errors.LoopwrightWarning")
async def test_the_thread_has_the_context_variables_of_the_caller() -> None:
    """A copy: what the run sets does not reach the caller."""
    PLACE.set("caller")
    places: list[str] = []

    async def remember(value: str) -> str:
        places.append(PLACE.get())
        PLACE.set(value)
        return value

    run_sync(remember, "run")
    assert (places, PLACE.get()) == (["caller"], "caller")


@pytest.mark.filterwarnings("ignore::loopwright.errors.LoopwrightWarning")
async def test_an_error_of_the_run_reaches_the_caller() -> None:
    """What `run` raises, `run_sync` raises, from the thread too."""
    with pytest.raises(ConfigurationError):
        run_sync(double, 1, run_id="a b")


@pytest.mark.filterwarnings("ignore::loopwright.errors.LoopwrightWarning")
def test_an_interrupt_cancels_the_run_and_is_raised_again() -> None:
    """Ctrl-C in a notebook cell ends the step that is running, and then the cell."""
    cancelled = threading.Event()

    async def wait(value: int) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return value

    async def cell() -> None:
        run_sync(wait, 1)

    loop = asyncio.new_event_loop()
    # A shell starts a command in the background with SIGINT ignored, and pytest inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()
    assert cancelled.is_set()


def test_resume_sync_raises_a_limit_and_continues() -> None:
    """`resume_sync` takes the limits and options of `resume`."""
    journal = MemoryJournal()
    loop = Loop(double, name="l", until=MaxIterations(2))
    assert run_sync(loop, 1, journal=journal, run_id="r").iterations == 2
    assert resume_sync(loop, "r", journal=journal, max_iterations=3).iterations == 3
