"""Waiting for a condition in tests of workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from loopwright.cluster import Worker
from loopwright.journal import Journal

PATIENCE = 60.0  # seconds until a test fails


async def until(condition: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> None:
    """Wait until a condition holds; raise TimeoutError after `patience` seconds."""
    async with asyncio.timeout(patience):
        while not await condition():
            await asyncio.sleep(0.02)


async def until_status(
    journal: Journal, run_id: str, *statuses: str, patience: float = PATIENCE
) -> None:
    """Wait until a run has one of these statuses."""

    async def reached() -> bool:
        return (await journal.find(run_id)).status in statuses

    await until(reached, patience)


@contextlib.asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[Worker]:
    """Let a worker serve; it stops at the end."""
    async with worker:
        task = asyncio.create_task(worker.serve())
        try:
            yield worker
        finally:
            worker.stop()
            await task
