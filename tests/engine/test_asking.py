"""A step asks a person: the run waits, and goes on with the answer."""

from __future__ import annotations

from typing import Any

from loopwright import Context, MemoryJournal, Reason, Status, run, step
from loopwright.journal import Entry, RunInfo


@step(idempotent=True)
async def publish(value: Any, ctx: Context) -> Any:
    return {"published": value, "by": ctx.ask("who", {"question": "who signs?"}, "who signs?")}


async def test_a_question_suspends_the_run_and_the_recorded_answer_lets_it_go_on() -> None:
    """ctx.ask suspends with the request until an `answered` entry is at its path; then it returns
    the answer, in this process and after any restart."""
    journal = MemoryJournal()
    first = await run(publish, "text", journal=journal, run_id="r")
    assert (first.status, first.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert first.request == {"path": "publish/who", "question": "who signs?"}
    log = await journal.open(RunInfo("r", "publish"), resume=True)
    log.append(Entry("answered", "publish/who", 0.0, value="Ann"))
    await log.close(log.info)
    for _ in range(2):
        again = await run(publish, journal=journal, run_id="r")
        assert (again.status, again.output) == (
            Status.SATISFIED,
            {"published": "text", "by": "Ann"},
        )


async def test_a_question_without_a_journal_is_warned_of() -> None:
    """Nobody can answer where nothing is kept, so the result says what to give."""
    result = await run(publish, "text")
    assert result.status is Status.SUSPENDED
    assert result.warnings == (
        "no_journal: a run without a journal cannot receive answers; use one: journal='sqlite:…'",
    )
