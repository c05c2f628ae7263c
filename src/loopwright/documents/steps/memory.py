"""Memory as steps of documents: facts of native documents, entries and texts of loop-node documents.

All of them outlive the run. An entry has the key of the effect that wrote it, so an effect that is repeated
after a crash does not write it twice. Any number of runs may append at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.context import Context
from ...engine.loop_memory import MemoryEffect, memory_of
from ...engine.step import Leaf, digest_of
from ...errors import JournalError, StepError
from ...memory import ranked, view_of
from ...records.codec import Json, text_of
from ...templates.variables import TemplatedValue, rendered

__all__ = [
    "MemoryRead",
    "MemoryWrite",
    "ReadMemory",
    "RecallFacts",
    "RememberFact",
    "WriteMemory",
]


class _FactStep(Leaf):
    fingerprint: str

    def __init__(self, name: str, space: str, text: TemplatedValue, category: str) -> None:
        self.name = name
        self.space = space
        self.text = text
        self.category = category
        # The names of the two classes below are part of recorded fingerprints.
        self.fingerprint = digest_of(type(self).__name__, space, repr(text.source), category)


class RememberFact(_FactStep):
    """A step that stores a text as a fact. An existing fact is reinforced."""

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Store it, and return its ID."""
        text = text_of(rendered(self.text, ctx, value)).strip()
        if not text:
            # Not retried: the same template renders the same empty text again.
            raise StepError(f"{self.name}: there is no text to remember", retryable=False)
        arguments = {"text": text, "category": self.category}
        return {
            "response": text,
            "fact": await MemoryEffect(self.space, "remember").act(arguments, ctx),
        }


class RecallFacts(_FactStep):
    """A step that returns the facts that share most words with a query, those of high confidence first.

    With an empty query it returns the facts of highest confidence.
    """

    def __init__(
        self, name: str, space: str, text: TemplatedValue, category: str, limit: int
    ) -> None:
        super().__init__(name, space, text, category)
        self.limit = limit
        self.fingerprint = digest_of(self.fingerprint, str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the facts, as one text and as data."""
        query = text_of(rendered(self.text, ctx, value))
        arguments = {"query": query, "limit": self.limit, "category": self.category}
        facts = await MemoryEffect(self.space, "recall_facts").act(arguments, ctx)
        rows = [fact.to_json() for fact in facts]
        text = "\n".join(f"- {row['text']}" for row in rows)
        return {"response": text, "facts": rows, "num_results": len(rows)}


async def _append(ctx: Context, space: str, entry: Json) -> None:
    await MemoryEffect(space, "note").act({"value": entry}, ctx)


async def _entries(ctx: Context, space: str, latest: int = 0) -> list[Json]:
    """Return the latest entries, oldest first; damaged ones are left out with a warning."""
    try:
        entries = await memory_of(ctx, space).entries(space, latest=latest)
    except JournalError as error:
        raise StepError(f"memory: {error}", kind="memory_unavailable") from error
    view = view_of(entries)
    if view.unreadable:
        ctx.warn(
            f"{space}: {view.unreadable} damaged entries of the memory were left out",
            code="memory_damaged",
        )
    return [note.value for note in view.notes.values()]


class ReadMemory(Leaf):
    """A step that reads the entries of earlier runs of a loop node: the latest ones, oldest first."""

    fingerprint: str

    name = "recall"  # this name and the space are part of recorded paths and of existing memories

    def __init__(self, node: str, most: int) -> None:
        self.space = f"past_loops:{node}"
        self.most = most
        self.fingerprint = digest_of("recall", node, str(most))

    async def act(self, _: Json, ctx: Context) -> list[Json]:
        """Return the latest entries."""
        return await _entries(ctx, self.space, self.most)


class WriteMemory(Leaf):
    """A step that appends an entry for later runs of a loop node."""

    fingerprint: str

    name = "remember"

    def __init__(self, node: str) -> None:
        self.space = f"past_loops:{node}"
        self.fingerprint = digest_of("remember", node)

    async def act(self, value: Json, ctx: Context) -> bool:
        """Append it."""
        await _append(ctx, self.space, value)
        return True


class MemoryWrite(Leaf):
    """A step that stores a text in a namespace."""

    fingerprint: str

    def __init__(
        self, name: str, namespace: str, text: TemplatedValue, metadata: TemplatedValue
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.text = text
        self.metadata = metadata
        sources = repr((text.source, metadata.source))
        self.fingerprint = digest_of("memory_write", namespace, sources)

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Append the text with its metadata."""
        text = text_of(rendered(self.text, ctx, value))
        entry = {"content": text, "metadata": rendered(self.metadata, ctx, value)}
        await _append(ctx, f"memory:{self.namespace}", entry)
        return {"response": text, "status": "success", "namespace": self.namespace}


class MemoryRead(Leaf):
    """A step that returns the texts of a namespace that share most words with a query, latest first on ties.

    A word counts more, the fewer texts have it. Texts without a word in common are left out.
    """

    fingerprint: str

    def __init__(self, name: str, namespace: str, query: TemplatedValue, limit: int) -> None:
        self.name = name
        self.namespace = namespace
        self.query = query
        self.limit = limit
        self.fingerprint = digest_of("memory_read", namespace, repr(query.source), str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the texts, as one text and as data."""
        query = text_of(rendered(self.query, ctx, value))
        entries = await _entries(ctx, f"memory:{self.namespace}")
        stored = [dict(entry) for entry in entries if isinstance(entry, Mapping)]
        matches = ranked(query, stored, lambda e: str(e.get("content", "")), limit=self.limit)
        texts = [str(entry.get("content", "")) for entry in matches]
        return {
            # The text of the dialect's own program.
            "response": "\n\n".join(texts) or "No memories found",
            "memories": matches,
            "num_results": len(matches),
            "query": query,
        }
