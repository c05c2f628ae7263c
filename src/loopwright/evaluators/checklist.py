"""A list of requirements, each with a check: which are met, which are not, and a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..engine.composites import attempt, combined
from ..engine.context import Context
from ..engine.step import (
    CompositeStep,
    EvaluatorLike,
    FunctionStep,
    Step,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError, nearest
from ..records import Evaluation, Result, as_evaluation, codec
from ..records.codec import Json
from .check import check
from .criteria import grade, segments

__all__ = ["Check", "as_check", "checklist"]

Check = EvaluatorLike | Mapping[str, Json]  # an evaluator, a function, or options of `check`


@dataclass(frozen=True)
class _Checklist(CompositeStep[object, Evaluation]):
    keeps_types: ClassVar[bool] = True
    name: str
    members: tuple[tuple[str, str, Step], ...]  # path segment, name and evaluator of each item
    weights: tuple[tuple[str, float], ...]

    @fingerprinted
    def fingerprint(self) -> str:
        parts = (f"{name} {part.fingerprint}" for _, name, part in self.members)
        return digest_of("checklist", repr(self.weights), *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        evaluations, ended = [], []
        for segment, name, part in self.members:
            result = await attempt(ctx, segment, part, value)
            evaluations.append((name, as_evaluation(result.output)))
            ended.append((segment, part, result))
        return combined(self.name, grade(evaluations, dict(self.weights)), ended, ctx)


def checklist(
    items: Mapping[str, Check],
    weights: Mapping[str, float] | None = None,
    *,
    name: str = "checklist",
) -> Step[object, Evaluation]:
    """Make an evaluator of named requirements. Each is checked on the output and is one effect.

    The score is the sum of the weights of the items that passed, divided by the sum of all weights.
    `passed` means that all items passed. The feedback lists the failing items. An error in one check is
    an error of the list.

    Args:
        items: By name, a function, an evaluator with a verdict, or an object of options for `check`.
        weights: Weights above 0 by name. Default: 1 each.
        name: The name of the step. Default: "checklist".

    Returns:
        A step from an output to an Evaluation.

    Raises:
        ConfigurationError: For an empty list, an unknown name, or a weight that is not above 0.

    Example:
        >>> from loopwright import run_sync
        >>> requirements = {"is short": {"max_words": 5}, "has a year": {"matches": "[0-9]{4}"}}
        >>> result = run_sync(checklist(requirements), "Released today").output
        >>> print(result.score, result.feedback, sep="\\n")
        0.5
        1 of 2 items are not met:
        - has a year: matches '[0-9]{4}': nothing in it matches
    """
    if not isinstance(items, Mapping) or not items:
        raise ConfigurationError(f"{name}: {items!r} has no items. Use an object of checks.")
    for item in weights or {}:
        if item not in items:
            raise ConfigurationError(f"{name}: weights: no item {item!r}{nearest(item, items)}")
    checked = tuple(
        # Above 0: with a weight of 0 an item could fail at a score of 1.0.
        (item, codec.number(f"{name}: weights: {item}", weight, minimum=0, above=True))
        for item, weight in (weights or {}).items()
    )
    parts = zip(segments(items), items, strict=True)
    return _Checklist(
        name,
        tuple((segment, item, as_check(item, items[item])) for segment, item in parts),
        checked,
    )


def as_check(name: str, target: Check) -> Step:
    """Return a step unchanged, and a function or an object of options as a check."""
    # Before steps: documents and JSON write a check as an object of options.
    if isinstance(target, Mapping):
        return check(**{"name": name, **target})
    if isinstance(target, Step):
        return target
    step = as_step(target, name=name, purpose="evaluate")
    return check(step.function, name=name) if isinstance(step, FunctionStep) else step
