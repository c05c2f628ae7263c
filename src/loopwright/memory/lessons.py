"""Lessons of past runs for the next one: attempts, scores and feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from ..records import codec
from ..records.codec import Json
from ..records.excerpts import excerpt_line
from .records import Episode
from .view import View

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
        tuple(_lesson(item) for item in episodes) if most else (),
        tuple(fact.text for fact in certain[:facts]),
        view.success_rate(action).rate,
        view.unreadable,
    )


def _lesson(item: Episode) -> Lesson:
    return {
        "action": item.action,
        "outcome": item.outcome,
        "score": item.score,
        "description": item.description,
        "feedback": item.feedback,
        "tried": list(item.tried),
        # The names of the fields are part of recorded outputs and of templates.
        "said": [one.text for one in item.said],
        "at": item.at,
    }


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
