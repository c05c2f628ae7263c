"""What outlives a run of loop nodes: entries of past rounds, and texts in namespaces, as notes of a memory.

An entry bears the key of the effect that wrote it, so that one that was in flight at a crash is there once.
Any number of runs may append at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....engine.context import Context
from ....engine.memory_steps import Operation, memory_of
from ....engine.step import Leaf, digest_of
from ....errors import JournalError, StepError
from ....memory import ranked, view_of
from ....records.codec import Json, text_of
from ....templates.variables import TemplatedValue, rendered

__all__ = ["MemoryRead", "MemoryWrite", "ReadMemory", "WriteMemory"]


async def _append(ctx: Context, space: str, entry: Json) -> None:
    await Operation(space, "note").act({"value": entry}, ctx)


async def _entries(ctx: Context, space: str, latest: int = 0) -> list[Json]:
    """Return the latest entries, oldest first; damaged ones are left out with a warning."""
    try:
        found = await memory_of(ctx, space).entries(space, latest=latest)
    except JournalError as error:
        raise StepError(f"memory: {error}", kind="memory_unavailable") from error
    view = view_of(found)
    if view.unreadable:
        ctx.warn(f"{space}: {view.unreadable} damaged entries of the memory were left out")
    return [note.value for note in view.notes.values()]


class ReadMemory(Leaf):
    """The leaf that reads what earlier runs of a node left: the latest entries, oldest first."""

    fingerprint: str

    name = "recall"

    def __init__(self, node: str, most: int) -> None:
        self.node = node
        self.most = most
        self.fingerprint = digest_of("recall", node, str(most))

    async def act(self, _: Json, ctx: Context) -> list[Json]:
        """Return the latest entries."""
        return await _entries(ctx, _past(self.node), self.most)


class WriteMemory(Leaf):
    """The leaf that appends an entry for later runs of a node."""

    fingerprint: str

    name = "remember"

    def __init__(self, node: str) -> None:
        self.node = node
        self.fingerprint = digest_of("remember", node)

    async def act(self, value: Mapping[str, Any], ctx: Context) -> bool:
        """Append it."""
        await _append(ctx, _past(self.node), value)
        return True


def _past(node: str) -> str:
    return f"past_loops:{node}"


class MemoryWrite(Leaf):
    """The leaf that keeps a text in a namespace."""

    fingerprint: str

    def __init__(
        self, name: str, namespace: str, text: TemplatedValue, metadata: TemplatedValue
    ) -> None:
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
        await _append(ctx, f"memory:{self.namespace}", entry)
        return {"response": text, "status": "success", "namespace": self.namespace}


class MemoryRead(Leaf):
    """The leaf that finds texts of a namespace: those that share most words with a query, latest first on ties.

    A word counts the more, the fewer texts have it. Without a word in common nothing is found.
    """

    fingerprint: str

    def __init__(self, name: str, namespace: str, query: TemplatedValue, limit: int) -> None:
        self.name = name
        self.namespace = namespace
        self.query = query
        self.limit = limit
        self.fingerprint = digest_of("memory_read", namespace, repr(query.source), str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the texts found, as one text and as data."""
        query = text_of(rendered(self.query, ctx, value))
        entries = await _entries(ctx, f"memory:{self.namespace}")
        kept = [dict(entry) for entry in entries if isinstance(entry, Mapping)]
        found = ranked(query, kept, lambda e: str(e.get("content", "")), limit=self.limit)
        texts = [str(entry.get("content", "")) for entry in found]
        return {
            "response": "\n\n".join(texts) or "No memories found",
            "memories": found,
            "num_results": len(found),
            "query": query,
        }
