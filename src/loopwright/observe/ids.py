"""Ids of traces and spans, derived from the run: a resumed run goes on in the trace it began."""

from __future__ import annotations

import hashlib

__all__ = ["span_id", "trace_id"]


def trace_id(run_id: str) -> int:
    """Return the trace id of a run, 128 bits that are not 0: the same in every process.

    >>> f"{trace_id('20261121-001406-db2c64'):032x}"
    '8cdbbaff25c4abcc9b7bf9aac0be7a66'
    """
    return _number(f"loopwright trace {run_id}", 16)


def span_id(run_id: str, epoch: int, path: str) -> int:
    """Return the id of a span, 64 bits that are not 0.

    `epoch` counts the processes that have driven the run, each of which has spans of its own for
    the same loops; "" is the path of the run itself.
    """
    return _number(f"loopwright span {run_id} {epoch} {path}", 8)


def _number(text: str, size: int) -> int:
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(found, "big") or 1
