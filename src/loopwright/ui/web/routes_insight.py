"""The routes of limits and forks of a run, and of comparisons of runs."""

from __future__ import annotations

import asyncio
import os

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...engine.run import new_run_id
from ...engine.tune import ENDED, Tuned, tune
from ...errors import ConfigurationError, RunNotFound
from ...insight.comparing import Comparison
from ...insight.comparing import compare as compare_runs
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from ..diff import side_by_side
from ..formatting import limit_text
from ..limit_values import limit_value
from .access import is_loop, is_run_id
from .page import Page
from .render import cut, readable, render
from .routes_read import run_in

MOST_COMPARED = 4  # runs, a column each
_MOST_SCORES = 200  # rows of the table of scores
_MOST_TEXT = 400  # characters of a setting
# The fields of the form that changes limits, and the option of `tune` that each sets.
TUNABLE = {
    "max_iterations": "Iterations",
    "max_calls": "Model calls",
    "max_total_tokens": "Tokens, input and output",
    "max_usd": "Cost, US dollars",
    "max_effects": "Effects",
    "timeout": "Active time, such as 5m",
    "deadline": "Deadline, such as 2030-01-31T18:00:00+00:00",
    "at_once": "Items or steps at a time",
}


async def limits(page: Page, request: Request) -> Response:
    """The limits of a run that are in force, with a form that changes them."""
    shown = await tune(run_in(request), journal=page.records.journal)
    loops = list(dict.fromkeys(limit.loop for limit in shown.limits if limit.loop))
    return HTMLResponse(
        render(
            "limits.html", shown=shown, loops=loops, fields=TUNABLE,
            ended=shown.status in ENDED, limit_text=limit_text,
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


async def compare(page: Page, request: Request) -> Response:
    """Two to four runs side by side."""
    shown = await _comparison(page, request)
    first, *others = shown.runs
    outputs = []
    for other in others:
        # Comparing long outputs takes seconds, and other pages must not wait.
        texts = readable(first.output), readable(other.output)
        pairs = await asyncio.to_thread(side_by_side, *texts)
        titles = (first.info.run_id, other.info.run_id)
        outputs.append((titles, pairs, texts[0] == texts[1]))
    longest = max(len(run.scores) for run in shown.runs)
    rows = [
        [run.scores[n] if n < len(run.scores) else None for run in shown.runs]
        for n in range(min(longest, _MOST_SCORES))
    ]
    return HTMLResponse(
        render(
            "runs_compare.html", shown=shown, outputs=outputs, rows=rows,
            texts=lambda value: cut("none" if value is None else readable(value), _MOST_TEXT),
            metrics=list(dict.fromkeys(name for run in shown.runs for name in run.metrics)),
            forked=any("forked" in run.info.source for run in shown.runs),
            json="/compare/json?" + str(request.query_params),
        )
    )  # fmt: skip


async def compared_json(page: Page, request: Request) -> Response:
    """The comparison as the JSON that `loopwright compare --json` prints."""
    return JSONResponse((await _comparison(page, request)).to_json())


async def _comparison(page: Page, request: Request) -> Comparison:
    run_ids = request.query_params.getlist("run")
    if not 2 <= len(run_ids) <= MOST_COMPARED:
        raise ConfigurationError(
            f"compare: select 2 to {MOST_COMPARED} runs in the list, not {len(run_ids)}"
        )
    if not all(map(is_run_id, run_ids)):
        raise RunNotFound("there is no run with this ID in this journal")
    loop = request.query_params.get("loop", "")
    if loop and not is_loop(loop):
        raise ConfigurationError("loop: this is not the path of a loop")
    return await compare_runs(*run_ids, journal=page.records.journal, loop=loop)


async def forked(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Fork a run from a path with other variables, and execute the new run."""
    origin, new_id = run_in(request), new_run_id()
    words = ["fork", origin, "--run-id", new_id]
    if path := text_of(fields.get("at")).strip():
        words.append(f"--at={path}")
    lines = text_of(fields.get("sets")).splitlines()
    words += [f"--set={line.strip()}" for line in lines if line.strip()]
    try:
        await page.processes.launch(words)
    except ConfigurationError as error:
        # The command names its option, and the form has a field.
        raise ConfigurationError(str(error).replace("--set: ", "Variables: ")) from error
    return {"go": f"/runs/{new_id}"}
