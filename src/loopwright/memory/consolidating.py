"""Episodes of one action told as one fact."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .records import Episode, SuccessRate
from .view import View

__all__ = ["EXPERIENCE", "consolidation"]

EXPERIENCE = "experience"  # the category of facts that were made of episodes
_SAID = 2  # remarks that such a fact repeats


def consolidation(view: View, least: int) -> list[dict[str, Any]]:
    """Return the values of `consolidated` entries: one for each action with `least` new episodes."""
    made = []
    for action in dict.fromkeys(item.action for item in view.live_episodes):
        episodes = [item for item in view.live_episodes if item.action == action]
        if sum(not item.consolidated for item in episodes) < least:
            continue
        count = len(episodes)
        fact = {
            "text": _told(action, episodes, view.success_rate(action)),
            "category": EXPERIENCE,
            "confidence": count / (count + 2),
        }
        former = next((f.id for f in view.live_facts if _about(f.category, f.text, action)), "")
        numbers = [item.id for item in episodes]
        made.append({"action": action, "episodes": numbers, "fact": fact, "supersedes": former})
    return made


def _about(category: str, text: str, action: str) -> bool:
    return category == EXPERIENCE and text.startswith(f"{action}: ")


def _told(action: str, episodes: list[Episode], rate: SuccessRate) -> str:
    scores = [item.score for item in episodes if item.score is not None]
    told = f"{action}: {rate.successes} of {rate.total} succeeded"
    if scores:
        told += f", mean score {sum(scores) / len(scores):.2f}"
    said = Counter(
        text
        for item in episodes
        for text in (item.feedback, *(one.text for one in item.said))
        if text
    )
    remarks = "; ".join(" ".join(text.split())[:200] for text, _ in said.most_common(_SAID))
    return f"{told}; said most often: {remarks}" if remarks else told
