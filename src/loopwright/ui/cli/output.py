"""Where a command writes: what was asked for to stdout, all else to stderr.

Rules:

1. Under `--json` stdout holds exactly one JSON object. What a step or a command of the user prints
   on stdout meanwhile goes to stderr, whatever means it uses: the descriptor itself is moved.
2. A reader that went away is no error: what it no longer reads is dropped, the command goes on.
3. Parts are text, or (text, style); styles act on a terminal only.
4. What a terminal would obey instead of show is made visible in all that is written to one, whoever
   it comes from; a pipe gets text as it is.

Errors as the command line tells them: a sentence on stderr and an exit code, never a traceback.

2 is a wrong command line, document or run name; 1 is a journal that is locked, damaged or out of
reach, and a defect of this program.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from ...errors import (
    DocumentError,
    Interruption,
    JournalDamaged,
    JournalUnavailable,
    LoopwrightError,
    OwnershipLost,
    ReplayMismatch,
    RunLocked,
    nearest,
)
from ...records.codec import Json
from .. import formatting as texts
from ..formatting import ASCII, UNICODE, Signs, clean

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["DEBUG", "Output", "Part", "exit_code_of", "tell", "told"]


Part = str | tuple[str, str]
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
PIPE_WIDTH = 120  # of tables where no terminal says how wide it is


class _Stream:
    """A text stream that outlives its reader, with as much of a file as rich asks for."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.fault: OSError | None = None
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        if stream is not None:
            # A character that the terminal's encoding lacks is no reason to lose the line.
            with contextlib.suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        if self._stream is not None and self.fault is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._lost(error)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None and self.fault is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._lost(error)

    def _lost(self, error: OSError) -> None:
        self.fault = error
        with contextlib.suppress(OSError, ValueError):
            # What is still in the buffer must have somewhere to go when the process ends.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError(errno.EBADF, "closed")
        return self._stream.fileno()


class Output:
    """Where one command writes; a context, so that stdout is put back.

    Leaving it raises the OSError of what could not be written, unless its reader went away.
    `terminal` says that people watch; `signs` are the characters it can show, `width` its columns.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._stack = contextlib.ExitStack()
        self._out = _Stream(sys.stdout)
        self._err = _Stream(sys.stderr)
        self._people = self._err if as_json else self._out
        self.terminal = self._people.isatty() and os.environ.get("TERM", "") not in (
            "dumb", "unknown",
        )  # fmt: skip
        self.signs: Signs = UNICODE if _shows(UNICODE, self._people.encoding) else ASCII
        self._console: Console | None = None

    def __enter__(self) -> Self:
        if self.as_json:
            self._stack.enter_context(self._apart())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.flush()
        self._stack.close()
        if error is None and self.fault is not None:
            raise self.fault

    @contextlib.contextmanager
    def _apart(self) -> Any:
        """Keep stdout for the one object: what others print there goes to stderr."""
        try:
            number, beside = self._out.fileno(), self._err.fileno()
        except (OSError, ValueError):  # not a file of the system: a stream of a test, say
            with contextlib.redirect_stdout(sys.stderr):
                yield
            return
        self._out.flush()
        with os.fdopen(os.dup(number), "w", encoding=self._out.encoding) as kept:
            mixed, self._out = self._out, _Stream(kept)
            os.dup2(beside, number)
            try:
                yield
            finally:
                mixed.flush()
                self._out.flush()
                os.dup2(kept.fileno(), number)
                mixed.fault = self._out.fault
                self._out = mixed

    @property
    def console(self) -> Console:
        """The rich console of the terminal."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                file=cast("TextIO", self._people),
                force_terminal=True,
                highlight=False,
                markup=False,
                emoji=False,
            )
        return self._console

    @property
    def width(self) -> int:
        """The columns of the terminal; where there is none, COLUMNS or 120."""
        if not self.terminal:
            return max(20, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)
        return max(20, self.console.width)

    def say(self, *parts: Part, wrap: bool = False) -> None:
        """Write a line for people: to stdout, under `--json` to stderr.

        `wrap` breaks it between words where a terminal is too narrow; commands stay whole.
        """
        if self._people.isatty():
            parts = tuple(_cleaned(part) for part in parts)
        if self.terminal:
            from rich.text import Text

            line = Text.assemble(*parts, end="")
            self.console.print(line, soft_wrap=not wrap)
        else:
            plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
            self._people.write(plain + "\n")
            self._people.flush()

    def wrapped(self, text: str, cells: int) -> list[str]:
        """Return text as lines of a terminal, at most `cells` wide, broken between words."""
        from rich.text import Text

        return [line.plain for line in Text(text).wrap(self.console, cells)]

    def note(self, text: str) -> None:
        """Write a line to stderr: a remark, a warning, an error."""
        if self.terminal and self._err.isatty():
            self.say(text)  # a live view may stand there
            return
        self._err.write((texts.clean(text) if self._err.isatty() else text) + "\n")
        self._err.flush()

    def put(self, text: str) -> None:
        """Write text that was asked for to stdout, a line end behind it if it has none.

        A pipe and a file get it as it is, to the byte.
        """
        if self._out.isatty():
            text = texts.clean(text)
        self._out.write(text if text.endswith("\n") else text + "\n")
        self._out.flush()

    def give(self, value: Json) -> None:
        """Write the one JSON object to stdout: on one line, or indented on a terminal."""
        plain = not _shows(UNICODE, self._out.encoding)
        text = json.dumps(value, ensure_ascii=plain, indent=2 if self._out.isatty() else None)
        self.put(text if plain else texts.clean_json(text))

    def flush(self) -> None:
        """Hand over what is waiting."""
        self._out.flush()
        self._err.flush()

    @property
    def fault(self) -> OSError | None:
        """Why stdout could not be written; None for a reader that merely went away or never was."""
        fault = self._out.fault
        return None if fault is None or fault.errno in _GONE else fault

    def abandon(self) -> None:
        """Leave the terminal usable, in the moment before the process ends at once."""
        cursor_back = b"\r\x1b[?25h\x1b[K"
        if self.terminal:
            with contextlib.suppress(OSError):
                os.write(self._people.fileno(), cursor_back)
        # RuntimeError: a signal came in the middle of a flush, which then goes on by itself.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self.flush()


