"""What past runs teach the next: what was tried, with which score, and what was said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import codec
from ..records.codec import Json
from .records import Episode
from .view import View

__all__ = ["Lessons", "lessons_of"]

_LONGEST = 300  # characters of a remark in the text that a prompt is given


@dataclass(frozen=True, slots=True)
class Lessons:
    """What past episodes teach, oldest first, with the facts that are surest.

    `to_json` has `text`, all of it in words for a prompt ("" if there is nothing), `lessons` with
    `action`, `outcome`, `score`, `feedback`, `tried` and `said` each, `facts` and `success_rate`.
    """

    lessons: tuple[Mapping[str, Json], ...] = ()
    facts: tuple[str, ...] = ()
    success_rate: float | None = None
    unreadable: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """The lessons as lines of text."""
        lines = [_line(item) for item in self.lessons]
        if lines:
            lines.insert(0, "What earlier runs came to, oldest first:")
        if self.facts:
            lines += ["What is known:", *(f"- {_cut(text)}" for text in self.facts)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "text": self.text,
            "lessons": [dict(item) for item in self.lessons],
            "facts": list(self.facts),
            "success_rate": self.success_rate,
        }


def lessons_of(view: View, action: str = "", *, most: int = 5, facts: int = 5) -> Lessons:
    """Return what the latest `most` episodes of an action teach, and the surest `facts`."""
    found = [item for item in view.live_episodes if action in ("", item.action)][-most:]
    known = sorted(view.live_facts, key=lambda f: f.confidence * f.relevance, reverse=True)
    return Lessons(
        tuple(_lesson(item) for item in found) if most else (),
        tuple(fact.text for fact in known[:facts]),
        view.success_rate(action).rate,
        view.unreadable,
    )


def _lesson(item: Episode) -> dict[str, Json]:
    return {
        "action": item.action,
        "outcome": item.outcome,
        "score": item.score,
        "description": item.description,
        "feedback": item.feedback,
        "tried": list(item.tried),
        "said": [one.text for one in item.said],
        "at": item.at,
    }


def _line(item: Mapping[str, Json]) -> str:
    score = "" if item["score"] is None else f" with score {item['score']:.2f}"
    about = f" ({_cut(item['description'])})" if item["description"] else ""
    told = [f"- {item['outcome']}{score}{about}"]
    for tried in item["tried"]:
        if isinstance(tried, Mapping):
            at = "" if tried.get("score") is None else f" {tried['score']:.2f}"
            said = f": {_cut(tried['feedback'])}" if tried.get("feedback") else ""
            told.append(f"  - tried {_cut(codec.text_of(tried.get('tried', '')))}{at}{said}")
        else:
            told.append(f"  - tried {_cut(codec.text_of(tried))}")
    told += [f"  - said: {_cut(text)}" for text in (item["feedback"], *item["said"]) if text]
    return "\n".join(told)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
