"""What the tests of journals share: a store under test, its runs and rounds, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from loopwright.journal import Entry, Journal, RunInfo, RunLog
from loopwright.records import Evaluation, Iteration, Usage

SPENT = Usage(calls=2, input_tokens=30, output_tokens=4, usd=0.00125)
LONG = "a line of text, and one more\n" * 40


class Store(Protocol):
    """A journal under test and what can happen to it."""

    journal: Journal

    def crash(self) -> Journal:
        """Let the process that uses it die; return the journal as the next process sees it."""

    async def reopen(self) -> Journal:
        """Close it; return the journal as the next process sees it."""


def info(run_id: str = "run-1", **fields: Any) -> RunInfo:
    """A row with the figures that a test gives."""
    given = {"name": "refine", "status": "satisfied", "created": 1.5, "updated": 2.5, **fields}
    return RunInfo(run_id, **given)


def round_of(number: int, output: Any, **fields: Any) -> Iteration:
    """An iteration with a score and what a test gives."""
    evaluation = Evaluation(number / 100, feedback=f"round {number} needs more")
    return Iteration(number, f"input {number}", output, evaluation, usage=SPENT, **fields)


def rounds(count: int, loop: str = "refine", start: int = 1) -> list[Entry]:
    """What the engine appends for rounds of a loop that executes and evaluates."""
    entries = []
    for i in range(start, start + count):
        path, output = f"{loop}/{i}", f"output {i} of {loop}: {LONG}"
        entries += [
            Entry("started", f"{path}/execute", i, fingerprint=f"f{i}"),
            Entry("finished", f"{path}/execute", i, output, f"f{i}", usage=SPENT, seconds=0.25),
            Entry("iteration", loop, i + 0.5, round_of(i, output), seconds=i + 0.5),
        ]
    return entries


def shown(entries: Sequence[Entry]) -> list[Any]:
    """Entries as JSON, which is how they are compared."""
    return [entry.to_json() for entry in entries]


async def settle(log: RunLog) -> None:
    """Wait until everything appended is durable."""
    pending = log.sync()
    if pending is not None:
        await pending


async def record(log: RunLog, entries: Sequence[Entry]) -> None:
    """Append entries, and wait until they are durable."""
    for entry in entries:
        log.append(entry)
    await settle(log)


async def recorded(journal: Journal, row: RunInfo, entries: Sequence[Entry]) -> None:
    """Make a run that was opened, filled and closed."""
    log = await journal.open(row)
    await record(log, entries)
    await log.close(replace(row, epoch=log.info.epoch))


def rounds_seen(entries: list[Entry]) -> list[Entry]:
    """Entries numbered as a journal numbers them."""
    for number, entry in enumerate(entries, start=1):
        entry.seq = number
    return entries
