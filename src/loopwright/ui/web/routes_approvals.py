"""The routes that change runs: start, cancel, resume, rewind, answer, raise a limit.

They use the same functions as the command line. A run is a separate process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ...conditions import UNITS
from ...engine.change_limits import ENDED
from ...engine.run import new_run_id
from ...engine.run_record import rewind_with_input
from ...engine.steering import hold, steer
from ...engine.waiting import stop_waiting
from ...errors import ConfigurationError, DocumentError, JournalError, LoopwrightError, RunLocked
from ...journal.events import Event
from ...journal.questions import answer, pending, user_name
from ...journal.rewinding import rewind_entry, rewind_of
from ...records.codec import Json, strict_json, text_of
from ...records.redaction import of_environment
from ..formatting import discarded
from ..inputs import input_value
from ..journals import has_step
from ..sent_events import send_event
from .access import is_loop, json_object
from .forms import answer_of, input_in
from .page import Page
from .render import render, sentence_of
from .routes_runs import run_in

N = TypeVar("N", int, float)
Change = Callable[[Page, Request, dict[str, Json]], Awaitable[dict[str, Json]]]


def changing(page: Page, change: Change) -> Callable[[Request], Awaitable[Response]]:
    """Return the route of a change: JSON in; the next address, or an error, out."""

    async def act(request: Request) -> Response:
        try:
            return JSONResponse(await change(page, request, await json_object(request)))
        except DocumentError as error:
            return _refused(str(error.problems[0]), 400)
        except LoopwrightError as error:
            return _refused(sentence_of(error), 409 if isinstance(error, JournalError) else 400)

    return act


def _refused(sentence: str, status: int) -> Response:
    return JSONResponse({"error": sentence}, status)


def _at(run_id: str) -> dict[str, Json]:
    return {"go": f"/runs/{run_id}"}


async def start(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Start a run of an approved workflow of the project folder."""
    del request
    document = await asyncio.to_thread(page.project.find, text_of(fields.get("file")))
    # Approval needs the terminal: another page or a stolen token must not start new code.
    if document is None or not document.trusted:
        raise ConfigurationError(
            "file: this is not an approved workflow of this folder. Run it on the command line first."
        )
    run_id = new_run_id()
    words = ["run", document.file, "--run-id", run_id]
    if model := text_of(fields.get("model")).strip():
        # One word: a value that begins with a dash must not become another option.
        words.append(f"--model={model}")
    limits: dict[str, float | None] = {
        "--max-usd": _number(fields, "usd", float), "--max-calls": _number(fields, "calls", int),
        "--max-total-tokens": _number(fields, "tokens", int),
        "--max-effects": _number(fields, "effects", int),
    }  # fmt: skip
    words += [f"{option}={maximum!r}" for option, maximum in limits.items() if maximum is not None]
    text = text_of(fields.get("input"))
    if document.inputs is not None:
        text = json.dumps(input_in(document.inputs, fields), ensure_ascii=False)
    if text and text != document.input:
        # Through stdin, because other users of the machine can read the command line of a process.
        words += ["--input-file", "-"]
    await page.processes.launch(words, text if "-" in words else None)
    return _at(run_id)


