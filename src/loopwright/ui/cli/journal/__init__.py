"""`journal`: journals and their folder. Each command is a module; this one has what they share."""

from __future__ import annotations

from typing import Annotated, Protocol, runtime_checkable

import typer

from ....errors import ConfigurationError
from ....journal import Journal
from ....journal.protocol import FileStore, shown_url
from ....memory import Memory

__all__ = ["Place", "SharedJournal", "StoredJournal", "stored"]

Place = Annotated[str, typer.Argument(metavar="URL", help="Journal.  [default: --journal]")]


@runtime_checkable
class StoredJournal(Protocol):
    """A journal in a database."""

    @property
    def memory(self) -> Memory: ...

    @property
    def files(self) -> FileStore: ...

    async def prepare(self) -> int:
        """Create or migrate the tables; return their version."""

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""


@runtime_checkable
class SharedJournal(Protocol):
    """A journal whose workers share tables."""

    async def problems(self) -> list[str]:
        """Return what is wrong in these tables."""


def stored(store: Journal, url: str) -> StoredJournal:
    """Return a journal as one in a database. Raises ConfigurationError for another one."""
    if not isinstance(store, StoredJournal):
        raise ConfigurationError(
            f"journal: {shown_url(url)!r} has no tables. Use sqlite:PATH or postgres://HOST/DATABASE."
        )
    return store
