"""What is told of a run, before any library sends it: spans, events and measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..codec import Json

__all__ = ["Event", "Measurement", "Signal", "Span", "Tell"]

Attributes = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time; `start` and `end` are seconds since the epoch.

    `parent_id` is 0 for the run itself, `client` says that another system was called, `error` is
    the sentence of a failure, empty if there was none.
    """

    name: str
    span_id: int
    parent_id: int
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    client: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened inside the span `span_id`, at a second since the epoch."""

    name: str
    at: float
    span_id: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of the metric `name`."""

    name: str
    value: float
    attributes: Attributes = field(default_factory=dict)


Signal = Span | Event | Measurement
Tell = Callable[[Signal], None]
