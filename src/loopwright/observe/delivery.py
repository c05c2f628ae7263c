"""What could not be sent, and why: said once at the end, and not by the libraries on the terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Troubles"]

_FAILED = 200  # characters of why something could not be sent


class Troubles(logging.Handler):
    """What could not be sent, and the last reason that the libraries gave for it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lost = 0
        self._why = ""
        logging.getLogger("opentelemetry").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason; that there is a handler also keeps it off the terminal."""
        self._why = record.getMessage()

    @property
    def heard(self) -> bool:
        """Whether anything could not be sent so far."""
        return bool(self._why or self._lost)

    def watched(self, exporter: Any) -> Any:
        """Return an exporter that counts here what it could not send."""
        return Watched(exporter, self._count)

    def _count(self, number: int) -> None:
        self._lost += number

    def told(self, *, late: bool, timeout: float) -> str:
        """Return what was lost and why, in a sentence; nothing if all was sent."""
        if not late:  # or threads that still try would go on about it on the terminal
            logging.getLogger("opentelemetry").removeHandler(self)
        why = " ".join(self._why.split())[:_FAILED]
        if late:
            return f"telemetry: not all of it was sent in time: {why or f'{timeout:g} s passed'}"
        if self._lost:
            return f"telemetry: {self._lost} spans and events could not be sent: {why}"
        return f"telemetry: {why}" if why else ""


class Watched:
    """An exporter whose failures are counted."""

    def __init__(self, exporter: Any, lost: Callable[[int], None]) -> None:
        self._exporter = exporter
        self._lost = lost

    def export(self, batch: Sequence[Any]) -> Any:
        result = self._exporter.export(batch)
        if result.name != "SUCCESS":
            self._lost(len(batch))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))
