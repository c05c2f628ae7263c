"""Scoring presets of the loop node, and the agents that judge by them, each criterion true or false.

A preset has criteria with weights that sum to 1, strict, moderate or lenient; a criterion is written
`dimension.criterion`. Source: the presets of the loop-node dialect.

A reply that answers fewer than half of the criteria is not a judgement. The agent is asked once more; then
its judgement is undecided.

The question of a judge that asks for all criteria of a preset in one call.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...engine.context import Context
from ...errors import ConfigurationError, nearest
from ...evaluators.answers import Object, objects_in, plain
from ...evaluators.judge_questions import DATA, MARK, Vote, block, joined, object_of, own_objects
from ...evaluators.verdicts import Verdict
from ...models import Message, Reply
from ...models.reply_text import clean_text, own_words
from ...prompts.prompt import Prompt, Reask, Text
from ...records import Result
from ...records.codec import Json

__all__ = [
    "CONTEXTS",
    "LEVELS",
    "UNDECIDED",
    "Criteria",
    "PresetQuestion",
    "Validator",
    "approved_at",
    "context_of",
    "criteria_of",
    "improvable_at",
    "preset",
    "question",
    "weighted",
]

LEVELS = ("strict", "moderate", "lenient")

# context -> criterion -> weight for strict, moderate, lenient
_WEIGHTS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "loop_convergence": {
        "improvement.better_than_previous": (0.30, 0.25, 0.25),
        "improvement.significant_delta": (0.15, 0.15, 0.12),
        "improvement.approaching_target": (0.10, 0.10, 0.08),
        "stability.not_degrading": (0.15, 0.18, 0.20),
        "stability.consistent_direction": (0.10, 0.12, 0.15),
        "convergence.delta_decreasing": (0.10, 0.12, 0.10),
        "convergence.within_tolerance": (0.10, 0.08, 0.10),
    },
    "quality": {
        "accuracy.factually_correct": (0.25, 0.22, 0.20),
        "accuracy.addresses_question": (0.20, 0.18, 0.15),
        "accuracy.no_hallucinations": (0.15, 0.12, 0.10),
        "completeness.comprehensive_answer": (0.15, 0.18, 0.20),
        "completeness.includes_examples": (0.05, 0.08, 0.10),
        "clarity.well_structured": (0.08, 0.10, 0.12),
        "clarity.easy_to_understand": (0.07, 0.07, 0.08),
        "relevance.stays_on_topic": (0.05, 0.05, 0.05),
    },
    "graphscout": {
        "completeness.has_all_required_steps": (0.20, 0.18, 0.15),
        "completeness.addresses_all_query_aspects": (0.15, 0.12, 0.10),
        "completeness.handles_edge_cases": (0.10, 0.08, 0.05),
        "completeness.includes_fallback_path": (0.10, 0.07, 0.05),
        "efficiency.minimizes_redundant_calls": (0.08, 0.10, 0.12),
        "efficiency.uses_appropriate_agents": (0.08, 0.10, 0.12),
        "efficiency.optimizes_cost": (0.04, 0.05, 0.06),
        "efficiency.optimizes_latency": (0.04, 0.05, 0.06),
        "safety.validates_inputs": (0.06, 0.08, 0.10),
        "safety.handles_errors_gracefully": (0.05, 0.07, 0.08),
        "safety.has_timeout_protection": (0.03, 0.03, 0.04),
        "safety.avoids_risky_combinations": (0.02, 0.02, 0.02),
        "coherence.logical_agent_sequence": (0.03, 0.03, 0.03),
        "coherence.proper_data_flow": (0.01, 0.01, 0.01),
        "coherence.no_conflicting_actions": (0.01, 0.01, 0.01),
    },
    "validation": {
        "schema_compliance.matches_schema": (0.30, 0.25, 0.20),
        "schema_compliance.all_required_fields": (0.20, 0.20, 0.18),
        "schema_compliance.correct_types": (0.15, 0.15, 0.15),
        "constraints.within_bounds": (0.15, 0.18, 0.20),
        "constraints.valid_relationships": (0.10, 0.12, 0.15),
        "format.well_formed": (0.10, 0.10, 0.12),
    },
}
_APPROVED: Mapping[str, tuple[float, float, float]] = {
    "graphscout": (0.90, 0.85, 0.80),
    "quality": (0.90, 0.85, 0.75),
    "loop_convergence": (0.90, 0.85, 0.75),
    "validation": (0.95, 0.90, 0.80),
}
_IMPROVABLE: Mapping[str, tuple[float, float, float]] = {
    "graphscout": (0.75, 0.70, 0.65),
    "quality": (0.75, 0.70, 0.60),
    "loop_convergence": (0.75, 0.70, 0.60),
    "validation": (0.85, 0.75, 0.65),
}
CONTEXTS = tuple(_WEIGHTS)
# Models also write the booleans as text or as a number.
_MET = ("true", "yes", "1", "pass", "passed")


def preset(level: str, context: str, custom: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the weights of a preset by criterion, changed by `custom` and scaled to a sum of 1.

    Raises:
        ConfigurationError: For an unknown level, context or criterion, with the nearest one.
    """
    if level not in LEVELS:
        raise ConfigurationError(f"scoring: unknown preset {level!r}{nearest(level, LEVELS)}")
    if context not in _WEIGHTS:
        raise ConfigurationError(
            f"scoring: unknown context {context!r}{nearest(context, CONTEXTS)}"
        )
    column = LEVELS.index(level)
    weights = {name: row[column] for name, row in _WEIGHTS[context].items()}
    for name, weight in (custom or {}).items():
        if name not in weights:
            raise ConfigurationError(f"scoring: unknown criterion {name!r}{nearest(name, weights)}")
        weights[name] = weight
    # `custom` replaces single weights, so the sum may differ from 1.
    total = sum(weights.values())
    if min(weights.values()) < 0 or not total > 0:
        raise ConfigurationError(
            "scoring: custom_weights: weights must be at least 0, and one must be above 0"
        )
    return {name: weight / total for name, weight in weights.items()}


