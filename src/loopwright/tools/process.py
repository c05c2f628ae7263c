"""Commands of the machine, run to their end: bounded, in a group of their own, never left behind.

Rules:

1. What a command does is a result, never an exception: a crash, a signal, a time-out, bytes that
   are no text, output without end. Only a command that cannot be started is an error.
2. Program text is constant. Values reach it by environment, arguments or standard input, and are
   never written into it: no quoting is needed because nothing is parsed again.
3. A command ends with all that it started, whatever sessions those have (`supervising`): SIGTERM, a
   grace, SIGKILL. The same happens when our process is killed.
4. The environment is made, not inherited: a short list of names is passed on, so that no key of
   ours reaches a command that was not given it.
5. n bytes of output cost about 2 n of memory for a moment, and n after it; where only the beginning
   and the end are kept, n is what is kept.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..engine.leftovers import TOKEN
from ..errors import ConfigurationError, StepError
from ..records.codec import Json
from ..records.excerpts import marker
from .supervised import Supervised

__all__ = [
    "LIMIT", "CommandResult", "environment", "names_of", "passed", "run_command", "tail", "unstartable",
]  # fmt: skip

LIMIT = 64 * 1024 * 1024  # bytes of output of both streams together
STRING_BYTES = 128 * 1024  # of one argument or variable, with its final NUL (Linux MAX_ARG_STRLEN)
GRACE = 0.5  # seconds between SIGTERM and SIGKILL when a command's own time is up
CUT_GRACE = 0.2  # the same when the caller is cancelled, who waits half a second in all
PIPES = 1.0  # seconds that a grandchild may hold the pipes
DRAIN = 0.05  # seconds in which the pipes of a tree that is gone are read to their end
CHUNK = 64 * 1024  # bytes of input written at a time
READ = 256 * 1024  # bytes of output read at a time
BLOCK = 1024 * 1024  # bytes of output decoded at a time
SHOWN = 2000  # characters of output in a message
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PASSED_ON = frozenset({"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"})


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended and what it said.

    `exit_code` is below 0 for a signal (-9: SIGKILL). `truncated`: its output passed the limit and
    it was ended; the texts hold the beginning. `timed_out`: it was ended at its time limit.
    `decoded_with_loss`: bytes that are not UTF-8 became U+FFFD. `omitted`: bytes that were left out of
    the texts, where a marker stands.
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
        """How it ended, in words: "exited with 2", "was ended by SIGKILL"."""
        if self.exit_code >= 0:
            return f"exited with {self.exit_code}"
        names = {item.value: item.name for item in signal.Signals}
        return f"was ended by {names.get(-self.exit_code, f'signal {-self.exit_code}')}"

    def to_json(self) -> Json:
        """Return it as a JSON object, without `seconds`: equal runs give equal outputs."""
        return {
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": self.truncated,
            "decoded_with_loss": self.decoded_with_loss,
            **({"omitted": self.omitted} if self.omitted else {}),
        }


def tail(text: str, limit: int = SHOWN) -> str:
    """Return the last `limit` characters of a text without outer blanks, marked if cut."""
    text = text.strip()
    if len(text) <= limit:
        return text
    return f"[… {len(text) - limit} characters omitted …]\n{text[-limit:]}"


async def run_command(
    command: Sequence[str] | str,
    *,
    args: Sequence[str] = (),
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    limit: int = LIMIT,
    keep: int | None = None,
    token: str = "",
) -> CommandResult:
    """Run a command to its end and return how it ended and what it said.

    A list is a program and its arguments; a text is a script for `/bin/sh -e -c`, in which `args`
    are "$1", "$2" and so on. The environment is HOME and the like, PATH with the folder of this
    interpreter in front, and `env`. Without `stdin` there is nothing to read. After `timeout`
    seconds, or more than `limit` bytes of output, it is ended: SIGTERM, half a second, SIGKILL. If
    the caller is cancelled, that takes less than half a second in all. All processes that it started
    end with it. Of each stream the beginning and the end are kept, `keep` bytes together with a marker
    between them; default: all of it. `token` names the run in its environment. For POSIX systems.

    Raises:
        StepError: `cannot_start` if it cannot be started; `bad_argument` for an argument, variable
            or input that cannot be handed to a process: NUL, lone surrogates, more than 128 KiB.
    """
    words, began = _words(command, args), time.monotonic()
    variables = environment({**(env or {}), **({TOKEN: token} if token else {})})
    given = _encoded("stdin", stdin) if isinstance(stdin, str) else stdin
    grace, running = GRACE, None
    try:
        running = _Command(words=words, env=variables, cwd=cwd, stdin=given, limit=limit, keep=keep)
        await running.begin()
        timed_out = not await running.watch(timeout)
    except asyncio.CancelledError:
        grace = CUT_GRACE
        raise
    except (OSError, ValueError) as error:
        raise unstartable(error, words[0], cwd) from error
    finally:
        if running is not None:
            await running.end(grace)
    return running.result(timed_out, time.monotonic() - began)


def _words(command: Sequence[str] | str, args: Sequence[str]) -> list[str]:
    start = ["/bin/sh", "-e", "-c", command, "sh"] if isinstance(command, str) else [*command]
    words = [*start, *args]
    for word in words:
        _sendable("argument", word)
    return words


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: HOME and the like, PATH, and what was given for it."""
    passed = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith("LC_")}
    for name, value in given.items():
        if not name or "=" in name:
            raise _bad(f"env: {name!r} is not a name of a variable; use letters, digits and _")
        _sendable(f"env: {name}", f"{name}={value}")
    beside = str(Path(sys.executable).parent)  # tools of its environment, activated or not
    path = f"{beside}{os.pathsep}{passed.get('PATH', os.defpath)}"
    return {**passed, "PATH": path, **given}