def _cleaned(part: Part) -> Part:
    return texts.clean(part) if isinstance(part, str) else (texts.clean(part[0]), part[1])


def _shows(signs: Signs, encoding: str) -> bool:
    try:
        "".join(signs).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


DEBUG = "LOOPWRIGHT_DEBUG"
_LONGEST = 2000  # characters of a line about an error


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, JournalDamaged | JournalUnavailable | RunLocked | OwnershipLost):
        return 1
    if isinstance(error, LoopwrightError):
        return 2
    return int(getattr(error, "exit_code", 1))


def told(error: BaseException, command: str = "") -> str:
    """Return what to say about an error of a command: a line, or one per problem of a document."""
    if isinstance(error, DocumentError):
        return str(error)
    if isinstance(error, ReplayMismatch) and "accept_changes" in str(error):
        return f"loopwright: {error}; on the command line: --accept-changes"
    if isinstance(error, LoopwrightError | Interruption):
        return f"loopwright: {error}"
    if hasattr(error, "format_message"):  # the command line itself is wrong
        return f"loopwright: {_usage(error, command)}"
    if isinstance(error, OSError) and error.strerror:
        return f"loopwright: {error.filename or 'output'}: {error.strerror}"
    name = type(error).__name__
    what = f"{name}: {error}" if str(error) else name
    return f"loopwright: {what} (a defect of this program; {DEBUG}=1 shows the traceback)"


def _usage(error: Any, command: str) -> str:
    """Return what is wrong with a command line, and the nearest word or where help is."""
    whole = f"loopwright {command}".rstrip()  # what the parser itself refuses knows of no command
    path = getattr(getattr(error, "ctx", None), "command_path", whole)
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        hint = nearest(error.option_name, error.possibilities or ())
        return f"there is no option {error.option_name!r}{hint or f'; see: {path} --help'}"
    message = " ".join(str(error.format_message()).split())
    message, _, _ = message.partition(" Did you mean")
    named = re.fullmatch(r"No such command '(.*)'\.", message)
    if named:
        commands = getattr(getattr(error.ctx, "command", None), "commands", ())
        hint = nearest(named[1], commands)
        return f"there is no command {named[1]!r}{hint or f'; see: {path} --help'}"
    message = message.replace("Value error, ", "").rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see: {path} --help"


def _bounded(text: str) -> str:
    """Return lines, the middle of each that is very long left out: what it quotes may be anything."""
    lines = []
    for line in text.split("\n"):
        left = len(line) - _LONGEST
        if left > 0:
            line = (
                f"{line[: _LONGEST // 2]}… ({left} characters left out) …{line[-_LONGEST // 2 :]}"
            )
        lines.append(line)
    return "\n".join(lines) + "\n"


def tell(error: BaseException, command: str = "") -> int:
    """Say on stderr what went wrong in a command and return the exit code."""
    shown = bool(os.environ.get(DEBUG))
    text = "".join(traceback.format_exception(error)) if shown else _bounded(told(error, command))
    try:
        sys.stderr.write(clean(text) if sys.stderr.isatty() else text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # nobody is there to read it
        pass
    return exit_code_of(error)
