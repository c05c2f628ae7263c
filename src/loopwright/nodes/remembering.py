"""Entries of past rounds that outlive the run: one append-only file per node, one JSON line per entry.

An entry bears the key of the effect that wrote it, so that one that was in flight at a crash is read once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..codec import Json
from ..context import Context
from ..errors import StepError
from ..step import digest_of

__all__ = ["Recall", "Remember"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def _file(ctx: Context, name: str) -> Path:
    folder = ctx.run.resources.get("memory_folder")
    if folder is None:
        raise StepError(
            f"{name} remembers from run to run, and this run has no folder for it; "
            "give resources={'memory_folder': path}",
            kind="no_memory",
            retryable=False,
        )
    return Path(folder) / f"{_UNSAFE.sub('_', name)[:64]}.jsonl"


class _Leaf:
    effect = True
    required = False
    reserve = None
    idempotent = True
    wants_context = True
    name: str


class Recall(_Leaf):
    """The leaf that reads what earlier runs left."""

    name = "recall"

    def __init__(self, node: str, most: int) -> None:
        self.node = node
        self.most = most
        self.fingerprint = digest_of("recall", node, str(most))

    async def act(self, value: Json, ctx: Context) -> list[Json]:
        """Return the latest entries, oldest first; a damaged line is left out with a warning."""
        path = _file(ctx, self.node)
        if not path.exists():
            return []
        entries: dict[str, Json] = {}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
                entries[row["key"]] = row["entry"]
            except (ValueError, KeyError, TypeError):
                ctx.warn(f"{path.name}: a line that is no entry was left out")
        return list(entries.values())[-self.most :]


class Remember(_Leaf):
    """The leaf that appends an entry."""

    name = "remember"

    def __init__(self, node: str) -> None:
        self.node = node
        self.fingerprint = digest_of("remember", node)

    async def act(self, value: Mapping[str, Any], ctx: Context) -> bool:
        """Append an entry as one line, whole or not at all, whatever other runs append."""
        path = _file(ctx, self.node)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        row = json.dumps({"key": ctx.idempotency_key, "entry": value}, ensure_ascii=False)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(handle, (row + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        return True
