"""Four common loops. Each function returns a Loop.

`until` adds a condition that may end the loop. `options` are those of Loop: `on_failure`, `guards`, `required`,
`on_iteration` and so on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .conditions import Condition, MaxIterations, NoImprovement, Passed, ScoreAtLeast
from .engine.composites import at_once_of, attempt, combined, retry, run_all
from .engine.context import Context
from .engine.loop import Loop, any_of
from .engine.step import (
    CompositeStep,
    EvaluatorLike,
    FunctionStep,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from .errors import ConfigurationError, nearest
from .evaluators.check import grade
from .evaluators.gates import Check, as_check
from .records import (
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    as_evaluation,
    codec,
)
from .records.codec import Json

__all__ = ["checklist_loop", "confidence_loop", "improvement_loop", "strategy_loop"]

_Steps = tuple[tuple[str, Step], ...]


def confidence_loop(
    execute: StepLike,
    evaluate: EvaluatorLike,
    adapt: StepLike | None = None,
    *,
    threshold: float = 0.85,
    max_iterations: int = 5,
    until: Condition | None = None,
    name: str = "",
    **options: Any,
) -> Loop:
    """Make a loop that runs until the score is at least `threshold`.

    Args:
        execute: The step that makes the output.
        evaluate: The evaluator.
        adapt: The step that makes the next input. Default: the input stays the same.
        threshold: The score that satisfies the loop, from 0 to 1. Default: 0.85.
        max_iterations: The maximum number of iterations. Then the result is the best output, and the loop
            is exhausted. Default: 5.
        until: A further condition that ends the loop.
        name: The name of the loop.
        **options: The options of Loop.

    Returns:
        The loop.

    Raises:
        ConfigurationError: For an invalid threshold, limit or option.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.adapters import use_output
        >>> loop = confidence_loop(lambda text: text + "!", lambda text: len(text) / 10, use_output)
        >>> result = run_sync(loop, "hurray")
        >>> print(result.status, result.output, result.detail)
        satisfied hurray!!! score 0.9 is at least 0.85
    """
    until_any = any_of(ScoreAtLeast(threshold), until, MaxIterations(max_iterations))
    return Loop(execute, evaluate, adapt, until_any, name=name, **options)


def improvement_loop(
    execute: StepLike,
    evaluate: EvaluatorLike,
    adapt: StepLike | None = None,
    *,
    patience: int = 2,
    min_delta: float = 0.0,
    max_iterations: int = 10,
    until: Condition | None = None,
    name: str = "",
    **options: Any,
) -> Loop:
    """Make a loop that runs while the score improves, and returns the best output.

    The loop is satisfied (`improved`) if its best score is above the first by more than `min_delta`,
    otherwise exhausted. An evaluation that passes also ends it, and so does `until=ScoreAtLeast(...)`.

    Args:
        execute: The step that makes the output.
        evaluate: The evaluator.
        adapt: The step that makes the next input. Default: the input stays the same.
        patience: The number of iterations in a row without an improvement that ends the loop. Default: 2.
        min_delta: The difference by which a score must exceed the best one. Default: 0.
        max_iterations: The maximum number of iterations. Default: 10.
        until: A further condition that ends the loop.
        name: The name of the loop.
        **options: The options of Loop.

    Returns:
        The loop.

    Raises:
        ConfigurationError: For an invalid limit or option.

    Example:
        >>> from loopwright import run_sync
        >>> from loopwright.adapters import use_output
        >>> loop = improvement_loop(lambda n: n + 2, lambda n: 1 - abs(n - 5) / 10, use_output)
        >>> result = run_sync(loop, 0)
        >>> print(result.reason, result.output, [item.output for item in result.history])
        improved 4 [2, 4, 6, 8]
    """
    until_any = any_of(until, NoImprovement(patience, min_delta), MaxIterations(max_iterations))
    return _Improving(execute, evaluate, adapt, until_any, name=name, **{"keep": "best", **options})


@dataclass(frozen=True)
class _Improving(Loop):
    """A loop for which an improvement is success."""

    def _warn_of_no_goal(self) -> None:
        return None

    # The base class warns of a loop without a goal; here the goal is an improvement.
    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        return iter(())

    def ending(self, stop: Stop, history: History) -> Stop:
        stop = super().ending(stop, history)
        best, scores = history.best, history.scores
        if stop.reason.status is not Status.EXHAUSTED or best is None or best.score is None:
            return stop
        # `until` may contain another NoImprovement; the stricter one defines an improvement.
        margin = max(c.min_delta for c in self.members if isinstance(c, NoImprovement))
        # `not >` and not `<=`: a comparison with NaN must count as no improvement.
        if not best.score > scores[0] + margin:
            return stop
        detail = (
            f"score {best.score:g} of iteration {best.number} is above the first, {scores[0]:g}"
        )
        return Stop(Reason.IMPROVED, f"{detail}; {stop.detail}", (stop.reason, *stop.also))


def checklist_loop(
    items: Mapping[str, StepLike],
    checks: Mapping[str, Check],
    fix: StepLike | Mapping[str, StepLike] | None = None,
    *,
    max_iterations: int = 5,
    at_once: int = 1,
    until: Condition | None = None,
    name: str = "checklist",
    **options: Any,
) -> Loop:
    """Make a loop that makes named items, checks each, and repeats only the failing ones until all pass.

    An item that passed is kept and not checked again. The output is an object of the items by name, the
    score is the share of items that pass. Each item is an effect, `.../execute/<item>`, and each check
    another, `.../evaluate/<item>`, so a resumed run repeats neither. With `on_failure="retry"` the item or
    check is retried, not the iteration.

    Args:
        items: By name, the step that makes the item from the loop's input.
        checks: By the same names, the checks. See `checklist`.
        fix: The step that makes a failing item again, or one by name, from `{"input", "item", "previous",
            "feedback", "improvements"}`. Default: the step that made the item.
        max_iterations: The maximum number of iterations. Default: 5.
        at_once: The number of items that are made at the same time. Default: 1.
        until: A further condition that ends the loop.
        name: The name of the loop. Default: "checklist".
        **options: The options of Loop.

    Returns:
        The loop.

    Raises:
        ConfigurationError: If items, checks and fixes do not have the same names.

    Example:
        >>> from loopwright import run_sync
        >>> title = lambda task: "Loops" if isinstance(task, str) else task["previous"] + ", again"
        >>> loop = checklist_loop(
        ...     {"title": title, "body": lambda task: "They repeat."},
        ...     {"title": {"contains": "again"}, "body": {"min_words": 2}},
        ... )
        >>> result = run_sync(loop, "write")
        >>> print(result.status, result.output, [item.score for item in result.history])
        satisfied {'title': 'Loops, again', 'body': 'They repeat.'} [0.5, 1.0]
    """
    fixes = fix if isinstance(fix, Mapping) else dict.fromkeys(items, fix) if fix else {}
    _check_names(name, items, checks, fixes)
    with_retries = _retried(options)
    makers = tuple((key, with_retries(as_step(maker, name=key))) for key, maker in items.items())
    fixers = tuple((key, with_retries(as_step(fixer, name=key))) for key, fixer in fixes.items())
    evaluators = tuple((key, with_retries(as_check(key, checks[key]))) for key in items)
    limit = codec.integer(f"{name}: at_once", at_once, minimum=1)
    return Loop(
        _Items(name, makers, fixers, limit),
        _Checks(f"{name} checks", evaluators),
        FunctionStep(_plan, name="plan", fingerprint="recipes.plan/1"),
        any_of(Passed(), until, MaxIterations(max_iterations)),
        name=name,
        **{"keep": "last", **options},
    )


def _check_names(
    name: str,
    items: Mapping[str, object],
    checks: Mapping[str, object],
    fixes: Mapping[str, object],
) -> None:
    _check_segments(name, items)
    for field, names in (("checks", checks), ("fix", fixes)):
        for key in names:
            if key not in items:
                hint = nearest(key, items)
                raise ConfigurationError(f"{name}: {field}: there is no item {key!r}{hint}")
    for key in items:
        if key not in checks:
            raise ConfigurationError(
                f"{name}: checks: {key!r} has no check. Add one for each item."
            )


def _check_segments(name: str, steps: Mapping[str, object]) -> None:
    if not isinstance(steps, Mapping) or not steps:
        raise ConfigurationError(f"{name}: {steps!r} has no steps. Use an object of steps.")
    for key in steps:
        if not isinstance(key, str) or not key or "/" in key:
            raise ConfigurationError(
                f"{name}: {key!r} is not a valid name. Names are parts of paths: use a text without a "
                "slash."
            )


def _retried(options: dict[str, Any]) -> Callable[[Step], Step]:
    """Remove the retries from a loop's options, and return a function that adds them to a step."""
    if options.get("on_failure") != "retry":
        return lambda part: part
    # Retried on the item: a retried iteration would make all items again.
    options["on_failure"] = "halt"
    attempts = codec.integer("loop: max_retries", options.pop("max_retries", 2), minimum=0) + 1
    return functools.partial(retry, attempts=attempts, delay=options.pop("retry_delay", 0.5))


