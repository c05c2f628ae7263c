"""`--otel` and `--log`: what else hears a run than the person at the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import ConfigurationError
from .output import Output

if TYPE_CHECKING:
    from ..models.redaction import Redactor
    from ..observe import Telemetry

__all__ = ["DEFAULT_COLLECTOR", "Observing", "with_collector"]

DEFAULT_COLLECTOR = "http://localhost:4318"
VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_URLS = ("http://", "https://")
_SECRET = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASS", "_CREDENTIALS", "_OTLP_HEADERS")


def with_collector(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the collector said wherever `--otel` stands without a URL.

    >>> with_collector(["run", "--otel", "polish.yaml"])
    ['run', '--otel=http://localhost:4318', 'polish.yaml']
    """
    found = list(arguments)
    end = found.index("--") if "--" in found else len(found)
    for place in [n for n, word in enumerate(found[:end]) if word == "--otel"]:
        if not found[place + 1 : place + 2] or not found[place + 1].startswith(_URLS):
            url = os.environ.get(VARIABLE) or DEFAULT_COLLECTOR
            found[place] = f"--otel={url}"
    return found


@dataclass
class Observing:
    """What a command line asks for: a collector, a file of log lines, and whether to show content."""

    otel: str | None = None
    log: str | None = None
    capture: bool = False

    @property
    def on_terminal(self) -> bool:
        """Whether log lines go where a live view would be."""
        return self.log == "-" and sys.stderr is not None and sys.stderr.isatty()

    @contextlib.contextmanager
    def listeners(self, output: Output) -> Iterator[list[Any]]:
        """Give the listeners of a run; at the end send what waits, and say what could not be sent.

        Raises:
            ConfigurationError: if a log file cannot be opened, or `--otel` cannot be followed.
        """
        found: list[Any] = []
        with contextlib.ExitStack() as stack:
            if self.log is not None:
                found.append(self._lines(output, stack))
            telemetry = self._telemetry(output)
            if telemetry is not None:
                found.append(telemetry)
                stack.callback(_close, telemetry, output)
            yield found

    def _lines(self, output: Output, stack: contextlib.ExitStack) -> Any:
        from ..observe import LogLines

        file: TextIO = sys.stderr
        if self.log != "-":
            try:
                opened = Path(str(self.log)).open("a", encoding="utf-8")  # noqa: SIM115 - see below
            except OSError as error:
                raise ConfigurationError(f"--log: {self.log} cannot be written: {error}") from error
            file = stack.enter_context(opened)

        def write(line: str) -> None:
            file.write(line)
            file.flush()

        return LogLines(write, capture=self.capture, redactor=_redactor(os.environ))

    def _telemetry(self, output: Output) -> Telemetry | None:
        endpoint = self.otel or os.environ.get(VARIABLE)
        if not endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        from ..observe import over_http

        try:
            return over_http(endpoint, capture=self.capture, redactor=_redactor(os.environ))
        except ConfigurationError as error:
            if self.otel:
                raise
            output.note(f"note: {VARIABLE} is set, but {error}")
            return None


def _close(telemetry: Telemetry, output: Output) -> None:
    if trouble := telemetry.close():
        output.note(f"note: {trouble}")


def _redactor(environ: Mapping[str, str]) -> Redactor:
    """Return what takes out the secrets that the environment holds, by their values."""
    from ..models.redaction import Redactor

    return Redactor(v for k, v in environ.items() if v and k.upper().endswith(_SECRET))
