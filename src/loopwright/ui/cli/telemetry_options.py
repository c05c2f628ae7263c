"""The options `--otel`, `--log` and `--capture-content`, and the listeners that they give to runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ...engine.run_state import Listener
from ...errors import ConfigurationError
from ...records.redaction import of_environment
from ...telemetry import LogLines, Telemetry, over_http
from ..formatting import clean_json
from .options import VARIABLE
from .output import Output


@dataclass
class TelemetryOptions:
    """The options for telemetry: a collector, a log file, and whether to include content."""

    otel: str | None = None
    log: str | None = None
    capture: bool = False

    @property
    def on_terminal(self) -> bool:
        """Whether log lines go to the terminal, where a live view would be."""
        return self.log == "-" and sys.stderr is not None and sys.stderr.isatty()

    @contextlib.contextmanager
    def listeners(self, output: Output) -> Iterator[list[Listener]]:
        """Return the listeners of a run; at the end, send the rest and report failures.

        Raises:
            ConfigurationError: if a log file cannot be opened, or telemetry is not installed for `--otel`.
        """
        listeners: list[Listener] = []
        with contextlib.ExitStack() as stack:
            if self.log is not None:
                listeners.append(self._lines(output, stack))
            telemetry = stack.enter_context(self.telemetry(output))
            if telemetry is not None:
                listeners.append(telemetry)
            yield listeners

    @contextlib.contextmanager
    def telemetry(self, output: Output) -> Iterator[Telemetry | None]:
        """Return what sends to the collector, if one is named; at the end, send the rest and report failures.

        Raises:
            ConfigurationError: if telemetry is not installed for `--otel`.
        """
        telemetry = self._telemetry(output)
        try:
            yield telemetry
        finally:
            if telemetry is not None and (problem := telemetry.close()):
                output.note(f"note: {problem}")

    def _lines(self, output: Output, stack: contextlib.ExitStack) -> LogLines:
        file: TextIO = sys.stderr
        if self.log != "-":
            try:
                opened = Path(str(self.log)).open("a", encoding="utf-8")  # noqa: SIM115 - see below
            except OSError as error:
                raise ConfigurationError(f"--log: {self.log} cannot be written: {error}") from error
            file = stack.enter_context(opened)

        def write(line: str) -> None:
            file.write(clean_json(line) if file.isatty() else line)
            # A log is followed while the run continues, and must be complete after a kill.
            file.flush()

        return LogLines(write, capture=self.capture, redactor=of_environment(os.environ))

    def _telemetry(self, output: Output) -> Telemetry | None:
        endpoint = self.otel or os.environ.get(VARIABLE)
        if not endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        try:
            return over_http(endpoint, capture=self.capture, redactor=of_environment(os.environ))
        except ConfigurationError as error:
            if self.otel:
                raise
            # The variable is for all programs of the machine; only the option demands telemetry.
            output.note(f"note: {VARIABLE} is set, but {error}")
            return None
