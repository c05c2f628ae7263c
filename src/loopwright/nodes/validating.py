"""Validators: agents that judge by the criteria of a preset, each true or false."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..codec import Json
from ..evaluators.presets import approved_at, improvable_at, preset, weighted
from ..evaluators.text import clean_text
from .outputs import objects_in, without_thinking

__all__ = ["Criteria", "criteria_of"]

_TRUE = ("true", "yes", "pass", "passed", "1")


@dataclass(frozen=True)
class Criteria:
    """A preset: weights by `dimension.criterion`, and the scores from which it approves."""

    weights: Mapping[str, float]
    approved: float
    improvable: float

    @property
    def said(self) -> str:
        """What is added to a validator's prompt: the criteria, and the form of the answer."""
        form = ", ".join(
            f'"{dimension}": {{{", ".join(f"{chr(34)}{name}{chr(34)}: true or false" for name in names)}}}'
            for dimension, names in self.dimensions.items()
        )
        return (
            "Judge each criterion by itself; what you cannot tell does not hold.\n"
            f"Answer with JSON only, in this form:\n{{{form}}}"
        )

    @property
    def dimensions(self) -> dict[str, list[str]]:
        """The criteria by dimension."""
        found: dict[str, list[str]] = {}
        for name in self.weights:
            dimension, _, criterion = name.partition(".")
            found.setdefault(dimension, []).append(criterion)
        return found

    def read(self, text: str) -> dict[str, Json]:
        """Return a reply as booleans with both scores: the share that holds, and its weight."""
        found = self._booleans(without_thinking(text))
        whole = weighted(found, self.weights)
        score, failed = whole if whole is not None else (0.0, list(self.weights))
        passed = [name for name in self.weights if name not in failed]
        share = round(len(passed) / len(self.weights), 4)
        word = "APPROVED" if score >= self.approved else "NEEDS_IMPROVEMENT"
        word = word if score >= self.improvable else "REJECTED"
        scores = {
            d: _share([f"{d}.{c}" in passed for c in names]) for d, names in self.dimensions.items()
        }
        return {
            "response": f"{word} (score {score:g})"
            + (f"; missing: {', '.join(failed)}" if failed else ""),
            "boolean_evaluations": found,
            "validation_score": share,
            "weighted_score": score,
            "dimension_scores": scores,
            "passed_criteria": list(passed),
            "failed_criteria": list(failed),
            "overall_assessment": word,
        }

    def _booleans(self, text: str) -> dict[str, Json]:
        """Read the criteria out of JSON, else each behind its name in the text."""
        data = next((o for o in objects_in(text) if any(d in o for d in self.dimensions)), None)
        flat = next(iter(objects_in(text)), {})
        plain = clean_text(text)
        found: dict[str, Json] = {}
        for dimension, names in self.dimensions.items():
            members = data.get(dimension) if data is not None else None
            given: Mapping[str, Any] = members if isinstance(members, Mapping) else flat
            found[dimension] = {
                n: _true(given[n]) if n in given else _told(n, plain) for n in names
            }
        return found


def _share(held: Sequence[bool]) -> float:
    return round(sum(held) / len(held), 4)


def _true(value: object) -> bool:
    return value is True or str(value).strip().lower() in _TRUE


def _told(name: str, text: str) -> bool:
    words = name.replace("_", r"[_\s-]")
    found = re.search(
        rf"{words}\W{{0,12}}(true|false|yes|no|passe?d?|fail(?:ed)?)\b",
        text[:200_000],
        re.IGNORECASE,
    )
    return found is not None and found[1].lower() in _TRUE


def criteria_of(level: str, context: str, custom: Mapping[str, float] | None = None) -> Criteria:
    """Return the criteria of a preset.

    Raises:
        ConfigurationError: for an unknown level, context or criterion, with the nearest one.
    """
    return Criteria(
        preset(level, context, custom), approved_at(level, context), improvable_at(level, context)
    )
