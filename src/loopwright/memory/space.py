"""A space of a memory: the working memory, episodes and facts under one name, and the lessons of its past runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar

from ..errors import ConfigurationError, nearest
from ..records import codec
from ..records.codec import Json
from ..records.display import excerpt_line
from .entries import KINDS, Memory, entry
from .view import (
    CONTRADICTION,
    OUTCOMES,
    REINFORCEMENT,
    Episode,
    Fact,
    SuccessRate,
    View,
    consolidation,
    fact_id,
    view_of,
)

_MAX_CHARS = 300  # characters of one remark in the text for a prompt


class Lesson(TypedDict):
    """The lesson of one episode: the record of an earlier run of a loop, or of feedback on it.

    `tried` has the attempts, `said` the texts of people, `at` is seconds since the epoch.

    Example:
        >>> lesson: Lesson = {
        ...     "action": "write", "outcome": "failed", "score": 0.4, "description": "a poem",
        ...     "feedback": "too long", "tried": [], "said": [], "at": 0.0,
        ... }
        >>> Lessons((lesson,)).text.splitlines()[1]
        '- failed with score 0.40 (a poem)'
    """

    action: str
    outcome: str
    score: float | None
    description: str
    feedback: str
    tried: list[Json]
    said: list[str]
    at: float


@dataclass(frozen=True, slots=True)
class Lessons:
    """The lessons of past episodes, oldest first, with the most certain facts.

    Args:
        lessons: a `Lesson` per episode.
        facts: the texts of facts.
        success_rate: the share of successes, from 0 to 1; None without episodes.
        unreadable: the number of damaged entries.

    `text` has all of it as lines for a prompt.
    """

    lessons: tuple[Lesson, ...] = ()
    facts: tuple[str, ...] = ()
    success_rate: float | None = None
    # Not compared: a damaged entry does not change the lessons.
    unreadable: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """The lessons as lines for a prompt; "" if there are none."""
        lines = [_line(item) for item in self.lessons]
        if lines:
            lines.insert(0, "What earlier runs came to, oldest first:")
        if self.facts:
            lines += ["What is known:", *(f"- {_remark(text)}" for text in self.facts)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        """Return the lessons as a JSON object, with `text`."""
        return {
            "text": self.text,
            "lessons": [dict(item) for item in self.lessons],
            "facts": list(self.facts),
            "success_rate": self.success_rate,
        }


def lessons_of(view: View, action: str = "", *, most: int = 5, facts: int = 5) -> Lessons:
    """Return the lessons of the latest episodes of an action, and the most certain facts.

    Args:
        view: the content of the space.
        action: the action (default: "", every action).
        most: the maximum number of episodes (default: 5).
        facts: the maximum number of facts (default: 5).
    """
    episodes = [item for item in view.live_episodes if action in ("", item.action)][-most:]
    # An old fact that nothing confirmed comes after a newer one of the same confidence.
    certain = sorted(view.live_facts, key=lambda f: f.confidence * f.relevance, reverse=True)
    return Lessons(
        tuple(
            Lesson(
                action=item.action,
                outcome=item.outcome,
                score=item.score,
                description=item.description,
                feedback=item.feedback,
                tried=list(item.tried),
                # The names of the fields are part of recorded outputs and of templates.
                said=[one.text for one in item.said],
                at=item.at,
            )
            for item in (episodes if most else ())
        ),
        tuple(fact.text for fact in certain[:facts]),
        view.success_rate(action).rate,
        view.unreadable,
    )


def _line(item: Lesson) -> str:
    score = "" if item["score"] is None else f" with score {item['score']:.2f}"
    about = f" ({_remark(item['description'])})" if item["description"] else ""
    lines = [f"- {item['outcome']}{score}{about}"]
    for tried in item["tried"]:
        if isinstance(tried, Mapping):
            at = "" if tried.get("score") is None else f" {tried['score']:.2f}"
            remark = f": {_remark(tried['feedback'])}" if tried.get("feedback") else ""
            lines.append(f"  - tried {_remark(codec.text_of(tried.get('tried', '')))}{at}{remark}")
        else:
            lines.append(f"  - tried {_remark(codec.text_of(tried))}")
    lines += [f"  - said: {_remark(text)}" for text in (item["feedback"], *item["said"]) if text]
    return "\n".join(lines)


def _remark(text: str) -> str:
    return excerpt_line(text, _MAX_CHARS)


# All other kinds: episodes are read for consolidation, and facts are computed from them.
_FACTS = tuple(kind for kind in KINDS if kind not in ("set", "deleted", "cleared", "note"))
_STATUSES = ("active", "doubted", "superseded", "retired")
_WORKING = ("set", "deleted", "cleared")
_WORDS = re.compile(r"[^\W_]{2,}")  # single letters match by chance
T = TypeVar("T")


def ranked(
    query: str,
    items: Sequence[T],
    text: Callable[[T], str],
    *,
    limit: int,
    weight: Callable[[T], float] = lambda _: 1.0,
) -> list[T]:
    """Return the items whose texts share the most words with a query, the latest first on ties.

    A common word counts 1 / n if n texts contain it (inverse document frequency), times the `weight` of
    the item. An item without a common word is left out. A query without words returns the latest
    items.

    Args:
        query: the words.
        items: the items, oldest first.
        text: returns the text of an item.
        limit: the maximum number of results.
        weight: returns the weight of an item (default: 1).

    >>> ranked("loop budget", ["a budget", "a loop with a budget", "else"], str, limit=2)
    ['a loop with a budget', 'a budget']
    """
    wanted = frozenset(_WORDS.findall(query.casefold()))
    if not wanted:
        # Without words there is nothing to rank by, and the latest items are the likeliest to
        # matter.
        return list(items[::-1][:limit])
    words = [frozenset(_WORDS.findall(text(item).casefold())) for item in items]
    # Among the candidates only: a word that all of them share does not distinguish them.
    common = Counter(word for each in words for word in each)
    scores = [
        weight(item) * sum(1 / common[word] for word in each & wanted)
        for item, each in zip(items, words, strict=True)
    ]
    # The position decides ties, so that the order is the same in every process.
    order = sorted(range(len(items)), key=lambda i: (scores[i], i), reverse=True)
    return [items[i] for i in order[:limit] if scores[i] > 0]


class Space:
    """The working memory, episodes and facts under one name of a memory.

    Every write has `at`, the time in seconds since the epoch, and an optional `key`, with which it is
    made once. Inside a run use `remembered(ctx, name)`: it uses the time of the run and records every read
    and write as an effect.

    Args:
        memory: the store.
        name: the name of the space, 1 to 200 characters.
        run: the id of the run that owns the working memory; recorded with every write (default: none).

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
        """Return the present content of the space, from some kinds of entries or all."""
        return view_of(await self.memory.entries(self.name, kinds=kinds))

    async def _write(self, kind: str, value: Json, at: float, key: str) -> int:
        checked = entry(self.name, kind, value, at=at, key=key, run=self.run)
        return (await self.memory.append(checked))[0]

    async def set(self, name: str, value: Json, *, at: float, key: str = "") -> None:
        """Store a value under a name in the working memory of the run."""
        await self._write("set", {"name": name, "value": value}, at, key)

    async def get(self, name: str, default: Json = None) -> Json:
        """Return the value of a name in the working memory, or `default`."""
        return (await self.all()).get(name, default)

    async def all(self) -> dict[str, Json]:
        """Return the working memory of the run by name."""
        # The working memory of other runs in the same space is not visible.
        return (await self.view(_WORKING)).working.get(self.run, {})

    async def delete(self, name: str, *, at: float, key: str = "") -> None:
        """Remove a name from the working memory."""
        await self._write("deleted", {"name": name}, at, key)

    async def clear(self, *, at: float, key: str = "") -> None:
        """Clear the working memory of the run."""
        await self._write("cleared", None, at, key)

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
        """Record an episode and return its id; see Episode for the arguments.

        Raises:
            ConfigurationError: for an outcome other than `success`, `partial` or `failure`, or a score
                outside 0 to 1.
        """
        if outcome not in OUTCOMES:
            raise ConfigurationError(
                f"memory: outcome: {outcome!r} is not one of {', '.join(OUTCOMES)}"
                f"{nearest(outcome, OUTCOMES)}"
            )
        if score is not None:
            codec.number("memory: score", score, minimum=0, maximum=1)
        value = {
            "action": action, "outcome": outcome, "description": description, "score": score,
            "feedback": feedback, "tried": list(tried), "context": context,
        }  # fmt: skip
        kept = {name: item for name, item in value.items() if item not in (None, "", [])}
        return await self._write("episode", {"action": action, **kept}, at, key)

    async def recall(self, query: str = "", *, limit: int = 5, action: str = "") -> list[Episode]:
        """Return the episodes that share the most words with a query, weighted by relevance.

        Without a query the latest are returned, newest first. `action` selects one kind of episode.
        """
        episodes = await self.episodes(action)
        weight = lambda item: item.relevance
        return ranked(query, episodes, lambda item: item.text, limit=limit, weight=weight)

    async def episodes(self, action: str = "") -> list[Episode]:
        """Return the episodes of an action ("" for all) in order, without retired ones."""
        return [e for e in (await self.view(_FACTS)).live_episodes if action in ("", e.action)]

    async def success_rate(self, action: str = "") -> SuccessRate:
        """Return the numbers of outcomes of the episodes of an action; "" is all actions."""
        return (await self.view(_FACTS)).success_rate(action)

    async def feedback(
        self, episode: int, text: str, *, at: float, rating: float | None = None, key: str = ""
    ) -> None:
        """Add feedback to an episode, with an optional rating from 0 to 1.

        Raises:
            ConfigurationError: if there is no such episode.
        """
        if episode not in (await self.view(_FACTS)).episodes:
            raise ConfigurationError(f"memory: {self.name}: there is no episode {episode}")
        if rating is not None:
            codec.number("memory: rating", rating, minimum=0, maximum=1)
        await self._write("feedback", {"episode": episode, "text": text, "rating": rating}, at, key)

    async def remember(
        self, text: str, *, at: float, category: str = "", confidence: float = 0.5, key: str = ""
    ) -> str:
        """Record a fact and return its id; recording it again reinforces it.

        Raises:
            ConfigurationError: for a text without words, or a confidence outside 0 to 1.
        """
        if not text.strip():
            raise ConfigurationError("memory: a fact needs words; use a sentence")
        codec.number("memory: confidence", confidence, minimum=0, maximum=1)
        value = {"text": text, "category": category, "confidence": confidence}
        await self._write("fact", value, at, key)
        return fact_id(text, category)

    async def recall_facts(
        self, query: str = "", *, limit: int = 5, category: str = ""
    ) -> list[Fact]:
        """Return the active facts that share the most words with a query.

        They are weighted by confidence times relevance, which alone orders them without a query.
        """
        # A certain but outdated fact counts as much as a recent but doubtful one.
        weight = lambda fact: fact.confidence * fact.relevance
        facts = sorted(await self.facts(category), key=weight)
        return ranked(query, facts, lambda fact: fact.text, limit=limit, weight=weight)

    async def facts(self, category: str = "", *, status: str = "active") -> list[Fact]:
        """Return the facts of a category ("" for all) in order, by status ("" for any); see Fact.

        Raises:
            ConfigurationError: for an unknown status.
        """
        if status and status not in _STATUSES:
            hint = nearest(str(status), _STATUSES) or f"; use {', '.join(_STATUSES)}"
            raise ConfigurationError(f"memory: status: {status!r} is not a status of facts{hint}")
        facts = (await self.view(_FACTS)).facts.values()
        return [f for f in facts if category in ("", f.category) and status in ("", f.status)]

    async def _fact(self, fact: str) -> Fact:
        facts = (await self.view(_FACTS)).facts
        if fact not in facts:
            raise ConfigurationError(
                f"memory: {self.name}: there is no fact {fact!r}{nearest(fact, facts)}"
            )
        return facts[fact]

    async def reinforce(
        self, fact: str, *, at: float, strength: float = REINFORCEMENT, key: str = ""
    ) -> None:
        """Raise the confidence of a fact: c becomes c + (1 - c) * strength, with a strength from 0 to 1.

        Raises:
            ConfigurationError: if there is no such fact.
        """
        await self._fact(fact)
        codec.number("memory: strength", strength, minimum=0, maximum=1)
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
        """Lower the confidence of a fact: c becomes c * (1 - strength); below 0.1 it is not recalled."""
        await self._fact(fact)
        codec.number("memory: strength", strength, minimum=0, maximum=1)
        value = {"fact": fact, "reason": reason, "strength": strength}
        await self._write("contradicted", value, at, key)

    async def supersede(
        self, fact: str, text: str, *, at: float, confidence: float = 0.5, key: str = ""
    ) -> str:
        """Replace a fact by another in the same category, and return the id of the new one."""
        # The new fact keeps the category, so that it is read where the old one was.
        replaced = await self._fact(fact)
        codec.number("memory: confidence", confidence, minimum=0, maximum=1)
        by = {"text": text, "category": replaced.category, "confidence": confidence}
        await self._write("superseded", {"fact": fact, "by": by}, at, key)
        return fact_id(text, replaced.category)

    async def decay(self, *, at: float, half_life: float = 30 * 86400.0, key: str = "") -> None:
        """Lower the relevance of facts and episodes: it halves per `half_life` (seconds, default: 30 days)."""
        codec.number("memory: half_life", half_life, minimum=0, above=True)
        await self._write("decayed", {"half_life": half_life}, at, key)

    async def consolidate(self, *, at: float, least: int = 3, key: str = "") -> list[Fact]:
        """Summarise each action with `least` new episodes as a fact of the category `experience`.

        The fact has the number of successes, the mean score and the most frequent feedback, and replaces
        the earlier fact of the action. Its confidence is n / (n + 2) for n episodes. Two simultaneous
        calls create it once.
        """
        codec.integer("memory: least", least, minimum=1)
        # An effect that is repeated after a crash returns the facts of its first attempt.
        before = await self.memory.entries(self.name, kinds=("consolidated",))
        values = [item.value for item in before if key and item.value.get("by") == key]
        for value in consolidation(await self.view(_FACTS), least):
            values.append({**value, "by": key})
            await self._write(
                "consolidated", values[-1], at, f"consolidated {codec.canonical(value['episodes'])}"
            )
        facts = (await self.view(_FACTS)).facts if values else {}
        names = [fact_id(value["fact"]["text"], value["fact"]["category"]) for value in values]
        return [facts[name] for name in names]

    async def cleanup(
        self, *, at: float, relevance: float = 0.05, older_than: float = 90 * 86400.0, key: str = ""
    ) -> tuple[int, int]:
        """Retire facts and episodes of little use; return the numbers of retired facts and episodes.

        Retired are facts whose relevance times confidence is below `relevance`, and episodes older than
        `older_than` seconds (default: 90 days) that are consolidated or below `relevance`. They stay in
        the log.
        """
        codec.number("memory: relevance", relevance, minimum=0, maximum=1)
        codec.number("memory: older_than", older_than, minimum=0)
        # The moment is recorded, not the age: a later view must retire the same entries.
        await self._write("cleaned", {"relevance": relevance, "before": at - older_than}, at, key)
        view = await self.view(_FACTS)
        facts = sum(item.retired for item in view.facts.values())
        return facts, sum(item.retired for item in view.episodes.values())

    async def lessons(self, action: str = "", *, most: int = 5, facts: int = 5) -> Lessons:
        """Return the lessons of the latest `most` episodes of an action and the most certain `facts`."""
        return lessons_of(await self.view(_FACTS), action, most=most, facts=facts)

    async def note(self, value: Json, *, at: float, key: str = "") -> int:
        """Record a value of any kind and return its number."""
        return await self._write("note", value, at, key)

    async def notes(self, *, latest: int = 0) -> list[Json]:
        """Return the values recorded by `note` in order, only the `latest` ones; 0 is all."""
        view = view_of(await self.memory.entries(self.name, kinds=("note",), latest=latest))
        return [item.value for item in view.notes.values()]
