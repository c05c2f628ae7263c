"""The web server of the page."""

from __future__ import annotations

import socket
from pathlib import Path
from types import FrameType

import uvicorn

from ...journal import Journal
from .app import create_app


async def serve(
    journal: Journal, listener: socket.socket, *, url: str, folder: Path, port: int, token: str
) -> None:
    """Serve the page at a listening socket until Ctrl-C; see `create_app` for the arguments."""
    app = create_app(journal, url=url, folder=folder, port=port, token=token)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.page.close()  # the server would wait for open streams
            super().handle_exit(sig, frame)

    server = Server(
        uvicorn.Config(
            app, access_log=False, log_level="warning", lifespan="on", server_header=False,
            date_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=30,
        )
    )  # fmt: skip
    await server.serve(sockets=[listener])
