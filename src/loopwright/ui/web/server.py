"""The server of an application at a listening socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp


async def serve_app(
    app: ASGIApp, listener: socket.socket, on_exit: Callable[[], None] | None = None
) -> None:
    """Serve an application until Ctrl-C, which first calls `on_exit`."""

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if on_exit is not None:
                on_exit()
            super().handle_exit(sig, frame)

    server = Server(
        uvicorn.Config(
            # No access log: its lines would contain the token of the first request.
            app, access_log=False, log_level="warning", lifespan="on", server_header=False,
            date_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=30,
        )
    )  # fmt: skip
    await server.serve(sockets=[listener])