def names_of(what: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return names of variables, or refuse what cannot be names.

    Raises:
        ConfigurationError: for a text in place of a list, and a name that cannot be one.
    """
    names = () if isinstance(given, str) else tuple(given)
    for name in names or ([given] if given else ()):
        if not isinstance(name, str) or not _NAME.fullmatch(name) or isinstance(given, str):
            raise ConfigurationError(
                f"{what}: {given!r} is no list of names of variables; give one, such as "
                "['GITHUB_TOKEN']"
            )
    return names


def passed(names: Sequence[str]) -> dict[str, str]:
    """Return the variables of ours with these names, as far as they are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def _sendable(what: str, text: str) -> None:
    """Refuse a text that the system would refuse, or would take for another one."""
    if "\0" in text:
        raise _bad(f"{what}: has a NUL character, which would end it; remove it, or use stdin")
    if len(_encoded(what, text)) >= STRING_BYTES:
        raise _bad(f"{what}: is longer than {STRING_BYTES // 1024} KiB; give it by stdin instead")


def _encoded(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        place = f"{what}: has a lone surrogate at character {error.start}"
        raise _bad(f"{place}, which no encoding holds; replace it with U+FFFD") from None


def _bad(message: str) -> StepError:
    return StepError(message, kind="bad_argument", retryable=False)


def unstartable(error: Exception, program: str, cwd: str | Path | None) -> StepError:
    """Return why a program cannot be started, and what to do."""
    if cwd is not None and not Path(cwd).is_dir():
        why = f"there is no directory {str(cwd)!r}; make it first, or correct cwd"
    elif isinstance(error, FileNotFoundError):
        why = "there is no such program on PATH; install it, or give its whole path"
    elif isinstance(error, PermissionError):
        why = "it may not be executed; give it the permission, or run it by its interpreter"
    elif getattr(error, "errno", None) == errno.E2BIG:
        why = "its arguments and environment are too long together; give long values by stdin"
    else:
        why = getattr(error, "strerror", None) or str(error)
    return StepError(f"cannot start {program!r}: {why}", kind="cannot_start", retryable=False)


class _Text:
    """One stream, of which `keep` bytes stay: its beginning, decoded block by block, and its end.

    What is not UTF-8 becomes U+FFFD.
    """

    def __init__(self, keep: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._block = bytearray()
        self._parts: list[str] = []
        self._end = bytearray()
        self._ends = keep // 4  # bytes of the end
        self._room = keep - self._ends
        self.lossy = False
        self.omitted = 0

    def feed(self, data: bytes) -> None:
        head, rest = data[: self._room], data[self._room :]
        self._room -= len(head)
        self._block += head
        if len(self._block) >= BLOCK:  # thousands of small parts would cost as much again
            self._decode(final=False)
        self._end += rest
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
        except UnicodeDecodeError:
            self.lossy, self._decoder.errors = True, "replace"
            text = self._decoder.decode(data, final)
        self._parts.append(text)

    def take(self, whole: bool) -> str:
        """Return the text; of one that is not `whole`, half a character at its end is left out."""
        self._trim()
        if not self.omitted:
            self._block += self._end
            self._decode(final=whole)
        else:
            self._decode(final=False)
            end = bytes(self._end)
            while end and end[0] & 0xC0 == 0x80:  # the rest of a character that was left out
                end = end[1:]
            self._parts.append(f"\n{marker(self.omitted)}\n")
            self._decoder.reset()
            self._block = bytearray(end)
            self._decode(final=whole)
        parts, self._parts = self._parts, []
        return "".join(parts)


class _Command:
    """One running command: its output so far, and the way to end it."""

    def __init__(
        self, words: list[str], env: dict[str, str], cwd: Any, stdin: bytes | None, limit: int,
        keep: int | None,
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._closed, self._full = (self._loop.create_future() for _ in range(2))
        self._left = limit
        self._unsent = memoryview(stdin or b"")
        self._program = Supervised(words, env=env, cwd=cwd, stdin=stdin is not None, grace=GRACE)
        self._texts = {
            pipe: _Text(limit if keep is None else keep)
            for pipe in (self._program.stdout, self._program.stderr)
        }

    async def begin(self) -> None:
        """Listen to it and feed it from now on, and wait until it has started.

        Raises:
            OSError: if it cannot be started.
        """
        for output in self._texts:
            os.set_blocking(output.fileno(), False)
            self._loop.add_reader(output.fileno(), self._read, output)
        if (given := self._program.stdin) is not None:
            os.set_blocking(given.fileno(), False)
            self._loop.add_writer(given.fileno(), self._write, given)
        await asyncio.wait({self._program.started})
        self._program.started.result()

    def _read(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(BlockingIOError):
            self._take(pipe, os.read(pipe.fileno(), READ))

    def _take(self, pipe: IO[bytes], data: bytes) -> None:
        kept = data[: self._left]
        self._left -= len(kept)
        self._texts[pipe].feed(kept)
        if len(kept) < len(data):
            _settle(self._full)
        if not kept:
            self._let_go(pipe)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent[:CHUNK]) :]
        except OSError:  # a command that does not care to read is no error
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._let_go(pipe)

    def _let_go(self, pipe: IO[bytes]) -> None:
        if pipe.closed:
            return
        self._loop.remove_reader(pipe.fileno())
        self._loop.remove_writer(pipe.fileno())
        pipe.close()
        if all(output.closed for output in self._texts):
            _settle(self._closed)

    async def watch(self, timeout: float | None) -> bool:
        """Wait until it ends or is too loud; return False if its time was up first."""
        exited = self._program.exited
        ends = {exited, self._full}
        await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            ends = {self._closed, self._full}
            await asyncio.wait(ends, timeout=PIPES, return_when=asyncio.FIRST_COMPLETED)
        return exited.done() or self._full.done()

    async def end(self, grace: float) -> None:
        """End everything that is left of it and let its pipes go."""
        try:
            await self._program.end(grace)
            await asyncio.wait({self._closed}, timeout=DRAIN)
        finally:
            for pipe in (self._program.stdin, *self._texts):
                if pipe is not None:
                    self._let_go(pipe)

    def result(self, timed_out: bool, seconds: float) -> CommandResult:
        truncated = self._full.done()
        texts = self._texts.values()
        code = self._program.returncode
        stdout, stderr = (text.take(whole=not truncated) for text in texts)
        lossy = any(text.lossy for text in texts)
        return CommandResult(
            exit_code=-signal.SIGKILL
            if code is None
            else code,  # unkillable: it waits inside the system
            stdout=stdout,
            stderr=stderr,
            truncated=truncated,
            timed_out=timed_out,
            decoded_with_loss=lossy,
            seconds=seconds,
            omitted=sum(text.omitted for text in texts),
        )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
