"""Evaluations of several criteria: the score, the verdict and the gaps follow from the criteria."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..errors import ConfigurationError, EvaluationError, nearest
from ..records import Criterion, Evaluation, codec

__all__ = ["check_sentences", "grade", "segments", "shares", "verdict"]


def check_sentences(owner: str, criteria: Sequence[str]) -> None:
    """Refuse criteria that are not sentences.

    Raises:
        ConfigurationError: For a value that is not a text, or blank.
    """
    for criterion in criteria:
        if not isinstance(criterion, str) or not criterion.strip():
            raise ConfigurationError(
                f"{owner}: {criterion!r:.80} is not a criterion. Use a sentence for each."
            )


def verdict(
    criteria: Sequence[Criterion], *, feedback: str = "", improvements: Sequence[str] | None = None
) -> Evaluation:
    """Return an evaluation: score 1.0 and passed if all criteria hold, otherwise 0.0 and not passed.

    The default of `feedback` and `improvements` is the failing criteria with their gaps.
    """
    failing = [item for item in criteria if not item.passed]
    gaps = [f"{item.name}: {item.gap}" if item.gap else item.name for item in failing]
    return Evaluation(
        0.0 if failing else 1.0,
        not failing,
        feedback or "\n".join(gaps),
        tuple(gaps if improvements is None else improvements),
        tuple(criteria),
    )


def shares(
    owner: str, criteria: Sequence[str], weights: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the weight of each criterion, 1 by default, scaled to a sum of 1.

    Raises:
        ConfigurationError: For a repeated or unknown criterion, or invalid weights.
    """
    if len(set(criteria)) < len(criteria):
        raise ConfigurationError(f"{owner}: a criterion is repeated. List each once.")
    for name in weights or {}:
        if not criteria:
            raise ConfigurationError(f"{owner}: weights need criteria. List the criteria too.")
        if name not in criteria:
            raise ConfigurationError(
                f"{owner}: weights: there is no criterion {name!r}{nearest(name, criteria)}"
            )
    weights = {name: (weights or {}).get(name, 1.0) for name in criteria}
    for name, weight in weights.items():
        codec.number(f"{owner}: weights: {name}", weight, minimum=0)
    total = math.fsum(weights.values())
    if criteria and not total > 0:
        raise ConfigurationError(f"{owner}: weights: all are 0. At least one must be above 0.")
    return {name: weight / total for name, weight in weights.items()}


def grade(
    evaluations: Sequence[tuple[str, Evaluation]], weights: Mapping[str, float] | None = None
) -> Evaluation:
    """Return the evaluation of a list from those of its items.

    Each item is a criterion. The score is the share of the weights (default 1) of the items that passed,
    and `passed` means that all passed. If an item is undecided, its score is unknown, so the list is
    undecided too, and a vote names the item.

    Raises:
        EvaluationError: If an item has a score but no verdict.
    """
    criteria = [_criterion(name, evaluation) for name, evaluation in evaluations]
    weight = {item.name: (weights or {}).get(item.name, 1.0) for item in criteria}
    met = math.fsum(weight[item.name] for item in criteria if item.passed)
    failing = [item for item in criteria if not item.passed]
    lines = [f"- {item.name}: {item.gap}" for item in failing]
    # An error of one check and "not met" are different facts for the next iteration.
    undecided = [name for name, evaluation in evaluations if evaluation.undecided]
    return Evaluation(
        score=None if undecided else met / math.fsum(weight.values()),
        passed=None if undecided else not failing,
        feedback="\n".join([f"{len(failing)} of {len(criteria)} items are not met:", *lines])
        if failing
        else "",
        improvements=tuple(
            f"{name}: {missing}"
            for name, evaluation in evaluations
            if evaluation.passed is not True
            for missing in (evaluation.improvements or ("not met",))
        ),
        criteria=tuple(criteria),
        votes=tuple({"item": name, "undecided": True} for name in undecided),
        undecided=bool(undecided),
        impossible=not undecided and any(evaluation.impossible for _, evaluation in evaluations),
    )


def _criterion(name: str, evaluation: Evaluation) -> Criterion:
    if evaluation.passed is None and not evaluation.undecided:
        raise EvaluationError(
            f"item {name!r}: its check gave no verdict. Return True or False, or set the score from "
            "which it passes: check(function, at_least=0.8).",
            kind="no_verdict",
            retryable=False,
        )
    if evaluation.passed and not evaluation.undecided:
        return Criterion(name, True)
    missing = "; ".join(item.gap for item in evaluation.criteria if not item.passed and item.gap)
    return Criterion(name, False, evaluation.feedback or missing or "not met")


def segments(names: Iterable[str]) -> list[str]:
    """Return unique path segments: a slash becomes a dash, a repeated name gets a number."""
    result: list[str] = []
    for name in names:
        # A slash separates segments of a journal path.
        plain = name.replace("/", "-") or "part"
        number = 1
        segment = plain
        while segment in result:
            number += 1
            segment = f"{plain}-{number}"
        result.append(segment)
    return result
