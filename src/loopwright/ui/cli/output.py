"""The output of a command, with its errors and exit codes, and the signals that end it.

1. Results go to stdout, all other text to stderr. Under `--json` stdout holds exactly one JSON object. The file
   descriptor itself is redirected, so that output of the user's steps and commands goes to stderr.
2. If the reader closes the pipe, the remaining output is dropped and the command continues.
3. Parts are text, or (text, style); styles apply to terminals only.
4. Control characters are made visible on a terminal; a pipe gets text unchanged.
5. An error is a sentence on stderr and an exit code, never a traceback. Exit code 2 is a wrong command
   line, document or run name; 1 is a journal that is locked, damaged or unavailable, or a defect.

Ctrl-C, SIGTERM and SIGHUP during a run:

1. The first signal cancels the run's task: the engine records the finished work and releases the run,
   so that it can be resumed.
2. The second signal ends the process at once; acknowledged entries are in the journal.
3. The handlers are plain ones, so that a step that blocks the event loop cannot delay them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO, cast

from ...errors import (
    ConfigurationError,
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
from .. import formatting as texts
from ..formatting import ASCII, UNICODE, Signs, clean
from . import DEBUG

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console

    from ...records import Result
    from ...records.codec import Json

Part = str | tuple[str, str]
Line = tuple[tuple[Part, ...], bool]  # the parts of a line, and whether it is broken between words
# The reader is gone: a closed pipe, a closed terminal, a closed file descriptor.
_CLOSED = (errno.EPIPE, errno.EIO, errno.EBADF)
# Of the statuses of runs.
STYLES = {
    "queued": "cyan", "running": "bold cyan", "satisfied": "green", "exhausted": "yellow", "suspended": "cyan",
    "interrupted": "yellow", "failed": "red", "cancelled": "red", "damaged": "red",
}  # fmt: skip
PIPE_WIDTH = 120  # columns of tables without a terminal, for logs of CI
PIPE_LINES = 40  # of a screen without a terminal
_MAX_LINE = 2000  # characters of a line about an error
# The page has a table of the same codes, because its reader has buttons and no commands.
_ADVICE = {
    "list_runs": ". List the runs with: loopwright runs",
    "mix_versions": ": --mix",
    "raise_limit": ": loopwright resume {run} --max-iterations N",
    "path": ": loopwright fork {run} PATH",
}
_NOT_A_NUMBER = re.compile(
    r"Input should be (a valid (?:number|integer)), unable to parse string as an? \w+"
)


class _Stream:
    """A text stream that ignores a closed pipe, with the methods that rich needs."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.write_error: OSError | None = None
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        if stream is not None:
            # A character outside the terminal's encoding must not lose the line.
            with contextlib.suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def _try(self, act: Callable[[TextIO], object]) -> None:
        if self._stream is None or self.write_error is not None:
            return
        try:
            act(self._stream)
        except OSError as error:
            self.write_error = error
            with contextlib.suppress(OSError, ValueError):
                # The rest of the buffer is written when the process ends, and must not fail then.
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
    """The output of one command, as a context that restores stdout.

    On exit, a failed write raises its OSError, unless the reader closed the pipe. `terminal` is true
    if the output for people goes to a terminal; `signs` are the characters it can show.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._stack = contextlib.ExitStack()
        self._out = _Stream(sys.stdout)
        self._err = _Stream(sys.stderr)
        # Under `--json` stdout belongs to the program that reads it.
        self._people = self._err if as_json else self._out
        self.terminal = self._people.isatty() and os.environ.get("TERM", "") not in (
            "dumb", "unknown",
        )  # fmt: skip
        self.signs: Signs = UNICODE if _shows(UNICODE, self._people.encoding) else ASCII
        self._console: Console | None = None
        self._held: list[Line] | None = None

    def __enter__(self) -> Self:
        if self.as_json:
            self._stack.enter_context(self._json_only())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.flush()
        self._stack.close()
        if error is None and self.write_error is not None:
            raise self.write_error

    @contextlib.contextmanager
    def _json_only(self) -> Iterator[None]:
        """Reserve stdout for the JSON object; other output to stdout goes to stderr."""
        try:
            number, stderr = self._out.fileno(), self._err.fileno()
        except (OSError, ValueError):  # not a file descriptor: a stream of a test, for example
            with contextlib.redirect_stdout(sys.stderr):
                yield
            return
        self._out.flush()
        with os.fdopen(os.dup(number), "w", encoding=self._out.encoding) as reserved:
            outer, self._out = self._out, _Stream(reserved)
            # The file descriptor, not only `sys.stdout`: child processes inherit the descriptor.
            os.dup2(stderr, number)
            try:
                yield
            finally:
                outer.flush()
                self._out.flush()
                os.dup2(reserved.fileno(), number)
                outer.write_error = self._out.write_error
                self._out = outer

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
        """The columns of the terminal; without one, COLUMNS or 120."""
        if not self.terminal:
            return max(20, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)
        return max(20, self.console.width)

    @property
    def height(self) -> int:
        """The lines of a screen: those of the terminal with room for the next prompt; without one, 40."""
        return max(12, self.console.height - 1) if self.terminal else PIPE_LINES

    @contextlib.contextmanager
    def holding(self) -> Iterator[list[Line]]:
        """Collect the lines that are written inside, so that a part of them can be left out."""
        outer, self._held = self._held, []
        try:
            yield self._held
        finally:
            self._held = outer

    def height_of(self, lines: Sequence[Line]) -> int:
        """Return how many lines of the screen collected lines take."""
        total = 0
        for parts, wrap in lines:
            text = "".join(part if isinstance(part, str) else part[0] for part in parts)
            for line in text.split("\n"):
                cells = texts.width(line) if self.terminal else 0
                broken = wrap and cells > self.width  # between words, which takes more lines
                total += (
                    len(self.wrapped(line, self.width))
                    if broken
                    else max(1, -(-cells // self.width))
                )
        return total

    def write(self, *parts: Part, wrap: bool = False) -> None:
        """Write a line for people: to stdout, under `--json` to stderr.

        `wrap` breaks it between words on a narrow terminal; do not wrap commands, which are copied.
        """
        if self._held is not None:
            self._held.append((parts, wrap))
            return
        # An output of a model must not move the cursor or change the title of the terminal.
        if self._people.isatty():
            parts = tuple(
                clean(part) if isinstance(part, str) else (clean(part[0]), part[1])
                for part in parts
            )
        if self.terminal:
            from rich.text import Text

            line = Text.assemble(*parts, end="")
            self.console.print(line, soft_wrap=not wrap)
        else:
            plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
            self._people.write(plain + "\n")
            self._people.flush()

    def wrapped(self, text: str, cells: int) -> list[str]:
        """Return text as lines of at most `cells` cells, broken between words."""
        from rich.text import Text

        return [line.plain for line in Text(text).wrap(self.console, cells)]

    def note(self, text: str) -> None:
        """Write a line to stderr: a note, a warning, an error."""
        if self.terminal and self._err.isatty():
            self.write(text)  # through rich, because a live view may be on the terminal
            return
        self._err.write((texts.clean(text) if self._err.isatty() else text) + "\n")
        self._err.flush()

    def write_result(self, text: str) -> None:
        """Write a result to stdout, with a line end. A pipe and a file get the text unchanged."""
        if self._out.isatty():
            text = texts.clean(text)
        self._out.write(text if text.endswith("\n") else text + "\n")
        self._out.flush()

    def write_json(self, value: Json) -> None:
        """Write the one JSON object to stdout: on one line, or indented on a terminal."""
        # Escapes are valid JSON in every encoding.
        plain = not _shows(UNICODE, self._out.encoding)
        text = json.dumps(value, ensure_ascii=plain, indent=2 if self._out.isatty() else None)
        self.write_result(text if plain else texts.clean_json(text))

    def flush(self) -> None:
        """Write the buffers."""
        self._out.flush()
        self._err.flush()

    @property
    def write_error(self) -> OSError | None:
        """The error of a failed write to stdout; None for a closed pipe."""
        write_error = self._out.write_error
        return None if write_error is None or write_error.errno in _CLOSED else write_error

    def abandon(self) -> None:
        """Restore the cursor and write the buffers, before the process ends at once."""
        cursor_back = b"\r\x1b[?25h\x1b[K"
        if self.terminal:
            with contextlib.suppress(OSError):
                os.write(self._people.fileno(), cursor_back)
        # RuntimeError: a signal arrived during a flush, which then continues by itself.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self.flush()


def _shows(signs: Signs, encoding: str) -> bool:
    try:
        "".join(signs).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error."""
    # Exit code 2 means that the command line or the document has to change; here it is correct.
    if isinstance(error, JournalDamaged | JournalUnavailable | RunLocked | OwnershipLost):
        return 1
    if isinstance(error, LoopwrightError):
        return 2
    return int(getattr(error, "exit_code", 1))