@dataclass(frozen=True)
class _Items(CompositeStep):
    """Makes the missing items. From the second iteration on, its input is a plan."""

    name: str
    makers: _Steps
    fixers: _Steps
    at_once: int

    @fingerprinted
    def fingerprint(self) -> str:
        steps = (f"{name} {step.fingerprint}" for name, step in (*self.makers, *self.fixers))
        return digest_of("items", *steps)

    async def run(self, value: Json, ctx: Context) -> Result:
        # The first input is the user's, and no `adapt` has made a plan of it yet.
        plan = value if ctx.iteration > 1 else {"input": value, "items": {}, "redo": {}}
        fixers = dict(self.fixers)

        async def make(name: str, maker: Step) -> Result:
            task = plan["redo"].get(name)
            if task is None:
                return await attempt(ctx, name, maker, plan["input"])
            request = {"input": plan["input"], "item": name, **task}
            return await attempt(ctx, name, fixers.get(name, maker), request)

        missing = [(name, maker) for name, maker in self.makers if name not in plan["items"]]
        if self.at_once == 1:  # in sequence: after a failure no further item starts
            results = [await make(name, maker) for name, maker in missing]
        else:
            jobs = [functools.partial(make, *item) for item in missing]
            with at_once_of(ctx, self.name, self.at_once) as limit:
                results = await run_all(jobs, limit)
        outputs = {name: result.output for (name, _), result in zip(missing, results, strict=True)}
        items = {**plan["items"], **outputs}
        parts = [(n, maker, r) for (n, maker), r in zip(missing, results, strict=True)]
        return combined(self.name, {name: items[name] for name, _ in self.makers}, parts, ctx)


