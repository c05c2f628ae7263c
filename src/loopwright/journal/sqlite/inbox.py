"""Answers of people to what a run asks, kept until whoever opens the run next moves them to its entries.

The first answer to a question stays: who comes later is given that one.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from ...errors import JournalDamaged
from ...records import codec
from .. import Posted
from .rows import seal

__all__ = ["posted", "put"]

_PUT = "INSERT INTO inbox VALUES (?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
_OF_RUN = "SELECT run,asked,path,value,who,at,seal FROM inbox WHERE run=? ORDER BY asked,path"
_ONE = "SELECT run,asked,path,value,who,at,seal FROM inbox WHERE run=? AND asked=? AND path=?"


def put(db: sqlite3.Connection, run: int, answer: Posted) -> Posted:
    """Keep an answer unless there is one; return the one that is kept."""
    row = [
        run, answer.asked, answer.path, codec.encode(answer.value), answer.who, answer.at
    ]  # fmt: skip
    db.execute(_PUT, (*row, seal(row)))
    return _read(db.execute(_ONE, (run, answer.asked, answer.path)).fetchone())


def posted(db: sqlite3.Connection, run: int) -> list[Posted]:
    """Return the answers to the questions of a run."""
    return [_read(row) for row in db.execute(_OF_RUN, (run,)).fetchall()]


def _read(row: tuple[Any, ...]) -> Posted:
    *values, sealed = row
    values = [value.decode() if isinstance(value, bytes) else value for value in values]
    if seal(values) != sealed:
        raise JournalDamaged(f"run {row[0]}: an answer in its inbox does not match its checksum")
    _, asked, path, value, who, at = values
    return Posted(path, asked, codec.decode(value), who, at)
