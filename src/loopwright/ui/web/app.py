"""The page as an ASGI application, and its server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...errors import ConfigurationError, DocumentError, LoopwrightError, RunNotFound
from ...journal import Journal
from . import routes_approvals as actions
from . import routes_events as live
from . import routes_insight as cluster
from . import routes_insight as insight
from . import routes_insight as replaying
from . import routes_runs as files
from . import routes_runs as reading
from .access import AccessGuard
from .page import Page
from .render import STATIC, render, sentence_of, static_path
from .server import serve_app

Show = Callable[[Page, Request], Awaitable[Response]]
SHOWN: dict[str, Show] = {
    "/": reading.runs,
    "/events": live.runs_events,
    "/start": reading.start,
    "/compare": insight.compare,
    "/compare/json": insight.compared_json,
    "/limits": replaying.replay,
    "/limits/json": replaying.replay_json,
    "/judges": replaying.judges,
    "/judges/json": replaying.judges_json,
    "/workers": cluster.workers,
    "/workers/tables": cluster.tables,
    "/runs/{run_id}": reading.run,
    "/runs/{run_id}/events": live.run_events,
    "/runs/{run_id}/rows": reading.rows,
    "/runs/{run_id}/cases": reading.cases,
    "/runs/{run_id}/cases/json": reading.cases_json,
    "/runs/{run_id}/case": reading.case,
    "/runs/{run_id}/inside": reading.inside,
    "/runs/{run_id}/iteration": reading.iteration,
    "/runs/{run_id}/compare": reading.compare,
    "/runs/{run_id}/files": files.difference,
    "/runs/{run_id}/trace": reading.trace,
    "/runs/{run_id}/limits": insight.limits,
    "/runs/{run_id}/hints": actions.hints,
    "/runs/{run_id}/export/{form}": reading.export,
}
CHANGED: dict[str, actions.Change] = {
    "/start": actions.start,
    "/runs/{run_id}/cancel": actions.cancel,
    "/runs/{run_id}/resume": actions.resume,
    "/runs/{run_id}/retry": actions.retry,
    "/runs/{run_id}/rewind": actions.rewind,
    "/runs/{run_id}/undo": actions.undo,
    "/runs/{run_id}/answer": actions.answered,
    "/runs/{run_id}/signal": actions.signalled,
    "/runs/{run_id}/stop-wait": actions.stopped,
    "/runs/{run_id}/steer": actions.steered,
    "/runs/{run_id}/hold": actions.held,
    "/runs/{run_id}/raise": actions.raised,
    "/runs/{run_id}/branch": files.branch,
    "/runs/{run_id}/apply": files.apply,
    "/runs/{run_id}/limits": insight.tuned,
    "/runs/{run_id}/fork": insight.forked,
}


def create_app(journal: Journal, *, url: str, folder: Path, port: int, token: str) -> Starlette:
    """Return the page for a journal.

    The page starts processes in `folder` with the journal's `url`; it listens on `port`, and every
    request needs `token`.
    """
    page = Page(journal, url, folder, live.send_changes)

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        page.close()

    def showing(show: Show) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await show(page, request)

        return answer

    app = Starlette(
        routes=[
            *(Route(path, showing(show), methods=["GET"]) for path, show in SHOWN.items()),
            *(
                Route(path, actions.changing(page, change), methods=["POST"])
                for path, change in CHANGED.items()
            ),
            Mount(static_path(), StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(AccessGuard, port=port, token=token)],
        exception_handlers={LoopwrightError: _problem, HTTPException: _unknown},
        lifespan=life,
    )
    app.state.page = page
    return app


def _problem(_: Request, error: Exception) -> Response:
    statuses: dict[type[Exception], int] = {
        RunNotFound: 404,
        ConfigurationError: 400,
        DocumentError: 400,
    }
    status = statuses.get(type(error), 503)
    title = {404: "Not found", 400: "Bad request"}.get(status, "The journal cannot be read")
    return HTMLResponse(render("problem.html", title=title, sentence=sentence_of(error)), status)


def _unknown(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = "This page does not exist." if status == 404 else "This request is not supported."
    return HTMLResponse(render("problem.html", title="Not found", sentence=sentence), status)


async def serve(
    journal: Journal, listener: socket.socket, *, url: str, folder: Path, port: int, token: str
) -> None:
    """Serve the page at a listening socket until Ctrl-C; see `create_app` for the arguments."""
    app = create_app(journal, url=url, folder=folder, port=port, token=token)

    # The server would wait for open streams.
    await serve_app(app, listener, app.state.page.close)
