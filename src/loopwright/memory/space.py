"""A space of a memory: the working memory, episodes and facts that go under one name."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigurationError, nearest
from ..records import codec
from ..records.codec import Json
from .entries import KINDS, Memory, entry
from .lessons import Lessons, lessons_of
from .records import OUTCOMES, Episode, Fact, SuccessRate, fact_id
from .search import ranked
from .view import CONTRADICTION, REINFORCEMENT, View, consolidation, view_of

__all__ = ["Space"]

_FACTS = tuple(kind for kind in KINDS if kind not in ("set", "deleted", "cleared", "note"))
_STATUSES = ("active", "doubted", "superseded", "retired")
_WORKING = ("set", "deleted", "cleared")


class Space:
    """What goes under one name in a memory: working memory, episodes and facts.

    Every write takes `at`, seconds since the epoch, and may take a `key`, under which it is made
    once. `run` is whose working memory is meant, and is noted with what is written; "" is that of
    no run. Inside of a run use `remembered(ctx, name)`, which takes the time of the run and makes
    every read and write a journaled effect.

    >>> import asyncio
    >>> async def example() -> None:
    ...     space = Space(InMemory(), "interviewer")
    ...     await space.record("analysis", "success", at=1.0, score=0.9)
    ...     await space.record("analysis", "failure", at=2.0, feedback="no transcript")
    ...     fact = await space.remember("transcripts are in English", at=3.0)
    ...     await space.reinforce(fact, at=4.0)
    ...     print((await space.success_rate("analysis")).rate)
    ...     print([(item.text, item.confidence) for item in await space.recall_facts()])
    >>> from loopwright.memory import InMemory
    >>> asyncio.run(example())
    0.5
    [('transcripts are in English', 0.6)]
    """

    def __init__(self, memory: Memory, name: str, *, run: str = "") -> None:
        self.memory = memory
        self.name = name
        self.run = run

    async def view(self, kinds: Sequence[str] = ()) -> View:
        """Return all that is known, of some kinds of entries or of all."""
        return view_of(await self.memory.entries(self.name, kinds=kinds))

    async def _write(self, kind: str, value: Json, at: float, key: str) -> int:
        made = entry(self.name, kind, value, at=at, key=key, run=self.run)
        return (await self.memory.append(made))[0]

    # Working memory: of one run, until it is cleared.

    async def set(self, name: str, value: Json, *, at: float, key: str = "") -> None:
        """Keep a value under a name for this run."""
        await self._write("set", {"name": name, "value": value}, at, key)

    async def get(self, name: str, default: Json = None) -> Json:
        """Return the value under a name, or `default`."""
        return (await self.all()).get(name, default)

    async def all(self) -> dict[str, Json]:
        """Return all that this run keeps, by name."""
        return (await self.view(_WORKING)).working.get(self.run, {})

    async def delete(self, name: str, *, at: float, key: str = "") -> None:
        """Keep nothing under a name any more."""
        await self._write("deleted", {"name": name}, at, key)

    async def clear(self, *, at: float, key: str = "") -> None:
        """Keep nothing any more for this run."""
        await self._write("cleared", None, at, key)

    # Episodes.

    async def record(
        self,
        action: str,
        outcome: str,
        *,
        at: float,
        description: str = "",
        score: float | None = None,
        feedback: str = "",
        tried: Sequence[Json] = (),
        context: Json = None,
        key: str = "",
    ) -> int:
        """Record what was done and how it went, and return the episode's id; see Episode.

        Raises:
            ConfigurationError: for an outcome that is none of `success`, `partial`, `failure`, or a
                score that is no number from 0 to 1.
        """
        if outcome not in OUTCOMES:
            raise ConfigurationError(
                f"memory: outcome: {outcome!r} is none of {', '.join(OUTCOMES)}"
                f"{nearest(outcome, OUTCOMES)}"
            )
        if score is not None:
            codec.number("memory: score", score, least=0, most=1)
        value = {
            "action": action, "outcome": outcome, "description": description, "score": score,
            "feedback": feedback, "tried": list(tried), "context": context,
        }  # fmt: skip
        kept = {name: item for name, item in value.items() if item not in (None, "", [])}
        return await self._write("episode", {"action": action, **kept}, at, key)

    async def recall(self, query: str = "", *, limit: int = 5, action: str = "") -> list[Episode]:
        """Return the episodes that share most words with a query, those that faded later.

        Without a query the latest come, the newest first; `action` takes only those of one kind.
        """
        found = [e for e in (await self.view(_FACTS)).live_episodes if action in ("", e.action)]
        weight = lambda item: item.relevance
        return ranked(query, found, lambda item: item.text, limit=limit, weight=weight)

    async def episodes(self, action: str = "") -> list[Episode]:
        """Return the episodes of an action in order; "" is all, retired ones left out."""
        return [e for e in (await self.view(_FACTS)).live_episodes if action in ("", e.action)]

    async def success_rate(self, action: str = "") -> SuccessRate:
        """Return how many episodes of an action ended how."""
        return (await self.view(_FACTS)).success_rate(action)

    async def feedback(
        self, episode: int, text: str, *, at: float, rating: float | None = None, key: str = ""
    ) -> None:
        """Add what was said of an episode, with a rating from 0 to 1 if there is one.

        Raises:
            ConfigurationError: if there is no such episode.
        """
        if episode not in (await self.view(_FACTS)).episodes:
            raise ConfigurationError(f"memory: {self.name}: there is no episode {episode}")
        if rating is not None:
            codec.number("memory: rating", rating, least=0, most=1)
        value = {"episode": episode, "text": text, "rating": rating}
        await self._write("feedback", value, at, key)

    # Facts.

    async def remember(
        self, text: str, *, at: float, category: str = "", confidence: float = 0.5, key: str = ""
    ) -> str:
        """Remember a fact and return its id; remembering it again reinforces it.

        Raises:
            ConfigurationError: for a text without words, or a confidence that is none.
        """
        if not text.strip():
            raise ConfigurationError("memory: a fact needs words; give a sentence")
        codec.number("memory: confidence", confidence, least=0, most=1)
        value = {"text": text, "category": category, "confidence": confidence}
        await self._write("fact", value, at, key)
        return fact_id(text, category)

    async def recall_facts(
        self, query: str = "", *, limit: int = 5, category: str = ""
    ) -> list[Fact]:
        """Return the active facts that share most words with a query, the surer ones first.

        Without a query those come first of which confidence times relevance is highest.
        """
        found = [f for f in (await self.view(_FACTS)).live_facts if category in ("", f.category)]
        found.sort(key=lambda fact: fact.confidence * fact.relevance)
        weight = lambda fact: fact.confidence * fact.relevance
        return ranked(query, found, lambda fact: fact.text, limit=limit, weight=weight)

    async def facts(self, category: str = "", *, status: str = "active") -> list[Fact]:
        """Return the facts of a category in order; "" is all. `status` as of Fact, "" is any.

        Raises:
            ConfigurationError: for a status that no fact has.
        """
        if status and status not in _STATUSES:
            hint = nearest(str(status), _STATUSES) or f"; give {', '.join(_STATUSES)}"
            raise ConfigurationError(f"memory: status: {status!r} is none of a fact{hint}")
        found = (await self.view(_FACTS)).facts.values()
        return [f for f in found if category in ("", f.category) and status in ("", f.status)]

    async def _known(self, fact: str) -> Fact:
        known = (await self.view(_FACTS)).facts
        if fact not in known:
            raise ConfigurationError(
                f"memory: {self.name}: there is no fact {fact!r}{nearest(fact, known)}"
            )
        return known[fact]

    async def reinforce(
        self, fact: str, *, at: float, strength: float = REINFORCEMENT, key: str = ""
    ) -> None:
        """Make a fact surer: its confidence c becomes c + (1 - c) * strength.

        Raises:
            ConfigurationError: if there is no such fact, as for all that name one.
        """
        await self._known(fact)
        codec.number("memory: strength", strength, least=0, most=1)
        await self._write("reinforced", {"fact": fact, "strength": strength}, at, key)

    async def contradict(
        self,
        fact: str,
        reason: str = "",
        *,
        at: float,
        strength: float = CONTRADICTION,
        key: str = "",
    ) -> None:
        """Make a fact less sure: c becomes c * (1 - strength); below 0.1 it is recalled no more."""
        await self._known(fact)
        codec.number("memory: strength", strength, least=0, most=1)
        value = {"fact": fact, "reason": reason, "strength": strength}
        await self._write("contradicted", value, at, key)

    async def supersede(
        self, fact: str, text: str, *, at: float, confidence: float = 0.5, key: str = ""
    ) -> str:
        """Put a fact in the place of another, in its category, and return the new one's id."""
        known = await self._known(fact)
        codec.number("memory: confidence", confidence, least=0, most=1)
        by = {"text": text, "category": known.category, "confidence": confidence}
        await self._write("superseded", {"fact": fact, "by": by}, at, key)
        return fact_id(text, known.category)

    # What is done to all of it.

    async def decay(self, *, at: float, half_life: float = 30 * 86400.0, key: str = "") -> None:
        """Let relevance fade: it halves with every `half_life` seconds since it was last touched."""
        codec.number("memory: half_life", half_life, least=0, above=True)
        await self._write("decayed", {"half_life": half_life}, at, key)

    async def consolidate(self, *, at: float, least: int = 3, key: str = "") -> list[Fact]:
        """Make a fact of the category `experience` of each action with `least` new episodes.

        It tells how many of all its episodes succeeded, their mean score and what was said most
        often, and supersedes what was consolidated of the action before. Doing it twice at once
        makes the fact once. Its confidence is n / (n + 2) of n episodes.
        """
        codec.whole("memory: least", least, least=1)
        before = await self.memory.entries(self.name, kinds=("consolidated",))
        values = [item.value for item in before if key and item.value.get("by") == key]
        for value in consolidation(await self.view(_FACTS), least):
            values.append({**value, "by": key})
            await self._write(
                "consolidated", values[-1], at, f"consolidated {codec.canonical(value['episodes'])}"
            )
        known = (await self.view(_FACTS)).facts if values else {}
        made = [fact_id(value["fact"]["text"], value["fact"]["category"]) for value in values]
        return [known[name] for name in made]

    async def cleanup(
        self, *, at: float, relevance: float = 0.05, older_than: float = 90 * 86400.0, key: str = ""
    ) -> tuple[int, int]:
        """Leave out what is of no use any more; return how many facts and episodes are out now.

        Facts whose relevance times confidence is below `relevance`, and episodes older than
        `older_than` seconds that were consolidated or are below it. They stay in the log.
        """
        codec.number("memory: relevance", relevance, least=0, most=1)
        codec.number("memory: older_than", older_than, least=0)
        await self._write("cleaned", {"relevance": relevance, "before": at - older_than}, at, key)
        known = await self.view(_FACTS)
        facts = sum(item.retired for item in known.facts.values())
        return facts, sum(item.retired for item in known.episodes.values())

    async def lessons(self, action: str = "", *, most: int = 5, facts: int = 5) -> Lessons:
        """Return what past episodes of an action teach, the latest `most`, with the surest facts."""
        return lessons_of(await self.view(_FACTS), action, most=most, facts=facts)

    # Notes: values of any kind.

    async def note(self, value: Json, *, at: float, key: str = "") -> int:
        """Keep any value and return its number."""
        return await self._write("note", value, at, key)

    async def notes(self, *, latest: int = 0) -> list[Json]:
        """Return the values kept by `note` in order, the `latest`; 0 is all of them."""
        found = view_of(await self.memory.entries(self.name, kinds=("note",), latest=latest))
        return [item.value for item in found.notes.values()]
