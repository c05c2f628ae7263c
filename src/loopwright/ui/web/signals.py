"""The route by which other programs send events: `POST /signal/RUN/NAME/KEY?token=TOKEN`, the body is the value as JSON.

It is an application of its own, without the page. A token can do one thing: put one event into one run.
"""

from __future__ import annotations

import hmac
import time
from collections import Counter
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import JournalError, LoopwrightError, RunNotFound
from ...journal import Journal
from ...journal.events import LARGEST, Event
from ...journal.signal_urls import event_id, signal_secret, signal_token
from ...records.codec import strict_json
from ..sent_events import send_event

MOST = 10  # requests with one token in a second
_PATH = "/signal/"


def create_app(journal: Journal, clock: Callable[[], float] = time.monotonic) -> Starlette:
    """Return the application for a journal; it needs no other access control. `clock` gives seconds.

    Raises:
        ConfigurationError: if the secret of the tokens cannot be used.
    """
    secret, window, counts = signal_secret(), 0, Counter[str]()

    def limited(token: str) -> bool:
        nonlocal window
        if window != (window := int(clock())):
            counts.clear()
        counts[token] += 1
        return counts[token] > MOST

    async def receive(request: Request) -> Response:
        run_id, name, key = (str(request.path_params[part]) for part in ("run", "name", "key"))
        token = request.query_params.get("token", "")
        expected = signal_token(run_id, name, key, secret)
        # In constant time, so that the time of an answer does not reveal the beginning of the token.
        if not hmac.compare_digest(token.encode(errors="replace"), expected.encode()):
            return _unknown(request, HTTPException(404))
        if limited(token):
            return _refused(429, f"more than {MOST} requests in a second; send it again later")
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > LARGEST:
                return _refused(413, f"the value has more than {LARGEST:,} bytes")
        try:
            value = strict_json(raw.decode())
        except (ValueError, RecursionError) as error:
            return _refused(422, f"the body is not a JSON value: {error}")
        event = Event(name, key, value, event_id(token), "a URL", run=run_id)
        try:
            told = await send_event(journal, event, run_id)
        except RunNotFound:
            return _unknown(request, HTTPException(404))
        except LoopwrightError as error:
            return _refused(503 if isinstance(error, JournalError) else 422, str(error))
        answer = {"stored": not told.repeated, "repeated": told.repeated, "waiting": told.waiting}
        return JSONResponse(answer, 202)

    app = Starlette(
        routes=[Route(f"{_PATH}{{run}}/{{name}}/{{key:path}}", receive, methods=["POST"])],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False  # another path is another key
    return app


def with_signals(app: ASGIApp, signals: ASGIApp) -> ASGIApp:
    """Return an application that leaves the paths of signals to another one."""

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        other = scope["type"] == "http" and scope["path"].startswith(_PATH)
        await (signals if other else app)(scope, receive, send)

    return choose


def _refused(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


def _unknown(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _refused(status, "use POST" if status == 405 else "there is no such address")
