"""`ui`: the web page of the runs, on this machine only.

Its address stays the same: token and port are kept in the state folder of the user, where no repository and no other
user can put or read them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from ..._extras import needs
from ..._home import HOME, Home
from ...errors import ConfigurationError
from ...journal.protocol import shown_url
from ..journals import DEFAULT, opened
from .options import JournalUrl
from .output import Output

HOST = "127.0.0.1"  # never another interface: the page can start programs


def ui(
    journal: JournalUrl = DEFAULT,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="Port; 0 takes the one of the last time, or a free one.",
        ),
    ] = 0,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make another token; earlier addresses end.")
    ] = False,
    signals: Annotated[
        int | None,
        typer.Option(
            "--signals",
            metavar="PORT",
            min=0,
            max=65535,
            help="Also receive events by URL, at this port without the page; 0 chooses a free one.",
        ),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address without opening a browser.")
    ] = False,
) -> int:
    """Show the runs in a browser, live, and control them. Ctrl-C stops the page, not the runs.

    The page is available on this machine only, at the printed address. Its token is kept for the journal, in a file
    that only you can read, so the address stays the same.

    Examples:
        loopwright ui
        loopwright ui --port 8080 --no-open
        loopwright ui --signals 8081
    """
    with needs("the page", "ui"):
        # By name, because this module is also loaded for the help, without the extra.
        web = import_module("loopwright.ui.web.app")
        receiver = None if signals is None else import_module("loopwright.ui.web.signals")
    asyncio.run(
        _serve(web, journal, port, receiver, signals or 0, new_token=new_token, no_open=no_open)
    )
    return 0


@dataclass(frozen=True)
class KeptToken:
    """The token and the port of the page of a journal, kept for the folder `.loopwright` of the journal or of here."""

    home: Home
    name: str

    @classmethod
    def of(cls, url: str) -> KeptToken:
        """Return that of the journal at a URL."""
        path = Path(url.partition(":")[2].partition("?")[0])
        if url.startswith("sqlite:") and path.parent.name == HOME:
            return cls(Home(path.parent), f"ui-{path.name}")
        place = str(path.resolve()) if url.startswith("sqlite:") else shown_url(url)
        return cls(Home(Path(HOME)), f"ui-{hashlib.sha256(place.encode()).hexdigest()[:16]}")

    def read(self, note: Callable[[str], None]) -> tuple[str, int]:
        """Return the token and the port, or "" and 0. One that others can read is removed, which `note` is told."""
        with suppress(ConfigurationError, OSError, ValueError):
            file = self.home.private_file(self.name)
            if (
                file.lstat().st_mode & 0o177777 != 0o100600
            ):  # a file of its owner alone, and no link
                file.unlink()
                note(f"{file} could be read by others, so there is a new token")
                return "", 0
            token, port = file.read_text("ascii").split()
            return token, int(port)
        return "", 0

    def make(self, port: int) -> str:
        """Return a new token, kept with the port where the folder is known."""
        made = f"{secrets.token_urlsafe(32)} {port}"
        with suppress(ConfigurationError):
            made = self.home.secret(self.name, lambda: made)
        return made.split()[0]

    def forget(self) -> None:
        """Remove the token."""
        with suppress(ConfigurationError, OSError):
            self.home.private_file(self.name).unlink()


def listen(port: int, kept: int = 0, host: str = HOST, option: str = "--port") -> socket.socket:
    """Return a socket that listens at a port; 0 is the kept port if it is free, or any other."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port stays reserved for a minute after its server ended.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port or kept))
        listener.listen(128)  # a browser may connect before the server is ready
    except OSError as error:
        listener.close()
        if kept and not port:
            return listen(0, host=host)
        why = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{option}: {port} cannot be used: {why}. Choose another port, or 0."
        ) from error
    return listener


async def _serve(
    web: ModuleType,
    url: str,
    port: int,
    receiver: ModuleType | None,
    signals: int,
    *,
    new_token: bool,
    no_open: bool,
) -> None:
    # The address of a page that will be there: a journal may be refused.
    async with opened(url, create=True) as store:
        kept = KeptToken.of(url)
        if new_token:
            kept.forget()
        with Output() as output, ExitStack() as sockets:
            token, last = kept.read(output.note)
            listener = sockets.enter_context(listen(port, last))
            port = listener.getsockname()[1]
            token = token or kept.make(port)
            address = f"http://{HOST}:{port}/?token={token}"
            other, app = None, None
            if receiver is not None:
                app = receiver.create_app(store)
                other = sockets.enter_context(listen(signals, option="--signals"))
            if other is not None:  # before the address, at which programs stop to read
                output.note(f"events by URL: http://{HOST}:{other.getsockname()[1]}")
            output.write(address)
            output.note("Ctrl-C stops the page; runs continue")
            output.flush()
            # A script that reads the address opens no browser.
            if not no_open and sys.stdout.isatty():
                webbrowser.open(address)
            # The page first: each server passes the signal that ends it on to the one that began before.
            servers = [
                web.serve(store, listener, url=url, folder=Path.cwd(), port=port, token=token),
                *([] if other is None else [web.serve_app(app, other)]),
            ]
            await asyncio.gather(*servers)