def error_text(error: BaseException, command: str = "") -> str:
    """Return the message for an error: one line, or one per problem of a document."""
    if isinstance(error, DocumentError):
        return str(error)
    if isinstance(error, ReplayMismatch) and "accept_changes" in str(error):
        return f"loopwright: {error}; on the command line: --accept-changes"
    if isinstance(error, LoopwrightError | Interruption):
        advice = error.advice if isinstance(error, ConfigurationError) else ""
        # A message about a run begins with its ID.
        run = str(error).partition(":")[0]
        return f"loopwright: {error}{_ADVICE.get(advice, '').format(run=run)}"
    if hasattr(error, "format_message"):  # a wrong command line
        return f"loopwright: {_usage(error, error.format_message(), command)}"
    if isinstance(error, OSError) and error.strerror:
        return f"loopwright: {error.filename or 'output'}: {error.strerror}"
    name = type(error).__name__
    detail = f"{name}: {error}" if str(error) else name
    return f"loopwright: {detail} (a defect of Loopwright; {DEBUG}=1 prints the traceback)"


def _usage(error: BaseException, said: str, command: str) -> str:
    """Return the problem of a command line, with the nearest word or a reference to the help."""
    context = getattr(error, "ctx", None)  # errors of the parser itself have none
    path = getattr(context, "command_path", f"loopwright {command}".rstrip())
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        hint = nearest(error.option_name, error.possibilities or ())
        if not hint and command == "until":
            hint = '; write the check as one word in quotes, such as: loopwright until "pytest -q" -- AGENT'
        return f"there is no option {error.option_name!r}{hint or f'; see: {path} --help'}"
    message = " ".join(said.split())
    # Replaced by our own hint, so that all hints read alike.
    message, _, _ = message.partition(" Did you mean")
    named = re.fullmatch(r"No such command '(.*)'\.", message)
    if named:
        commands = getattr(getattr(context, "command", None), "commands", ())
        hint = nearest(named[1], commands)
        return f"there is no command {named[1]!r}{hint or f'; see: {path} --help'}"
    message = _NOT_A_NUMBER.sub(r"expected \1", message.replace("Value error, ", "")).rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see: {path} --help"


