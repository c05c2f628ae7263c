"""The event streams of a run and of the list: changes after the last entry of a page.

The number of an entry is the ID of its event, so that a browser resumes a lost connection by itself.
An event is rendered once for all open pages of the same run or list.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...errors import LoopwrightError
from ...journal.views import RunView, Wanted
from ...records import Iteration
from ...records.codec import Json
from .events import POLL_SECONDS, EventChannel, ServerEvent, Topic
from .page import Page, main_loop
from .render import macro
from .routes_runs import number_in, run_in, wanted_in
from .run_page import best_of, items_of, measures_of, points_of, rows_of, run_of, steps_of

KEEPALIVE_SECONDS = 15.0  # seconds between the comments that keep a silent stream open
HEAD_GAP = 0.5  # seconds between updates of the effects in progress; faster changes cannot be read
LIST_GAP = 0.7  # seconds between updates of running runs in the list
# A slow list is read less often: pauses are multiples of the time of the last read.
LIST_SHARE = 100  # before an update of running runs
END_SHARE = 8  # before an update of new and ended runs
_RETRY = b"retry: 300\n\n"
_HERE = b": here\n\n"
Entered = tuple[int, bytes]


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(
        # A proxy such as nginx would hold events back until its buffer is full.
        events,
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


def _event(data: Json, number: int | None = None) -> bytes:
    name = f"id: {number}\n" if number is not None else ""
    return f"{name}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def run_events(page: Page, request: Request) -> Response:
    """The changes of a run after an entry."""
    run_id = run_in(request)
    last_id = request.headers.get("last-event-id", "")
    after = int(last_id) if last_id.isascii() and last_id.isdigit() and len(last_id) < 12 else None
    if after is None:
        after = number_in(request, "after")
    rewinds = number_in(request, "rewinds")
    await page.records.with_view(run_id, page.run_progress.of)  # an unknown run is a 404

    async def enter(_: EventChannel, seq: int) -> Entered:
        last, data = await _read_changes(page, run_id, seq, rewinds, full=True)
        return last, _event(data, last)

    return _stream(_listening(page, run_id, after, enter))


async def runs_events(page: Page, request: Request) -> Response:
    """The changes of a page of the list."""
    wanted = wanted_in(request)

    async def enter(channel: EventChannel, _: int) -> Entered:
        number = channel.number
        rows, total = await _rows(page, wanted, {})
        return number, _event({"rows": _markup(rows), "order": list(rows), "total": total})

    return _stream(_listening(page, wanted, 0, enter))


async def _listening(
    page: Page, topic: Topic, seq: int, enter: Callable[[EventChannel, int], Awaitable[Entered]]
) -> AsyncIterator[bytes]:
    """Iterate over the events of a topic after `seq`; `enter` renders the first, and after a gap the next."""
    yield _RETRY
    with page.channels.joined(topic) as (channel, listener):
        entered = False
        while not page.closing:
            if not entered:
                try:
                    seq, event = await enter(channel, seq)
                except LoopwrightError as error:
                    yield _event({"problem": str(error)})
                    return
                entered = True
                yield event
            changes = await listener.next(KEEPALIVE_SECONDS)
            if changes is None:
                if listener.over:
                    return
                yield _HERE
            # An event between was lost: render the changes since the last one that was sent.
            elif changes.before > seq:
                entered = False
            # An event that the page already has, from the time before it joined, is skipped.
            elif changes.last >= seq:
                seq = changes.last
                yield changes.event


async def send_changes(page: Page, topic: Topic, channel: EventChannel) -> None:
    """Send a channel the changes of its run or list, until it is cancelled or reading fails."""
    try:
        if isinstance(topic, str):
            await _send_run_changes(page, topic, channel)
        else:
            await _send_list_changes(page, topic, channel)
    except LoopwrightError as error:
        # With these numbers every page accepts the event, whatever it received before.
        channel.send(ServerEvent(-1, 1 << 62, _event({"problem": str(error)})))


async def _send_run_changes(page: Page, run_id: str, channel: EventChannel) -> None:
    state = await page.feed.state(run_id)
    at = await page.records.with_view(run_id, page.run_progress.of)
    seq, rewinds = at.last, at.rewinds
    shown, sent_at = "", 0.0
    while True:
        full = time.monotonic() - sent_at >= HEAD_GAP
        last, data = await _read_changes(page, run_id, seq, rewinds, full=full)
        if data and (last > seq or data["head"] != shown):
            channel.send(ServerEvent(seq, last, _event(data, last)))
            seq, shown, sent_at = last, str(data["head"]), time.monotonic()
        # Skipped changes are sent soon, even if the process died and commits nothing more.
        await page.feed.wait_for(run_id, state, KEEPALIVE_SECONDS if data else HEAD_GAP)
        state = await page.feed.state(run_id)


async def _read_changes(
    page: Page, run_id: str, seq: int, rewinds: int, *, full: bool
) -> tuple[int, dict[str, Json]]:
    return await page.records.with_view(
        run_id, lambda view: _changes(page, view, seq, rewinds, full=full)
    )


def _changes(
    page: Page, view: RunView, seq: int, rewinds: int, *, full: bool
) -> tuple[int, dict[str, Json]]:
    """Return the number of the last entry, and the changes after `seq`.

    Without `full`, starts and ends of effects are skipped, because there can be many per second.
    """
    run_progress = page.run_progress.of(view)
    entries = run_progress.since(seq, view)
    if not full and view.info.status == "running" and all(e.kind in _EFFECT_KINDS for e in entries):
        return seq, {}
    head = macro("head", run_of(view, main_loop(view), run_progress, page.live))
    data: dict[str, Json] = {"head": head, "status": view.info.status}
    if not entries:
        return max(run_progress.last, seq), data
    # These change forms and rows that were sent before, so the page loads again.
    again = ("rewound", "asked", "suspended", "waiting", "woken")
    if run_progress.rewinds > rewinds or any(entry.kind in again for entry in entries):
        return run_progress.last, {**data, "reload": True}
    recorded: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "iteration" and isinstance(entry.value, Iteration):
            recorded.setdefault(entry.path, []).append(entry.value.number)
    if any(entry.kind == "step" for entry in entries):
        data["steps"] = macro("steps_table", steps_of(view))
    loops = {loop: _loop_changes(view, loop, numbers) for loop, numbers in recorded.items()}
    return run_progress.last, {**data, "loops": loops}


_EFFECT_KINDS = ("started", "finished", "cut")


def _loop_changes(view: RunView, loop: str, numbers: list[int]) -> dict[str, Json]:
    """Return the new rows and points of a loop, and the number of its best iteration."""
    outline = view.outline(loop)
    marks = [mark for mark in outline if mark[1].number in set(numbers)]
    best = best_of(outline)
    before = [mark for mark, item in outline if item.number < min(numbers)]
    retries = view.retries(loop, before[-1] if before else 0)
    items = items_of(view, loop, marks, min(numbers) - 1)
    rows = [
        [row.iteration.number, macro("line", row)]
        for row in rows_of(loop, marks, best, retries, items)
    ]
    return {
        "rows": rows,
        "points": points_of(marks, measures_of(outline)),
        "best": best,
        "count": len(outline),
    }


async def _send_list_changes(page: Page, wanted: Wanted, channel: EventChannel) -> None:
    shown: dict[str, Shown] = {}
    while True:
        state, turn, read_at = await page.feed.state(wanted), page.feed.turn, time.monotonic()
        rows, total = await _rows(page, wanted, shown)
        changed = {
            run_id: row for run_id, row in rows.items() if shown.get(run_id, _NONE)[1] != row[1]
        }
        if shown and (changed or list(rows) != list(shown)):
            channel.number += 1
            event = _event({"rows": _markup(changed), "order": list(rows), "total": total})
            channel.send(ServerEvent(channel.number - 1, channel.number, event))
        shown = rows
        took = time.monotonic() - read_at
        # New and ended runs are sent soon, figures of running ones less often.
        await asyncio.sleep(max(0.0, END_SHARE * took - POLL_SECONDS))
        rest = max(LIST_GAP, LIST_SHARE * took)
        if not await page.feed.wait_for(wanted, state, rest):
            await page.feed.wait_for("", turn, KEEPALIVE_SECONDS)


Shown = tuple[object, str]
_NONE: Shown = (None, "")


async def _rows(
    page: Page, wanted: Wanted, known: dict[str, Shown]
) -> tuple[dict[str, Shown], int | None]:
    """Return the rows of a list as markup by run, and the number of recorded runs.

    Unchanged rows of `known` are not rendered again.
    """
    rows: dict[str, Shown] = {}
    listing = await page.records.listing(wanted)
    for row in listing.rows:
        before = known.get(row.info.run_id, _NONE)
        same = before[0] == row
        rows[row.info.run_id] = before if same else (row, macro("run_line", row))
    return rows, listing.total


def _markup(rows: dict[str, Shown]) -> Json:
    return {run_id: html for run_id, (_, html) in rows.items()}
