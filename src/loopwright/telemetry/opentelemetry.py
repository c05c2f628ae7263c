"""Runs as OpenTelemetry traces, metrics and events; needs the extra `otel`.

Rules:

1. Separate threads send: a slow or dead collector delays no run and fails none. Signals that it does not
   accept in time are dropped, and `close` reports them in a sentence. The libraries print nothing.
2. No global state is set. The OpenTelemetry libraries read their own variables
   (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES` and others).
3. Secrets are removed from every name, attribute and error before a library receives it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .._extras import needs
from ..errors import ConfigurationError
from ..journal import Entry, RunInfo
from ..records.redaction import Redactor
from .trace import INSTRUMENTS, MetricPoint, Signal, Span, SpanEvent, Trace, trace_id

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

_FAILED = 200  # characters of the reason for a failure


class SendFailures(logging.Handler):
    """Counts signals that could not be sent, and keeps the last reason that the libraries logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lost = 0
        self._why = ""
        logging.getLogger("opentelemetry").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason; with a handler, logging does not print it on the terminal."""
        self._why = record.getMessage()

    @property
    def failed(self) -> bool:
        """Whether a signal could not be sent so far."""
        return bool(self._why or self._lost)

    # The processors of the library log failures and return nothing, so the exporter is wrapped.
    def observe(self, exporter: Any) -> Any:
        """Return an exporter whose failures are counted here."""
        return ObservedExporter(exporter, self._count)

    def _count(self, number: int) -> None:
        self._lost += number

    def summary(self, *, late: bool, timeout: float) -> str:
        """Return the loss and its reason as a sentence; "" if all was sent."""
        if not late:  # otherwise threads that still try would print on the terminal
            logging.getLogger("opentelemetry").removeHandler(self)
        why = " ".join(self._why.split())[:_FAILED]
        if late:
            return f"telemetry: not all of it was sent in time: {why or f'{timeout:g} s passed'}"
        if self._lost:
            return f"telemetry: {self._lost} spans and events could not be sent: {why}"
        return f"telemetry: {why}" if why else ""


class ObservedExporter:
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


DEFAULT_ENDPOINT = "http://localhost:4318"
SERVICE = "loopwright"
CLOSING = (
    3.0  # seconds for which `close` waits for the collector, and with it the end of the program
)
GRACE = 0.5  # seconds for which it still waits after a failure, which rarely passes by itself
QUEUE = 16_384  # waiting signals; beyond that the oldest are dropped
_BEAT = 0.02  # seconds between two checks of the threads
_SUBJECT = "telemetry"


def over_http(endpoint: str = DEFAULT_ENDPOINT, **options: Any) -> Telemetry:
    """Return telemetry that sends to an OTLP/HTTP collector, as protobuf.

    Args:
        endpoint: its base URL, to which `/v1/traces`, `/v1/metrics` and `/v1/logs` are appended (default:
            http://localhost:4318).
        options: the keyword arguments of Telemetry.

    Raises:
        ConfigurationError: if the endpoint is not an http(s) URL, or the extra `otel` is not installed.

    Example: `run(loop, value, listeners=[over_http()])`; call `close()` on it at the end.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"otel: {endpoint!r} is not the URL of a collector; use one such as {DEFAULT_ENDPOINT}"
        )
    # Many guides give the address for traces as the endpoint.
    base = endpoint.rstrip("/").removesuffix("/v1/traces")
    with needs(_SUBJECT, "otel"):
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return Telemetry(
        OTLPSpanExporter(endpoint=f"{base}/v1/traces"),
        OTLPMetricExporter(endpoint=f"{base}/v1/metrics"),
        OTLPLogExporter(endpoint=f"{base}/v1/logs"),
        **options,
    )


