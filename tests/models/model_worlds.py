"""Questions for an endpoint, and the two ways to answer them: a script, or a server on the wire."""

from __future__ import annotations

from typing import Any

from faults_case import Case
from faulty_server import FaultyServer

from loopwright.models import (
    Message,
    ModelError,
    ProviderModel,
    Reply,
    Request,
    Timers,
    ToolDefinition,
)

KEY = "sk-canary-7f3a9c1e5b8d2406"
KEYS = {"CANARY_KEY": KEY, "OPENAI_API_KEY": "sk-openai-canary-0123456789"}
CANARIES = tuple(KEYS.values())


def question(url: str, *, timers: tuple[float, float, float] = (5, 5, 10), **more: Any) -> Request:
    """A request to a server of these tests; `tools` are given as objects."""
    more.pop("max_bytes", None)
    tools = tuple(ToolDefinition(**tool) for tool in more.pop("tools", ()))
    given = {"provider": "openai_compatible", "model": "m", "api_key_env": "CANARY_KEY", **more}
    return Request(
        (Message("user", "hello"),), base_url=url, timeouts=Timers(*timers), tools=tools, **given
    )


async def ask(model: ProviderModel, request: Request) -> Reply | ModelError:
    """Return what comes of a request, reply or fault."""
    try:
        return await model.complete(request)
    except ModelError as fault:
        return fault


async def outcome(case: Case, keys: dict[str, str] | None = None) -> tuple[Reply | ModelError, int]:
    """Return what a case of the table leads to, and how many requests its server saw."""
    most = case.ask.get("max_bytes", 2**26)
    async with (
        FaultyServer(case.answer) as server,
        ProviderModel(keys or KEYS, max_bytes=most) as model,
    ):
        found = await ask(model, question(server.url, **case.ask))
        return found, len(server.requests)


def facts(found: Reply | ModelError) -> tuple[str, str, str, str, float | None]:
    """Return what the table states of an outcome: kind, reason, billed, text, wait."""
    if isinstance(found, Reply):
        return "", "", "no", found.text, None
    return found.kind, found.reason, found.billed, "", found.retry_after


def everything(found: Reply | ModelError) -> str:
    """Return all that an outcome could show to anyone."""
    if isinstance(found, Reply):
        return repr(found) + str(found.to_json())
    return (
        repr(found) + str(found) + str(found.to_json()) + repr(found.args) + repr(found.__cause__)
    )
