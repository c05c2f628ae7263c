"""Errors as the command line tells them: a sentence on stderr and an exit code, never a traceback.

2 is a wrong command line, document or run name; 1 is a journal that is locked, damaged or out of
reach, and a defect of this program.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any

from ..errors import (
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

__all__ = ["DEBUG", "exit_code_of", "tell", "told"]

DEBUG = "LOOPWRIGHT_DEBUG"


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
    if isinstance(error, ReplayMismatch):
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


def tell(error: BaseException, command: str = "") -> int:
    """Say on stderr what went wrong in a command and return the exit code."""
    shown = bool(os.environ.get(DEBUG))
    text = "".join(traceback.format_exception(error)) if shown else told(error, command) + "\n"
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # nobody is there to read it
        pass
    return exit_code_of(error)
