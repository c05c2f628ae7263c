"""Plain functions beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from loopwright.engine import functions as threads
from loopwright.engine.functions import in_thread


def test_a_thread_that_outlives_its_loop_ends_in_silence() -> None:
    """What a function returns after its event loop was closed reaches nobody and harms nobody."""
    release, ended = threading.Event(), threading.Event()

    def late() -> None:
        release.wait(30)
        ended.set()

    async def work() -> None:
        task = asyncio.ensure_future(in_thread(late))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    release.set()
    assert ended.wait(30)
    for thread in threading.enumerate():
        if thread.name.startswith("loopwright"):
            thread.join(30)


def test_a_caller_that_went_away_is_not_told() -> None:
    """A cancelled caller stops waiting at once; the value that comes later is dropped."""
    release = threading.Event()

    async def work() -> None:
        task = asyncio.ensure_future(in_thread(release.wait, 60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert not release.is_set()
        release.set()
        await in_thread(lambda: None)

    asyncio.run(work())


def test_threads_are_bounded() -> None:
    """At most AT_ONCE functions run at a time; the next one begins when one has ended."""
    release = threading.Event()
    running = threading.Semaphore(0)

    def hold() -> None:
        running.release()
        release.wait(60)

    async def work() -> str:
        held = [asyncio.ensure_future(in_thread(hold)) for _ in range(threads.AT_ONCE)]
        await asyncio.sleep(0)
        waits = asyncio.ensure_future(in_thread(lambda: "served"))
        await asyncio.sleep(0)
        assert not waits.done()
        release.set()
        await asyncio.gather(*held)
        return await waits

    assert asyncio.run(work()) == "served"
