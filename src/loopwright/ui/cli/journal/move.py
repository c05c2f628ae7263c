"""`journal move`: copy the runs and memories of a journal to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Annotated

import typer

from ....cluster.shared_runs import open_runs
from ....errors import ConfigurationError
from ....journal import Journal
from ....journal.open import Copied, copy_runs
from ....journal.protocol import shown_url
from ... import formatting as texts
from ...journals import DEFAULT, opened
from ..options import AsJson, JournalUrl
from ..output import Output
from . import stored


def journal_move(
    target: Annotated[str, typer.Argument(metavar="URL", help="Journal that receives the runs.")],
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Copy the runs and memories of a journal to another one. Nothing is deleted.

    Examples:
        loopwright journal move sqlite:archive.db
        loopwright journal move postgres://HOST/DATABASE
    """
    with Output(as_json=as_json) as output:
        return asyncio.run(_move(journal, target, output))


async def _move(source_url: str, target_url: str, output: Output) -> int:
    outcomes: list[Copied] = []
    async with opened(source_url) as source, opened(target_url, create=True) as target:
        reads, writes = stored(source, source_url), stored(target, target_url)
        await writes.prepare()
        async for outcome in copy_runs(source, target):
            outcomes.append(outcome)
            if outcome.problem and not output.as_json:
                output.note(f"{outcome.run_id} was not copied: {outcome.problem}")
        there = await writes.memory.spaces()
        # Entries that are appended to an existing space would be there twice.
        spaces = [name for name in await reads.memory.spaces() if name not in there]
        for name in spaces:
            await writes.memory.append(*await reads.memory.entries(name))
        for digest in reads.files.digests():
            writes.files.put(reads.files.get(digest))
        moved = {outcome.run_id for outcome in outcomes if not outcome.problem}
        for run_id in sorted(moved):
            # So that `resume --due` and workers find it. Events stay: a sender sends them to the new journal.
            await target.look_for(await source.waits(run_id))
        await _copy_shared(source, target, moved)
    copied = sum(not outcome.problem for outcome in outcomes)
    if output.as_json:
        left = {outcome.run_id: outcome.problem for outcome in outcomes if outcome.problem}
        output.write_json({"copied": copied, "left": left, "spaces": len(spaces)})
    else:
        output.write(
            f"copied {texts.plural(copied, 'run')} and {texts.plural(len(spaces), 'space')} of memory from "
            f"{shown_url(source_url)} to {shown_url(target_url)}; nothing was deleted"
        )
    return 0


async def _copy_shared(source: Journal, target: Journal, copied: AbstractSet[str]) -> None:
    """Copy where the workspaces of runs are, and what the runs have spent of budgets, if both have workers."""
    try:
        reads, writes = open_runs(source), open_runs(target)
    except ConfigurationError:  # a journal of one machine
        return
    try:
        for host, run_ids in (await reads.pinned()).items():
            for run_id in copied & set(run_ids):
                await writes.pin(run_id, host)
        # An amount that the target has already is not added again.
        await writes.spend([report for report in await reads.spending() if report[1] in copied])
    finally:
        await reads.close()
        await writes.close()