def context_of(names: Collection[str], *, default: str) -> str:
    """Return the context that has most of these criteria, or `default` if no other has more."""
    order = sorted(CONTEXTS, key=lambda context: context != default)
    return max(order, key=lambda context: sum(name in _WEIGHTS[context] for name in names))


def approved_at(level: str, context: str) -> float:
    """Return the score from which a preset approves."""
    return _APPROVED[context][LEVELS.index(level)]


def improvable_at(level: str, context: str) -> float:
    """Return the score from which a preset asks for improvement instead of rejecting."""
    return _IMPROVABLE[context][LEVELS.index(level)]


def weighted(answers: object, weights: Mapping[str, float]) -> tuple[float, list[str]] | None:
    """Return the weighted share of the criteria that hold, to 4 decimals, and the failing criteria.

    `answers` is `{dimension: {criterion: true}}`. A missing criterion fails. With fewer than half of the
    criteria it is not an evaluation by this preset, and None is returned.
    """
    if not isinstance(answers, Mapping):
        return None
    flat = {
        f"{dimension}.{criterion}": value
        for dimension, members in answers.items()
        if isinstance(members, Mapping)
        for criterion, value in members.items()
    }
    return _share(flat, weights)


def _share(
    flat: Mapping[str, object], weights: Mapping[str, float]
) -> tuple[float, list[str]] | None:
    """Return what `weighted` does, for the answers by `dimension.criterion`."""
    # A reply about other criteria must not score as a bad output.
    answered = [name for name in weights if name in flat]
    if len(answered) * 2 < len(weights):
        return None
    failed = [name for name in weights if not _holds(flat.get(name))]
    return round(sum(weights[n] for n in weights if n not in failed), 4), failed


def _holds(value: object) -> bool:
    return str(value).strip().lower() in _MET


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
            return {
                "response": f"{UNDECIDED}: the criteria could not be read in the reply",
                "reply": text,
                "validation_score": None,
                "passed_criteria": [],
                "failed_criteria": [],
                "overall_assessment": UNDECIDED,
            }
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
            read = {n: _holds(values[n]) if n in values else _in_text(n, plain) for n in names}
            result[dimension] = {n: holds for n, holds in read.items() if holds is not None}
        return result


def _in_text(name: str, text: str) -> bool | None:
    words = name.replace("_", r"[_\s-]")
    match = re.search(
        rf"{words}\W{{0,12}}(true|false|yes|no|passe?d?|fail(?:ed)?)\b",
        text[:200_000],  # bounds the time of one search for each criterion
        re.IGNORECASE,
    )
    return None if match is None else match[1].lower() in _MET