def report_error(error: BaseException, command: str = "") -> int:
    """Write the error of a command to stderr, and return the exit code."""
    if os.environ.get(DEBUG):
        text = "".join(traceback.format_exception(error))
    else:
        # Without the middle of very long lines, which quote something. Both ends stay: the beginning says what is
        # wrong, the end what to do.
        half = _MAX_LINE // 2
        text = "".join(
            f"{line[:half]}… ({len(line) - _MAX_LINE} characters omitted) …{line[-half:]}\n"
            if len(line) > _MAX_LINE
            else f"{line}\n"
            for line in error_text(error, command).split("\n")
        )
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed
        sys.stderr.write(clean(text) if sys.stderr.isatty() else text)
        sys.stderr.flush()
    return exit_code_of(error)


INTERRUPTED = 130  # the exit code of a run that a signal ended: 128 + SIGINT, as shells use it


class Signals:
    """A context that receives signals; `received` is the name of the first one, or empty."""

    def __init__(self, output: Output) -> None:
        self.received = ""
        self._output = output
        self._previous: dict[int, Any] = {}
        self._cancel: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                # nohup ignores SIGHUP, and the run must outlive the terminal.
                if number is None or (
                    name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN
                ):
                    continue
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def watch(self, task: asyncio.Task[Result]) -> None:
        """Cancel `task` on the first signal, or now if one was received before."""
        import asyncio

        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if not task.done():
                self._output.note(
                    "interrupted: saving finished work; interrupt again to exit at once"
                )
                task.cancel()

        # Only this method of a loop may be called from a signal handler, and it wakes the loop.
        self._cancel = lambda: loop.call_soon_threadsafe(cancel)
        if self.received:
            self._cancel()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received:
            exit_at_once(self._output)
        self.received = signal.Signals(number).name
        if self._cancel is not None:
            self._cancel()
        else:
            raise KeyboardInterrupt  # nothing runs yet, so there is nothing to record


def exit_at_once(output: Output) -> NoReturn:
    """End the process at once, whatever threads of steps still run."""
    output.abandon()
    # `sys.exit` would wait for threads of steps, which cannot be interrupted.
    os._exit(INTERRUPTED)
