"""Child processes: commands, and servers that live as long as a run.

Rules:

1. A process ends together with every process that it started, whatever their sessions are
   (`supervised`): SIGTERM, a grace period, SIGKILL. The same happens when our process is killed.
2. The environment is built, not inherited: a short list of variables is passed on, so a command gets
   no API key that was not passed to it explicitly.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..engine.run import TOKEN
from ..errors import StepError
from .process_group import ProcessGroup
from .supervised import CAN_SUPERVISE, Supervised

__all__ = ["GRACE", "PASSED_ON", "READ", "STRING_BYTES", "ChildProcess", "encoded"]

STRING_BYTES = 128 * 1024  # of one argument or variable, with its final NUL (Linux MAX_ARG_STRLEN)
GRACE = 0.5  # seconds between SIGTERM and SIGKILL after a command's timeout
READ = 256 * 1024  # bytes read at a time
_WINDOWS = ("SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP", "USERPROFILE")  # programs need them there
# An allow-list, because a list of secrets could never be complete.
PASSED_ON = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
if os.name == "nt":
    PASSED_ON = PASSED_ON.union(_WINDOWS)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: HOME and the like, PATH, and these variables."""
    base = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith("LC_")}
    for name, value in variables.items():
        if not name or "=" in name:
            raise _bad(f"env: {name!r} is not a variable name. Use letters, digits and _.")
        _check_string(f"env: {name}", f"{name}={value}")
    # The tools of this Python environment are available, activated or not.
    scripts = str(Path(sys.executable).parent)
    path = f"{scripts}{os.pathsep}{base.get('PATH', os.defpath)}"
    return {**base, "PATH": path, **variables}


def _check_string(field: str, text: str) -> None:
    """Refuse a text that the system would refuse or change."""
    if "\0" in text:
        raise _bad(
            f"{field}: contains a NUL character. Remove it, or pass the value through stdin."
        )
    # Linux would only report "argument list too long", without the name of the field.
    if len(encoded(field, text)) >= STRING_BYTES:
        raise _bad(
            f"{field}: is longer than {STRING_BYTES // 1024} KiB. Pass the value through stdin."
        )


def encoded(field: str, text: str) -> bytes:
    """Return a text as UTF-8; one that cannot be encoded is a `bad_argument`."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _bad(
            f"{field}: has a lone surrogate at character {error.start}, which cannot be encoded. "
            "Replace it with U+FFFD."
        ) from None


def _bad(message: str) -> StepError:
    return StepError(message, kind="bad_argument", retryable=False)


def _start_error(error: Exception, program: str, cwd: str | Path | None) -> StepError:
    if cwd is not None and not Path(cwd).is_dir():
        why = f"the directory {str(cwd)!r} does not exist. Create it, or correct cwd."
    elif isinstance(error, FileNotFoundError):
        why = "there is no such program on PATH. Install it, or use its full path."
    elif isinstance(error, PermissionError):
        why = "the file is not executable. Change its mode, or run it with its interpreter."
    elif getattr(error, "errno", None) == errno.E2BIG:
        why = "its arguments and environment are too long together. Pass long values through stdin."
    else:
        why = getattr(error, "strerror", None) or str(error)
    return StepError(f"cannot start {program!r}: {why}", kind="cannot_start", retryable=False)


class ChildProcess:
    """A supervised program with its streams. Call `start`, use it, and always call `end`.

    Must be created inside an event loop. `exited` is a future: the program has ended, even if a process
    that it started still holds its pipes.

    Args:
        words: The program and its arguments.
        env: Variables besides HOME, PATH and the like.
        cwd: The working directory.
        stdin: Whether the program has a standard input.
        token: Names the run in the environment.
        grace: Seconds between SIGTERM and SIGKILL if our process is killed.
        linger: Seconds that the processes below the program may outlive it.
        interrupt: The signal that asks the program to end.

    Raises:
        StepError: `cannot_start` or `bad_argument`.
    """

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: bool = True,
        token: str = "",
        grace: float = GRACE,
        linger: float = 1.0,
        interrupt: int = signal.SIGTERM,
    ) -> None:
        # Checked here: the system would cut a text at a NUL without an error.
        for word in words:
            _check_string("argument", word)
        self._words = words
        # Absolute, because the supervisor runs in another folder.
        self._cwd = cwd = None if cwd is None else Path(cwd).absolute()
        self._readers: list[asyncio.BaseTransport] = []
        self._writer: asyncio.WriteTransport | None = None
        variables = _environment({**(env or {}), **({TOKEN: token} if token else {})})
        self._program: Supervised | ProcessGroup
        try:
            if CAN_SUPERVISE:
                self._program = Supervised(
                    words, env=variables, cwd=cwd, stdin=stdin, grace=grace, linger=linger,
                    interrupt=interrupt,
                )  # fmt: skip
            else:
                self._program = ProcessGroup(words, env=variables, cwd=cwd, stdin=stdin, limit=READ)
        except (OSError, ValueError) as error:
            raise _start_error(error, words[0], cwd) from error
        self.exited = self._program.exited

    async def start(self) -> None:
        """Connect the streams and wait until the program runs.

        Raises:
            StepError: `cannot_start`.
        """
        try:
            if isinstance(self._program, ProcessGroup):
                await self._start_group(self._program)
            else:
                await self._start_supervised(self._program)
        except OSError as error:
            raise _start_error(error, self._words[0], self._cwd) from error

    async def _start_group(self, program: ProcessGroup) -> None:
        await program.start()
        self.stdout, self.stderr = program.stdout, program.stderr
        if program.stdin is not None:
            self._connect_stdin(program.stdin, _stream_protocol())

    async def _start_supervised(self, program: Supervised) -> None:
        self.stdout = await self._reader(program.stdout)
        self.stderr = await self._reader(program.stderr)
        if program.stdin is not None:
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.connect_write_pipe(_stream_protocol, program.stdin)
            self._connect_stdin(transport, protocol)
        # `wait` and not `await`: a cancelled start must not cancel the future that the supervisor settles.
        await asyncio.wait({program.started})
        program.started.result()

    def _connect_stdin(
        self, transport: asyncio.WriteTransport, protocol: asyncio.BaseProtocol
    ) -> None:
        self._writer = transport
        loop = asyncio.get_running_loop()
        self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)

    async def _reader(self, pipe: object) -> asyncio.StreamReader:
        stream = asyncio.StreamReader(READ)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        self._readers.append(transport)
        return stream

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the program runs."""
        return self._program.returncode

    async def end(self, grace: float) -> None:
        """End the program and every process below it: SIGTERM, `grace` seconds, SIGKILL."""
        await self._program.end(grace)

    def close(self) -> None:
        """Close the streams."""
        writer = self._writer
        if writer is not None and (writer.get_write_buffer_size() or not writer.is_closing()):
            writer.abort()  # `close` would wait until the program has read its input
        for transport in self._readers:
            transport.close()
        self._program.close_pipes()


def _stream_protocol() -> asyncio.StreamReaderProtocol:
    return asyncio.StreamReaderProtocol(asyncio.StreamReader())
