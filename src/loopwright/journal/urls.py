"""URLs of journals: without their passwords, and as the options of sessions in PostgreSQL."""

from __future__ import annotations

import re

from ..records.codec import Json

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@|(?<=[?&]password=)[^&]*")
_OPTIONS: dict[str, Json] = {
    "connect_timeout": "10",
    # The defaults of libpq notice a vanished server after two hours.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}


def shown_url(url: str) -> str:
    """Return a journal's URL without its password.

    Example:
        >>> shown_url("postgres://me:secret@db/runs")
        'postgres://me:***@db/runs'
    """
    return _PASSWORD.sub(lambda match: f"{match[1]}:***@" if match[1] is not None else "***", url)


def session_options(url: str, role: str) -> dict[str, Json]:
    """Return the options of a session in the PostgreSQL database of a URL; those of the URL apply first.

    Args:
        url: a URL as libpq reads it.
        role: what the session is for, as lists of sessions name it.

    Raises:
        psycopg.ProgrammingError: if libpq cannot read the URL.
    """
    from psycopg.conninfo import conninfo_to_dict  # comes with an extra

    return {**_OPTIONS, "application_name": f"loopwright {role}", **conninfo_to_dict(url)}
