"""A list of requirements, each with its own check: what is met, what is not, and a score."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.composites import attempt, combined
from ..engine.context import Context
from ..engine.step import CompositeStep, Step, StepLike, digest_of
from ..errors import ConfigurationError, nearest
from ..records import Result, as_evaluation, codec
from ..records.codec import Json
from .check import check
from .criteria import grade, segments

__all__ = ["as_check", "checklist"]


@dataclass(frozen=True)
class _Checklist(CompositeStep):
    name: str
    members: tuple[tuple[str, str, Step], ...]  # of each item: part of its path, name, evaluator
    weights: tuple[tuple[str, float], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        parts = (f"{name} {part.fingerprint}" for _, name, part in self.members)
        return digest_of("checklist", repr(self.weights), *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        found, ended = [], []
        for segment, name, part in self.members:
            result = await attempt(ctx, segment, part, value)
            found.append((name, as_evaluation(result.output)))
            ended.append((segment, part, result))
        return combined(self.name, grade(found, dict(self.weights)), ended, ctx)


def checklist(
    items: Mapping[str, StepLike | Mapping[str, Any]],
    weights: Mapping[str, float] | None = None,
    *,
    name: str = "checklist",
) -> Step:
    """Make an evaluator of named requirements; each is checked on the output and is one effect.

    An item is a function, any evaluator that gives a verdict, or an object of options for `check`.
    The score is the share of the weights (1 unless given) of the items that passed; `passed` means
    all; the feedback lists what fails. An error in one check is an error of the whole: nothing is
    scored that was not looked at.

    Raises:
        ConfigurationError: for an empty list, an unknown weight, a weight that is not above 0.

    >>> from loopwright import run_sync
    >>> found = run_sync(
    ...     checklist({"is short": {"max_words": 5}, "says when": {"matches": "[0-9]{4}"}}),
    ...     "Released today",
    ... ).output
    >>> print(found.score, found.feedback, sep="\\n")
    0.5
    1 of 2 items are not met:
    - says when: matches '[0-9]{4}': nothing in it matches
    """
    if not isinstance(items, Mapping) or not items:
        raise ConfigurationError(f"{name}: {items!r} names no items; give an object of checks")
    for item in weights or {}:
        if item not in items:
            raise ConfigurationError(f"{name}: weights: no item {item!r}{nearest(item, items)}")
    given = tuple(
        (item, codec.number(f"{name}: weights: {item}", weight, least=0, above=True))
        for item, weight in (weights or {}).items()
    )
    parts = zip(segments(items), items, strict=True)
    made = tuple((segment, item, as_check(item, items[item])) for segment, item in parts)
    return _Checklist(name, made, given)


def as_check(name: str, item: StepLike | Mapping[str, Any]) -> Step:
    """Return an evaluator: a step as it is, a function or the options of `check` as a check."""
    if isinstance(item, Mapping):
        return check(**{"name": name, **item})
    return item if isinstance(item, Step) else check(item, name=name)
