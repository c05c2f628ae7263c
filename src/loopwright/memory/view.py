"""The present content of a space, computed from its entries in order: episodes, facts, notes and success rates.

Formulas, all defined by Loopwright:

- reinforced: confidence c becomes c + (1 - c) * strength; relevance becomes 1
- contradicted: c becomes c * (1 - strength); below 0.1 a fact is doubted and not recalled
- decayed: relevance r becomes r * 2 ** (-t / half_life), t seconds since it was appended, reinforced,
  contradicted or last decayed
- consolidated: the confidence of a fact from n episodes is n / (n + 2)
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from ..records.codec import Json
from .entries import MemoryEntry, origin

OUTCOMES = ("success", "partial", "failure")
# A fact with less confidence is not recalled; four contradictions of a new fact reach it.
DOUBTED = 0.1


@dataclass(frozen=True, slots=True)
class Feedback:
    """Later feedback on an episode.

    Args:
        text: the feedback.
        rating: from 0 to 1, or None.
        at: seconds since the epoch.
    """

    text: str
    rating: float | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """A recorded action and its outcome.

    Args:
        id: the number of its entry.
        action: the kind of action.
        outcome: `success`, `partial` or `failure`.
        at: seconds since the epoch.
        description: the action in words.
        score: from 0 to 1, or None.
        feedback: the feedback at its end.
        tried: the attempts, each with `score` and `feedback`.
        context: any further value.
        run: the id of the run.
        said: later feedback.
        relevance: from 0 to 1; halves with every half-life of `decay`.
        touched: when it was last decayed, in seconds since the epoch.
        consolidated: a fact summarises it.
        retired: a cleanup removed it from recall.
    """

    id: int
    action: str
    outcome: str
    at: float
    description: str = ""
    score: float | None = None
    feedback: str = ""
    tried: tuple[Json, ...] = ()
    context: Json = None
    run: str = ""
    said: tuple[Feedback, ...] = ()
    relevance: float = 1.0
    touched: float = 0.0
    consolidated: bool = False
    retired: bool = False

    @property
    def text(self) -> str:
        """The words that `recall` searches."""
        said = " ".join(item.text for item in self.said)
        return f"{self.action} {self.description} {self.feedback} {said}"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {**asdict(self), "tried": list(self.tried), "said": [asdict(f) for f in self.said]}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Episode:
        """Return the episode that `to_json` wrote."""
        said = tuple(Feedback(**item) for item in data["said"])
        return cls(**{**data, "tried": tuple(data["tried"]), "said": said})


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement with a confidence.

    Args:
        id: the hash of its category and words (`fact_id`), so that recording it again reinforces it.
        text: the statement.
        category: any word.
        confidence: from 0 to 1.
        at: when it was recorded, in seconds since the epoch.
        touched: when it last changed, in seconds since the epoch.
        relevance: from 0 to 1; halves with every half-life of `decay`.
        reinforced, contradicted: how many times each.
        contradictions: the reasons of contradictions.
        sources: the ids of the episodes that it summarises.
        superseded_by: the id of the fact that replaced it.
        retired: a cleanup removed it from recall.
    """

    id: str
    text: str
    category: str
    confidence: float
    at: float
    touched: float
    relevance: float = 1.0
    reinforced: int = 0
    contradicted: int = 0
    contradictions: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    superseded_by: str = ""
    retired: bool = False

    @property
    def status(self) -> str:
        """`active`, `superseded`, `retired` (by a cleanup) or `doubted` (confidence below 0.1)."""
        # In this order: a superseded fact stays superseded, whatever a cleanup does.
        if self.superseded_by:
            return "superseded"
        if self.retired:
            return "retired"
        return "active" if self.confidence >= DOUBTED else "doubted"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        lists = {"contradictions": list(self.contradictions), "sources": list(self.sources)}
        return {**asdict(self), **lists, "status": self.status}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Fact:
        """Return the fact that `to_json` wrote."""
        # Computed from the other fields.
        fields = {key: value for key, value in data.items() if key != "status"}
        lists = {key: tuple(data[key]) for key in ("contradictions", "sources")}
        return cls(**{**fields, **lists})


@dataclass(frozen=True, slots=True)
class Note:
    """A recorded value.

    Args:
        seq: the number of its entry.
        value: the value, as JSON.
        at: seconds since the epoch.
        run: the id of the run.
    """

    seq: int
    value: Json
    at: float
    run: str = ""


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """The numbers of outcomes of episodes.

    Args:
        successes, partial, failures: the number of episodes with the outcome.

    Example:
        >>> SuccessRate(successes=3, failures=1).rate
        0.75
    """

    successes: int = 0
    partial: int = 0
    failures: int = 0

    @property
    def total(self) -> int:
        """The number of episodes."""
        return self.successes + self.partial + self.failures

    @property
    def rate(self) -> float | None:
        """The share of successes, from 0 to 1, partial ones excluded; None without episodes."""
        # None and not 0: without episodes nothing has failed.
        return self.successes / self.total if self.total else None

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {**asdict(self), "total": self.total, "rate": self.rate}


