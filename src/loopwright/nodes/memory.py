"""What outlives a run: one append-only file per name in the run's memory folder, one JSON line per entry.

An entry bears the key of the effect that wrote it, so that one that was in flight at a crash is read once.
Any number of runs may append at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..codec import Json, text_of
from ..context import Context
from ..errors import StepError
from ..step import digest_of
from ..variables import Filled, rendered

__all__ = ["MemoryRead", "MemoryWrite", "Recall", "Remember"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_WORDS = re.compile(r"[^\W_]{2,}")


def _file(ctx: Context, name: str) -> Path:
    folder = ctx.run.resources.get("memory_folder")
    if folder is None:
        raise StepError(
            f"{name} remembers from run to run, and this run has no folder for it; "
            "give resources={'memory_folder': path}",
            kind="no_memory",
            retryable=False,
        )
    safe = _UNSAFE.sub("_", name)[:64]
    if safe != name:  # two names never share a file
        safe = f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path(folder) / f"{safe}.jsonl"


def _append(ctx: Context, name: str, entry: Json) -> None:
    """Append an entry as one line, whole or not at all."""
    path = _file(ctx, name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    row = json.dumps({"key": ctx.idempotency_key, "entry": entry}, ensure_ascii=False)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        end = os.fstat(handle).st_size
        torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # a writer died in the middle
        data = ("\n" if torn else "").encode() + row.encode() + b"\n"
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _entries(ctx: Context, name: str) -> list[Json]:
    """Return the entries, oldest first; a damaged line is left out with a warning."""
    path = _file(ctx, name)
    if not path.exists():
        return []
    found: dict[str, Json] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found[row["key"]] = row["entry"]
        except (ValueError, KeyError, TypeError):
            ctx.warn(f"{path.name}: a line that is no entry was left out")
    return list(found.values())


class _Leaf:
    effect = True
    required = False
    reserve = None
    idempotent = True
    wants_context = True
    name: str


class Recall(_Leaf):
    """The leaf that reads what earlier runs of a node left: the latest entries, oldest first."""

    name = "recall"

    def __init__(self, node: str, most: int) -> None:
        self.node = node
        self.most = most
        self.fingerprint = digest_of("recall", node, str(most))

    async def act(self, _: Json, ctx: Context) -> list[Json]:
        """Return the latest entries."""
        return _entries(ctx, self.node)[-self.most :]


class Remember(_Leaf):
    """The leaf that appends an entry for later runs of a node."""

    name = "remember"

    def __init__(self, node: str) -> None:
        self.node = node
        self.fingerprint = digest_of("remember", node)

    async def act(self, value: Mapping[str, Any], ctx: Context) -> bool:
        """Append it."""
        _append(ctx, self.node, value)
        return True


class MemoryWrite(_Leaf):
    """The leaf that keeps a text in a namespace."""

    def __init__(self, name: str, namespace: str, text: Filled, metadata: Filled) -> None:
        self.name = name
        self.namespace = namespace
        self.text = text
        self.metadata = metadata
        self.fingerprint = digest_of(
            "memory_write", namespace, repr((text.source, metadata.source))
        )

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Append the text with its metadata."""
        text = text_of(rendered(self.text, ctx, value))
        entry = {"content": text, "metadata": rendered(self.metadata, ctx, value)}
        _append(ctx, f"memory.{self.namespace}", entry)
        return {"response": text, "status": "success", "namespace": self.namespace}


class MemoryRead(_Leaf):
    """The leaf that finds texts of a namespace: those that share most words with a query, latest first on ties.

    A word counts the more, the fewer texts have it. Without a word in common nothing is found.
    """

    def __init__(self, name: str, namespace: str, query: Filled, limit: int) -> None:
        self.name = name
        self.namespace = namespace
        self.query = query
        self.limit = limit
        self.fingerprint = digest_of("memory_read", namespace, repr(query.source), str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the texts found, as one text and as data."""
        query = text_of(rendered(self.query, ctx, value))
        entries = [e for e in _entries(ctx, f"memory.{self.namespace}") if isinstance(e, Mapping)]
        found = [dict(entry) for entry in _best(query, entries, self.limit)]
        texts = [str(entry.get("content", "")) for entry in found]
        return {
            "response": "\n\n".join(texts) or "No memories found",
            "memories": found,
            "num_results": len(found),
            "query": query,
        }


def _best(query: str, entries: list[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    words = [frozenset(_WORDS.findall(str(e.get("content", "")).casefold())) for e in entries]
    common = Counter(word for each in words for word in each)
    asked = frozenset(_WORDS.findall(query.casefold()))
    if not asked:
        return entries[::-1][:limit]
    weights = [sum(1 / common[word] for word in each & asked) for each in words]
    order = sorted(range(len(entries)), key=lambda i: (weights[i], i), reverse=True)
    return [entries[i] for i in order[:limit] if weights[i] > 0]