@dataclass(frozen=True)
class _Checks(CompositeStep):
    """Checks the items that have not passed yet."""

    name: str
    checks: _Steps

    @fingerprinted
    def fingerprint(self) -> str:
        # The words of these digests are in recorded journals and must not change.
        return digest_of("looks", *(f"{name} {step.fingerprint}" for name, step in self.checks))

    async def run(self, value: Json, ctx: Context) -> Result:
        passed = ctx.input["passed"] if ctx.iteration > 1 else ()
        evaluations, results = [], []
        for name, check in self.checks:
            # The item is unchanged, and a judge might now decide otherwise.
            if name in passed:
                evaluations.append((name, Evaluation(1.0, True)))
                continue
            result = await attempt(ctx, name, check, value[name])
            evaluations.append((name, as_evaluation(result.output)))
            results.append((name, check, result))
        return combined(self.name, grade(evaluations), results, ctx)


async def _plan(last: Iteration, ctx: Context) -> Json:
    """Return a plan for the next iteration: the items to keep, those that passed, and those to make again."""
    previous_plan = last.input if last.number > 1 else {"items": {}, "passed": [], "redo": {}}
    has_output = last.output is not None
    items = dict(last.output or {} if has_output else previous_plan["items"])
    plan = {"input": ctx.initial, "items": items, "passed": previous_plan["passed"]}
    if last.evaluation is None:
        return {**plan, "redo": {} if has_output else previous_plan["redo"]}
    # An item whose check gave no verdict is checked again, not made again.
    undecided = {vote["item"] for vote in last.evaluation.votes if vote.get("undecided")}
    redo = {
        item.name: {
            "previous": items.pop(item.name),
            "feedback": item.gap,
            "improvements": [
                line.removeprefix(f"{item.name}: ")
                for line in last.evaluation.improvements
                if line.startswith(f"{item.name}: ")
            ],
        }
        for item in last.evaluation.criteria
        if not item.passed and item.name not in undecided
    }
    passed = [item.name for item in last.evaluation.criteria if item.passed]
    return {**plan, "passed": passed, "redo": redo}


