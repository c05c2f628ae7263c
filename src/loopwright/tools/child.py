"""A server as a child process that is spoken to line by line, and watched while it lives.

Rules:

1. It runs in a session of its own, without keys of ours in its environment, and its whole process
   group is ended with it: end of input, SIGTERM, SIGKILL.
2. That it died is known at once, also while something that it started holds its pipes.
3. A line is read up to a limit; a longer one ends the child.
4. It does not outlive us either way: when our process is killed, a guard beside it ends its group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from ..errors import StepError
from .process import READ, CommandResult, environment, tail, unstartable

__all__ = ["Child"]

ASIDE = 0.3  # seconds that it gets to end by itself when its input ends
GRACE = 0.5  # seconds between SIGTERM and SIGKILL
DRAIN = 0.2  # seconds in which the last words of a dead child are read
# Its input ends when we do, however we end; the child itself then has two seconds to go.
GUARD = ("/bin/sh", "-c", 'read -r _; sleep 2; kill -s KILL -- "-$1"', "sh")
LAST_WORDS = 8_000  # bytes of its standard error that are kept


class Child:
    """A running child process; made inside an event loop, to be ended with `end`.

    Raises:
        StepError: `cannot_start` or `bad_argument`.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        limit: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._limit = limit
        self._said = bytearray()
        try:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment(env or {}),
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise unstartable(error, words[0], cwd) from error
        self._guard = subprocess.Popen(
            [*GUARD, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._in, self._out, self._err = (
            pipe.fileno()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
            if pipe is not None
        )
        for number in (self._in, self._out, self._err):
            os.set_blocking(number, False)
        self._loop.add_reader(self._err, self._listen)
        threading.Thread(target=self._reap, name="wait for a server", daemon=True).start()

    @property
    def pid(self) -> int:
        """The number of its process and of its group."""
        return self._process.pid

    @property
    def ending(self) -> str:
        """How it ended and what it last said on standard error, in words; "" while it lives."""
        code = self._process.returncode
        if code is None:
            return ""
        said = tail(self._said.decode(errors="replace"), 500)
        ended = CommandResult(code).ending
        return f"{ended}; it last said: {said}" if said else ended

    def _reap(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_settle, self.exited)

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            data = os.read(self._err, READ)
            if not data:
                self._loop.remove_reader(self._err)
            self._said += data
            del self._said[:-LAST_WORDS]

    async def lines(self) -> AsyncIterator[bytes]:
        """Give its lines as they come, until it is dead or closes its output.

        Raises:
            StepError: `output_too_large` for a line beyond the limit.
        """
        rest, seen = bytearray(), 0
        while data := await self._read():
            rest += data
            begin = 0
            while (end := rest.find(b"\n", max(begin, seen))) >= 0:
                yield bytes(rest[begin:end])
                begin = end + 1
                seen = begin
            del rest[:begin]
            seen = len(rest)
            if seen > self._limit:
                raise StepError(
                    f"a message of the server has more than {self._limit:,} bytes",
                    kind="output_too_large",
                    retryable=False,
                )

    async def _read(self) -> bytes:
        """Return what is there, waiting for it; b"" at the end."""
        while True:
            with contextlib.suppress(BlockingIOError):
                return os.read(self._out, READ)
            ready = self._loop.create_future()
            self._loop.add_reader(self._out, _settle, ready)
            try:
                ends = {ready, self.exited}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not ready.done():
                    await asyncio.wait({ready}, timeout=DRAIN)
                if not ready.done():
                    return b""  # it is dead, and who holds its pipe says nothing
            finally:
                self._loop.remove_reader(self._out)

    async def write(self, data: bytes) -> None:
        """Write all of it, waiting while the child does not read.

        Raises:
            OSError: if it is gone.
        """
        left = memoryview(data)
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._in, left) :]
                continue
            ready = self._loop.create_future()
            self._loop.add_writer(self._in, _settle, ready)
            try:
                ends = {ready, self.exited}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._loop.remove_writer(self._in)

    async def end(self) -> None:
        """End it with all that it started; it is gone when this returns."""
        try:
            with contextlib.suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            await asyncio.wait({self.exited}, timeout=ASIDE)
            if self._signal(signal.SIGTERM):
                await self._fade()
        finally:
            self._signal(signal.SIGKILL)
            self._dismiss()
            try:
                await asyncio.wait({self.exited}, timeout=DRAIN)
            finally:
                for number in (self._out, self._err):
                    self._loop.remove_reader(number)
                for pipe in (self._process.stdout, self._process.stderr):
                    if pipe is not None:
                        pipe.close()

    def _dismiss(self) -> None:
        """End the guard, which has nothing left to guard."""
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    async def _fade(self) -> None:
        until = time.monotonic() + GRACE
        while time.monotonic() < until and self._signal(0):
            await asyncio.sleep(0.01)

    def _signal(self, number: int) -> bool:
        """Signal its process group; return whether there still is one."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
