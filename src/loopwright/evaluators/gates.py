"""Several evaluators as one: gates in order of authority, and a checklist of requirements.

The first gate that fails ends the evaluation: a later one cannot overrule it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..engine.composites import attempt, combined
from ..engine.context import Context
from ..engine.loop_options import UNJUDGED, UNJUDGED_SENTENCE, Undecided, has_check
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
from ..records import Evaluation, Result, as_evaluation, codec, reaches
from ..records.codec import Json
from .check import check, grade, segments

__all__ = [
    "Check",
    "LaterEvaluator",
    "as_check",
    "before",
    "checklist",
    "evaluator_of_case",
    "gates",
]

Check = EvaluatorLike | Mapping[str, Json]  # an evaluator, a function, or options of `check`


@dataclass(frozen=True)
class _Checklist(CompositeStep[object, Evaluation]):
    keeps_types: ClassVar[bool] = True
    name: str
    members: tuple[tuple[str, str, Step], ...]  # path segment, name and evaluator of each item
    weights: tuple[tuple[str, float], ...]
    at_least: float | None = None

    def parts(self) -> Iterable[Step]:
        return [part for _, _, part in self.members]

    @fingerprinted
    def fingerprint(self) -> str:
        parts = [f"{name} {part.fingerprint}" for _, name, part in self.members]
        if self.at_least is not None:
            parts.append(f"at least {self.at_least}")
        return digest_of("checklist", repr(self.weights), *parts)

    async def run(self, value: Json, ctx: Context) -> Result:
        evaluations, ended = [], []
        for segment, name, part in self.members:
            result = await attempt(ctx, segment, part, value)
            evaluations.append((name, as_evaluation(result.output)))
            ended.append((segment, part, result))
        evaluation = grade(evaluations, dict(self.weights))
        if self.at_least is not None and evaluation.score is not None:
            evaluation = replace(evaluation, passed=reaches(evaluation.score, self.at_least))
        return combined(self.name, evaluation, ended, ctx)


def checklist(
    items: Mapping[str, Check],
    weights: Mapping[str, float] | None = None,
    *,
    at_least: float | None = None,
    name: str = "checklist",
) -> Step[object, Evaluation]:
    """Make an evaluator of named requirements. Each is checked on the output and is one effect.

    The score is the sum of the weights of the items that passed, divided by the sum of all weights.
    `passed` means that all items passed, or that the score is high enough. The feedback lists the failing items. An error in one check is
    an error of the list.

    Args:
        items: By name, a function, an evaluator with a verdict, or an object of options for `check`.
        weights: Weights above 0 by name. Default: 1 each.
        at_least: The score from 0 to 1 from which the list passes. Default: all items must pass.
        name: The name of the step. Default: "checklist".

    Returns:
        A step from an output to an Evaluation.

    Raises:
        ConfigurationError: For an empty list, an unknown name, a weight that is not above 0, or a score outside 0 to 1.

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
        at_least
        if at_least is None
        else codec.number(f"{name}: at_least", at_least, minimum=0, maximum=1),
    )


def evaluator_of_case(item: Json) -> Step:
    """Return an evaluator that a case has in its file: `{check: {…}}`, or `{checklist: [{…}, …], at_least: SCORE}`.

    Raises:
        ConfigurationError: for another one, and for a command or a Python function, which only a document can name.
    """
    data = item if isinstance(item, Mapping) else {}
    many = "checklist" in data
    checks = data.get("checklist") if many else [data.get("check")]
    if (
        data.keys() - ({"checklist", "at_least"} if many else {"check"})
        or not isinstance(checks, list)
        or any(not isinstance(one, Mapping) or {"command", "python"} & one.keys() for one in checks)
    ):
        raise ConfigurationError(
            f"{item!r:.60} is not an object such as {{check: {{contains: TEXT}}}}"
        )
    if not many:
        return as_check("", checks[0])
    named = {one.get("name") or f"item {n}": one for n, one in enumerate(checks, start=1)}
    if len(named) < len(checks):
        raise ConfigurationError("two items of a checklist have one name")
    plain = {
        name: {k: v for k, v in one.items() if k not in ("name", "weight")}
        for name, one in named.items()
    }
    weights = {name: one["weight"] for name, one in named.items() if "weight" in one}
    return checklist(plain, weights, at_least=data.get("at_least"))