class Telemetry:
    """Sends runs to OpenTelemetry exporters. Pass it to `run(listeners=[…])`, for any number of runs.

    Args:
        spans, metrics, events: exporters of the OpenTelemetry SDK.
        service: `service.name`, unless OTEL_SERVICE_NAME is set (default: loopwright).
        capture: send inputs, outputs, feedback and replies (default: False).
        redactor: removes secrets from every signal (default: none).
        wall: returns seconds since the epoch (default: `time.time`).

    Raises:
        ConfigurationError: if the extra `otel` is not installed.
    """

    def __init__(
        self,
        spans: SpanExporter,
        metrics: MetricExporter,
        events: LogRecordExporter,
        *,
        service: str = SERVICE,
        capture: bool = False,
        redactor: Redactor | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        with needs(_SUBJECT, "otel"):
            from opentelemetry.sdk.resources import Resource
        self.capture = capture
        self.redactor = redactor or Redactor()
        self.wall = wall
        self._failures = SendFailures()
        self._exporters = (spans, metrics, events)
        # Created first, because the library reads OTEL_SERVICE_NAME, which wins over our name.
        resource = Resource.create({})
        # The default name of the library, which means that the user has set none.
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": service}))
        self._spans = _Spans(self._failures.observe(spans), resource)
        self._metrics = _Metrics(metrics, resource)
        self._events = _Events(self._failures.observe(events), resource)
        self._open: dict[str, Trace] = {}

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Callable[[Entry], None]:
        """Return the receiver of the entries of a run that was just opened."""
        trace_of = trace_id(info.run_id)

        def send(signal: Signal) -> None:
            attributes = self.redactor.clean(dict(signal.attributes))
            name = self.redactor.text(signal.name)
            if isinstance(signal, Span):
                error = self.redactor.text(signal.error)
                self._spans.send(trace_of, signal, name, attributes, error)
            elif isinstance(signal, MetricPoint):
                self._metrics.record(signal, attributes)
            else:
                self._events.send(trace_of, signal, attributes)

        trace = Trace(info, recorded, send, capture=self.capture, wall=self.wall)
        self._open[info.run_id] = trace

        def receive(entry: Entry) -> None:
            trace(entry)
            if not entry.path and entry.kind in ("ended", "suspended"):
                self._open.pop(info.run_id, None)

        return receive

    def measure(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        """Record a metric that belongs to no run.

        Args:
            name: the name of the metric.
            value: its value, in the unit of the metric.
            attributes: what it belongs to, by name.
        """
        self._metrics.record(MetricPoint(name, value), self.redactor.clean(dict(attributes)))

    def close(self, timeout: float = CLOSING) -> str:
        """End the open runs and send all waiting signals.

        Args:
            timeout: seconds to wait at most (default: 3).

        Returns:
            The failures as a sentence; "" if all signals were sent.
        """
        for trace in self._open.values():
            trace.close()
        self._open.clear()
        closing = (self._spans.close, self._events.close, self._metrics.close)
        # In parallel: each may wait for the same dead collector.
        threads = [threading.Thread(target=close, daemon=True) for close in closing]
        for thread in threads:
            thread.start()
        end = time.monotonic() + timeout
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
            for thread in threads:
                thread.join(_BEAT)
            if self._failures.failed:  # the remaining seconds will not help
                end = min(end, time.monotonic() + GRACE)
        late = any(thread.is_alive() for thread in threads)
        if late:  # no thread may keep trying while the process continues
            for exporter in self._exporters:
                exporter.shutdown()
        return self.redactor.text(self._failures.summary(late=late, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class _Spans:
    """Sends finished spans with derived ids through a tracer."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import IdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        class DerivedIds(IdGenerator):
            trace = span = 1

            def generate_span_id(self) -> int:
                return self.span

            def generate_trace_id(self) -> int:
                return self.trace

        self._ids = DerivedIds()
        self._lock = threading.Lock()
        self._provider = TracerProvider(
            # The sampler would decide by the trace ID, and drop runs of which a person asks to see the trace.
            sampler=ALWAYS_ON,
            resource=resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE))
        self._tracer = self._provider.get_tracer(SERVICE)

    def send(
        self, trace: int, span: Span, name: str, attributes: dict[str, Any], error: str
    ) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        # The generator has no parameters, so IDs and span must be set together.
        with self._lock:
            self._ids.trace, self._ids.span = trace, span.span_id
            library_span = self._tracer.start_span(
                name,
                context=_inside(trace, span.parent_id),
                kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
                attributes=attributes,
                start_time=_nanoseconds(span.start),
            )
        if error:
            library_span.set_status(Status(StatusCode.ERROR, error))
        library_span.end(_nanoseconds(span.end))

    def close(self) -> None:
        self._provider.shutdown()


class _Events:
    """Sends events as log records with a name."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(exporter, max_queue_size=QUEUE)
        )
        self._logger = self._provider.get_logger(SERVICE)

    def send(self, trace: int, event: SpanEvent, attributes: dict[str, Any]) -> None:
        from opentelemetry._logs import LogRecord, SeverityNumber

        at = _nanoseconds(event.at)
        self._logger.emit(
            LogRecord(
                timestamp=at,
                observed_timestamp=at,
                context=_inside(trace, event.span_id),
                severity_number=SeverityNumber.INFO,
                attributes=attributes,
                event_name=event.name,
            )
        )

    def close(self) -> None:
        self._provider.shutdown()


class _Metrics:
    """Records measurements with the instruments of their names."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(exporter)
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._meter = self._provider.get_meter(SERVICE)
        self._record: dict[str, Callable[..., None]] = {}
        for one in INSTRUMENTS:
            about = {"unit": one.unit, "description": one.description}
            if one.boundaries:
                bounds = list(one.boundaries)
                histogram = meter.create_histogram(
                    one.name, **about, explicit_bucket_boundaries_advisory=bounds
                )
                self._record[one.name] = histogram.record
            elif one.gauge:
                self._record[one.name] = meter.create_gauge(one.name, **about).set
            else:
                self._record[one.name] = meter.create_counter(one.name, **about).add

    def record(self, measured: MetricPoint, attributes: dict[str, Any]) -> None:
        record = self._record.get(measured.name)
        if record is None:
            # The metrics of loops have names of their own, which are known when they are measured.
            about = {"unit": measured.unit, "description": "The latest value of a loop's metric."}
            gauge = self._meter.create_gauge(measured.name, **about)
            record = self._record[measured.name] = gauge.set
        record(measured.value, attributes)

    def close(self) -> None:
        self._provider.shutdown()


def _inside(trace: int, parent: int) -> Context:
    """Return the context for the children of a span; 0 is the root of a trace."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if not parent:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    return set_span_in_context(
        NonRecordingSpan(SpanContext(trace, parent, is_remote=False, trace_flags=flags)), Context()
    )


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
