"""The routes of limits: those in force, and new ones."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...engine.tune import Tuned, tune
from ...errors import ConfigurationError
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from ..limit_values import limit_value
from .page import Page
from .render import render
from .routes_read import run_in

_ENDED = ("satisfied", "exhausted", "failed", "impossible", "cancelled")
# The fields of the form that changes limits, and the option of `tune` that each sets.
TUNABLE = {
    "max_iterations": "Iterations",
    "max_calls": "Model calls",
    "max_usd": "Cost, US dollars",
    "timeout": "Active time, such as 5m",
    "deadline": "Deadline, such as 2030-01-31T18:00:00+00:00",
    "at_once": "Items of a list at a time",
}


async def limits(page: Page, request: Request) -> Response:
    """The limits of a run that are in force, with a form that changes them."""
    shown = await tune(run_in(request), journal=page.records.journal)
    loops = list(dict.fromkeys(limit.loop for limit in shown.limits if limit.loop))
    return HTMLResponse(
        render(
            "limits.html", shown=shown, loops=loops, fields=TUNABLE,
            ended=shown.status in _ENDED,
        )
    )  # fmt: skip


async def tuned(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Request new limits of a run."""
    values = {key: text_of(fields.get(key)).strip() for key in TUNABLE}
    changes = {key: limit_value(key, text) for key, text in values.items() if text}
    if not changes:
        raise ConfigurationError("give at least one new limit")
    reason = text_of(fields.get("reason")).strip()
    of_environment(os.environ).refuse("reason", reason)
    done = await tune(
        run_in(request), journal=page.records.journal, loop=text_of(fields.get("loop")),
        reason=reason, **changes,
    )  # fmt: skip
    return {"said": _sentence(done)}


def _sentence(done: Tuned) -> str:
    when = "within a second" if done.status == "running" else "when it is resumed"
    return f"The run takes the new limits {when}."
