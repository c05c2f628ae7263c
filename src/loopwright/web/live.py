"""The streams: what happened since the last entry that a page has, sent as it is committed.

The number of an entry is the id of its event, so that a browser that lost the connection says by
itself where it was.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..codec import Json
from ..errors import LoopwrightError
from ..records import Iteration
from ..stores.views import RunView
from .reading import number_in, run_in, wanted_in
from .records import Wanted, main_loop
from .rendering import macro
from .shapes import best_of, points_of, rows_of, run_of

if TYPE_CHECKING:
    from .app import Page

__all__ = ["run_events", "runs_events"]

QUIET = 15.0  # seconds without news after which a stream shows that it is there
GAP = 0.08  # seconds between two events of a run's page
HEAD_GAP = 0.5  # seconds between two tellings of which effects are in flight
LIST_GAP = 0.5  # seconds between two looks at a list
LIST_SHARE = 40  # times as long as a look at a list took, it is left alone
STALE = 5.0  # seconds after which a look is not shared: a process that died commits nothing
MOST_LOOKS = 200  # runs whose latest news are kept for the next who asks
_RETRY = "retry: 300\n\n"


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _event(data: Json, number: int | None = None) -> str:
    name = f"id: {number}\n" if number is not None else ""
    return f"{name}data: {json.dumps(data, separators=(',', ':'))}\n\n"


async def run_events(page: Page, request: Request) -> Response:
    """What happens in a run after an entry."""
    run_id = run_in(request)
    told = request.headers.get("last-event-id", "")
    after = int(told) if told.isascii() and told.isdigit() and len(told) < 12 else None
    if after is None:
        after = number_in(request, "after")
    rewinds = number_in(request, "rewinds")
    await page.records.look(run_id, page.folds.of)  # a run that is not there is a 404, no stream
    return _stream(_of_run(page, run_id, after, rewinds))


async def _of_run(page: Page, run_id: str, seq: int, rewinds: int) -> AsyncIterator[str]:
    yield _RETRY
    shown, told_at = "", 0.0
    while not page.closing:
        state = page.feed.state(run_id)
        now = time.monotonic()
        full = now - told_at >= HEAD_GAP
        try:
            last, data = await _shared(page, run_id, ((state, now // STALE), seq, rewinds, full))
        except LoopwrightError as error:
            yield _event({"problem": str(error)})
            return
        if data and (last > seq or data["head"] != shown):
            seq, shown, told_at = last, str(data["head"]), time.monotonic()
            yield _event(data, last)
            await asyncio.sleep(GAP)
        patience = QUIET if data else HEAD_GAP  # what was passed over is told soon
        while not page.closing and not await page.feed.wait_for(run_id, state, patience):
            yield ": here\n\n"
            break


Known = tuple[object, int, int, bool]


async def _shared(page: Page, run_id: str, known: Known) -> tuple[int, dict[str, Json]]:
    """Return what is new in a run to who knows so much; who knows the same shares one look."""
    _, seq, rewinds, full = known
    latest = page.looks.get(run_id)
    if latest is None or latest[0] != known or latest[1].cancelled():
        look = page.records.look(run_id, lambda view: _news(page, view, seq, rewinds, full=full))
        latest = page.looks[run_id] = known, asyncio.ensure_future(look)
        if len(page.looks) > MOST_LOOKS:
            del page.looks[next(iter(page.looks))]
    return await asyncio.shield(latest[1])


def _news(
    page: Page, view: RunView, seq: int, rewinds: int, *, full: bool
) -> tuple[int, dict[str, Json]]:
    """Return the number of the last entry, and what is new after `seq`.

    Unless it is `full`, effects that began or ended are no news yet: those come many a second.
    """
    fold = page.folds.of(view)
    entries = view.since(seq) if fold.last > seq else []
    if not full and view.info.status == "running" and all(e.kind in _SMALL for e in entries):
        return seq, {}
    head = macro("head", run_of(view, main_loop(view), fold))
    data: dict[str, Json] = {"head": head, "status": view.info.status}
    if not entries:
        return max(fold.last, seq), data
    again = ("rewound", "asked", "suspended")
    if fold.rewinds > rewinds or any(entry.kind in again for entry in entries):
        return fold.last, {**data, "reload": True}
    recorded: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "iteration" and isinstance(entry.value, Iteration):
            recorded.setdefault(entry.path, []).append(entry.value.number)
    loops = {loop: _grown(view, loop, numbers) for loop, numbers in recorded.items()}
    return fold.last, {**data, "loops": loops}


_SMALL = ("started", "finished", "cut")


def _grown(view: RunView, loop: str, numbers: list[int]) -> dict[str, Json]:
    """Return the new rows and points of a loop, and which iteration is its best."""
    whole = view.outline(loop)
    marks = [mark for mark in whole if mark[1].number in set(numbers)]
    best = best_of(whole)
    rows = [[row.number, macro("line", row)] for row in rows_of(loop, marks, best)]
    return {"rows": rows, "points": points_of(marks), "best": best, "count": len(whole)}


async def runs_events(page: Page, request: Request) -> Response:
    """What changes in a page of the run list."""
    wanted = wanted_in(request)
    return _stream(_of_list(page, wanted))


async def _of_list(page: Page, wanted: Wanted) -> AsyncIterator[str]:
    yield _RETRY
    shown: dict[str, str] = {}
    while not page.closing:
        turn, began = page.feed.turn, time.monotonic()
        try:
            listing = await page.records.listing(wanted)
        except LoopwrightError as error:
            yield _event({"problem": str(error)})
            return
        rows = {row.info.run_id: macro("run_line", row) for row in listing.rows}
        changed = {run_id: html for run_id, html in rows.items() if shown.get(run_id) != html}
        if shown and (changed or list(rows) != list(shown)):
            yield _event({"rows": changed, "order": list(rows)})
        shown = rows
        took = time.monotonic() - began
        await asyncio.sleep(max(LIST_GAP, LIST_SHARE * took))
        while not page.closing and not await page.feed.wait(turn, QUIET):
            yield ": here\n\n"
