"""`ui`: the page of this folder's runs, on this machine alone."""

from __future__ import annotations

import secrets
import socket
import sys
import webbrowser
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ...errors import ConfigurationError
from ..journals import DEFAULT, opened
from .options import JournalUrl
from .output import Output

__all__ = ["ui"]

HOST = "127.0.0.1"


def ui(
    journal: JournalUrl = DEFAULT,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Where; 0 is any free port.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, and open no browser.")
    ] = False,
) -> int:
    """Show the runs in a browser, live, and act on them; Ctrl-C ends the page and no run.

    It answers on this machine's loopback address only, to who has the printed address: its token is
    new each time.
    """
    import asyncio

    listener = _listen(port)
    bound = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)
    with Output() as output:
        output.say(f"http://{HOST}:{bound}/?token={token}")
        output.note("the page of this folder's runs; Ctrl-C ends it, and no run with it")
        output.flush()
    if not no_open and sys.stdout.isatty():
        webbrowser.open(f"http://{HOST}:{bound}/?token={token}")
    asyncio.run(_serve(journal, listener, bound, token))
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # whoever has the address may come before we are ready
    except OSError as error:
        listener.close()
        why = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"--port: {port} cannot be used: {why}; give another, or 0"
        ) from error
    return listener


async def _serve(url: str, listener: socket.socket, port: int, token: str) -> None:
    import uvicorn

    from ..web.app import create_app

    async with opened(url, create=True) as store:
        app = create_app(store, url=url, folder=Path.cwd(), port=port, token=token)

        class Server(uvicorn.Server):
            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                app.state.page.close()  # streams would be waited for
                super().handle_exit(sig, frame)

        server = Server(
            uvicorn.Config(
                app, access_log=False, log_level="warning", lifespan="on", server_header=False,
                date_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=30,
            )
        )  # fmt: skip
        await server.serve(sockets=[listener])
