"""Where runs are kept: the journals that a URL can name."""

from __future__ import annotations

from urllib.parse import parse_qsl

from ..errors import ConfigurationError, nearest
from ..journal import Journal, MemoryJournal

__all__ = ["open_journal"]

_SCHEMES = ("memory", "sqlite")


def open_journal(url: str) -> Journal:
    """Return the journal that a URL names; nothing is touched before it is used.

    `memory:` lives as long as the process. `sqlite:PATH` is a file, made when the first run is
    opened; `sqlite:PATH?synchronous=normal` may lose its last commits at a loss of power, and is
    faster.

    Raises:
        ConfigurationError: naming what cannot be read and the nearest word that can.
    """
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise ConfigurationError(
            f"journal: {url!r} names no kind of store; write sqlite:{url} or memory:"
        )
    if scheme not in _SCHEMES:
        guess = nearest(scheme, _SCHEMES) or "; use memory: or sqlite:PATH"
        raise ConfigurationError(f"journal: {url!r}: {scheme!r} is no kind of store{guess}")
    if scheme == "memory":
        if rest:
            raise ConfigurationError(
                f"journal: {url!r} has {rest!r} after memory:; write memory: alone"
            )
        return MemoryJournal()
    return _sqlite(url, rest)


def _sqlite(url: str, rest: str) -> Journal:
    path, _, query = rest.partition("?")
    if not path or path == ":memory:" or path.startswith("//"):
        raise ConfigurationError(
            f"journal: {url!r} names no file; write sqlite:PATH, such as sqlite:runs.db, or memory:"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name != "synchronous":
            raise ConfigurationError(
                f"journal: {name!r} in {url!r} is no option of sqlite, which has "
                f"synchronous{nearest(name, ['synchronous'])}"
            )
    # sqlite3 takes longer to import than a run in memory takes to start.
    from .sqlite import SqliteJournal

    return SqliteJournal(path, synchronous=options.get("synchronous", "full"))
