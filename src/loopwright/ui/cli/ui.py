"""`ui`: the web page of the runs, on this machine only."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import webbrowser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from ..._extras import needs
from ...errors import ConfigurationError
from ..journals import DEFAULT, opened
from .options import JournalUrl
from .output import Output

HOST = "127.0.0.1"  # never another interface: the page can start programs


def ui(
    journal: JournalUrl = DEFAULT,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 chooses a free one.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address without opening a browser.")
    ] = False,
) -> int:
    """Show the runs in a browser, live, and control them. Ctrl-C stops the page, not the runs.

    The page is available on this machine only, at the printed address. The address contains a new
    token each time.

    Examples:
        loopwright ui
        loopwright ui --port 8080 --no-open
    """
    with needs("the page", "ui"):
        # By name, because this module is also loaded for the help, without the extra.
        web = import_module("loopwright.ui.web.app")
    with _listen(port) as listener:
        asyncio.run(_serve(web, journal, listener, no_open=no_open))
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port stays reserved for a minute after its server ended.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # a browser may connect before the server is ready
    except OSError as error:
        listener.close()
        why = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"--port: {port} cannot be used: {why}. Choose another port, or 0."
        ) from error
    return listener


async def _serve(web: ModuleType, url: str, listener: socket.socket, *, no_open: bool) -> None:
    port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    address = f"http://{HOST}:{port}/?token={token}"
    # The address of a page that will be there: a journal may be refused.
    async with opened(url, create=True) as store:
        with Output() as output:
            output.write(address)
            output.note("Ctrl-C stops the page; runs continue")
            output.flush()
        # A script that reads the address opens no browser.
        if not no_open and sys.stdout.isatty():
            webbrowser.open(address)
        await web.serve(store, listener, url=url, folder=Path.cwd(), port=port, token=token)
