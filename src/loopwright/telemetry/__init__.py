"""Runs as OpenTelemetry signals and log lines, both from journal entries alone.

`Telemetry` and `over_http` need the extra `otel`; its library is imported when they are called. See
docs/guide/telemetry.md for every name.
"""

from .log_lines import LogLines
from .opentelemetry import DEFAULT_ENDPOINT, Telemetry, over_http
from .trace import trace_id

__all__ = ["DEFAULT_ENDPOINT", "LogLines", "Telemetry", "over_http", "trace_id"]
