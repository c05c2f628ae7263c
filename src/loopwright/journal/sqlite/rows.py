"""The row of a run, and the checksums that bind rows together."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from ...errors import JournalDamaged
from ...records import NOTHING, Usage
from .. import RunInfo
from .encoding import utf8
from .errors import as_damage

__all__ = ["RunRow", "chain_start", "chained", "insert_row", "read_row", "seal", "write_row"]

_INSERT = (
    "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
    "ON CONFLICT(run_id) DO NOTHING"
)
# What never changes (id, run_id, name) is left out: their indexes are not touched.
_WRITE = (
    "UPDATE runs SET status=?,reason=?,detail=?,input=?,source=?,fingerprint=?,created=?,updated=?,"
    "active=?,epoch=?,iterations=?,score=?,usage=?,opened=?,last=?,head=?,seal=?,owner=?,cancel=? "
    "WHERE id=? AND epoch=?"
)
_SUM = 8  # bytes of a checksum: against damage by chance, not against forgers
_encode = json.JSONEncoder(separators=(",", ":"), default=bytes.hex).encode


def seal(values: list[Any]) -> bytes:
    """Return the checksum of a row's values."""
    return hashlib.blake2b(_encode(values).encode(), digest_size=_SUM).digest()


def chain_start(run_id: str) -> bytes:
    """Return the sum that comes before the first row of a run."""
    return hashlib.blake2b(utf8(run_id)[1], digest_size=_SUM).digest()


def chained(before: bytes, first: int, body: bytes) -> bytes:
    """Return the sum of a row, from that of the row before it, its first number and its body."""
    data = before + first.to_bytes(8, "big") + body
    return hashlib.blake2b(data, digest_size=_SUM).digest()


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `runs`: the run, and what only the store knows of it.

    `last` and `head` are the number of the last entry and the sum of its row at the last closing,
    `opened` the owner's age at the last opening. `input` and `source` are JSON text, perhaps of
    a reference.
    """

    key: int
    info: RunInfo
    input: str
    source: str
    opened: float
    last: int
    head: bytes
    owner: int | None


_TEXTS = (*range(8), 14)  # where the sealed values are text


def read_row(values: tuple[Any, ...]) -> RunRow:
    """Return what `SELECT * FROM runs` gave; `input` and `source` of the run are left as text.

    Raises:
        JournalDamaged: if the row does not match its checksum.
    """
    with as_damage(f"run {values[0]}"):
        return _read_row(values)


def _read_row(values: tuple[Any, ...]) -> RunRow:
    key, *sealed, checksum, owner, _ = values
    for i in _TEXTS:
        sealed[i] = sealed[i].decode("utf-8", "replace")
    if seal(sealed) != checksum:
        raise JournalDamaged(
            f"{sealed[0]}: the row of this run does not match its checksum; "
            "restore the journal from a backup"
        )
    run_id, name, status, reason, detail, given, source, fingerprint, *figures = sealed
    created, updated, active, epoch, iterations, score, usage, opened, last, head = figures
    info = RunInfo(
        run_id=run_id,
        name=name,
        input=None,
        fingerprint=fingerprint,
        source={},
        status=status,
        reason=reason,
        detail=detail,
        created=created,
        updated=updated,
        active=active,
        epoch=epoch,
        iterations=iterations,
        score=score,
        usage=Usage(*json.loads(usage)),
    )
    return RunRow(
        key=key,
        info=info,
        input=given,
        source=source,
        opened=opened,
        last=last,
        head=head,
        owner=owner,
    )


def _spent(usage: Usage) -> str:
    fields = [
        usage.calls, usage.input_tokens, usage.output_tokens, usage.usd,
        usage.unpriced, usage.estimated,
    ]  # fmt: skip
    return _encode(fields)


_NOTHING = _spent(NOTHING)


def insert_row(db: sqlite3.Connection, row: RunRow) -> int:
    """Insert a row and return its key; 0 if there is one with its run id."""
    cursor = db.execute(_INSERT, _values(row))
    return cursor.lastrowid or 0 if cursor.rowcount else 0


def write_row(db: sqlite3.Connection, row: RunRow, epoch: int) -> bool:
    """Write what changed of a row, if its epoch is still this one; return whether it was.

    Nobody wishes any more that it be cancelled.
    """
    key, _, _, *changing = _values(row)
    return db.execute(_WRITE, (*changing, key, epoch)).rowcount == 1


def _values(row: RunRow) -> list[Any]:
    info = row.info
    score = None if info.score is None else float(info.score)
    spent = _NOTHING if info.usage is NOTHING else _spent(info.usage)
    sealed: list[Any] = [
        info.run_id, info.name, info.status, info.reason, info.detail, row.input, row.source,
        info.fingerprint, float(info.created), float(info.updated), float(info.active), info.epoch,
        info.iterations, score, spent, float(row.opened), row.last, row.head,
    ]  # fmt: skip
    for i in _TEXTS:
        if not sealed[i].isascii():
            sealed[i] = utf8(sealed[i])[0]
    return [row.key or None, *sealed, seal(sealed), row.owner, 0]
