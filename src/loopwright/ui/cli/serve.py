"""`mcp` and `serve`: the workflows of a folder for other programs, as MCP tools and over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ..._extras import needs
from ...errors import ConfigurationError
from ..journals import DEFAULT, opened
from .options import DelivererName, JournalUrl
from .output import Output
from .ui import HOST, listen

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Folder of the workflows.", show_default="current")
]


def mcp(
    folder: Folder = ".",
    port: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65535,
            help="Streamable HTTP at this port instead of stdio; 0 chooses a free one.",
        ),
    ] = None,
    journal: JournalUrl = DEFAULT,
    deliverer: DelivererName = "",
) -> int:
    """Offer the workflows of a folder as tools of an MCP server.

    The tools are list, check, run, status, result, cancel, approve and signal. A client starts this command and speaks to it
    over stdio. Runs go on when the server ends.

    Examples:
        loopwright mcp
        loopwright mcp flows --http 8765
    """
    with needs("the MCP server", "mcp"):
        # By name, because this module is also loaded for the help, without the extra.
        serving = import_module("loopwright.ui.serving.mcp")
    url = _entered(folder, journal)

    async def serve_tools() -> None:
        with Output() as output:
            async with _service(url, output, deliverer) as service:
                server = serving.WorkflowServer(service)
                if port is None:
                    await server.over_stdio()
                else:
                    with listen(port) as listener:
                        _announce(output, service, listener, serving.PATH)
                        await _serve(server.over_http(), listener, service, "loopwright mcp")

    asyncio.run(serve_tools())
    return 0


def serve(
    folder: Folder = ".",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 chooses a free one.")
    ] = 0,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address of another interface.")
    ] = HOST,
    webhook: Annotated[
        str,
        typer.Option(
            "--webhook", metavar="URL", help="Receiver of runs that need a person or have ended."
        ),
    ] = "",
    journal: JournalUrl = DEFAULT,
    deliverer: DelivererName = "",
) -> int:
    """Offer the workflows of a folder over HTTP, with an OpenAPI description. Ctrl-C stops the server, not the runs.

    Each request needs the token in the file that is printed. Without --host only this machine reaches the server.

    Examples:
        loopwright serve
        loopwright serve flows --port 8080 --webhook https://example.com/hooks
    """
    with needs("the HTTP server", "ui"):
        serving = import_module("loopwright.ui.serving.http")
    url = _entered(folder, journal)

    async def serve_routes() -> None:
        with Output() as output:
            async with _service(url, output, deliverer) as service:
                hooks = None
                if webhook:
                    webhooks = import_module("loopwright.ui.serving.webhooks")
                    hooks = webhooks.Webhooks(service, webhook, output.note)
                with listen(port, host=host) as listener:
                    _announce(output, service, listener, "/")
                    # After the file of the token: programs read that line first.
                    if webhook:
                        output.note(
                            f"webhooks are signed with the secret in {service.home.private_file('webhook')}"
                        )
                    app = serving.create_app(service, hooks)
                    await _serve(app, listener, service, "loopwright serve", any_host=host != HOST)

    asyncio.run(serve_routes())
    return 0


def _entered(folder: str, url: str) -> str:
    """Make a folder the current one, as its runs expect, and return the URL of the journal as seen from there."""
    if not Path(folder).is_dir():
        raise ConfigurationError(f"FOLDER: {folder!r} is not a folder")
    scheme, _, rest = url.partition(":")
    # The default is the journal of that folder.
    if scheme == "sqlite" and url != DEFAULT and not rest.startswith("/"):
        url = f"{scheme}:{Path.cwd() / rest}"
    os.chdir(folder)
    return url


@asynccontextmanager
async def _service(url: str, output: Output, deliverer: str) -> AsyncIterator[Any]:
    service = import_module("loopwright.ui.serving.service")

    def note(text: str) -> None:
        output.note(text)
        output.flush()

    async with opened(url, create=True) as store:
        yield service.Service(Path.cwd(), store, url, note=note, deliverer=deliverer)


def _announce(output: Output, service: Any, listener: Any, path: str) -> None:
    service.home.secret("token")
    host, port = listener.getsockname()[:2]
    output.write(f"http://{host}:{port}{path}")
    output.note(
        f"the token is in {service.home.private_file('token')}; remove the file for a new one"
    )
    output.note("Ctrl-C stops the server; runs continue")
    output.flush()


async def _serve(
    app: Any, listener: Any, service: Any, program: str, *, any_host: bool = False
) -> None:
    access = import_module("loopwright.ui.web.access")
    server = import_module("loopwright.ui.web.server")
    guarded = access.AccessGuard(
        app, port=listener.getsockname()[1], token=service.home.secret("token"), program=program,
        changing=("POST", "DELETE") if program == "loopwright mcp" else ("POST",), any_host=any_host,
    )  # fmt: skip
    if program == "loopwright serve":
        # Their tokens are in their addresses.
        signals = import_module("loopwright.ui.web.signals")
        guarded = signals.with_signals(guarded, signals.create_app(service.journal))
    await server.serve_app(guarded, listener)
