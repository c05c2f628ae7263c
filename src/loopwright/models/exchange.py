"""What the transport saw of one call, for whoever explains how the call ended."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

__all__ = ["EXCHANGE", "Exchange"]


@dataclass
class Exchange:
    """One request and its answer, as far as it came.

    `status` is 0 until an answer begins, `headers` have lower-case names, `body` is the beginning
    of an error's, `began` says that a stream's first piece came, `notes` are sentences for people.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    received: int = 0
    body: bytes = b""
    began: bool = False
    notes: list[str] = field(default_factory=list)


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")  # each call sets its own
