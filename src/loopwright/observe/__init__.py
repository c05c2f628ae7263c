"""Runs seen from outside: OpenTelemetry and log lines, both made from journal entries alone.

`Telemetry` and `over_http` need the extra `otel`; the library behind them is loaded when they are
made. See docs/telemetry.md for every name.
"""

from .ids import trace_id
from .lines import LogLines
from .otel import DEFAULT_ENDPOINT, Telemetry, over_http

__all__ = ["DEFAULT_ENDPOINT", "LogLines", "Telemetry", "over_http", "trace_id"]
