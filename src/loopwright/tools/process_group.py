"""Programs in a process group, for systems without the supervisor: it forks, and Windows cannot.

A program is ended with the processes of its group. Processes that left the group are not ended, and
nothing is ended if our process is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._platform import KILLED, end_group, new_group
from .supervised import settle

__all__ = ["ProcessGroup"]

SETTLE = 0.25  # seconds until the system reports the end of a killed program


class ProcessGroup(asyncio.SubprocessProtocol):
    """A program in a new group. Create it inside an event loop, and always call `end`.

    Args:
        words: The program and its arguments.
        env: The complete environment.
        cwd: The working directory. Default: that of this process.
        stdin: Whether the program has a standard input.
        limit: The buffer size of its output streams in bytes.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        stdin: bool = True,
        limit: int,
    ) -> None:
        self._words, self._env, self._cwd, self._has_input = words, env, cwd, stdin
        self._transport: asyncio.SubprocessTransport | None = None
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stdin: asyncio.WriteTransport | None = None
        self.stdout, self.stderr = asyncio.StreamReader(limit), asyncio.StreamReader(limit)

    async def start(self) -> None:
        """Start the program. Raises OSError."""
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self, *self._words, env=self._env, cwd=self._cwd,
            stdin=asyncio.subprocess.PIPE if self._has_input else asyncio.subprocess.DEVNULL,
            **new_group(),
        )  # fmt: skip
        self._transport = transport
        pipe = transport.get_pipe_transport(0)
        self.stdin = pipe if isinstance(pipe, asyncio.WriteTransport) else None

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd > 0:
            (self.stdout if fd == 1 else self.stderr).feed_eof()

    def process_exited(self) -> None:
        settle(self.exited)

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the program runs."""
        return KILLED if self._transport is None else self._transport.get_returncode()

    async def end(self, grace: float) -> None:
        """End the group: a request to end, `grace` seconds, then by force.

        If this call is cancelled, the group is ended by force at once.
        """
        if self._transport is None:
            return
        pid = self._transport.get_pid()
        try:
            if not self.exited.done():
                await asyncio.to_thread(end_group, pid, kill=False)  # a program on Windows
                await asyncio.wait({self.exited}, timeout=grace)
        finally:
            end_group(pid, kill=True)  # also the processes that the program left running
        await asyncio.wait({self.exited}, timeout=SETTLE)

    def close_pipes(self) -> None:
        """Close the standard streams."""
        if self._transport is not None:
            self._transport.close()
