"""`watch`: follow a run of another process to its end."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

from ...conditions import Budget
from ...errors import JournalUnavailable
from ...journal import Entry, Journal, RunInfo, surviving
from ...journal.questions import open_questions
from .. import formatting as texts
from ..journals import DEFAULT, find_run, opened, shown_url
from ..run_summary import recorded, recorded_json
from .live import RunDisplay, tells_conditions, view_of
from .options import AsJson, JournalUrl, RunName, Verbose
from .output import Output
from .result import tell_interrupted, tell_result
from .signals import INTERRUPTED

__all__ = ["watch"]

BEAT = 0.2  # seconds between two looks at the journal
PATIENCE = 50  # looks in a row at a journal that cannot be read, before that is told


class _Seen(NamedTuple):
    info: RunInfo
    entries: list[Entry]


def watch(
    name: RunName, journal: JournalUrl = DEFAULT, verbose: Verbose = False, as_json: AsJson = False
) -> int:
    """Follow a run that another process drives, from its beginning to its end.

    Exit codes: those of the run, 130 if its process is gone. Ctrl-C ends the watching, not the run.
    """
    with Output(as_json=as_json) as output:
        try:
            seen = asyncio.run(_followed(name, journal, output, verbose=verbose))
        except KeyboardInterrupt:
            output.note("no longer watched; the run goes on")
            return INTERRUPTED
        return _tell(seen, journal, output)


async def _followed(name: str, url: str, output: Output, *, verbose: bool) -> _Seen:
    async with opened(url) as store:
        info = await find_run(store, name)
        cap, seconds = _bounds(info)
        view = view_of(
            output,
            verbose=verbose,
            conditions=tells_conditions(info.source),
            cap=cap,
            seconds=seconds,
        )
        view.recall(f"{texts.one_line(info.name)} is run {info.run_id} in {shown_url(url)}", [])
        async with view:
            return await _follow(store, info.run_id, view)


def _bounds(info: RunInfo) -> tuple[Budget | None, float]:
    """Return what the run may spend and how many seconds it may take, as recorded with it."""
    bounds: dict[str, Any] = info.source.get("bounds") or {}
    loops: list[dict[str, Any]] = bounds.get("loops") or [{}]
    until = loops[0].get("until", ())
    told: dict[str, Any] = {tag: value for item in until for tag, value in item.items()}
    budget = bounds.get("budget") or told.get("budget")
    seconds = told.get("timeout", {}).get("seconds", math.inf)
    return Budget(**budget) if budget else None, seconds


async def _follow(store: Journal, run_id: str, view: RunDisplay) -> _Seen:
    """Show every entry once, in order, until nobody runs the run any more."""
    entries: list[Entry] = []
    misses = 0
    while True:
        try:
            # The row before the entries: what was written until it says that it ended is then seen.
            info = await store.find(run_id)
            fresh = await store.entries(run_id, after=entries[-1].seq if entries else 0)
        except JournalUnavailable:
            misses += 1
            if misses > PATIENCE:
                raise
            await asyncio.sleep(BEAT)
            continue
        misses = 0
        shown = fresh if entries else surviving(fresh)
        entries += fresh
        for entry in shown:
            view.hear(entry)
        if info.status != "running":
            return _Seen(info, entries)
        await asyncio.sleep(BEAT)


def _tell(seen: _Seen, url: str, output: Output) -> int:
    info, entries = seen
    result = recorded(info, entries)
    if info.status == "interrupted":
        if output.as_json:
            output.give(recorded_json(info, entries))
        else:
            tell_interrupted(result, output, "the end of its process", url)
        return INTERRUPTED
    if output.as_json:
        output.give(recorded_json(info, entries))
    else:
        tell_result(result, output, url, open_questions(surviving(entries)))
    return result.status.exit_code
