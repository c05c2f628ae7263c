"""The checksums that bind the rows of a run together, and the sealed values of a run's own row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import JournalDamaged
from ...records import Usage
from ...records.codec import Json
from ..protocol import RunInfo
from .encoding import utf8

Value = str | bytes | int | float | None  # what a column holds
_SUM = 8  # bytes of a checksum: it detects accidental damage, not forgery
_encode = json.JSONEncoder(separators=(",", ":"), default=bytes.hex).encode
_COLUMNS = (
    "run_id", "name", "status", "reason", "detail", "input", "source", "fingerprint", "created",
    "updated", "active", "epoch", "iterations", "score", "usage", "opened", "last", "head",
)  # fmt: skip
_TEXTS = (*range(8), 14)  # positions of the text among the sealed values


@contextmanager
def as_damage(what: str) -> Iterator[None]:
    """Report values of a wrong type or shape, which only damage can produce, as JournalDamaged."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(
            f"{what} cannot be decoded; restore the journal from a backup"
        ) from error


def seal(values: Sequence[Value]) -> bytes:
    """Return the checksum of the values of a row."""
    return hashlib.blake2b(_encode(values).encode(), digest_size=_SUM).digest()


def chain_start(run_id: str) -> bytes:
    """Return the checksum that precedes the first row of a run."""
    return hashlib.blake2b(utf8(run_id)[1], digest_size=_SUM).digest()


def chained(before: bytes, first: int, body: bytes) -> bytes:
    """Return the checksum of a row from the one before it, its first entry number and its body."""
    data = before + first.to_bytes(8, "big") + body
    return hashlib.blake2b(data, digest_size=_SUM).digest()


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run's own row: the run, and the fields that only the store uses.

    `last` and `head` are the number of the last entry and the checksum of its row at the last
    closing, `opened` is the owner's age in seconds at the last opening. `input` and `source` are
    JSON text, which may be a reference.
    """

    key: int
    info: RunInfo
    input: str
    source: str
    opened: float
    last: int
    head: bytes
    owner: int | None


def read_row(values: Sequence[Json]) -> RunRow:
    """Return the run of a row in the order of `sealed_values`; its `input` and `source` stay text.

    Raises:
        JournalDamaged: if the row does not match its checksum.
    """
    with as_damage(f"run {values[0]}"):
        return _read_row(values)


def _read_row(values: Sequence[Json]) -> RunRow:
    key, *sealed, checksum, owner, _ = values
    for i in _TEXTS:
        sealed[i] = sealed[i].decode("utf-8", "replace")
    if seal(sealed) != checksum:
        raise JournalDamaged(
            f"{sealed[0]}: the row of this run does not match its checksum; "
            "restore the journal from a backup"
        )
    fields = dict(zip(_COLUMNS, sealed, strict=True))
    own = {name: fields.pop(name) for name in ("input", "source", "opened", "last", "head")}
    fields["usage"] = Usage(*json.loads(fields["usage"]))
    return RunRow(key=key, info=RunInfo(**fields), owner=owner, **own)


def sealed_values(row: RunRow) -> list[Value]:
    """Return the values of a row in the order of its columns, without its key."""
    info, usage = row.info, row.info.usage
    spent = [
        usage.calls, usage.input_tokens, usage.output_tokens, usage.usd,
        usage.unpriced, usage.estimated,
    ]  # fmt: skip
    sealed: list[Value] = [
        info.run_id, info.name, info.status, info.reason, info.detail, row.input, row.source,
        info.fingerprint, float(info.created), float(info.updated), float(info.active), info.epoch,
        info.iterations, None if info.score is None else float(info.score), _encode(spent),
        float(row.opened), row.last, row.head,
    ]  # fmt: skip
    for i in _TEXTS:
        sealed[i] = utf8(str(sealed[i]))[0]
    return [*sealed, seal(sealed), row.owner, 0]
