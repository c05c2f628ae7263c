"""The input of a run, from an option, a file or stdin, its variables, and the report that the run is open.

Strict JSON of an object or a list (no NaN, no duplicate keys) is parsed; other input is text. A note says why
a text that starts like JSON is not read as JSON.

A `loopwright` process reports to the page that it has opened its run: the page creates an empty file for the process
and passes its path in VARIABLE. The process writes one byte once the run is open and accepted. A process that refuses
ends without a byte. A file works on all platforms; a pipe could not be inherited on Windows.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..journal import Entry, RunInfo
from ..records.codec import Json, strict_json

# Seconds without data on stdin before a note explains the wait: a pipe from another program is silent at first.
PATIENCE = 1.0

# How an object or a list of JSON begins. A template such as {name} and a heading such as [URGENT] do not.
_LIKE_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*(?:["{\[\]]|-?\d+(?:\.\d+)?\s*[,\]]))')


def input_value(text: str, note: Callable[[str], None] | None = None) -> Json:
    """Return the object or list of a strict JSON text, or else the text.

    `note` receives the reason why a text that starts like JSON is not read as JSON.
    """
    # A number or a word is text: the input "2024" of a prompt must not become an integer.
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return strict_json(text)
    except (ValueError, RecursionError) as error:
        # A note and not an error: a text may begin like this, such as the start of a program.
        if note is not None and _LIKE_JSON.match(text):
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            note(f"the input starts like JSON, but it is used as text: {why}")
        return text


def read_input(text: str | None, file: str | None, note: Callable[[str], None]) -> Json:
    """Return the input of a run, or None.

    The input is `text`, the contents of `file` (`-` is stdin), or piped stdin. `note` receives a remark
    while stdin has no data.

    Raises:
        ConfigurationError: for both `text` and `file`, or a file that is not readable UTF-8.
    """
    if text is not None and file is not None:
        raise ConfigurationError("give only one of --input and --input-file")
    if text is not None:
        return input_value(text, note)
    if file is not None and file != "-":
        try:
            # Editors on Windows begin UTF-8 files with a byte order mark, which is not part of the text.
            return input_value(Path(file).read_text("utf-8-sig"), note)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ConfigurationError(f"--input-file: {file!r} cannot be read: {why}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"--input-file: {file!r} is not UTF-8 text") from error
    # Without a pipe, reading would wait for the keyboard.
    if file is None and (sys.stdin is None or sys.stdin.closed or sys.stdin.isatty()):
        return None
    return _piped(note)


def _piped(note: Callable[[str], None]) -> Json:
    """Read stdin to its end, without the last line end, which the pipe adds."""
    try:
        if _silent():
            note("waiting for input on stdin. Use --input TEXT, or </dev/null for no input.")
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError("stdin is not UTF-8 text") from error
    except (OSError, ValueError):  # stdin is not readable
        return None
    text = text.removesuffix("\n").removesuffix("\r")
    return input_value(text, note) if text else None


def _silent() -> bool:
    try:
        return not select.select([sys.stdin], [], [], PATIENCE)[0]
    except (OSError, ValueError):  # this system cannot wait for files
        return False


def variables(assignments: Sequence[str], option: str = "--set") -> dict[str, str]:
    """Return `name=value` texts as a dict; the last value of a name counts.

    Raises:
        ConfigurationError: for a text without `=` or without a name.
    """
    values = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"{option}: {text!r} is not NAME=VALUE")
        values[name.strip()] = value
    return values


# In the environment, because the command line of the process is shown in lists of processes.
VARIABLE = "LOOPWRIGHT_OPENED_FILE"


class OpeningReport:
    """A listener that reports once that its run is open."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Report that the run is open. The engine calls this after it has accepted the run."""
        del info, recorded
        # "r+": a file that the page has removed meanwhile is not created again.
        with contextlib.suppress(OSError), self._file.open("r+b") as file:
            file.write(b"1")
        return _ignore


def opening_report() -> OpeningReport | None:
    """Return the report for the page that started this process; None if no page did.

    The variable is removed, so that programs that the run starts do not report in its place.
    """
    file = os.environ.pop(VARIABLE, "")
    return OpeningReport(Path(file)) if file else None


def _ignore(entry: Entry) -> None:
    del entry
