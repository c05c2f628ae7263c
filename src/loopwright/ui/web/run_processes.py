"""Runs that the page starts: each a `loopwright` process of its own, which outlives the page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ...errors import ConfigurationError, RunNotFound
from ...journal import Journal

__all__ = ["RunProcesses"]

PATIENCE = 30.0  # seconds until a run must be on record
BEAT = 0.05
SETTLING = 0.5  # seconds in which a run that goes on finds that it cannot
REFUSED = 2  # the exit code of what cannot be done as it is asked
_LAST = 2000  # characters of what a process that failed said


class RunProcesses:
    """The processes that were started here; they are watched, and left alone when the page ends."""

    def __init__(self, journal: Journal, url: str, folder: Path) -> None:
        self._journal = journal
        self._url = url
        self._folder = folder
        self._watched: set[asyncio.Task[int]] = set()

    async def launch(self, run_id: str, words: Sequence[str], given: str | None = None) -> None:
        """Start `loopwright WORDS…` and return once it has opened the run.

        `given` is what it reads on stdin.

        Raises:
            ConfigurationError: with what it said, if it ended without opening the run, or refused
                what it found in it.
        """
        before = await self._epoch(run_id)
        with tempfile.TemporaryFile() as said:
            process = await self._start(words, given, said)
            ended = asyncio.create_task(process.wait())
            self._watched.add(ended)
            ended.add_done_callback(self._watched.discard)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    while not ended.done():
                        if await self._epoch(run_id) > before:
                            break
                        await asyncio.wait({ended}, timeout=BEAT)
            if await self._epoch(run_id) > before:
                if before:  # what was recorded may not be what it is about to do
                    await asyncio.wait({ended}, timeout=SETTLING)
                if not ended.done() or ended.result() != REFUSED:
                    return
            if not ended.done():
                raise ConfigurationError(f"{run_id}: its process has not begun it yet; look again")
            said.seek(0)
            raise ConfigurationError(_sentence(said.read(), ended.result()))

    async def _start(
        self, words: Sequence[str], given: str | None, said: IO[bytes]
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loopwright", *words, "--journal", self._url,
            cwd=self._folder, env={**os.environ, "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL, stderr=said,
            start_new_session=True,  # Ctrl-C ends the page, not the runs
        )  # fmt: skip
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write((given or "").encode())
                await process.stdin.drain()
            process.stdin.close()
        return process

    async def _epoch(self, run_id: str) -> int:
        try:
            info = await self._journal.find(run_id)
        except RunNotFound:
            return 0
        return info.epoch if info.run_id == run_id else 0


def _sentence(said: bytes, code: int) -> str:
    lines = [line for line in said.decode("utf-8", "replace")[-_LAST:].splitlines() if line.strip()]
    told = [line.removeprefix("loopwright: ") for line in lines if line.startswith("loopwright: ")]
    return (told or lines or [f"its process ended with exit code {code} and said nothing"])[-1]
