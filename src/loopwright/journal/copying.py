"""Copies of runs and memories from one journal to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from ..errors import JournalDamaged, RunNotFound
from .protocol import Journal, RunInfo, RunLog

_PAGE = 200  # rows of runs read at a time


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome for one run.

    Args:
        run_id: the run.
        problem: why it was not copied; empty if it was.
    """

    run_id: str
    problem: str = ""


async def oldest_first(journal: Journal) -> AsyncIterator[RunInfo]:
    """Yield the rows of all runs of a journal, in the order of their creation."""
    ids: list[str] = []
    while rows := await journal.runs(limit=_PAGE, offset=len(ids)):
        ids += [row.run_id for row in rows]
    for run_id in reversed(ids):
        yield await journal.find(run_id)


async def copy_runs(source: Journal, target: Journal) -> AsyncIterator[Copied]:
    """Copy all runs that have no live owner and that the target does not have yet.

    Entries, answers in the inbox, rewinds and the rows of runs are the same afterwards, except for the
    number of openings.
    """
    async for info in oldest_first(source):
        if info.status == "running":
            yield Copied(info.run_id, "a process is running it")
        elif await _has(target, info.run_id):
            yield Copied(info.run_id, "it exists already")
        else:
            try:
                await _copy(source, target, info)
            except JournalDamaged as error:
                yield Copied(info.run_id, str(error))
            else:
                yield Copied(info.run_id)


async def _has(journal: Journal, run_id: str) -> bool:
    try:
        return (await journal.find(run_id)).run_id == run_id
    except RunNotFound:
        return False


async def _copy(source: Journal, target: Journal, info: RunInfo) -> None:
    entries = await source.entries(info.run_id)
    answers = await source.inbox(info.run_id)
    await target.create([info])
    if info.status != "queued":
        log = await target.open(info, resume=True)
        for entry in entries:
            if entry.kind == "rewound":
                await _settled(log)
                await log.close(replace(log.info, status="interrupted", active=entry.at))
                await target.rewind(info.run_id, entry.path)
                log = await target.open(info, resume=True)
            else:
                log.append(entry)
        await _settled(log)
        await log.close(replace(info, epoch=log.info.epoch, owner=""))
    for answer in answers:
        await target.post(info.run_id, answer)


async def _settled(log: RunLog) -> None:
    if (written := log.sync()) is not None:
        await written