class Validator(Prompt):
    """A prompt whose reply answers criteria. It is asked once more if they cannot be read."""

    def __init__(self, criteria: Criteria, text: Text, **options: Any) -> None:
        super().__init__(text, **options)
        self.criteria = criteria

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


_PRESET_SYSTEM = (
    f"You judge which of several criteria a candidate meets. {DATA} Answer true for a criterion only "
    "if it is met, false if it is not or if you cannot tell, and give a reason that says what is missing."
)


@dataclass(frozen=True)
class PresetQuestion:
    """The criteria of a scoring preset, each true or false. The score is their weighted share."""

    name: str
    weights: Mapping[str, float]
    approved: float

    accepts_empty = False

    @functools.cached_property
    def schema(self) -> Mapping[str, Json] | None:
        booleans: dict[str, Json] = {name: {"type": "boolean"} for name in self.weights}
        return object_of({**booleans, "reason": {"type": "string"}, "mark": MARK})

    @property
    def source(self) -> str:
        weights = " ".join(f"{name}={weight:.6f}" for name, weight in self.weights.items())
        return f"{self.name} {self.approved} {weights}"

    @property
    def answer(self) -> str:
        names = ", ".join(f'"{name}"' for name in self.weights)
        return (
            f"Answer with a JSON object: true or false for each of {names}, "
            '"reason": text, and "mark": the mark above.'
        )

    def messages(self, criterion: str, goal: str, text: str, mark: str) -> list[Message]:
        del criterion
        # Each criterion with its name in words.
        listed = "\n".join(
            f"- {name}: {name.replace('.', ', ', 1).replace('_', ' ')}" for name in self.weights
        )
        asked = joined(
            f"Goal of the work:\n{goal}\n" if goal else "",
            f"Criteria:\n{listed}\n",
            block(text, mark),
            self.answer,
        )
        return [Message("system", _PRESET_SYSTEM), Message("user", asked)]

    def read(self, reply: Reply, text: str, mark: str) -> Vote:
        # Models answer with "accuracy.complete", with "complete", or nested by dimension.
        names = [part for name in self.weights for part in (name, name.partition(".")[2])]
        objects = own_objects(reply, text, mark, names)
        votes = [v for one in objects.read if (v := self._vote(one, objects.suspect)) is not None]
        if not votes:
            detail = "the reply does not say which criteria hold"
            if objects.read or objects.repeated:
                detail += ', or lacks its "mark"'
                return Vote(Verdict("unparsable", "unmarked", detail))
            return Vote(Verdict("unparsable", "missing", detail))
        # Equal answers may be repeated, for example in a draft and a final object.
        if len({vote.failed for vote in votes}) > 1:
            return Vote(Verdict("unparsable", "conflict", "the reply gives two different answers"))
        if objects.damaged and votes[0].verdict.answer == "yes":
            return Vote(
                Verdict("unparsable", "unfinished", "the reply has a JSON value that is broken")
            )
        return votes[0]

    def _vote(self, one: Object, suspect: bool) -> Vote | None:
        """Return the vote of one object, or None if it has none or repeats the candidate."""
        answers = {
            name: one.members[plain(name)] for name in self.weights if plain(name) in one.members
        }
        result = _share(answers, self.weights)
        if result is None:
            return None
        score, failed = result
        # An unmarked object that fails everything cannot be planted in favour of the candidate.
        if suspect and not one.marked and len(failed) < len(self.weights):
            return None
        reason = one.members.get("reason")
        verdict = Verdict(
            "yes" if score >= self.approved else "no",
            score=score,
            reason=reason if isinstance(reason, str) else "",
        )
        return Vote(verdict, tuple(failed))


def question(name: str, weights: Mapping[str, float] | None = None) -> PresetQuestion:
    """Return the question of a preset, such as `quality/moderate`; `weights` replace its own.

    Raises:
        ConfigurationError: For an unknown context, level or criterion, with the nearest one.
    """
    context, slash, level = name.partition("/")
    if not slash:
        raise ConfigurationError(
            f"preset: {name!r} is not a preset. Use context/level with one of {', '.join(CONTEXTS)} and one "
            f"of {', '.join(LEVELS)}, such as quality/moderate."
        )
    return PresetQuestion(name, preset(level, context, weights), approved_at(level, context))