def strategy_loop(
    strategies: Mapping[str, StepLike],
    evaluate: EvaluatorLike,
    adapt: StepLike | None = None,
    *,
    threshold: float | None = None,
    max_iterations: int | None = None,
    until: Condition | None = None,
    name: str = "strategies",
    **options: Any,
) -> Loop:
    """Make a loop that tries one strategy per iteration until an output is satisfactory.

    A strategy that fails, or whose output cannot be evaluated, is followed by the next
    (`on_failure="continue"`). The loop fails after as many failures in a row as there are strategies, at
    least 3 (`max_failures`). A vote of each evaluation and the paths `.../execute/<strategy>` and
    `.../evaluate/<strategy>` name the strategy.

    Args:
        strategies: Steps by name, in order.
        evaluate: The evaluator.
        adapt: The step that makes the next input. Default: each strategy receives the loop's input.
        threshold: The score that satisfies the loop. Default: the evaluation must pass.
        max_iterations: The maximum number of iterations. After the last strategy the first follows again.
            Default: the number of strategies.
        until: A further condition that ends the loop.
        name: The name of the loop. Default: "strategies".
        **options: The options of Loop.

    Returns:
        The loop. Its output is the best one.

    Raises:
        ConfigurationError: Without strategies, or for a name that cannot be part of a path.

    Example:
        >>> from loopwright import run_sync
        >>> loop = strategy_loop({"exact": int, "rough": float}, lambda number: number == 2.5)
        >>> result = run_sync(loop, "2.5")
        >>> print(result.status, result.output, result.history[0].error.path)
        satisfied 2.5 strategies/1/execute/exact
        >>> result.best.evaluation.votes
        ({'strategy': 'rough'},)
    """
    _check_segments(name, strategies)
    parts = tuple((key, as_step(part, name=key)) for key, part in strategies.items())
    success: Condition = Passed() if threshold is None else ScoreAtLeast(threshold)
    # Each strategy once: a second try of a deterministic one would give the same output.
    iterations = len(parts) if max_iterations is None else max_iterations
    return Loop(
        _Strategies(name, parts),
        _NamedEvaluation(
            f"{name} evaluate", as_step(evaluate, purpose="evaluate"), tuple(strategies)
        ),
        adapt,
        any_of(success, until, MaxIterations(iterations)),
        name=name,
        # Every strategy gets its turn before the loop fails.
        **{"on_failure": "continue", "max_failures": max(3, len(parts)), **options},
    )


@dataclass(frozen=True)
class _Strategies(CompositeStep):
    """Runs the strategy of the current iteration."""

    name: str
    members: _Steps

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of(
            "strategies", *(f"{name} {part.fingerprint}" for name, part in self.members)
        )

    async def run(self, value: Json, ctx: Context) -> Result:
        # By the number of the iteration, so that a resumed run continues with the same strategy.
        name, part = self.members[(ctx.iteration - 1) % len(self.members)]
        result = await attempt(ctx, name, part, value)
        return combined(self.name, result.output, [(name, part, result)], ctx)


@dataclass(frozen=True)
class _NamedEvaluation(CompositeStep):
    """Evaluates under the name of the strategy of the current iteration."""

    name: str
    inner: Step
    strategies: tuple[str, ...]

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("named", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        name = self.strategies[(ctx.iteration - 1) % len(self.strategies)]
        result = await attempt(ctx, name, self.inner, value)
        evaluation = as_evaluation(result.output)
        # A vote and not a field of the output: the output stays what the strategy returned.
        votes = (*evaluation.votes, {"strategy": name})
        evaluation = dataclasses.replace(evaluation, votes=votes)
        return combined(self.name, evaluation, [(name, self.inner, result)], ctx)
