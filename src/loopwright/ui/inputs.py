"""What a run is given: its input from an option, a file or stdin, and variables by name.

Text that starts with a brace or a bracket and is strict JSON (no NaN, no key twice) is that object
or list; everything else is the text itself.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..records.codec import Json

__all__ = ["input_value", "read_input", "variables"]

PATIENCE = 1.0  # seconds of silence on stdin before people are told what is waited for


def input_value(text: str) -> Json:
    """Return the object or list that a text is the strict JSON of, else the text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Json:
    raise ValueError(constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def read_input(text: str | None, file: str | None, note: Callable[[str], None]) -> Json:
    """Return the input of a run, or None if there is none.

    It is `text`, else what `file` holds (`-` is stdin), else what is piped to stdin. `note` gets a
    remark for the person at the terminal, if stdin stays silent.

    Raises:
        ConfigurationError: if both are given, or the file is no readable UTF-8.
    """
    if text is not None and file is not None:
        raise ConfigurationError("--input and --input-file are both given; give one of them")
    if text is not None:
        return input_value(text)
    if file is not None and file != "-":
        try:
            return input_value(Path(file).read_text("utf-8-sig"))
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ConfigurationError(f"--input-file: {file!r} cannot be read: {why}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"--input-file: {file!r} is not UTF-8 text") from error
    if file is None and (sys.stdin is None or sys.stdin.closed or sys.stdin.isatty()):
        return None
    return _piped(note)


def _piped(note: Callable[[str], None]) -> Json:
    """Read stdin to its end; its last line end belongs to the pipe, not to the text."""
    try:
        if _silent():
            note("waiting for the input on stdin; give --input TEXT, or </dev/null for none")
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError("stdin: it is not UTF-8 text") from error
    except (OSError, ValueError):  # stdin cannot be read here: nothing was given
        return None
    text = text.removesuffix("\n").removesuffix("\r")
    return input_value(text) if text else None


def _silent() -> bool:
    try:
        return not select.select([sys.stdin], [], [], PATIENCE)[0]
    except (OSError, ValueError):  # not a system where files can be waited for
        return False


def variables(given: Sequence[str], option: str = "--set") -> dict[str, str]:
    """Return `name=value` texts as a dict; of a name given twice the last value counts.

    Raises:
        ConfigurationError: naming the text that has no `=`.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"{option}: {text!r} is not NAME=VALUE")
        found[name.strip()] = value
    return found
