"""A collector for tests: OTLP/HTTP on loopback, what arrives read by OpenTelemetry's own protobuf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass
class Sink:
    """What arrived, and how the collector answers: `status`, once `answers` is set."""

    status: int = 200
    answers: threading.Event = field(default_factory=threading.Event)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    url: str = ""

    def spans(self) -> list[Any]:
        """Return the spans, in the order in which they came."""
        return [
            span
            for path, message in self._messages("/v1/traces")
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def events(self) -> list[Any]:
        """Return the log records."""
        return [
            record
            for path, message in self._messages("/v1/logs")
            for resource in message.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def metrics(self) -> dict[str, list[Any]]:
        """Return the data points of each metric."""
        found: dict[str, list[Any]] = {}
        for _, message in self._messages("/v1/metrics"):
            for resource in message.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        points = getattr(metric, metric.WhichOneof("data")).data_points
                        found.setdefault(metric.name, []).extend(points)
        return found

    def resources(self) -> list[dict[str, Any]]:
        """Return what the spans' senders say of themselves."""
        return [
            attributes(resource.resource)
            for _, message in self._messages("/v1/traces")
            for resource in message.resource_spans
        ]

    def _messages(self, wanted: str) -> Iterator[tuple[str, Any]]:
        for path, body in self.bodies:
            if path == wanted:
                message = KINDS[path]()
                message.ParseFromString(body)
                yield path, message


def attributes(what: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event, a point or a resource as plain values."""
    return {item.key: plain(item.value) for item in what.attributes}


def plain(value: Any) -> Any:
    """Return an attribute's value as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind)


class Server:
    """A sink on a free port, as a context."""

    def __init__(self, status: int = 200, *, answers: bool = True) -> None:
        self.sink = sink = Sink(status)
        if answers:
            sink.answers.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.answers.wait()
                sink.bodies.append((self.path, body))
                self.send_response(sink.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        sink.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Sink:
        self._thread.start()
        return self.sink

    def __exit__(self, *_: object) -> None:
        self.sink.answers.set()  # whoever still waits for an answer may go
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
