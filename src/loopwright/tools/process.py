"""Child processes: commands that run to their end, and servers that live as long as a run.

1. A process ends together with every process that it started, whatever their sessions are
   (`supervised`): SIGTERM, a grace period, SIGKILL. The same happens when our process is killed.
2. The environment is built, not inherited: a short list of variables is passed on, so a command gets
   no API key that was not passed to it explicitly.
3. The program text is constant. Values reach a command through its environment, arguments or standard
   input. Nothing is parsed again, so nothing needs quoting.
4. How a command ends is a result, never an exception: a crash, a signal, a timeout, bytes that are not
   text, endless output. Only a command that cannot be started is an error.
5. n bytes of output need about 2 n bytes of memory for a moment, and n bytes afterwards. If only the
   beginning and the end are kept, n is the size of these parts.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._platform import KILLED
from ..engine.run import TOKEN
from ..errors import ConfigurationError, StepError
from ..records.codec import Json
from ..records.display import marker
from .supervised import CAN_SUPERVISE, ProcessGroup, Supervised, settle

__all__ = [
    "GRACE",
    "LIMIT",
    "PASSED_ON",
    "READ",
    "STRING_BYTES",
    "ChildProcess",
    "CommandResult",
    "OnOutput",
    "encoded",
    "inherited",
    "run_command",
    "tail",
    "variable_names",
]

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
    path = f"{Path(sys.executable).parent}{os.pathsep}{base.get('PATH', os.defpath)}"
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
            program = self._program
            if isinstance(program, ProcessGroup):
                await program.start()
                self.stdout, self.stderr = program.stdout, program.stderr
                if program.stdin is not None:
                    self._connect_stdin(program.stdin, _stream_protocol())
                return
            self.stdout = await self._reader(program.stdout)
            self.stderr = await self._reader(program.stderr)
            if program.stdin is not None:
                loop = asyncio.get_running_loop()
                transport, protocol = await loop.connect_write_pipe(_stream_protocol, program.stdin)
                self._connect_stdin(transport, protocol)
            # `wait` and not `await`: a cancelled start must not cancel the future that the supervisor settles.
            await asyncio.wait({program.started})
            program.started.result()
        except OSError as error:
            raise _start_error(error, self._words[0], self._cwd) from error

    def _connect_stdin(
        self, transport: asyncio.WriteTransport, protocol: asyncio.BaseProtocol
    ) -> None:
        self._writer = transport
        self.stdin = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())

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


LIMIT = 64 * 1024 * 1024  # bytes of output of both streams together
CUT_GRACE = (
    0.2  # instead of GRACE when the caller is cancelled: it ends within half a second in total
)
PIPES = 1.0  # seconds that a grandchild may hold the pipes, such as a daemon that a script started
DRAIN = 0.05  # seconds to read the pipes of an ended tree to their end
BLOCK = 1024 * 1024  # bytes of output decoded at a time
SHOWN = 2000  # characters of output in a message
# From a stream, which is the same object for each of its pieces, and a piece to whether the command ends here.
OnOutput = Callable[[object, bytes], Awaitable[bool]]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended, and its output.

    Args:
        exit_code: The exit code, or the negative number of a signal (-9 is SIGKILL).
        stdout: Standard output as text.
        stderr: Standard error as text.
        truncated: Whether the command was ended because its output passed the limit. The texts then
            hold the beginning.
        timed_out: Whether the command was ended at its timeout.
        decoded_with_loss: Whether bytes that are not UTF-8 were replaced by U+FFFD.
        seconds: The duration.
        omitted: The number of bytes that a marker in the texts replaces.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    timed_out: bool = False
    decoded_with_loss: bool = False
    seconds: float = 0.0
    omitted: int = 0

    @property
    def ending(self) -> str:
        """The ending in words, such as "exited with 2" or "was ended by SIGKILL"."""
        if self.exit_code >= 0:
            return f"exited with {self.exit_code}"
        names = {item.value: item.name for item in signal.Signals}
        return f"was ended by {names.get(-self.exit_code, f'signal {-self.exit_code}')}"

    @property
    def last_output(self) -> str:
        """The tail of standard error, or of standard output if there is none."""
        return tail(self.stderr) or tail(self.stdout)

    def to_json(self) -> Json:
        """Return a JSON object without `seconds`, so that equal runs give equal outputs."""
        return {
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": self.truncated,
            "decoded_with_loss": self.decoded_with_loss,
            **({"omitted": self.omitted} if self.omitted else {}),
        }


def tail(text: str, limit: int = SHOWN) -> str:
    """Return the last `limit` characters of a stripped text, with a note if it was cut."""
    text = text.strip()
    if len(text) <= limit:
        return text
    return f"[… {len(text) - limit} characters omitted …]\n{text[-limit:]}"


async def run_command(
    command: Sequence[str] | str,
    *,
    args: Sequence[str] = (),
    prefix: Sequence[str] = (),
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    limit: int = LIMIT,
    keep: int | None = None,
    token: str = "",
    watch: OnOutput | None = None,
) -> CommandResult:
    """Run a command to its end.

    A command that is ended gets SIGTERM, and SIGKILL half a second later. If the caller is cancelled,
    both take less than half a second together. Every process that the command started ends with it.

    Args:
        command: A program and its arguments, or a script for `/bin/sh -e -c`.
        args: More arguments. In a script they are "$1", "$2" and so on.
        prefix: Words before the program, such as those of a sandbox.
        stdin: Standard input. Default: none.
        env: Variables besides HOME and the like and PATH, which begins with the folder of this
            interpreter.
        cwd: The working directory. Default: that of this process.
        timeout: Seconds after which the command is ended. Default: no limit.
        limit: Bytes of output after which the command is ended. Default: 64 MiB.
        keep: Bytes of each stream to keep, its beginning and its end. Default: all.
        token: Names the run in the environment, so that leftover processes can be identified.
        watch: Receives the output of both streams as it comes, and returns whether the command ends here.

    Returns:
        How the command ended, whatever its exit code.

    Raises:
        StepError: `cannot_start`, or `bad_argument` for an argument, variable or input that cannot be
            passed to a process: NUL, lone surrogates, more than 128 KiB.

    Example:
        >>> asyncio.run(run_command(["echo", "hello"])).stdout
        'hello\\n'
    """
    # The last word is $0, so that the first argument becomes "$1".
    words = ["/bin/sh", "-e", "-c", command, "sh"] if isinstance(command, str) else [*command]
    began, grace = time.monotonic(), GRACE
    data = encoded("stdin", stdin) if isinstance(stdin, str) else stdin
    child = ChildProcess(
        [*prefix, *words, *args], env=env, cwd=cwd, stdin=data is not None, token=token
    )
    run = _CommandRun(child, limit, limit if keep is None else keep, watch)
    try:
        await run.start(data)
        timed_out = not await run.wait(timeout)
    except asyncio.CancelledError:
        grace = CUT_GRACE
        raise
    finally:
        await run.end(grace)
    return run.result(timed_out=timed_out, seconds=time.monotonic() - began)


def variable_names(owner: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return names of environment variables, checked.

    Raises:
        ConfigurationError: For a text instead of a list, or an invalid name.
    """
    valid = not isinstance(names, str) and all(
        isinstance(name, str) and _NAME.fullmatch(name) for name in names
    )
    if names and not valid:
        raise ConfigurationError(
            f"{owner}: {names!r} is not a list of variable names. Use a list such as ['GITHUB_TOKEN']."
        )
    return tuple(names)


