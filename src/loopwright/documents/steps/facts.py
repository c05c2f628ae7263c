"""Facts as steps of documents: remembered, or found again by words."""

from __future__ import annotations

from ...engine.context import Context
from ...engine.memory_steps import Operation
from ...engine.step import Leaf, digest_of
from ...errors import StepError
from ...records.codec import Json, text_of
from ...templates.variables import TemplatedValue, rendered

__all__ = ["RecallFacts", "RememberFact"]


class _FactStep(Leaf):
    fingerprint: str

    def __init__(self, name: str, space: str, text: TemplatedValue, category: str) -> None:
        self.name = name
        self.space = space
        self.text = text
        self.category = category
        self.fingerprint = digest_of(type(self).__name__, space, repr(text.source), category)


class RememberFact(_FactStep):
    """The leaf that remembers a text as a fact; one that is known is reinforced."""

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Remember it, and return its id."""
        text = text_of(rendered(self.text, ctx, value)).strip()
        if not text:
            raise StepError(f"{self.name}: there is no text to remember", retryable=False)
        given = {"text": text, "category": self.category}
        found = await Operation(self.space, "remember").act(given, ctx)
        return {"response": text, "fact": found}


class RecallFacts(_FactStep):
    """The leaf that finds facts: those that share most words with a query, the surer first.

    With an empty query the surest are found.
    """

    def __init__(
        self, name: str, space: str, text: TemplatedValue, category: str, limit: int
    ) -> None:
        super().__init__(name, space, text, category)
        self.limit = limit
        self.fingerprint = digest_of(self.fingerprint, str(limit))

    async def act(self, value: Json, ctx: Context) -> dict[str, Json]:
        """Return the facts found, as one text and as data."""
        query = text_of(rendered(self.text, ctx, value))
        given = {"query": query, "limit": self.limit, "category": self.category}
        found = [
            fact.to_json() for fact in await Operation(self.space, "recall_facts").act(given, ctx)
        ]
        lines = [f"- {fact['text']}" for fact in found]
        return {"response": "\n".join(lines), "facts": found, "num_results": len(found)}
