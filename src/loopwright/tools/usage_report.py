"""The cost that a command reports: in the file named by `$LOOPWRIGHT_USAGE`, or in its JSON output.

Rules:

1. The command writes the file as soon as it knows its cost: `{"calls", "input_tokens", "output_tokens",
   "usd"}`, each optional. It is read after the command has ended, also after a failure or a timeout.
2. A report counts as at least one call. An unreadable report is a warning and counts as nothing. It
   never fails the step.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..engine.context import Context
from ..errors import ConfigurationError, nearest
from ..records import Usage, codec
from ..records.codec import Json

__all__ = ["FILE", "VARIABLE", "UsageReport", "UsageSource", "checked_usage", "report_usage"]

VARIABLE = "LOOPWRIGHT_USAGE"
FILE = "file"  # `usage: file`: the command always writes the file
LARGEST = 65_536  # bytes of a report; it has four numbers
# Neither a link nor a pipe may stand in for the file; Windows has no such flags.
_NO_DEVICES = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FIGURES = ("calls", "input_tokens", "output_tokens", "usd")

UsageSource = str | Mapping[str, str]  # `file`, a path into the output, or a path for each figure


def checked_usage(owner: str, usage: object) -> UsageSource | None:
    """Return the setting `usage` of a command, checked.

    Raises:
        ConfigurationError: For an invalid path, or an unknown figure.
    """
    if usage is None or (isinstance(usage, str) and all(usage.split("."))):
        return usage
    if not isinstance(usage, Mapping) or not usage:
        raise ConfigurationError(
            f"{owner}: usage: {usage!r} is not valid. Use {FILE!r}, a path into the JSON output such as "
            "'result.usage', or a path for each figure: {usd: total_cost_usd}."
        )
    for name, path in usage.items():
        if name not in _FIGURES:
            hint = nearest(str(name), _FIGURES) or f"; use {', '.join(_FIGURES)}"
            raise ConfigurationError(f"{owner}: usage: unknown figure {name!r}{hint}")
        if not isinstance(path, str) or not all(path.split(".")):
            raise ConfigurationError(
                f"{owner}: usage: {name}: {path!r} is not a path. Separate keys by dots."
            )
    return dict(usage)


class UsageReport:
    """The report of one call. `env` is added to the command's environment, `stdout` set at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.env = {VARIABLE: str(path)}
        self.stdout: str | None = None

    def read(self, source: UsageSource | None) -> Usage | None:
        """Return the reported usage, if any.

        Raises:
            LookupError: If an expected report is missing.
            ValueError: If the report is invalid.
        """
        text = _text_of(self._path)
        if text is not None:
            return _usage(codec.decode(text))
        if source is None or self.stdout is None:  # no report is expected, or the command was ended
            return None
        if source == FILE:
            raise LookupError(f"it wrote no file ${VARIABLE}")
        return _usage_in(source, self.stdout)


@contextlib.contextmanager
def report_usage(ctx: Context | None, source: UsageSource | None) -> Iterator[UsageReport]:
    """Let a command report its cost, and add it to `ctx` after the command has ended."""
    with tempfile.TemporaryDirectory(
        prefix="loopwright-usage-", ignore_cleanup_errors=True
    ) as folder:
        report = UsageReport(Path(folder) / "usage.json")
        try:
            yield report
        finally:
            # Also after a failure or a timeout: the money is spent.
            _add(report, source, ctx)


def _add(report: UsageReport, source: UsageSource | None, ctx: Context | None) -> None:
    try:
        usage, problem = report.read(source), ""
    except LookupError as error:
        usage, problem = None, str(error.args[0])
    except (ValueError, RecursionError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        usage, problem = None, f"its report of usage cannot be read: {reason}"
    if ctx is not None and usage is not None:
        ctx.spend(usage)
    if ctx is not None and problem:
        ctx.warn(f"{problem}; its cost is not counted", code="unreported_usage")


def _text_of(path: Path) -> str | None:
    """Return the text of a report, or None if there is none. Pipes and devices are not read."""
    try:
        handle = os.open(path, os.O_RDONLY | _NO_DEVICES)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(f"${VARIABLE} is not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return data.decode("utf-8")


def _usage(data: Json) -> Usage:
    expected = f"an object with some of {', '.join(_FIGURES)} is expected"
    if not isinstance(data, dict):
        raise ValueError(expected)
    figures = {name: data[name] for name in _FIGURES if data.get(name) is not None}
    if not figures:
        raise ValueError(expected)
    if "usd" in figures:
        figures["usd"] = float(codec.number("usd", figures["usd"], minimum=0))
    # A command that reports no call still cost something, and limits on calls have to count it.
    calls = max(1, codec.integer("calls", figures.get("calls", 1), minimum=0))
    return Usage(**{**figures, "calls": calls})


def _usage_in(source: UsageSource, stdout: str) -> Usage:
    """Return the usage at a path, or at several, of a command's JSON output."""
    try:
        data = codec.decode(stdout)
    except (ValueError, RecursionError):
        raise LookupError("its output is not JSON, so there is no usage in it") from None
    paths = [source] if isinstance(source, str) else list(source.values())
    values = [_at(data, path) for path in paths]
    if all(value is None for value in values):
        raise LookupError(f"its output has nothing at {', '.join(paths)}")
    return _usage(values[0] if isinstance(source, str) else dict(zip(source, values, strict=True)))


def _at(data: Json, path: str) -> Json:
    for key in path.split("."):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict):
            data = data.get(key)
        else:
            return None
    return data
