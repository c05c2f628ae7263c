"""Ages and moments, as options of commands name them: `30d`, `2026-01-31`, `2026-01-31T06:00Z`."""

from __future__ import annotations

import re
import time
from datetime import datetime

from ..errors import ConfigurationError

_AGE = re.compile(r"([0-9]{1,9})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def age(option: str, text: str) -> float:
    """Return the seconds of an age. Raises ConfigurationError."""
    if matched := _AGE.fullmatch(text):
        return int(matched[1]) * _SECONDS[matched[2]]
    raise ConfigurationError(f"{option}: {text!r} is not an age; use one such as 12h, 30d or 8w")


def moment(option: str, text: str) -> float:
    """Return the time of a date, or of an age before now, in seconds since the epoch. Raises ConfigurationError."""
    if _AGE.fullmatch(text):
        return time.time() - age(option, text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{option}: {text!r} is not a time. Use an age such as 12h, 30d or 8w, or a date such as "
            "2026-01-31."
        ) from None