async def cancel(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Cancel a run."""
    del fields
    run_id = run_in(request)
    if not await page.records.journal.cancel(run_id):
        raise RunLocked(f"{run_id}: no process is running it")
    info = await page.records.journal.find(run_id)
    return {"said": "Cancelled." if info.status == "cancelled" else "Cancelling."}


async def resume(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Resume a run."""
    del fields
    run_id = run_in(request)
    await page.processes.launch(["resume", run_id])
    return _at(run_id)


async def retry(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Do again what failed in a run; see the command `retry`."""
    del fields
    run_id = run_in(request)
    await page.processes.launch(["retry", run_id])
    return _at(run_id)


async def rewind(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Rewind a run to the start of an iteration, optionally with a new input, and resume it.

    The person first confirms what this discards. If the run cannot be resumed here, nothing has changed.
    """
    run_id, loop = run_in(request), text_of(fields.get("loop"))
    number = text_of(fields.get("number"))
    if not is_loop(loop) or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise ConfigurationError("name a loop and the number of one of its iterations")
    path = f"{loop}/{int(number)}"
    text = text_of(fields.get("input"))
    of_environment(os.environ).refuse("input", text)
    journal = page.records.journal
    info = await journal.find(run_id)
    if not has_step(info):
        raise ConfigurationError(
            f"nothing was discarded, because only the Python program of this run can continue it. There: "
            f"await journal.rewind({run_id!r}, {path!r}), then resume(step, {run_id!r}, journal=journal)"
        )
    planned = rewind_of(info, await journal.entries(run_id), rewind_entry(path, (), undo=False))[1]
    if fields.get("confirmed") != planned.entries:
        question = f"This discards {discarded(planned)}. They run again."
        return {"confirm": question, "confirmed": planned.entries}
    if text:
        await rewind_with_input(journal, run_id, path, input_value(text))
    else:
        await journal.rewind(run_id, path)
    try:
        return await resume(page, request, {})
    except LoopwrightError:
        with suppress(JournalError):  # it began, and keeps what it has done
            await journal.rewind(run_id, undo=True)
        raise


async def undo(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Bring back what the latest rewind of a run discarded."""
    del fields
    run_id = run_in(request)
    await page.records.journal.rewind(run_id, undo=True)
    return _at(run_id)


async def answered(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Answer an open question, and optionally resume the run."""
    run_id, path = run_in(request), text_of(fields.get("path"))
    questions = await pending(page.records.journal, run_id)
    question = next((q for q in questions if q.path == path), None)
    if question is None:
        raise ConfigurationError("this question has been answered. Reload the page.")
    value = answer_of(question, fields)
    of_environment(os.environ).refuse("answer", value)
    await answer(page.records.journal, run_id, path, value)
    # With other open questions the run would suspend again at once.
    if fields.get("go") and len(questions) == 1:
        return await resume(page, request, {})
    return _at(run_id)


async def signalled(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Send an event that a run waits for, and optionally resume the run."""
    run_id, text = run_in(request), text_of(fields.get("value")).strip()
    try:
        value = strict_json(text) if text else None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"value: it is not JSON: {error}") from None
    name, key = text_of(fields.get("name")), text_of(fields.get("key"))
    await send_event(page.records.journal, Event(name, key, value, who=user_name()), run_id)
    return await _woken(page, run_id, fields)


async def stopped(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """End a wait as its time limit does, and optionally resume the run."""
    run_id, path = run_in(request), text_of(fields.get("path"))
    told = await stop_waiting(page.records.journal, run_id, path, who=user_name())
    if not told.waiting:
        raise ConfigurationError("this wait has ended. Reload the page.")
    return await _woken(page, run_id, fields)


async def _woken(page: Page, run_id: str, fields: dict[str, Json]) -> dict[str, Json]:
    """Resume a run whose wait may be over; workers continue a submitted one themselves."""
    info = await page.records.journal.find(run_id)
    if fields.get("go") and info.status == "suspended" and not info.queue:
        await page.processes.launch(["resume", run_id, "--on-wait", "leave"])
    return _at(run_id)


async def hints(page: Page, request: Request) -> Response:
    """The hints of a run that are in force, with a form that gives one."""
    run_id = run_in(request)
    info = await page.records.journal.find(run_id)
    found = await steer(run_id, journal=page.records.journal)
    return HTMLResponse(
        render("hints.html", run_id=run_id, hints=found, ended=info.status in ENDED)
    )


async def steered(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Give a run a hint, or drop one."""
    text, drop = text_of(fields.get("text")).strip(), _number(fields, "drop", int) or 0
    of_environment(os.environ).refuse("hint", text)
    if not text and not drop:
        raise ConfigurationError("write a hint, or give the number of one to drop")
    await steer(
        run_in(request), text, journal=page.records.journal, loop=text_of(fields.get("loop")).strip(),
        once=bool(fields.get("once")), drop=drop,
    )  # fmt: skip
    return {"said": "The loops read it in their next iterations." if text else "Dropped."}


async def held(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Hold a run before its next effects."""
    del fields
    info = await hold(run_in(request), journal=page.records.journal)
    return (
        _at(info.run_id) if info.reason == "held" else {"said": "It stops before its next effect."}
    )


async def raised(page: Page, request: Request, fields: dict[str, Json]) -> dict[str, Json]:
    """Raise the limit that ended a run, and resume it."""
    run_id = run_in(request)
    maximum = _number(fields, "iterations", int)
    limits: dict[str, Any] = {
        name: _number(fields, unit, float if unit == "usd" else int) for name, unit in UNITS.items()
    }
    if maximum is None and all(value is None for value in limits.values()):
        raise ConfigurationError(
            "set a new total for iterations, model calls, tokens, dollars or effects"
        )
    loop = text_of(fields.get("loop")) if maximum is not None else None
    # The command records them once it has loaded the document and found it approved.
    given = {"max_iterations": maximum, **limits, "loop": loop}
    words = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
        if value not in (None, "")
    ]
    await page.processes.launch(["resume", run_id, *words])
    return _at(run_id)


def _number(fields: dict[str, Json], name: str, kind: type[N]) -> N | None:
    text = text_of(fields.get(name)).strip()
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{name}: {text[:40]!r} is not a number") from None
