"""Scoring presets of the loop node: criteria with weights that sum to 1, strict, moderate and lenient.

Source: the presets of the loop-node dialect. A criterion is written `dimension.criterion`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import ConfigurationError, nearest

__all__ = ["CONTEXTS", "LEVELS", "approved_at", "context_of", "improvable_at", "preset", "weighted"]

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
    # A reply about other criteria must not score as a bad output.
    answered = [name for name in weights if name in flat]
    if len(answered) * 2 < len(weights):
        return None
    failed = [name for name in weights if not _holds(flat.get(name))]
    return round(sum(weights[n] for n in weights if n not in failed), 4), failed


def _holds(value: object) -> bool:
    if isinstance(value, bool):
        return value
    return isinstance(value, str | int) and str(value).strip().lower() in _MET
