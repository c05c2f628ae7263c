"""The result of a recorded run that has not ended, and the end that a person gives it."""

from __future__ import annotations

from dataclasses import replace

from loopwright.journal import MemoryJournal
from loopwright.journal.replay import recorded_result

from .recording import info, record, rounds


async def test_a_cancelled_run_keeps_the_loops_that_it_had() -> None:
    """A run that waits for a worker has the same output and loops before and after it is cancelled.

    The second loop of a name has its path as its key.
    """
    journal = MemoryJournal()
    waiting = info(status="queued", name="both", queue="default")
    await journal.create([waiting])
    log = await journal.open(waiting, resume=True)
    await record(log, [*rounds(2, "both/a/refine"), *rounds(1, "both/b/refine")])
    await log.close(replace(log.info, status="interrupted"))
    before = recorded_result(
        await journal.find(waiting.run_id), await journal.entries(waiting.run_id)
    )
    assert await journal.cancel(waiting.run_id)
    after = recorded_result(
        await journal.find(waiting.run_id), await journal.entries(waiting.run_id)
    )
    assert list(after.loops) == list(before.loops) == ["refine", "both/b/refine"]
    assert (after.output, after.usage) == (before.output, before.usage)