def as_check(name: str, target: Check) -> Step:
    """Return a step unchanged, and a function or an object of options as a check."""
    # Before steps: documents and JSON write a check as an object of options.
    if isinstance(target, Mapping):
        return check(**{"name": name, **target})
    if isinstance(target, Step):
        return target
    step = as_step(target, name=name, purpose="evaluate")
    return check(step.function, name=name) if isinstance(step, FunctionStep) else step


class LaterEvaluator(CompositeStep[object, Evaluation]):
    """An evaluator that reads the evaluations of the gates before it."""

    @abstractmethod
    def after(self, earlier: Sequence[tuple[str, Evaluation]]) -> Step:
        """Return the evaluator for these evaluations, by the names of their gates."""


@dataclass(frozen=True)
class _Gates(CompositeStep[object, Evaluation]):
    keeps_types: ClassVar[bool] = True
    name: str
    members: tuple[tuple[str, Step], ...]
    graded: bool = False
    # With a policy, the members before an undecided judge decide alone when it is due.
    undecided: Undecided | None = None
    scored: bool = True  # whether the gates make a score; before a measurement they do not

    @property
    def measures_only(self) -> bool:
        """Whether it gives metrics and never a score."""
        return not self.scored

    @fingerprinted
    def fingerprint(self) -> str:
        kind = "graded gates" if self.graded else "gates"
        return digest_of(kind, *(f"{name} {part.fingerprint}" for name, part in self.members))

    @property
    def scores_only(self) -> bool:
        """Whether it never gives a verdict, because one of its parts never does."""
        return any(part.scores_only for _, part in self.members)

    def parts(self) -> Iterable[Step]:
        return [part for _, part in self.members]

    @property
    def checks(self) -> bool:
        """Whether it has a deterministic member."""
        return any(has_check(part) for _, part in self.members)

    def deciding_alone(self, policy: Undecided) -> _Gates | None:
        """Return these gates with a policy for an undecided judge; None without a member before it."""
        asked = [part.asks_model for _, part in self.members]
        return replace(self, undecided=policy) if True in asked[1:] and not asked[0] else None

    async def run(self, value: Json, ctx: Context) -> Result:
        evaluations: list[tuple[str, Evaluation]] = []
        ended, checks = [], list[bool | None]()
        for name, part in self.members:
            if ctx.scope is not None:
                ctx.scope.check(())
            step = part.after(evaluations) if isinstance(part, LaterEvaluator) else part
            result = await attempt(ctx, name, step, value)
            evaluation = as_evaluation(result.output)
            evaluations.append((name, evaluation))
            ended.append((name, part, result))
            if not part.asks_model:
                checks.append(evaluation.passed)
            elif ctx.scope is not None:  # gates inside these
                checks.append(ctx.scope.checked)
            # Later evaluators are often expensive, and none of them could change the verdict.
            if evaluation.passed is False or evaluation.undecided:
                break
        if ctx.scope is not None:
            ctx.scope.check(checks)
        complete = len(evaluations) == len(self.members)
        merged = _merged(evaluations, complete=complete)
        due = (
            merged.undecided
            and ended[-1][1].asks_model
            and self.undecided is not None
            and self.undecided.due(ctx.history)
        )
        if due:
            # The members before the judge that could not decide.
            ctx.warn(UNJUDGED_SENTENCE, code=UNJUDGED)
            alone = _merged(evaluations[:-1], complete=True)
            votes = (*alone.votes, *evaluations[-1][1].votes)
            merged = replace(alone, votes=votes, unjudged=True)
        if self.graded and not due:
            merged = replace(merged, score=_grade(evaluations, len(self.members)))
        if not self.scored:
            merged = replace(merged, score=None, votes=())
        return combined(self.name, merged, ended, ctx)


