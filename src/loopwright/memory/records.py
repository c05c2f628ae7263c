"""The records of a memory: episodes, facts, notes and success rates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ..records.codec import Json

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
    data = f"{category}\n{words}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:8]
