"""Cancelling a run that waits for a person, from the page."""

from __future__ import annotations

from pathlib import Path

import httpx

from loopwright import Loop, MaxIterations, run
from loopwright.journal import MemoryJournal
from loopwright.ui.web.app import create_app

PORT, TOKEN = 8123, "t" * 43
HOST = f"127.0.0.1:{PORT}"
HEADERS = {
    "authorization": f"Bearer {TOKEN}", "host": HOST, "content-type": "application/json", "x-loopwright": "1",
}  # fmt: skip


async def draft(value: str) -> str:
    """Return a draft of it."""
    return f"{value}!"


async def test_a_suspended_run_is_cancelled_from_the_page() -> None:
    """Issue 11: the route ends the run as cancelled and says so; a second time there is nothing to end."""
    journal = MemoryJournal()
    loop = Loop(draft, until=MaxIterations(2), approve="iteration", name="refine")
    await run(loop, "x", journal=journal, run_id="r")
    app = create_app(journal, url="memory:", folder=Path(), port=PORT, token=TOKEN)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        answer = await client.post("/runs/r/cancel", headers=HEADERS, content="{}")
        assert (answer.status_code, answer.json()["said"]) == (200, "Cancelled.")
        assert (await journal.find("r")).status == "cancelled"
        again = await client.post("/runs/r/cancel", headers=HEADERS, content="{}")
        assert again.status_code >= 400 and "no process is running it" in again.text
