"""A journal in a PostgreSQL database, which several machines may share."""

from ..protocol import Journal


def open_url(url: str) -> Journal:
    """Return the journal at a `postgres:` URL."""
    raise NotImplementedError(url)
