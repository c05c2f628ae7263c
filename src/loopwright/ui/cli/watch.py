"""`watch`: follow a run of another process to its end."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from ...conditions import Budget
from ...errors import JournalUnavailable
from ...journal import Entry, Journal, RunInfo, surviving
from ...journal.protocol import shown_url
from ...journal.questions import open_questions
from ...journal.replay import recorded_result
from ...journal.views import LiveLines
from .. import formatting as texts
from ..journals import DEFAULT, find_run, opened
from ..run_summary import in_doubt, is_for_workers, recorded_json, wait_of
from .live import LinesView, report_interruption, report_result, reports_conditions, view_of
from .options import AsJson, JournalUrl, RunName, Verbose
from .output import INTERRUPTED, Output

POLL_SECONDS = 0.2  # seconds between two reads of the journal
WAITING_SECONDS = 1.0  # seconds between two reads while no worker has the run
PATIENCE = 50  # failed reads in a row, 10 s, before the error is reported: a database may be locked or moved


def watch(
    name: RunName, journal: JournalUrl = DEFAULT, verbose: Verbose = False, as_json: AsJson = False
) -> int:
    """Follow a run of another process to its end.

    A submitted run is followed until it ends or waits for a person, also if its worker ends.

    Exit codes: those of the run; 130 if its process has ended. Ctrl-C stops watching, not the run.

    Examples:
        loopwright watch last
        loopwright watch last --json
    """
    with Output(as_json=as_json) as output:
        try:
            info, entries = asyncio.run(_watch(name, journal, output, verbose=verbose))
        except KeyboardInterrupt:
            output.note("stopped watching; the run continues")
            return INTERRUPTED
        result = recorded_result(info, entries)
        interrupted = info.status == "interrupted"
        if as_json:
            output.write_json(recorded_json(info, entries))
        elif interrupted:
            cause = "the end of its process"
            report_interruption(
                result,
                output,
                journal,
                cause=cause,
                source=info.source,
                doubt=in_doubt(info, entries),
            )
        else:
            report_result(result, output, journal, open_questions(surviving(entries)), info=info)
        return INTERRUPTED if interrupted else result.status.exit_code


async def _watch(
    name: str, url: str, output: Output, *, verbose: bool
) -> tuple[RunInfo, list[Entry]]:
    async with opened(url) as store:
        info = await find_run(store, name)
        bounds: dict[str, Any] = info.source.get("bounds") or {}
        loops: list[dict[str, Any]] = bounds.get("loops") or [{}]
        until = loops[0].get("until", ())
        conditions: dict[str, Any] = {tag: value for item in until for tag, value in item.items()}
        budget = bounds.get("budget") or conditions.get("budget")
        view = view_of(
            output,
            verbose=verbose,
            conditions=reports_conditions(info.source),
            cap=Budget(**budget) if budget else None,
            seconds=conditions.get("timeout", {}).get("seconds", math.inf),
        )
        view.recall(
            f"{texts.one_line(info.name)}: run {info.run_id} in {shown_url(url)}",
            [],
            info.source.get("bounds"),
        )
        async with view:
            return await _follow(store, info.run_id, view, shared=is_for_workers(info, url))


async def _follow(
    store: Journal, run_id: str, view: LinesView, *, shared: bool = False
) -> tuple[RunInfo, list[Entry]]:
    """Show every entry once, in order, until the run is no longer running.

    A run of `shared` workers is followed while it waits for one.
    """
    live: LiveLines = getattr(store, "live", None) or LiveLines()
    entries: list[Entry] = []
    misses = 0
    cause = ""
    while True:
        try:
            # The row is read first, so that no entry before the end is missed.
            info = await store.find(run_id)
            fresh = await store.entries(run_id, after=entries[-1].seq if entries else 0)
            wait = await wait_of(store, info) if shared else None
        # A database on a network drive or under a backup may be unavailable for a moment.
        except JournalUnavailable:
            misses += 1
            if misses > PATIENCE:
                raise
            await asyncio.sleep(POLL_SECONDS)
            continue
        misses = 0
        # Only the recorded part can be reduced; a rewind while watching is shown as it happens.
        for entry in fresh if entries else surviving(fresh):
            view.show_entry(entry)
        entries += fresh
        for path in list(view.progress.in_flight):
            if (call := live.read(run_id, path)) is not None:
                view.progress.set_text(path, "\n".join(call.lines))
        if wait is not None and wait.cause != cause:
            view.show_wait(wait.text)
        cause = "" if wait is None else wait.cause
        if info.status != "running" and wait is None:
            return info, entries
        await asyncio.sleep(POLL_SECONDS if wait is None else WAITING_SECONDS)
