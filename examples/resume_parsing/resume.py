"""Resume parsing by strategies: read with one, judge what it found, go on with the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from strategies import STRATEGIES

from loopwright import Evaluation

FIELDS = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "email": {"type": "string"},
        "phone": {"type": "string"},
        "skills": {"type": "array", "items": {"type": "string"}},
        "experience": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "company": {"type": "string"},
                    "from": {"type": "integer"},
                    "to": {"type": ["integer", "null"]},
                },
                "required": ["title", "company", "from", "to"],
                "additionalProperties": False,
            },
        },
        "education": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"degree": {"type": "string"}, "school": {"type": "string"}},
                "required": ["degree", "school"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["name", "email", "phone", "skills", "experience", "education"],
    "additionalProperties": False,
}


def parse(task: dict[str, Any]) -> dict[str, Any]:
    """Read the `resume` of a task by the strategy that it names."""
    return STRATEGIES[task["strategy"]](task["resume"])


def judge(found: dict[str, Any]) -> Evaluation:
    """Judge fields without knowing the answer: the share of them that is there and can be true."""
    scores = {
        "name": float(bool(re.fullmatch(r"\S+( \S+){1,3}", found["name"]))),
        "email": float(bool(re.fullmatch(r"[^@\s]+@[^@\s]+\.\w{2,}", found["email"]))),
        "phone": float(7 <= len(re.sub(r"\D", "", found["phone"])) <= 15),
        "skills": _share(found["skills"], _can_be_skill, least=3),
        "experience": _share(found["experience"], _can_be_job, least=1),
        "education": _share(found["education"], _can_be_school, least=1),
    }
    missing = tuple(name for name, score in scores.items() if score < 1)
    feedback = f"to be found or corrected: {', '.join(missing)}" if missing else "all fields found"
    return Evaluation(round(sum(scores.values()) / len(scores), 4), not missing, feedback, missing)


def _share(items: Sequence[Any], can_be: Callable[[Any], bool], least: int) -> float:
    return sum(map(can_be, items)) / max(least, len(items))


def _can_be_skill(text: str) -> bool:
    return 1 <= len(text.split()) <= 4 and len(text) <= 30 and not re.search(r"\d{3}|@|[:()]", text)


def _can_be_job(job: dict[str, Any]) -> bool:
    named = all(_can_be_name(job[key]) for key in ("title", "company"))
    last = job["to"] or 2100
    return named and 1950 <= job["from"] <= last <= 2100


def _can_be_school(item: dict[str, Any]) -> bool:
    return all(_can_be_name(item[key]) for key in ("degree", "school"))


def _can_be_name(text: str) -> bool:
    return 1 <= len(text.split()) <= 6 and not re.search(r"\d{2}|@", text)
