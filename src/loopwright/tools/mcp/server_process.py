"""A server as a child process that is spoken to line by line, and watched while it lives.

Rules:

1. It runs without keys of ours in its environment, under a supervisor (`supervising`), which ends it
   with every process that it started: end of input, SIGTERM, SIGKILL.
2. That it died is known at once, also while something that it started holds its pipes.
3. A line is read up to a limit; a longer one ends the child.
4. It does not outlive us either way: when our process is killed, its supervisor ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from ...engine.leftovers import TOKEN
from ...errors import StepError
from ..process import READ, CommandResult, environment, tail, unstartable
from ..supervised import Supervised

__all__ = ["ServerProcess"]

ASIDE = 0.3  # seconds that it gets to end by itself when its input ends
GRACE = 0.5  # seconds between SIGTERM and SIGKILL
ALONE = 2.0  # the same when our process was killed; its input ends then too
DRAIN = 0.2  # seconds in which the last words of a dead child are read
LAST_WORDS = 8_000  # bytes of its standard error that are kept


class ServerProcess:
    """A running child process; made inside an event loop, to be started, and ended with `end`.

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
        token: str = "",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._said = bytearray()
        self._words, self._cwd = list(words), cwd
        given = environment({**(env or {}), **({TOKEN: token} if token else {})})
        try:
            self._program = Supervised(words, env=given, cwd=cwd, grace=ALONE, linger=GRACE)
        except (OSError, ValueError) as error:
            raise unstartable(error, words[0], cwd) from error
        self.exited = self._program.exited
        assert self._program.stdin is not None
        pipes = (self._program.stdin, self._program.stdout, self._program.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes)
        for number in (self._in, self._out, self._err):
            os.set_blocking(number, False)
        self._loop.add_reader(self._err, self._listen)

    async def started(self) -> None:
        """Wait until it runs.

        Raises:
            StepError: `cannot_start`.
        """
        await asyncio.wait({self._program.started})
        try:
            self._program.started.result()
        except OSError as error:
            raise unstartable(error, self._words[0], self._cwd) from error

    @property
    def pid(self) -> int:
        """The number of its process and of its group."""
        return self._program.pid

    @property
    def ending(self) -> str:
        """How it ended and what it last said on standard error, in words; "" while it lives."""
        code = self._program.returncode
        if code is None:
            return ""
        said = tail(self._said.decode(errors="replace"), 500)
        ended = CommandResult(code).ending
        return f"{ended}; it last said: {said}" if said else ended

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
        program = self._program
        try:
            with contextlib.suppress(OSError):
                assert program.stdin is not None
                program.stdin.close()
            await asyncio.wait({self.exited}, timeout=ASIDE)
        finally:
            try:
                await program.end(GRACE)
            finally:
                for pipe in (program.stdout, program.stderr):
                    self._loop.remove_reader(pipe.fileno())
                    pipe.close()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
