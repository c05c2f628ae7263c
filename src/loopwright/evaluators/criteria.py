"""From criteria to an evaluation: what holds, what is missing, and a score that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..errors import ConfigurationError, EvaluationError, nearest
from ..records import Criterion, Evaluation, codec

__all__ = ["grade", "segments", "sentences", "shares", "verdict"]


def sentences(who: str, criteria: Sequence[str]) -> None:
    """Refuse criteria that are no sentences.

    Raises:
        ConfigurationError: for what is no text, or blank.
    """
    for given in criteria:
        if not isinstance(given, str) or not given.strip():
            raise ConfigurationError(
                f"{who}: {given!r:.80} is no criterion; give each as a sentence of its own"
            )


def verdict(
    criteria: Sequence[Criterion], *, feedback: str = "", improvements: Sequence[str] | None = None
) -> Evaluation:
    """Return an evaluation of score 1.0, passed, if all criteria hold, else of 0.0, not passed.

    Without `feedback` and `improvements`, both name what fails and its gap.
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
    who: str, criteria: Sequence[str], given: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the share of each criterion: equal unless given, summing to 1; of no criteria none.

    Raises:
        ConfigurationError: for a criterion that is there twice, an unknown one, or weights that
            cannot be.
    """
    if len(set(criteria)) < len(criteria):
        raise ConfigurationError(f"{who}: a criterion is there twice; give each once")
    for name in given or {}:
        if not criteria:
            raise ConfigurationError(f"{who}: weights need criteria; give the criteria too")
        if name not in criteria:
            raise ConfigurationError(
                f"{who}: weights: there is no criterion {name!r}{nearest(name, criteria)}"
            )
    weights = {name: (given or {}).get(name, 1.0) for name in criteria}
    for name, weight in weights.items():
        codec.number(f"{who}: weights: {name}", weight, least=0)
    total = math.fsum(weights.values())
    if criteria and not total > 0:
        raise ConfigurationError(f"{who}: weights: all are 0; give one criterion some weight")
    return {name: weight / total for name, weight in weights.items()}


def grade(
    found: Sequence[tuple[str, Evaluation]], weights: Mapping[str, float] | None = None
) -> Evaluation:
    """Return the evaluation of a list of items from those of its items.

    The score is the share of the weights (1 unless given) of the items that passed, `passed` that
    all did, and each item is a criterion. If an item is undecided so is the whole, as its score is
    not known; a vote names the item.

    Raises:
        EvaluationError: if an item has a score but no verdict.
    """
    criteria = [_criterion(name, evaluation) for name, evaluation in found]
    weight = {item.name: (weights or {}).get(item.name, 1.0) for item in criteria}
    met = math.fsum(weight[item.name] for item in criteria if item.passed)
    failing = [item for item in criteria if not item.passed]
    lines = [f"- {item.name}: {item.gap}" for item in failing]
    undecided = [name for name, evaluation in found if evaluation.undecided]
    return Evaluation(
        score=None if undecided else met / math.fsum(weight.values()),
        passed=None if undecided else not failing,
        feedback="\n".join([f"{len(failing)} of {len(criteria)} items are not met:", *lines])
        if failing
        else "",
        improvements=tuple(
            f"{name}: {missing}"
            for name, evaluation in found
            if evaluation.passed is not True
            for missing in (evaluation.improvements or ("not met",))
        ),
        criteria=tuple(criteria),
        votes=tuple({"item": name, "undecided": True} for name in undecided),
        undecided=bool(undecided),
    )


def _criterion(name: str, evaluation: Evaluation) -> Criterion:
    if evaluation.passed is None and not evaluation.undecided:
        raise EvaluationError(
            f"item {name!r}: its check gave no verdict; return True or False, or say from which "
            "score on it passes: check(function, at_least=0.8)",
            kind="no_verdict",
            retryable=False,
        )
    if evaluation.passed and not evaluation.undecided:
        return Criterion(name, True)
    missing = "; ".join(item.gap for item in evaluation.criteria if not item.passed and item.gap)
    return Criterion(name, False, evaluation.feedback or missing or "not met")


def segments(names: Iterable[str]) -> list[str]:
    """Return names as parts of a path, each once: a slash becomes a dash, a twin gets a number."""
    found: list[str] = []
    for name in names:
        plain = name.replace("/", "-") or "part"
        number = 1
        segment = plain
        while segment in found:
            number += 1
            segment = f"{plain}-{number}"
        found.append(segment)
    return found
