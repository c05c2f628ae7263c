"""Submitting runs: their rows in the journal first, then a delivery for each that may start now.

An id has one run, and a schedule one run that waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine.run_record import described, fresh_row
from ..engine.step import Step, StepLike, as_step
from ..errors import ReplayMismatch, RunNotFound
from ..journal import Journal, RunInfo, open_journal
from ..journal.protocol import DAMAGED
from ..journal.questions import SCHEDULE, runs_of_schedule
from ..journal.recorded.journal import RecordedJournal
from ..records import codec
from ..records.codec import Json
from .delivery import DEFAULT_QUEUE, Deliverer, Delivery, open_deliverer, queue_name
from .schedules import at_tick, free_row, proceed
from .shared_runs import (
    CARRIED,
    SUBMITTED_AS,
    SharedRuns,
    exact_run,
    is_over,
    open_runs,
    run_id_of,
)

__all__ = ["Submission", "place", "requeue", "submit", "submit_all", "wait_until_over"]

_BATCH = 500  # rows per transaction
_POLL = 0.1  # seconds between two looks at a run


class Submission:
    """A step to submit, with the way in which workers load it.

    Args:
        step: a Loop, a Workflow, another step or a function.
        source: how a worker loads it; empty for a step that workers have by name.
        queue: the name of the queue. Default: `default`.
        priority: runs with a higher number start first. Default: 0.
        at: when it may start, in seconds since the epoch. Default: now.
        delay: after how many seconds it may start, by the clock of the journal; in place of `at`. Default: 0.
        pinned: whether workers must have the same fingerprint. Default: True.
        cron: times at which it is repeated, as five fields of cron in UTC. Default: once.
        tags: the tags of its runs. Default: none.

    Example:
        >>> Submission(lambda text: text.upper(), queue="slow").queue
        'slow'
    """

    def __init__(
        self,
        step: StepLike,
        *,
        source: Mapping[str, Json] | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: float | None = None,
        delay: float = 0.0,
        cron: str = "",
        pinned: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.step: Step = as_step(step)
        self.source = dict(source or {})
        self.queue = queue_name(queue)
        self.priority = priority
        self.at = at
        self.delay = delay
        self.cron = cron
        self.pinned = pinned
        self.tags = tags

    def row(self, value: Any, given: str, now: float | None = None) -> RunInfo:
        """Return the row of the run with an input and an id of the caller; `now` is the time of the journal, by default that of here."""
        now = time.time() if now is None else now
        start = now + self.delay if self.delay else self.at or 0.0
        if self.step.complete_input is not None:
            value = self.step.complete_input(value)
        run_id = "" if not given or self.cron else run_id_of(given)
        fresh = fresh_row(self.step, value, run_id, self.tags)
        named = {SUBMITTED_AS: given} if given else {}
        row = described(fresh, self.step, {**self.source, **named}, None)
        row = replace(row, status="queued", queue=self.queue, priority=self.priority, wake_at=start)
        # Without a fingerprint any version of the step may run it.
        if not self.pinned:
            row = replace(row, fingerprint="")
        if self.cron:
            return at_tick(row, self.cron, given or row.name, now)
        return row


async def submit(
    step: StepLike | Submission,
    value: Any = None,
    *,
    journal: Journal | str,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    at: float | None = None,
    id: str = "",  # as on the command line
    deliverer: Deliverer | str = "",
) -> str:
    """Submit a run for the workers of a journal, and return its ID once it is durable.

    Args:
        step: a step that workers have under the same name and fingerprint, or a Submission.
        value: its input, any JSON value.
        journal: the URL of the journal, such as `postgres://HOST/DATABASE`, or a Journal.
        queue: the name of the queue. Default: `default`.
        priority: runs with a higher number start first. Default: 0.
        at: when it may start, in seconds since the epoch. Default: now.
        id: submitting is idempotent: an id has one run. Default: a new run.
        deliverer: a Deliverer, or `NAME` or `NAME:ADDRESS` of one. Default: `pgqueuer`.

    Returns:
        The ID of the run.

    Raises:
        ConfigurationError: for an invalid argument or input.
        ReplayMismatch: if the id has a run with another input, step or queue.
        JournalError: if the journal is unavailable.

    Example:
        >>> import asyncio
        >>> from loopwright.cluster import InMemoryDeliverer, submit
        >>> from loopwright.journal import MemoryJournal
        >>> async def example() -> None:
        ...     journal, deliverer = MemoryJournal(), InMemoryDeliverer()
        ...     first = await submit(str.upper, "a", journal=journal, id="a", deliverer=deliverer)
        ...     again = await submit(str.upper, "a", journal=journal, id="a", deliverer=deliverer)
        ...     print(first == again, (await journal.find(first)).status)
        >>> asyncio.run(example())
        True queued
    """
    if not isinstance(step, Submission):
        step = Submission(step, queue=queue, priority=priority, at=at)
    ids = await submit_all(step, [(value, id)], journal=journal, deliverer=deliverer)
    return ids[0]


async def submit_all(
    submission: Submission,
    inputs: Sequence[tuple[Any, str]],
    *,
    journal: Journal | str,
    deliverer: Deliverer | str = "",
) -> list[str]:
    """Submit a run for each pair of an input and an id, and return the IDs once all are durable.

    Args:
        submission: the step and its queue.
        inputs: the inputs with their ids; an empty id is a new run.
        journal: the URL of the journal, or a Journal.
        deliverer: a Deliverer, or `NAME` or `NAME:ADDRESS` of one. Default: `pgqueuer`.

    Returns:
        The IDs of the runs, in the order of the inputs.

    Raises:
        ConfigurationError: for an invalid argument or input.
        ReplayMismatch: if an id has a run with another input, step or queue; nothing is submitted then.
        JournalError: if the journal is unavailable.

    Example:
        >>> import asyncio
        >>> from loopwright.cluster import InMemoryDeliverer, Submission, submit_all
        >>> from loopwright.journal import MemoryJournal
        >>> async def example() -> None:
        ...     ids = await submit_all(
        ...         Submission(str.upper), [("a", ""), ("b", "")], journal=MemoryJournal(),
        ...         deliverer=InMemoryDeliverer())
        ...     print(len(ids))
        >>> asyncio.run(example())
        2
    """
    return [
        row.run_id
        for row, _ in await place(submission, inputs, journal=journal, deliverer=deliverer)
    ]


async def place(
    submission: Submission,
    inputs: Sequence[tuple[Any, str]],
    *,
    journal: Journal | str,
    deliverer: Deliverer | str = "",
) -> list[tuple[RunInfo, bool]]:
    """Submit a run for each pair of an input and an id; return each row, and whether it is new."""
    rows = [submission.row(value, given) for value, given in inputs]
    store = open_journal(journal) if isinstance(journal, str) else journal
    engine = (
        open_deliverer(
            deliverer, journal if isinstance(journal, str) else getattr(journal, "url", "")
        )
        if isinstance(deliverer, str)
        else deliverer
    )
    runs: SharedRuns | None = None
    try:
        runs = open_runs(store)
        # Both connect at the same time. An engine that cannot be reached is reported before a run is created.
        problems = await asyncio.gather(_connected(store), engine.prepare(), return_exceptions=True)
        # The journal first: its messages name the remedy for a database that both use.
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem
        if submission.cron or submission.delay:
            await runs.prepare()
            rows = [submission.row(value, given, runs.now()) for value, given in inputs]
        if submission.cron:
            rows = [await _replaced(store, runs, row) for row in rows]
        await _check_ids(store, rows)
        new: set[str] = set()
        # In batches, so that the first runs start before the last ones are stored.
        for first in range(0, len(rows), _BATCH):
            batch = rows[first : first + _BATCH]
            created = set(await store.create(batch))
            new |= created
            # A crash here loses nothing: the sweeper of a worker enqueues what no engine holds.
            await engine.enqueue(
                [
                    Delivery(row.run_id, row.queue, row.priority)
                    for row in batch
                    if row.run_id in created and not row.wake_at
                ]
            )
        return [(row, row.run_id in new) for row in rows]
    finally:
        if runs is not None:
            await runs.close()
        if isinstance(deliverer, str):
            await engine.close()
        if isinstance(journal, str):
            await store.close()


async def _connected(store: Journal) -> None:
    if isinstance(store, RecordedJournal):
        await store.prepare()


async def requeue(run_id: str, *, journal: Journal) -> None:
    """Let a suspended, queued or interrupted run start again now, and forget its deliveries.

    Args:
        run_id: the run, or a unique beginning of its ID.
        journal: its journal.

    Raises:
        RunNotFound: if there is no such run, or it cannot be started.

    Example:
        >>> import asyncio
        >>> from loopwright.cluster import InMemoryDeliverer, requeue, submit
        >>> from loopwright.journal import MemoryJournal
        >>> async def example() -> None:
        ...     journal = MemoryJournal()
        ...     run_id = await submit(str.upper, "a", journal=journal, deliverer=InMemoryDeliverer())
        ...     await requeue(run_id, journal=journal)
        >>> asyncio.run(example())
    """
    runs = open_runs(journal)
    try:
        info = await journal.find(run_id)
        if not await runs.wake(info.run_id):
            raise RunNotFound(
                f"{info.run_id} is {info.status}; only a waiting run can be started again"
            )
    finally:
        await runs.close()


async def wait_until_over(
    run_id: str,
    *,
    journal: Journal,
    note: Callable[[RunInfo], Awaitable[None]] | None = None,
) -> RunInfo:
    """Wait until a run ends or waits for a person, and return its row; `note` receives each earlier row."""
    while True:
        row = await journal.find(run_id)
        if is_over(row.status) or (row.status == "suspended" and not row.wake_at):
            return row
        if note is not None:
            await note(row)
        await asyncio.sleep(_POLL)


async def _check_ids(store: Journal, rows: Sequence[RunInfo]) -> None:
    """Compare the runs of ids with those that the journal has, before anything is created.

    Raises:
        ReplayMismatch: if a run of the same id has another input, document, step or queue.
    """
    seen: dict[str, RunInfo] = {}
    for row in rows:
        # Without an id of the caller, the run ID is new.
        if SUBMITTED_AS not in row.source or SCHEDULE in row.source:
            continue
        recorded = seen.get(row.run_id) or await exact_run(store, row.run_id)
        seen[row.run_id] = row
        if recorded is not None and (change := _difference(recorded, row)):
            what, before, now = change
            raise ReplayMismatch(
                f"the id {row.source[SUBMITTED_AS]!r} has a run with another {what}, {row.run_id}; nothing was "
                "submitted. Use another id for another run.",
                path="",
                recorded=before,
                now=now,
            )


def _difference(recorded: RunInfo, row: RunInfo) -> tuple[str, str, str] | None:
    """Return what differs and its two values; None for the same run."""
    before, now = codec.digest(recorded.input), codec.digest(row.input)
    if before != now:
        return "input", before, now
    if recorded.name != row.name:
        return "step", recorded.name, row.name
    before, now = _digest(recorded), _digest(row)
    if before and now and before != now:
        return "document", before, now
    # A submission of unpinned Python has no fingerprint.
    if recorded.fingerprint and row.fingerprint and recorded.fingerprint != row.fingerprint:
        return "version of the step", recorded.fingerprint, row.fingerprint
    if recorded.queue != row.queue:
        return f"queue ({recorded.queue})", recorded.queue, row.queue
    return None


def _digest(row: RunInfo) -> str:
    carried = row.source.get(CARRIED)
    return str(carried["digest"]) if isinstance(carried, dict) else ""


async def _replaced(store: Journal, runs: SharedRuns, row: RunInfo) -> RunInfo:
    """Return the run that a schedule queues, after those that wait were cancelled.

    The run of the next time is returned if it is the same, as a submission is idempotent; a paused schedule continues.
    """
    rule = row.source[SCHEDULE]
    for waiting in await runs_of_schedule(store, rule["name"], status="queued"):
        if waiting.status == DAMAGED:
            continue  # it cannot be cancelled, and is returned each time it is delivered
        if waiting.source[SCHEDULE] != rule or _difference(waiting, row) is not None:
            await store.cancel(waiting.run_id)
        elif waiting.wake_at:  # the others were backfilled, or start now
            return await proceed(store, runs, rule["name"]) or waiting
    # The ID of this time is used if its run was cancelled, here or by a person.
    fresh, _ = await free_row(store, row)
    return fresh
