"""Validators: agents that judge by the criteria of a preset, each true or false.

A reply that answers fewer than half of the criteria is not a judgement. The agent is asked once more; then
its judgement is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ...engine.context import Context
from ...models.reply_text import clean_text, own_words
from ...prompts.prompt import Prompt, Reask
from ...records import Result
from ...records.codec import Json
from ..parsing.answers import objects_in
from ..presets import approved_at, improvable_at, preset, weighted

__all__ = ["UNDECIDED", "Criteria", "Validator", "criteria_of"]

_TRUE = ("true", "yes", "pass", "passed", "1")
# The words of the judgement and the members of `read` are those of the loop-node dialect.
UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class Criteria:
    """A preset: weights by `dimension.criterion`, and the scores for approval and improvement."""

    weights: Mapping[str, float]
    approved: float
    improvable: float

    @property
    def instruction(self) -> str:
        """The end of a validator's prompt: the criteria and the form of the answer."""
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
        result: dict[str, list[str]] = {}
        for name in self.weights:
            dimension, _, criterion = name.partition(".")
            result.setdefault(dimension, []).append(criterion)
        return result

    def read(self, text: str) -> dict[str, Json]:
        """Return the answers of a reply with both scores: the share of criteria and of weights."""
        answers = self._booleans(own_words(text, value=True))
        result = weighted(answers, self.weights)
        if result is None:
            return _undecided(text)
        score, failed = result
        passed = [name for name in self.weights if name not in failed]
        share = round(len(passed) / len(self.weights), 4)
        word = "APPROVED" if score >= self.approved else "NEEDS_IMPROVEMENT"
        word = word if score >= self.improvable else "REJECTED"
        return {
            "response": f"{word} (score {score:g})"
            + (f"; missing: {', '.join(failed)}" if failed else ""),
            "boolean_evaluations": answers,
            "validation_score": share,
            "weighted_score": score,
            "dimension_scores": self._by_dimension(passed),
            "passed_criteria": list(passed),
            "failed_criteria": list(failed),
            "overall_assessment": word,
        }

    def _by_dimension(self, passed: Collection[str]) -> dict[str, Json]:
        """Return for each dimension its weight, the weight that holds, and the percentage."""
        result: dict[str, Json] = {}
        for dimension, names in self.dimensions.items():
            members = [f"{dimension}.{name}" for name in names]
            maximum = sum(self.weights[name] for name in members)
            score = sum(self.weights[name] for name in members if name in passed)
            result[dimension] = {
                "score": round(score, 4),
                "max_score": round(maximum, 4),
                "percentage": round(100 * score / maximum, 1) if maximum else 0.0,
            }
        return result

    def _booleans(self, text: str) -> dict[str, Json]:
        """Read the answers from JSON, otherwise each behind its name in the text. Others are left out."""
        data = next((o for o in objects_in(text) if any(d in o for d in self.dimensions)), None)
        flat = next(iter(objects_in(text)), {})
        # Models without JSON output answer in lines such as "complete: true".
        plain = clean_text(text)
        result: dict[str, Json] = {}
        for dimension, names in self.dimensions.items():
            members = data.get(dimension) if data is not None else None
            # Some models answer with one flat object instead of one object for each dimension.
            values: Mapping[str, Json] = members if isinstance(members, Mapping) else flat
            read = {n: _true(values[n]) if n in values else _in_text(n, plain) for n in names}
            result[dimension] = {n: holds for n, holds in read.items() if holds is not None}
        return result


def _undecided(text: str) -> dict[str, Json]:
    """Return the judgement of a reply with too few answers."""
    return {
        "response": f"{UNDECIDED}: the criteria could not be read in the reply",
        "reply": text,
        "validation_score": None,
        "passed_criteria": [],
        "failed_criteria": [],
        "overall_assessment": UNDECIDED,
    }


def _true(value: object) -> bool:
    return value is True or str(value).strip().lower() in _TRUE


def _in_text(name: str, text: str) -> bool | None:
    words = name.replace("_", r"[_\s-]")
    match = re.search(
        rf"{words}\W{{0,12}}(true|false|yes|no|passe?d?|fail(?:ed)?)\b",
        text[:200_000],  # bounds the time of one search for each criterion
        re.IGNORECASE,
    )
    return None if match is None else match[1].lower() in _TRUE


class Validator(Prompt):
    """A prompt whose reply answers criteria. It is asked once more if they cannot be read."""

    criteria: Criteria

    async def run(self, value: Json, ctx: Context) -> Result:
        """Ask, and once more if the reply is unreadable. Then the output is an undecided judgement."""
        result = await super().run(value, ctx)
        output: Json = result.output
        if output["overall_assessment"] != UNDECIDED:
            return result
        complaint = f"That reply does not judge the criteria. Reply once more.\n\n{self.criteria.instruction}"
        request = {"reply": output["reply"], "complaint": complaint}
        # An effect with its own path, so that a resumed run does not ask again.
        output = await ctx.call("re_ask", Reask(self, self.name), request)
        if output["overall_assessment"] == UNDECIDED:
            ctx.warn(
                "the criteria could not be read in two replies: the judgement is undecided",
                code="criteria_unreadable",
            )
        return replace(result, output=output)


def criteria_of(level: str, context: str, custom: Mapping[str, float] | None = None) -> Criteria:
    """Return the criteria of a preset.

    Raises:
        ConfigurationError: For an unknown level, context or criterion, with the nearest one.
    """
    return Criteria(
        preset(level, context, custom), approved_at(level, context), improvable_at(level, context)
    )