def inherited(names: Sequence[str]) -> dict[str, str]:
    """Return those of our own environment variables that are set and have one of these names."""
    return {name: os.environ[name] for name in names if name in os.environ}


class _Text:
    """One stream, of which `keep` bytes stay: its beginning, decoded block by block, and its end.

    Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self, keep: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._block = bytearray()
        self._parts: list[str] = []
        self._end = bytearray()
        # Most output begins with the essential part; errors are in the last lines.
        self._ends = keep // 4  # bytes of the end
        self._room = keep - self._ends
        self.lossy = False
        self.omitted = 0

    def feed(self, data: bytes) -> None:
        head, rest = data[: self._room], data[self._room :]
        self._room -= len(head)
        self._block += head
        if len(self._block) >= BLOCK:  # thousands of small strings would need as much memory again
            self._decode(final=False)
        self._end += rest
        # Trimmed at twice the size, so that each byte is moved once and not for each chunk.
        if len(self._end) > 2 * self._ends + READ:
            self._trim()

    def _trim(self) -> None:
        over = max(0, len(self._end) - self._ends)
        self.omitted += over
        del self._end[:over]

    def _decode(self, final: bool) -> None:
        data, self._block = bytes(self._block), bytearray()
        try:
            text = self._decoder.decode(data, final)
        # Strict first, because only an error shows that bytes were lost.
        except UnicodeDecodeError:
            self.lossy, self._decoder.errors = True, "replace"
            text = self._decoder.decode(data, final)
        self._parts.append(text)

    def take(self, complete: bool) -> str:
        """Return the text. A partial character at the end of an incomplete stream is left out."""
        self._trim()
        end = bytes(self._end)
        if self.omitted:
            self._decode(final=False)
            while end and end[0] & 0xC0 == 0x80:  # the rest of a character that was omitted
                end = end[1:]
            self._parts.append(f"\n{marker(self.omitted)}\n")
            self._decoder.reset()
        self._block += end
        self._decode(final=complete)
        parts, self._parts = self._parts, []
        return "".join(parts)


class _CommandRun:
    """One run of a command: its output so far, bounded."""

    def __init__(
        self, child: ChildProcess, limit: int, keep: int, watch: OnOutput | None = None
    ) -> None:
        self._child = child
        self._watch = watch
        self._stopped = False
        self._left = limit
        self._texts = (_Text(keep), _Text(keep))
        self._full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading: list[asyncio.Task[None]] = []
        self._writing: asyncio.Task[None] | None = None

    async def start(self, stdin: bytes | None) -> None:
        await self._child.start()
        streams = zip((self._child.stdout, self._child.stderr), self._texts, strict=True)
        self._reading = [asyncio.create_task(self._read(*pair)) for pair in streams]
        if stdin is not None:
            self._writing = asyncio.create_task(self._write(stdin))

    async def _read(self, stream: asyncio.StreamReader, text: _Text) -> None:
        with contextlib.suppress(OSError):
            while data := await stream.read(READ):
                accepted = data[: self._left]
                self._left -= len(accepted)
                text.feed(accepted)
                if self._watch is not None and await self._watch(text, accepted):
                    self._stopped = True
                if self._stopped or len(accepted) < len(data):
                    settle(self._full)
                    return

    async def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a command that does not read its input is no error
            self._child.stdin.write(data)
            await self._child.stdin.drain()
        self._child.stdin.close()

    async def wait(self, timeout: float | None) -> bool:
        """Wait until it ends or its output passes the limit. Return False at the timeout."""
        exited = self._child.exited
        ends = {exited, self._full}
        await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        # The program has ended, but its last output may still be in the pipes.
        if exited.done() and not self._full.done():
            await asyncio.wait(self._reading, timeout=PIPES)
        return exited.done() or self._full.done()

    async def end(self, grace: float) -> None:
        """End the processes that are left, and close the pipes."""
        try:
            await self._child.end(grace)
            if self._reading:
                await asyncio.wait(self._reading, timeout=DRAIN)
        finally:
            for task in (*self._reading, self._writing):
                if task is not None:
                    task.cancel()
            self._child.close()

    def result(self, *, timed_out: bool, seconds: float) -> CommandResult:
        truncated = self._full.done() and not self._stopped
        stdout, stderr = (text.take(complete=not truncated) for text in self._texts)
        code = self._child.exit_code
        return CommandResult(
            # A process that SIGKILL does not end waits inside the kernel.
            exit_code=KILLED if code is None else code,
            stdout=stdout,
            stderr=stderr,
            truncated=truncated,
            timed_out=timed_out,
            decoded_with_loss=any(text.lossy for text in self._texts),
            seconds=seconds,
            omitted=sum(text.omitted for text in self._texts),
        )
