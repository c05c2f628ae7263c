"""Budgets that all runs of a queue or of a key share, over workers."""

from __future__ import annotations

import asyncio

import pytest

from loopwright import Budget, Context, Loop, MaxIterations, Usage, step
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit, submit_all
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.cluster.worker import SharedBudgets, accounts_of
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal, RunInfo

from .waiting import serving, until, until_status


async def _pay(value: object, ctx: Context) -> object:
    ctx.spend(Usage(calls=1, input_tokens=100, usd=1.0))
    return value


pay = step(_pay, name="pay", fingerprint="pay/1")
paying = Loop(pay, until=MaxIterations(10), name="paying")


@pytest.fixture
def journal() -> MemoryJournal:
    """A journal in memory."""
    return MemoryJournal()


async def test_a_run_that_has_not_begun_waits_when_the_budget_of_its_queue_is_spent(
    journal: MemoryJournal,
) -> None:
    """Three runs spend three dollars; the others stay in the queue with the reason."""
    deliverer = InMemoryDeliverer()
    ids = await submit_all(
        Submission(pay), [(n, "") for n in range(5)], journal=journal, deliverer=deliverer
    )
    worker = Worker(
        journal=journal,
        steps=[pay],
        queues={"default": 1},
        deliverer=deliverer,
        budgets={"queue:default": Budget(usd=3.0)},
    )

    async def returned() -> bool:
        assert worker.runs is not None
        return len(await worker.runs.returns(ids)) == 2

    async with serving(worker):
        await until(returned)
        assert worker.runs is not None
        reasons = await worker.runs.returns(ids)
    rows = [await journal.find(run_id) for run_id in ids]
    assert sorted(row.status for row in rows) == ["queued", "queued", *["satisfied"] * 3]
    assert {reason for reason, _ in reasons.values()} == {
        "3 of 3 usd of the budget queue:default spent"
    }


async def test_a_run_in_progress_ends_with_its_best_output(journal: MemoryJournal) -> None:
    """A call that costs something is refused like one of a run's own budget."""
    deliverer = InMemoryDeliverer()
    run_id = await submit(paying, 1, journal=journal, deliverer=deliverer, id="batch/1")
    worker = Worker(
        journal=journal,
        steps=[paying],
        deliverer=deliverer,
        budgets={"id:batch": Budget(tokens=400)},
    )
    async with serving(worker):
        await until_status(journal, run_id, "exhausted")
        assert worker.runs is not None
        assert (await worker.runs.spent())["id:batch"].tokens == 400
    row = await journal.find(run_id)
    assert (row.reason, row.detail) == ("budget", "400 of 400 tokens of the budget id:batch spent")
    assert row.usage.calls == 4


async def test_two_workers_share_a_budget(postgres_url: str) -> None:
    """A report replaces the one before of the same run, so a repeated or late one changes nothing."""
    budgets = {"queue:q": Budget(usd=1.0)}
    first, second = PostgresSharedRuns(postgres_url), PostgresSharedRuns(postgres_url)
    await first.prepare()
    one = SharedBudgets(first, budgets).of(RunInfo("one", "one", queue="q"))
    two = SharedBudgets(second, budgets).of(RunInfo("two", "two", queue="q"))
    assert one is not None
    assert two is not None
    await asyncio.gather(one.report(Usage(usd=0.1)), two.report(Usage(calls=2, usd=0.2)))
    await one.report(Usage(usd=0.3))
    await second.spend([("queue:q", "one", Usage(usd=0.1))])
    assert (await first.spent())["queue:q"] == Usage(calls=2, usd=0.5)
    assert await one.used_up() == ""
    await one.report(Usage(usd=0.8))
    assert await two.used_up() != "" or await SharedBudgets(second, budgets).used_up(["queue:q"])
    await first.close()
    await second.close()


def test_a_run_belongs_to_its_queue_and_its_key() -> None:
    """The lines of one file share the part of their keys before the slash."""
    row = Submission(pay, queue="slow").row(1, "batch/7")
    assert accounts_of(row) == ["queue:slow", "id:batch/7", "id:batch"]
    assert accounts_of(RunInfo("r", "r", queue="slow")) == ["queue:slow"]


@pytest.mark.parametrize(
    ("name", "budget"),
    [("nightly", Budget(usd=1)), ("queue:", Budget(usd=1)), ("queue:q", Budget(effects=3))],
)
def test_another_budget_is_refused(name: str, budget: Budget) -> None:
    """A budget names a queue or a key, and limits calls, tokens or dollars."""
    with pytest.raises(ConfigurationError, match="budgets"):
        Worker(journal=MemoryJournal(), deliverer=InMemoryDeliverer(), budgets={name: budget})