def fact_id(text: str, category: str = "") -> str:
    """Return the id of a fact: 8 hexadecimal digits of the SHA-256 of its category and case-folded words.

    Args:
        text: the statement.
        category: its category (default: "").
    """
    # Case and spaces do not make another fact, and a short id is easier for a model to repeat.
    words = " ".join(text.split()).casefold()
    return hashlib.sha256(f"{category}\n{words}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


Key = TypeVar("Key")
Remembered = TypeVar("Remembered", Fact, Episode)
REINFORCEMENT = 0.2
# One contradiction outweighs two or three confirmations, because a wrong fact costs more.
CONTRADICTION = 0.4


@dataclass
class View:
    """The present content of a space.

    Args:
        working: the working memory of each run by its id; "" is that of no run.
        episodes, facts: by id.
        notes: by the origin of their key.
        unreadable: the number of entries that are damaged or have an unknown form.
        origins: the numbers of episodes by the origin of their key.
    """

    working: dict[str, dict[str, Json]] = field(default_factory=dict)
    episodes: dict[int, Episode] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)
    unreadable: int = 0
    origins: dict[str, int] = field(default_factory=dict)

    @property
    def live_episodes(self) -> list[Episode]:
        """The episodes that are recalled, in order."""
        return [item for item in self.episodes.values() if not item.retired]

    @property
    def live_facts(self) -> list[Fact]:
        """The facts that are recalled, in the order of their first record."""
        return [item for item in self.facts.values() if item.status == "active"]

    def success_rate(self, action: str = "") -> SuccessRate:
        """Return the outcomes of the episodes of an action ("" for all), retired ones included."""
        # Retired ones too, because a cleanup must not change the statistics.
        outcomes = [e.outcome for e in self.episodes.values() if not action or e.action == action]
        return SuccessRate(*(outcomes.count(word) for word in ("success", "partial", "failure")))


def view_of(entries: Iterable[MemoryEntry]) -> View:
    """Return the view of the entries of one space; unreadable entries are counted, not raised.

    Args:
        entries: the entries, in order.
    """
    view = View()
    for item in entries:
        fold = _FOLDS.get(item.kind)
        try:
            if fold is None:
                raise ValueError(item.kind)
            fold(view, item, item.value)
        # An entry of a newer version must not make the others unreadable.
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            view.unreadable += 1
    return view


def _set(view: View, item: MemoryEntry, value: Json) -> None:
    view.working.setdefault(item.run, {})[value["name"]] = value["value"]


def _deleted(view: View, item: MemoryEntry, value: Json) -> None:
    view.working.get(item.run, {}).pop(value["name"], None)


def _cleared(view: View, item: MemoryEntry, _: Json) -> None:
    # Only the run that clears it: other runs share the space.
    view.working.pop(item.run, None)


def _episode(view: View, item: MemoryEntry, value: Json) -> None:
    episode = Episode(
        id=item.seq,
        action=str(value["action"]),
        outcome=str(value["outcome"]),
        at=item.at,
        description=str(value.get("description", "")),
        score=value.get("score"),
        feedback=str(value.get("feedback", "")),
        tried=tuple(value.get("tried", ())),
        context=value.get("context"),
        run=item.run,
        touched=item.at,
    )
    if item.key:  # the repetition in a rewound run replaces the first episode
        view.episodes.pop(view.origins.pop(origin(item.key), 0), None)
        view.origins[origin(item.key)] = item.seq
    view.episodes[item.seq] = episode


def _feedback(view: View, item: MemoryEntry, value: Json) -> None:
    episode = view.episodes[value["episode"]]
    said = Feedback(str(value["text"]), value.get("rating"), item.at)
    view.episodes[episode.id] = replace(episode, said=(*episode.said, said))


def _fact(view: View, item: MemoryEntry, value: Json) -> None:
    text, category = str(value["text"]), str(value.get("category", ""))
    existing = view.facts.get(fact_id(text, category))
    # Recording a fact again confirms it; its first confidence stays the basis.
    if existing is not None and existing.status != "superseded":
        _reinforced(view, item, {"fact": existing.id, "strength": REINFORCEMENT})
        return
    fact = Fact(
        id=fact_id(text, category),
        text=text,
        category=category,
        # 0.5 is neither trusted nor doubted.
        confidence=float(value.get("confidence", 0.5)),
        at=item.at,
        touched=item.at,
        sources=tuple(value.get("sources", ())),
    )
    view.facts[fact.id] = fact


def _reinforced(view: View, item: MemoryEntry, value: Json) -> None:
    fact = view.facts[value["fact"]]
    confidence = fact.confidence + (1 - fact.confidence) * float(value["strength"])
    view.facts[fact.id] = replace(
        fact, confidence=confidence, relevance=1.0, touched=item.at,
        reinforced=fact.reinforced + 1, retired=False,
    )  # fmt: skip


