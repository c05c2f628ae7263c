"""URLs of journals without their passwords."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@|(?<=[?&]password=)[^&]*")


def shown_url(url: str) -> str:
    """Return a journal's URL without its password.

    Example:
        >>> shown_url("postgres://me:secret@db/runs")
        'postgres://me:***@db/runs'
    """
    return _PASSWORD.sub(lambda match: f"{match[1]}:***@" if match[1] is not None else "***", url)
