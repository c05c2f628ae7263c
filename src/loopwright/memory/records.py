"""What is remembered: episodes, facts, notes, and how often something succeeded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..records.codec import Json

__all__ = ["OUTCOMES", "Episode", "Fact", "Feedback", "Note", "SuccessRate", "fact_id"]

OUTCOMES = ("success", "partial", "failure")
DOUBTED = 0.1  # a fact of less confidence is no longer recalled


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was said of an episode afterwards; `rating` from 0 to 1, if it was rated."""

    text: str
    rating: float | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that was done and how it went.

    `id` is the number of its entry. `action` is what kind of thing it was, `outcome` one of
    `success`, `partial`, `failure`, `score` from 0 to 1. `tried` is what was tried on the way, with
    `score` and `feedback` each. `relevance` halves with every half-life that `decay` is given.
    `retired`: a cleanup left it out of what is recalled.
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
        """The words by which it is found."""
        said = " ".join(item.text for item in self.said)
        return f"{self.action} {self.description} {self.feedback} {said}"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {**asdict(self), "tried": list(self.tried), "said": [asdict(f) for f in self.said]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Episode:
        """Return the episode that `to_json` wrote."""
        said = tuple(Feedback(**item) for item in data["said"])
        return cls(**{**data, "tried": tuple(data["tried"]), "said": said})


@dataclass(frozen=True, slots=True)
class Fact:
    """Something held to be true, with a confidence from 0 to 1.

    `id` is made of its category and words (`fact_id`), so that remembering the same again
    reinforces it. `sources` are the episodes that it was consolidated from. `relevance` halves with
    every half-life that `decay` is given.
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
    def from_json(cls, data: Mapping[str, Any]) -> Fact:
        """Return the fact that `to_json` wrote."""
        fields = {key: value for key, value in data.items() if key != "status"}
        lists = {key: tuple(data[key]) for key in ("contradictions", "sources")}
        return cls(**{**fields, **lists})


@dataclass(frozen=True, slots=True)
class Note:
    """Any value that was kept, with when and by which run."""

    seq: int
    value: Json
    at: float
    run: str = ""


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How many episodes ended how. `rate` is the share of successes, None if there is no episode:
    a partial one is no success."""

    successes: int = 0
    partial: int = 0
    failures: int = 0

    @property
    def total(self) -> int:
        """How many episodes there are."""
        return self.successes + self.partial + self.failures

    @property
    def rate(self) -> float | None:
        """The share of successes."""
        return self.successes / self.total if self.total else None

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {**asdict(self), "total": self.total, "rate": self.rate}


def fact_id(text: str, category: str = "") -> str:
    """Return the id of a fact: 8 hexadecimal digits of its category and words, without case."""
    words = " ".join(text.split()).casefold()
    data = f"{category}\n{words}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:8]
