"""The row of a run, and the checksums that bind rows together."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from ... import codec
from ...codec import Json
from ...errors import JournalDamaged
from ...journal import RunInfo
from ...records import Usage
from .encoding import Contents, utf8

__all__ = ["COLUMNS", "RunRow", "chained", "chain_start", "folded", "read_row", "seal", "write_row"]

_SEALED = (
    "run_id", "name", "status", "reason", "detail", "input", "source", "fingerprint", "created", "updated",
    "active", "epoch", "iterations", "score", "usage", "opened", "last", "head",
)  # fmt: skip
COLUMNS = ", ".join(f"r.{name}" for name in ("id", *_SEALED, "seal", "owner"))
_ASSIGN = ", ".join(f"{name}=?" for name in (*_SEALED, "seal", "owner", "cancel"))
_INSERT = f"INSERT INTO runs({', '.join((*_SEALED, 'seal', 'owner', 'cancel'))}) VALUES({','.join('?' * 21)})"


def seal(values: Any) -> bytes:
    """Return the 16-byte checksum of a row's values."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=bytes.hex)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()


def chain_start(run_id: str) -> bytes:
    """Return the sum that comes before the first row of a run."""
    return hashlib.blake2b(run_id.encode(), digest_size=16).digest()


def chained(before: bytes, first: int, body: bytes) -> bytes:
    """Return the sum of a row: of the row before it, the number of its first entry and its body."""
    return hashlib.blake2b(b"%b%d:%b" % (before, first, body), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `runs`: the run, and what only the store knows of it.

    `last` and `head` are the number of the last entry and the sum at the last closing, `opened` the owner's clock at the
    last opening. `input` and `source` are JSON text, perhaps of a reference.
    """

    key: int
    info: RunInfo
    input: str
    source: str
    opened: float
    last: int
    head: bytes
    owner: int | None


def folded(value: Json, contents: Contents) -> str:
    """Return the JSON text of a run's input or source, or of a reference if it is long."""
    return utf8(contents.fold(value))[0]


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def read_row(values: tuple[Any, ...]) -> RunRow:
    """Return the row that a SELECT of COLUMNS gave, with `input` and `source` left as text.

    Raises:
        JournalDamaged: if it does not match its checksum.
    """
    key, *sealed = values[:-2]
    sealed = [_text(v) if i < 8 or i == 14 else v for i, v in enumerate(sealed)]
    if seal(sealed) != values[-2]:
        raise JournalDamaged(
            f"{sealed[0]}: the row of this run does not match its checksum; restore the journal from a backup"
        )
    run_id, name, status, reason, detail, source_input, source, fingerprint = sealed[:8]
    created, updated, active, epoch, iterations, score, usage, opened, last, head = sealed[8:]
    info = RunInfo(
        run_id, name, None, fingerprint, {}, status, reason, detail, created, updated, active, epoch,
        iterations, score, Usage(*json.loads(usage)),
    )  # fmt: skip
    return RunRow(key, info, source_input, source, opened, last, head, values[-1])


def write_row(db: sqlite3.Connection, row: RunRow) -> int:
    """Insert a row with key 0, or update the one with its key; return the key. Clears the wish to cancel."""
    info, usage = row.info, row.info.usage
    spent = [usage.calls, usage.input_tokens, usage.output_tokens, usage.usd, usage.unpriced, usage.estimated]
    sealed = [
        utf8(text)[0] for text in (info.run_id, info.name, info.status, info.reason, info.detail)
    ] + [row.input, row.source, info.fingerprint]
    sealed += [float(info.created), float(info.updated), float(info.active), info.epoch, info.iterations]
    sealed += [None if info.score is None else float(info.score), codec.encode(spent)]
    sealed += [float(row.opened), row.last, row.head]
    values = [*sealed, seal(sealed), row.owner, 0]
    if row.key:
        db.execute(f"UPDATE runs SET {_ASSIGN} WHERE id=?", [*values, row.key])
        return row.key
    return db.execute(_INSERT, values).lastrowid or 0