def gates(
    *evaluators: Check, name: str = "gates", graded: bool = False
) -> Step[object, Evaluation]:
    """Make an evaluator of several in order: the first failure ends the evaluation.

    Put certain and cheap evaluators first: checks, then tests, then a judge. An output that fails at a
    gate scores 0, so it never ranks above one that passed all gates; a vote keeps the gate's score. If no
    gate fails, the score is that of the last evaluator, or the lowest of all if the last has none.
    `passed` combines all verdicts; criteria and improvements are collected. An undecided gate makes the
    evaluation undecided.

    Args:
        *evaluators: Evaluators, functions, or objects of options for `check`.
        name: The name of the step. Default: "gates".
        graded: Whether an output that fails at a gate keeps a score: the number of gates that passed plus the
            score of the failed one, divided by the number of gates. Default: False.

    Returns:
        A step from an output to an Evaluation.

    Raises:
        ConfigurationError: Without an evaluator.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.evaluators import check
        >>> result = run_sync(gates(check(min_words=3), check(lambda text: 0.9)), "too short").output
        >>> print(result.score, result.passed, result.feedback, sep="\\n")
        0.0
        False
        min_words 3: has 2 words, 1 fewer than asked for
    """
    if not evaluators:
        raise ConfigurationError(f"{name}: no evaluator. Pass at least one.")
    steps = [as_check("", evaluator) for evaluator in evaluators]
    members = tuple(zip(segments(step.name for step in steps), steps, strict=True))
    return _Gates(name, members, graded)


def _grade(results: list[tuple[str, Evaluation]], count: int) -> float | None:
    """Return the share of the gates that passed, with the score of the last one as a part of a gate."""
    final = results[-1][1]
    if final.undecided:
        return None
    score = final.score if final.score is not None else float(final.passed is True)
    return (len(results) - 1 + score) / count


def before(measurement: Step, *evaluators: Check) -> Step[object, Evaluation]:
    """Make an evaluator of gates and a measurement, which gives metrics and no score."""
    steps = [*(as_check("", evaluator) for evaluator in evaluators), measurement]
    names = segments(step.name for step in steps)
    return _Gates(measurement.name, tuple(zip(names, steps, strict=True)), scored=False)


def _merged(results: list[tuple[str, Evaluation]], *, complete: bool) -> Evaluation:
    evaluations = [evaluation for _, evaluation in results]
    name, final = results[-1]
    verdicts = [evaluation.passed for evaluation in evaluations]
    votes = [vote for evaluation in evaluations for vote in evaluation.votes]
    # The last evaluator is not a gate: its score counts although it failed.
    closed = final.passed is False and not complete
    if closed and final.score:
        votes.append({"gate": name, "score": final.score})
    scores = [e.score for e in evaluations if e.score is not None]
    score = final.score if final.score is not None else min(scores, default=None)
    # A gate that passed has nothing to improve, so only the last evaluator's feedback is kept with the gaps.
    texts = [e.feedback for e in evaluations if e is final or e.passed is not True]
    tampered = [e.tampered for e in evaluations if e.tampered is not None]
    return Evaluation(
        score=None if final.undecided else 0.0 if closed else score,
        passed=False if False in verdicts else None if None in verdicts else True,
        feedback="\n".join(text for text in texts if text),
        improvements=tuple(line for e in evaluations for line in e.improvements),
        criteria=tuple(item for e in evaluations for item in e.criteria),
        votes=tuple(votes),
        undecided=final.undecided,
        details={key: item for e in evaluations for key, item in e.details.items()},
        metrics={key: item for e in evaluations for key, item in e.metrics.items()},
        impossible=final.impossible,
        unjudged=any(e.unjudged for e in evaluations),
        # A rejected iteration stays so, whatever another gate reports.
        tampered=next((t for t in tampered if t.rejected), tampered[0] if tampered else None),
    )
