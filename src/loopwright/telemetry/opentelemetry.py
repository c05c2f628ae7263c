"""Runs as OpenTelemetry traces, metrics and events; needs the extra `otel`.

Rules:

1. Sending is the work of threads of its own: a slow or dead collector delays no run and fails none.
   What it does not take in time is dropped, and `close` says so in a sentence.
2. Nothing global is set or read but what the OpenTelemetry libraries themselves read
   (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES` and the like).
3. Secrets are taken out of every name, attribute and error before a library sees it.

What could not be sent, and why: said once at the end, and not by the libraries on the terminal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import ConfigurationError
from ..journal import Entry, RunInfo
from ..records.redaction import Redactor
from .attributes import INSTRUMENTS
from .trace import Measurement, Signal, Span, SpanEvent, Trace, trace_id

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["DEFAULT_ENDPOINT", "Telemetry", "Troubles", "over_http"]


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
        return ObservedExporter(exporter, self._count)

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
CLOSING = 3.0  # seconds that the end waits for the collector
GRACE = 0.5  # seconds of these that are left once something could not be sent
QUEUE = 16_384  # signals that wait to be sent; more are dropped, the oldest first
_BEAT = 0.02  # seconds between two looks at whether all is sent
_MISSING = (
    "telemetry needs the extra 'otel', which is not installed; "
    "install it with: pip install 'loopwright[otel]'"
)


def over_http(endpoint: str = DEFAULT_ENDPOINT, **options: Any) -> Telemetry:
    """Return telemetry that goes to an OTLP/HTTP collector, as protobuf.

    Args:
        endpoint: its base URL; `/v1/traces`, `/v1/metrics` and `/v1/logs` are put after it.
        options: as for Telemetry.

    Raises:
        ConfigurationError: if it is no http(s) URL, or the extra `otel` is not installed.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"otel: {endpoint!r} is no URL of a collector; give one such as {DEFAULT_ENDPOINT}"
        )
    base = endpoint.rstrip("/").removesuffix("/v1/traces")
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigurationError(_MISSING) from error
    return Telemetry(
        OTLPSpanExporter(endpoint=f"{base}/v1/traces"),
        OTLPMetricExporter(endpoint=f"{base}/v1/metrics"),
        OTLPLogExporter(endpoint=f"{base}/v1/logs"),
        **options,
    )


class Telemetry:
    """Sends runs to OpenTelemetry exporters; goes into `run(listeners=[…])`, for any number of runs.

    Args:
        spans, metrics, events: exporters of the OpenTelemetry SDK.
        service: `service.name`, unless OTEL_SERVICE_NAME says otherwise.
        capture: whether inputs, outputs, feedback and replies are sent too.
        redactor: what takes secrets out of everything.
        wall: seconds since the epoch.

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
        try:
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise ConfigurationError(_MISSING) from error
        self.capture = capture
        self.redactor = redactor or Redactor()
        self.wall = wall
        self._troubles = Troubles()
        self._exporters = (spans, metrics, events)
        resource = Resource.create({})
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": service}))
        self._spans = _Spans(self._troubles.watched(spans), resource)
        self._metrics = _Metrics(metrics, resource)
        self._events = _Events(self._troubles.watched(events), resource)
        self._open: dict[str, Trace] = {}

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Callable[[Entry], None]:
        """Return what hears the entries of a run that was just opened."""
        trace = trace_id(info.run_id)

        def tell(signal: Signal) -> None:
            self._send(trace, signal)

        found = Trace(info, recorded, tell, capture=self.capture, wall=self.wall)
        self._open[info.run_id] = found

        def hear(entry: Entry) -> None:
            found(entry)
            if not entry.path and entry.kind in ("ended", "suspended"):
                self._open.pop(info.run_id, None)

        return hear

    def _send(self, trace: int, signal: Signal) -> None:
        told = self.redactor.clean(dict(signal.attributes))
        name = self.redactor.text(signal.name)
        if isinstance(signal, Span):
            self._spans.send(trace, signal, name, told, self.redactor.text(signal.error))
        elif isinstance(signal, Measurement):
            self._metrics.record(signal, told)
        else:
            self._events.send(trace, signal, told)

    def close(self, timeout: float = CLOSING) -> str:
        """Send what waits, for `timeout` seconds at most; return what went wrong, or nothing.

        Runs that were interrupted end here too.
        """
        for trace in self._open.values():
            trace.close()
        self._open.clear()
        closing = (self._spans.close, self._events.close, self._metrics.close)
        threads = [threading.Thread(target=close, daemon=True) for close in closing]
        for thread in threads:
            thread.start()
        end = time.monotonic() + timeout
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
            for thread in threads:
                thread.join(_BEAT)
            if self._troubles.heard:  # it will not get better in the seconds that are left
                end = min(end, time.monotonic() + GRACE)
        late = any(thread.is_alive() for thread in threads)
        if late:  # nothing may go on trying in a process that goes on
            for exporter in self._exporters:
                exporter.shutdown()
        return self.redactor.text(self._troubles.told(late=late, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class _Spans:
    """Finished spans with ids of ours, through a tracer."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import IdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        class Given(IdGenerator):
            trace = span = 1

            def generate_span_id(self) -> int:
                return self.span

            def generate_trace_id(self) -> int:
                return self.trace

        self._ids = Given()
        self._lock = threading.Lock()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False, id_generator=self._ids
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE))
        self._tracer = self._provider.get_tracer(SERVICE)

    def send(self, trace: int, span: Span, name: str, told: dict[str, Any], error: str) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        with self._lock:
            self._ids.trace, self._ids.span = trace, span.span_id
            made = self._tracer.start_span(
                name,
                context=_inside(trace, span.parent_id),
                kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
                attributes=told,
                start_time=_nanoseconds(span.start),
            )
        if error:
            made.set_status(Status(StatusCode.ERROR, error))
        made.end(_nanoseconds(span.end))

    def close(self) -> None:
        self._provider.shutdown()


class _Events:
    """Events, as log records with a name."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(exporter, max_queue_size=QUEUE)
        )
        self._logger = self._provider.get_logger(SERVICE)

    def send(self, trace: int, event: SpanEvent, told: dict[str, Any]) -> None:
        from opentelemetry._logs import LogRecord, SeverityNumber

        at = _nanoseconds(event.at)
        self._logger.emit(
            LogRecord(
                timestamp=at,
                observed_timestamp=at,
                context=_inside(trace, event.span_id),
                severity_number=SeverityNumber.INFO,
                attributes=told,
                event_name=event.name,
            )
        )

    def close(self) -> None:
        self._provider.shutdown()


class _Metrics:
    """Measurements, by the instruments of their names."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(exporter)
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(SERVICE)
        self._record: dict[str, Callable[..., None]] = {}
        for one in INSTRUMENTS:
            about = {"unit": one.unit, "description": one.description}
            if one.boundaries:
                bounds = list(one.boundaries)
                made = meter.create_histogram(
                    one.name, **about, explicit_bucket_boundaries_advisory=bounds
                )
                self._record[one.name] = made.record
            else:
                self._record[one.name] = meter.create_counter(one.name, **about).add

    def record(self, measured: Measurement, told: dict[str, Any]) -> None:
        self._record[measured.name](measured.value, told)

    def close(self) -> None:
        self._provider.shutdown()


def _inside(trace: int, parent: int) -> Context:
    """Return the context of what happens inside a span; 0 is a trace's root."""
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