def _contradicted(view: View, item: MemoryEntry, value: Json) -> None:
    fact = view.facts[value["fact"]]
    reasons = [str(value["reason"])] if value.get("reason") else []
    view.facts[fact.id] = replace(
        fact, confidence=fact.confidence * (1 - float(value["strength"])), touched=item.at,
        contradicted=fact.contradicted + 1, contradictions=(*fact.contradictions, *reasons),
    )  # fmt: skip


def _superseded(view: View, item: MemoryEntry, value: Json) -> None:
    fact = view.facts[value["fact"]]
    new = value["by"]
    by = fact_id(str(new["text"]), str(new.get("category", "")))
    if by == fact.id:  # the same words: nothing changes
        return
    view.facts[fact.id] = replace(fact, superseded_by=by, touched=item.at)
    _fact(view, item, new)


def _decayed(view: View, item: MemoryEntry, value: Json) -> None:
    half_life = float(value["half_life"])
    _fade(view.facts, item.at, half_life)
    _fade(view.episodes, item.at, half_life)


def _fade(table: dict[Key, Remembered], at: float, half_life: float) -> None:
    # Relevance fades from the last use, so that a fact in use stays relevant.
    for key, item in table.items():
        # Two processes may append with clocks that differ.
        age = max(0.0, at - item.touched)
        relevance = item.relevance * 2.0 ** (-age / half_life)
        table[key] = replace(item, relevance=relevance, touched=max(at, item.touched))


def _consolidated(view: View, item: MemoryEntry, value: Json) -> None:
    # Consolidated episodes stay recalled; only a cleanup may retire them earlier.
    for number in value["episodes"]:
        if number in view.episodes:
            view.episodes[number] = replace(view.episodes[number], consolidated=True)
    # The sources are the numbers of episodes, which stay in the log after a cleanup.
    new = {**value["fact"], "sources": value["episodes"]}
    former = view.facts.get(value.get("supersedes", ""))
    if former is None:
        _fact(view, item, new)
    else:
        _superseded(view, item, {"fact": former.id, "by": new})


def _cleaned(view: View, item: MemoryEntry, value: Json) -> None:
    minimum, before = float(value["relevance"]), float(value["before"])
    for name, fact in view.facts.items():
        if fact.relevance * fact.confidence < minimum:
            view.facts[name] = replace(fact, retired=True)
    for number, episode in view.episodes.items():
        if episode.at < before and (episode.consolidated or episode.relevance < minimum):
            view.episodes[number] = replace(episode, retired=True)


def _note(view: View, item: MemoryEntry, value: Json) -> None:
    place = origin(item.key) or str(item.seq)
    # The note of a rewound run is replaced by that of its repetition.
    view.notes[place] = Note(item.seq, value, item.at, item.run)


_FOLDS: Mapping[str, Callable[[View, MemoryEntry, Json], None]] = {
    "set": _set, "deleted": _deleted, "cleared": _cleared, "episode": _episode,
    "feedback": _feedback, "fact": _fact, "reinforced": _reinforced,
    "contradicted": _contradicted, "superseded": _superseded, "decayed": _decayed,
    "consolidated": _consolidated, "cleaned": _cleaned, "note": _note,
}  # fmt: skip

EXPERIENCE = "experience"  # the category of facts that summarise episodes
_REMARKS = 2  # the most frequent feedback texts in such a fact


def consolidation(view: View, minimum: int) -> list[dict[str, Json]]:
    """Return the values of `consolidated` entries: one for each action with `least` new episodes."""
    values = []
    for action in dict.fromkeys(item.action for item in view.live_episodes):
        episodes = [item for item in view.live_episodes if item.action == action]
        # Only new episodes count: otherwise each call would write the same fact again.
        if sum(not item.consolidated for item in episodes) < minimum:
            continue
        # All episodes of the action, because the new fact replaces the former one.
        count = len(episodes)
        fact = {
            "text": _summary(action, episodes, view.success_rate(action)),
            "category": EXPERIENCE,
            # Few episodes give little confidence.
            "confidence": count / (count + 2),
        }
        former = next(
            (
                fact.id
                for fact in view.live_facts
                if fact.category == EXPERIENCE and fact.text.startswith(f"{action}: ")
            ),
            "",
        )
        numbers = [item.id for item in episodes]
        values.append({"action": action, "episodes": numbers, "fact": fact, "supersedes": former})
    return values


def _summary(action: str, episodes: list[Episode], rate: SuccessRate) -> str:
    scores = [item.score for item in episodes if item.score is not None]
    text = f"{action}: {rate.successes} of {rate.total} succeeded"
    if scores:
        text += f", mean score {sum(scores) / len(scores):.2f}"
    feedback = Counter(
        remark
        for item in episodes
        for remark in (item.feedback, *(one.text for one in item.said))
        if remark
    )
    remarks = "; ".join(" ".join(one.split())[:200] for one, _ in feedback.most_common(_REMARKS))
    return f"{text}; said most often: {remarks}" if remarks else text
