"""Hints of people in the tasks of coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopwright import Context, Loop, MaxIterations, Reason, resume, run, signal, steer, step
from loopwright.journal import open_journal

from .test_agent_waits import ENDS, EVENT, asks, prompts, waiting

HINT = "\n\nHints of a person:\n<hint>\nLeave the tests alone.\n</hint>"


async def test_a_task_that_does_not_use_the_name_gets_the_hints(tmp_path: Path) -> None:
    """A session that continues gets new hints only, and a wait in the middle changes no prompt."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    worker = waiting(tmp_path, "claude", ENDS, asks(EVENT), session="loop")

    async def execute(value: Any, ctx: Context) -> Any:
        if ctx.iteration == 1:
            await steer("r", "Leave the tests alone.", journal=journal)
            while ctx.run.steering is None:
                await ctx.sleep(0.01)
        return await ctx.call("worker", worker, value) if ctx.iteration >= 3 else value

    loop = Loop(step(execute), name="l", until=MaxIterations(4))
    left = await run(loop, "x", journal=journal, run_id="r", on_wait="leave")
    assert left.reason is Reason.WAITING
    for _ in range(2):
        await signal("ci", key="k", journal=journal)
    result = await resume(loop, "r", journal=journal, on_wait="leave")
    assert result.iterations == 4, result.detail
    texts = prompts(await journal.entries("r"))
    assert [HINT in text for text in texts] == [True, False, False, False]
