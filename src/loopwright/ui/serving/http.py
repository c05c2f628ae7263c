"""The operations as routes of an HTTP server, with their OpenAPI description as JSON and as a page.

A refusal is `{"error": SENTENCE}`. The header `Idempotency-Key` is the argument `id`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from html import escape
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ...errors import (
    ConfigurationError,
    DocumentError,
    JournalError,
    JournalUnavailable,
    LoopwrightError,
    RunNotFound,
)
from ...records.codec import Json, text_of
from ..web.access import json_object
from .operations import OPERATIONS, Operation
from .service import Caller, Service
from .webhooks import Webhooks

_NUMBERS = ("number", "integer")
_ERRORS = {
    "400": "The request or the workflow is wrong", "401": "The token is missing or wrong",
    "404": "There is no such run", "409": "The run is not in a state for this, or the id has a run with another input or workflow",
    "503": "The journal cannot be used", "default": "The request is refused",
}  # fmt: skip


def create_app(service: Service, webhooks: Webhooks | None = None) -> Starlette:
    """Return the HTTP application of a service; access is the caller's to control. It sends the webhooks while it runs."""

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if webhooks is not None:
                await stack.enter_async_context(webhooks)
            yield

    async def description(_: Request) -> Response:
        return JSONResponse(openapi())

    async def page(_: Request) -> Response:
        return HTMLResponse(_page())

    return Starlette(
        routes=[
            Route("/", page, methods=["GET"]),
            Route("/openapi.json", description, methods=["GET"]),
            *(Route(one.path, _route(service, one), methods=[one.method]) for one in OPERATIONS),
        ],
        exception_handlers={HTTPException: _unknown},
        lifespan=life,
    )


def _route(service: Service, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            arguments = operation.check(await _arguments(request, operation))
            caller = Caller(
                f"a program over HTTP at {request.client.host}"
                if request.client
                else "a program over HTTP"
            )
            return JSONResponse(await operation.call(service, arguments, caller))
        except DocumentError as error:
            return _refused(400, str(error.problems[0]))
        except LoopwrightError as error:
            return _refused(_status(error), str(error))

    return answer


def _status(error: LoopwrightError) -> int:
    if isinstance(error, RunNotFound):
        return 404
    if isinstance(error, JournalUnavailable):
        return 503
    return 409 if isinstance(error, JournalError) else 400


def _refused(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    known = ", ".join(f"{one.method} {one.path}" for one in OPERATIONS)
    return _refused(
        status, f"there is no {request.method} {request.url.path[:80]}; known here: {known}"
    )


async def _arguments(request: Request, operation: Operation) -> dict[str, Json]:
    """Return the arguments in the path, in the query of a GET, and in the body of a POST."""
    arguments: dict[str, Json] = {}
    if operation.method == "GET":
        for name, text in request.query_params.items():
            numeric = operation.properties.get(name, {}).get("type") in _NUMBERS
            arguments[name] = _number(text) if numeric else text
    else:
        arguments |= await json_object(request)
        # By the draft of the IETF; a key in the body is the same.
        if "id" in operation.properties and (header := request.headers.get("idempotency-key")):
            key = header.strip('"')
            if (given := arguments.setdefault("id", key)) != key:
                raise ConfigurationError(
                    f"id: {text_of(given)[:80]!r} is not the header Idempotency-Key, {key[:80]!r}; send one of them"
                )
    return arguments | request.path_params


def _number(text: str) -> Json:
    try:
        return float(text)
    except ValueError:
        return text  # the schema refuses it by name


def openapi() -> dict[str, Json]:
    """Return the OpenAPI description of the routes."""
    paths: dict[str, dict[str, Json]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Loopwright",
            "version": version("loopwright"),
            "description": "The workflows of a folder. Send the header Authorization: Bearer TOKEN.",
        },
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _described(operation: Operation) -> dict[str, Json]:
    parameters: list[Json] = []
    body: dict[str, Json] = {}
    for name, schema in operation.properties.items():
        if f"{{{name}}}" not in operation.path and operation.method == "POST":
            body[name] = dict(schema)
            continue
        parameters.append({
            "name": name, "in": "path" if f"{{{name}}}" in operation.path else "query",
            "required": name in operation.required, "schema": dict(schema),
        })  # fmt: skip
    if "id" in body:
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": dict(body["id"])})
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    described: dict[str, Json] = {
        "operationId": operation.name,
        "description": operation.description,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": dict(operation.returns)}}},
            **{
                status: {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in _ERRORS.items()
            },
        },
    }  # fmt: skip
    if body:
        required = [name for name in operation.required if name in body]
        schema = {
            "type": "object",
            "properties": body,
            "required": required,
            "additionalProperties": False,
        }
        described["requestBody"] = {
            "required": bool(required), "content": {"application/json": {"schema": schema}}
        }  # fmt: skip
    return described


def _page() -> str:
    """Return the same as a page that a person reads."""
    parts = []
    for operation in OPERATIONS:
        rows = "".join(
            f"<tr><td><code>{name}</code>{' (required)' if name in operation.required else ''}</td>"
            f"<td>{escape(str(schema.get('description', '')))}</td></tr>"
            for name, schema in operation.properties.items()
        )
        parts.append(
            f"<h2>{operation.method} {escape(operation.path)}</h2><p>{escape(operation.description)}</p><table>{rows}</table>"
        )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Loopwright</title><main><h1>Loopwright</h1>'
        "<p>Send the header <code>Authorization: Bearer TOKEN</code>. For programs: "
        f'<a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}</main></html>'
    )
