"""Runs as processes of their own, which outlive the server that starts them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from .._platform import new_group
from ..errors import ConfigurationError
from .inputs import VARIABLE
from .journals import PROGRAM

POLL_SECONDS = 0.05  # seconds between two checks of the signal; a person does not notice the delay
_LAST = 2000  # characters of the messages of a failed process


class RunProcesses:
    """Starts processes and watches them; they continue when the page ends."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._watched: set[asyncio.Task[int]] = set()

    async def launch(self, words: Sequence[str], stdin: str | None = None) -> None:
        """Start `loopwright WORDS…` and return once it has opened and accepted the run.

        Raises:
            ConfigurationError: with its last message, if it ended without opening the run, or refused
                to resume it.
        """
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as messages:
            signal = Path(folder, "opened")
            signal.touch()
            process = await self._start(words, stdin, messages, signal)
            ended = asyncio.create_task(process.wait())
            # asyncio keeps only weak references to tasks, and an ended process must be collected.
            self._watched.add(ended)
            ended.add_done_callback(self._watched.discard)
            while not ended.done() and not signal.stat().st_size:
                await asyncio.wait({ended}, timeout=POLL_SECONDS)
            if not signal.stat().st_size:
                messages.seek(0)
                said = messages.read().decode("utf-8", "replace")[-_LAST:].splitlines()
                lines = [line for line in said if line.strip()]
                ours = "loopwright: "
                errors = [line.removeprefix(ours) for line in lines if line.startswith(ours)]
                silent = f"the process ended with exit code {ended.result()} and no message"
                # The last error is the reason; notes and warnings precede it.
                raise ConfigurationError((errors or lines or [silent])[-1])

    async def _start(
        self, words: Sequence[str], stdin: str | None, messages: IO[bytes], signal: Path
    ) -> asyncio.subprocess.Process:
        # The journal as a variable: a URL may contain a password, and arguments are visible to all users.
        environment = {**os.environ, "LOOPWRIGHT_JOURNAL": self._url, "NO_COLOR": "1"}
        environment[VARIABLE] = str(signal)
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, cwd=self._folder, env=environment,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL, stderr=messages,
            **new_group(),  # Ctrl-C ends the page, not the runs
        )  # fmt: skip
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                # A process that refuses its command line ends before it reads the input.
                process.stdin.write((stdin or "").encode())
                await process.stdin.drain()
            process.stdin.close()
        return process
