"""What a command reports of its cost: in the file named by `$LOOPWRIGHT_USAGE`, or in its JSON output.

Rules:

1. The file is the command's to write, once it knows: `{"calls", "input_tokens", "output_tokens", "usd"}`,
   each optional. It is read when the command has ended, also when it failed, was cut or took too long.
2. What is reported counts as one call at least. A report that cannot be read is a warning, and counts
   nothing: it never fails the step.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..engine.context import Context
from ..errors import ConfigurationError, nearest
from ..records import Usage, codec
from ..records.codec import Json

__all__ = ["FILE", "VARIABLE", "UsageReport", "Where", "checked_usage", "reported"]

VARIABLE = "LOOPWRIGHT_USAGE"
FILE = "file"  # `usage: file`: the command writes the file each time
LARGEST = 65_536  # bytes of a report
_FIGURES = ("calls", "input_tokens", "output_tokens", "usd")

Where = str | Mapping[str, str]  # `file`, a path into the output, or a path for each figure


def checked_usage(what: str, usage: Any) -> Where | None:
    """Return where a command reports its usage, as given.

    Raises:
        ConfigurationError: for what is no path, or an unknown figure.
    """
    if usage is None:
        return None
    if isinstance(usage, str) and all(usage.split(".")):
        return usage
    if not isinstance(usage, Mapping) or not usage:
        raise ConfigurationError(
            f"{what}: usage: {usage!r} names no place; give {FILE!r}, a path into the JSON output such "
            "as 'result.usage', or a path for each figure: {usd: total_cost_usd}"
        )
    for name, path in usage.items():
        if name not in _FIGURES:
            hint = nearest(str(name), _FIGURES) or f"; use {', '.join(_FIGURES)}"
            raise ConfigurationError(f"{what}: usage: unknown figure {name!r}{hint}")
        if not isinstance(path, str) or not all(path.split(".")):
            raise ConfigurationError(
                f"{what}: usage: {name}: {path!r} is no path; write keys with dots between them"
            )
    return dict(usage)


class UsageReport:
    """What one call of a command reports; `env` is what the command is given for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.env = {VARIABLE: str(path)}
        self.stdout: str | None = None  # of a command that came to its end
        self.problem = ""

    def read(self, where: Where | None) -> Usage | None:
        """Return what was reported, or None; `problem` then says why, if it should have been."""
        try:
            text = _text_of(self._path)
            if text is not None:
                return _usage(codec.decode(text))
            if (
                where is None or self.stdout is None
            ):  # nothing is due, or it did not come to its end
                return None
            if where == FILE:
                raise LookupError(f"it wrote no file ${VARIABLE}")
            return _found(where, self.stdout)
        except LookupError as error:
            self.problem = str(error.args[0])
        except (ValueError, RecursionError, OSError) as error:
            why = " ".join(str(error).split())[:200]
            self.problem = f"its report of usage cannot be read: {why}"
        return None


@contextlib.contextmanager
def reported(ctx: Context | None, where: Where | None) -> Iterator[UsageReport]:
    """Let a command report what it costs, and spend that in `ctx` when it has ended, however it did."""
    folder = Path(tempfile.mkdtemp(prefix="loopwright-usage-"))
    report = UsageReport(folder / "usage.json")
    try:
        yield report
    finally:
        usage = report.read(where)
        shutil.rmtree(folder, ignore_errors=True)
        if ctx is not None and usage is not None:
            ctx.spend(usage)
        if ctx is not None and report.problem:
            ctx.warn(f"unreported_usage: {report.problem}; what it cost is not counted")


def _text_of(path: Path) -> str | None:
    """Return a report's text, or None if there is none; only a plain file is read, and not for long."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"${VARIABLE} is no plain file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return data.decode("utf-8")


def _usage(data: Json) -> Usage:
    if not isinstance(data, dict):
        raise ValueError(f"give an object with some of {', '.join(_FIGURES)}")
    figures = {name: data[name] for name in _FIGURES if data.get(name) is not None}
    if not figures:
        raise ValueError(f"it has none of {', '.join(_FIGURES)}")
    if "usd" in figures:
        figures["usd"] = float(codec.number("usd", figures["usd"], least=0))
    return Usage(
        **{**figures, "calls": max(1, codec.whole("calls", figures.get("calls", 1), least=0))}
    )


def _found(where: Where, stdout: str) -> Usage:
    """Return the usage at a path, or at several, of a command's JSON output.

    Raises:
        LookupError: if nothing is there.
    """
    try:
        data = codec.decode(stdout)
    except (ValueError, RecursionError):
        raise LookupError("its output is not JSON, so there is no usage in it") from None
    if isinstance(where, str):
        found = _at(data, where)
        if found is None:
            raise LookupError(f"its output has nothing at {where}")
        return _usage(found)
    figures = {name: _at(data, path) for name, path in where.items()}
    if all(figure is None for figure in figures.values()):
        raise LookupError(f"its output has nothing at {', '.join(where.values())}")
    return _usage(figures)


def _at(data: Json, path: str) -> Json:
    for key in path.split("."):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict):
            data = data.get(key)
        else:
            return None
    return data
