"""Runs that the page starts: separate `loopwright` processes that outlive the page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..._platform.processes import new_group
from ...errors import ConfigurationError, RunNotFound
from ...journal import Journal

PATIENCE = 30.0  # seconds until a run must be recorded
BEAT = 0.05
SETTLING = 0.5  # seconds in which a resumed run may still be refused
REFUSED = 2  # exit code of a wrong command or document
_LAST = 2000  # characters of the messages of a failed process


class RunProcesses:
    """Starts processes and watches them; they continue when the page ends."""

    def __init__(self, journal: Journal, url: str, folder: Path) -> None:
        self._journal = journal
        self._url = url
        self._folder = folder
        self._watched: set[asyncio.Task[int]] = set()

    async def launch(self, run_id: str, words: Sequence[str], stdin: str | None = None) -> None:
        """Start `loopwright WORDS…` and return once it has opened the run.

        Raises:
            ConfigurationError: with its last message, if it ended without opening the run, or refused
                to resume it.
        """
        before = await self._epoch(run_id)
        with tempfile.TemporaryFile() as messages:
            process = await self._start(words, stdin, messages)
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
                if before:  # a recorded run can still be refused
                    await asyncio.wait({ended}, timeout=SETTLING)
                if not ended.done() or ended.result() != REFUSED:
                    return
            if not ended.done():
                raise ConfigurationError(f"{run_id} has not started yet. Reload the page.")
            messages.seek(0)
            raise ConfigurationError(_sentence(messages.read(), ended.result()))

    async def _start(
        self, words: Sequence[str], stdin: str | None, messages: IO[bytes]
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loopwright", *words, "--journal", self._url,
            cwd=self._folder, env={**os.environ, "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL, stderr=messages,
            **new_group(),  # Ctrl-C ends the page, not the runs
        )  # fmt: skip
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write((stdin or "").encode())
                await process.stdin.drain()
            process.stdin.close()
        return process

    async def _epoch(self, run_id: str) -> int:
        try:
            info = await self._journal.find(run_id)
        except RunNotFound:
            return 0
        return info.epoch if info.run_id == run_id else 0


def _sentence(messages: bytes, code: int) -> str:
    lines = [
        line for line in messages.decode("utf-8", "replace")[-_LAST:].splitlines() if line.strip()
    ]
    errors = [
        line.removeprefix("loopwright: ") for line in lines if line.startswith("loopwright: ")
    ]
    return (errors or lines or [f"the process ended with exit code {code} and no message"])[-1]
