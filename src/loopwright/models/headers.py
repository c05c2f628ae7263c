"""What the headers of a response ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

__all__ = ["retry_after"]

LONGEST_TOLD = 31 * 86_400.0  # seconds; a longer Retry-After is a mistake, not an instruction
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that response headers ask to wait, or None.

    Reads `retry-after-ms`, then `Retry-After` as seconds or as an HTTP date (RFC 9110, 10.2.3), the
    latter against the response's own `Date`, else against `now`, seconds since the epoch. What is
    negative, not finite or longer than 31 days is no instruction: None.
    """
    if (found := _SECONDS.fullmatch(headers.get("retry-after-ms", "").strip())) is not None:
        return _told(float(found[0]) / 1000)
    text = headers.get("retry-after", "").strip()
    if (found := _SECONDS.fullmatch(text)) is not None:
        return _told(float(found[0]))
    moment = _moment(text)
    if moment is None:
        return None
    base = _moment(headers.get("date", ""))
    return _told(max(0.0, moment - (now if base is None else base)))


def _told(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 <= seconds <= LONGEST_TOLD else None


def _moment(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP date, or None."""
    if not 10 <= len(text) <= 40 or not text.isascii():
        return None
    try:
        found = parsedate_to_datetime(text)
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return aware.timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
