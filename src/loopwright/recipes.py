"""The four patterns of looping, ready made; each returns a Loop.

`until` is one more condition that may end it; `options` are those of Loop: `on_failure`, `guards`,
`required`, `on_iteration` and so on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .conditions import Condition, MaxIterations, NoImprovement, Passed, ScoreAtLeast
from .engine.composites import attempt, combined, retrying
from .engine.concurrency import run_all
from .engine.context import Context
from .engine.loop import Loop, any_of
from .engine.step import CompositeStep, FunctionStep, Step, StepLike, as_step, digest_of
from .errors import ConfigurationError, nearest
from .evaluators.checklist import as_check
from .evaluators.criteria import grade
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


def confidence_loop(
    execute: StepLike,
    evaluate: StepLike,
    adapt: StepLike | None = None,
    *,
    threshold: float = 0.85,
    max_iterations: int = 5,
    until: Condition | None = None,
    name: str = "",
    **options: Any,
) -> Loop:
    """Execute, evaluate and adapt until the score is at least `threshold`.

    Without `adapt` the input stays as it is. After `max_iterations` rounds the best output is the
    result, and it is exhausted, not satisfied.

    >>> from loopwright import run_sync
    >>> from loopwright.engine.adapters import use_output
    >>> loop = confidence_loop(lambda text: text + "!", lambda text: len(text) / 10, use_output)
    >>> result = run_sync(loop, "hurray")
    >>> print(result.status, result.output, result.detail)
    satisfied hurray!!! score 0.9 is at least 0.85
    """
    ends = any_of(ScoreAtLeast(threshold), until, MaxIterations(max_iterations))
    return Loop(execute, evaluate, adapt, ends, name=name, **options)


def improvement_loop(
    execute: StepLike,
    evaluate: StepLike,
    adapt: StepLike | None = None,
    *,
    patience: int = 2,
    min_delta: float = 0.0,
    max_iterations: int = 10,
    until: Condition | None = None,
    name: str = "",
    **options: Any,
) -> Loop:
    """Execute, evaluate and adapt while the score improves, and return the best output.

    It ends after `patience` rounds in a row whose score is not above the best by more than
    `min_delta`. It is satisfied (`improved`) if the best score is above the first by more than
    `min_delta`, whatever of its own conditions ended it, and else exhausted. An evaluation that
    passes ends it too; so does `until=ScoreAtLeast(…)`.

    >>> from loopwright import run_sync
    >>> from loopwright.engine.adapters import use_output
    >>> loop = improvement_loop(lambda n: n + 2, lambda n: 1 - abs(n - 5) / 10, use_output)
    >>> result = run_sync(loop, 0)
    >>> print(result.reason, result.output, [item.output for item in result.history])
    improved 4 [2, 4, 6, 8]
    """
    ends = any_of(until, NoImprovement(patience, min_delta), MaxIterations(max_iterations))
    return _Improving(execute, evaluate, adapt, ends, name=name, **{"keep": "best", **options})


@dataclass(frozen=True)
class _Improving(Loop):
    """A loop of which an improvement is the success: it needs no other."""

    def _warn_of_no_goal(self) -> None:
        return None

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        return iter(())

    def ending(self, stop: Stop, history: History) -> Stop:
        stop = super().ending(stop, history)
        best, scores = history.best, history.scores
        if stop.reason.status is not Status.EXHAUSTED or best is None or best.score is None:
            return stop
        margin = max(c.min_delta for c in self.members if isinstance(c, NoImprovement))
        if not best.score > scores[0] + margin:
            return stop
        told = f"score {best.score:g} of iteration {best.number} is above the first, {scores[0]:g}"
        return Stop(Reason.IMPROVED, f"{told}; {stop.detail}", (stop.reason, *stop.also))


def checklist_loop(
    items: Mapping[str, Any],
    checks: Mapping[str, Any],
    fix: StepLike | None = None,
    *,
    max_iterations: int = 5,
    at_once: int = 1,
    until: Condition | None = None,
    name: str = "checklist",
    **options: Any,
) -> Loop:
    """Make each item, check each, and make again only those that fail, until all pass.

    `items` maps a name to the step that makes the item from the loop's input, `checks` the same
    names to what judges it (see `checklist`). An item that fails is made again by `fix`, a step or
    one for each name, or else by its own maker, from `{"input", "item", "previous", "feedback",
    "improvements"}`. What passed stays and is not checked again. The output is an object of the
    items by name, the score the share that passes. Each item is one effect, `…/execute/<item>`, and
    each look another, `…/evaluate/<item>`, so a resumed run does none twice. `at_once` items are
    made at a time. With `on_failure="retry"` the item or look is tried again, not the round.

    Raises:
        ConfigurationError: if items, checks and fixes do not have the same names.

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
    again = _retried(options)
    makers = tuple((key, again(as_step(maker, name=key))) for key, maker in items.items())
    fixers = tuple((key, again(as_step(fixer, name=key))) for key, fixer in fixes.items())
    looks = tuple((key, again(as_check(key, checks[key]))) for key in items)
    whole = codec.whole(f"{name}: at_once", at_once, least=1)
    return Loop(
        _Items(name, makers, fixers, whole),
        _Looks(f"{name} checks", looks),
        FunctionStep(_plan, name="plan", fingerprint="recipes.plan/1"),
        any_of(Passed(), until, MaxIterations(max_iterations)),
        name=name,
        **{"keep": "last", **options},
    )


def _check_names(
    name: str, items: Mapping[str, Any], checks: Mapping[str, Any], fixes: Mapping[str, Any]
) -> None:
    _as_paths(name, items)
    for what, given in (("checks", checks), ("fix", fixes)):
        for key in given:
            if key not in items:
                hint = nearest(key, items)
                raise ConfigurationError(f"{name}: {what}: there is no item {key!r}{hint}")
    for key in items:
        if key not in checks:
            raise ConfigurationError(f"{name}: checks: {key!r} has none; give each item a check")


def _as_paths(name: str, given: Mapping[str, Any]) -> None:
    if not isinstance(given, Mapping) or not given:
        raise ConfigurationError(f"{name}: {given!r} names no steps; give an object of steps")
    for key in given:
        if not isinstance(key, str) or not key or "/" in key:
            raise ConfigurationError(
                f"{name}: {key!r} cannot be a name, as names are parts of paths; give a text "
                "without a slash"
            )


def _retried(options: dict[str, Any]) -> Any:
    """Take the retries out of a loop's options, as what to do to each of its parts."""
    if options.get("on_failure") != "retry":
        return lambda part: part
    options["on_failure"] = "halt"
    attempts = codec.whole("loop: max_retries", options.pop("max_retries", 2), least=0) + 1
    return functools.partial(retrying, attempts=attempts, delay=options.pop("retry_delay", 0.5))


@dataclass(frozen=True)
class _Items(CompositeStep):
    """Makes the items that are not there yet; from the second round on its input is a plan."""

    name: str
    makers: tuple[tuple[str, Any], ...]
    fixers: tuple[tuple[str, Any], ...]
    at_once: int

    @functools.cached_property
    def fingerprint(self) -> str:
        steps = (f"{name} {step.fingerprint}" for name, step in (*self.makers, *self.fixers))
        return digest_of("items", *steps)

    async def run(self, value: Json, ctx: Context) -> Result:
        plan = value if ctx.iteration > 1 else {"input": value, "items": {}, "redo": {}}
        fixers = dict(self.fixers)

        async def make(name: str, maker: Any) -> Result:
            task = plan["redo"].get(name)
            given = plan["input"]
            if task is not None:
                given = {"input": given, "item": name, **task}
                maker = fixers.get(name, maker)
            return await attempt(ctx, name, maker, given)

        missing = [(name, maker) for name, maker in self.makers if name not in plan["items"]]
        if self.at_once == 1:  # strictly one after the other: after a failure none is begun
            ended = [await make(name, maker) for name, maker in missing]
        else:
            jobs = [functools.partial(make, *item) for item in missing]
            ended = await run_all(jobs, self.at_once)
        made = {name: result.output for (name, _), result in zip(missing, ended, strict=True)}
        items = {**plan["items"], **made}
        parts = [(n, maker, r) for (n, maker), r in zip(missing, ended, strict=True)]
        return combined(self.name, {name: items[name] for name, _ in self.makers}, parts, ctx)


@dataclass(frozen=True)
class _Looks(CompositeStep):
    """Checks the items that have not passed yet."""

    name: str
    checks: tuple[tuple[str, Any], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("looks", *(f"{name} {step.fingerprint}" for name, step in self.checks))

    async def run(self, value: Json, ctx: Context) -> Result:
        passed = ctx.input["passed"] if ctx.iteration > 1 else ()
        found, ended = [], []
        for name, look in self.checks:
            if name in passed:
                found.append((name, Evaluation(1.0, True)))
                continue
            result = await attempt(ctx, name, look, value[name])
            found.append((name, as_evaluation(result.output)))
            ended.append((name, look, result))
        return combined(self.name, grade(found), ended, ctx)


async def _plan(last: Iteration, ctx: Context) -> Json:
    """Say what stays, what of it has passed (the rest is looked at again), and what is made
    again."""
    before = last.input if last.number > 1 else {"items": {}, "passed": [], "redo": {}}
    made = last.output is not None
    items = dict(last.output if made else before["items"])
    plan = {"input": ctx.initial, "items": items, "passed": before["passed"]}
    if last.evaluation is None:
        return {**plan, "redo": {} if made else before["redo"]}
    undecided = {vote["item"] for vote in last.evaluation.votes if vote.get("undecided")}
    redo = {
        item.name: {
            "previous": items.pop(item.name),
            "feedback": item.gap,
            "improvements": _of(item.name, last.evaluation),
        }
        for item in last.evaluation.criteria
        if not item.passed and item.name not in undecided
    }
    passed = [item.name for item in last.evaluation.criteria if item.passed]
    return {**plan, "passed": passed, "redo": redo}


def _of(name: str, evaluation: Evaluation) -> list[str]:
    prefix = f"{name}: "
    lines = (line for line in evaluation.improvements if line.startswith(prefix))
    return [line.removeprefix(prefix) for line in lines]


def strategy_loop(
    strategies: Mapping[str, Any],
    evaluate: StepLike,
    adapt: StepLike | None = None,
    *,
    threshold: float | None = None,
    max_iterations: int | None = None,
    until: Condition | None = None,
    name: str = "strategies",
    **options: Any,
) -> Loop:
    """Try one strategy after the other, a round each, until one is satisfied; the best is kept.

    Satisfied means that the evaluation passed, or that its score is at least `threshold` if that is
    given. Each strategy gets the loop's input, or what `adapt` makes of it, and after the last
    comes the first again if `max_iterations` (one round each unless given) allows. The record of a
    round names its strategy: as a vote of its evaluation, and in the path of all that it did,
    `…/execute/<strategy>` and `…/evaluate/<strategy>`. One that fails, or whose output cannot be
    evaluated, is followed by the next (`on_failure="continue"`), until each has failed in a row
    (`max_failures`: the number of strategies, at least 3).

    Raises:
        ConfigurationError: if there are no strategies, or a name cannot be part of a path.

    >>> from loopwright import run_sync
    >>> loop = strategy_loop({"exact": int, "rough": float}, lambda number: number == 2.5)
    >>> result = run_sync(loop, "2.5")
    >>> print(result.status, result.output, result.history[0].error.path)
    satisfied 2.5 strategies/1/execute/exact
    >>> result.best.evaluation.votes
    ({'strategy': 'rough'},)
    """
    _as_paths(name, strategies)
    parts = tuple((key, as_step(part, name=key)) for key, part in strategies.items())
    success: Condition = Passed() if threshold is None else ScoreAtLeast(threshold)
    rounds = len(parts) if max_iterations is None else max_iterations
    return Loop(
        _Strategies(name, parts),
        _Named(f"{name} evaluate", as_step(evaluate), tuple(strategies)),
        adapt,
        any_of(success, until, MaxIterations(rounds)),
        name=name,
        **{"on_failure": "continue", "max_failures": max(3, len(parts)), **options},
    )


@dataclass(frozen=True)
class _Strategies(CompositeStep):
    """Runs the strategy whose turn it is."""

    name: str
    members: tuple[tuple[str, Step], ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of(
            "strategies", *(f"{name} {part.fingerprint}" for name, part in self.members)
        )

    async def run(self, value: Json, ctx: Context) -> Result:
        name, part = self.members[(ctx.iteration - 1) % len(self.members)]
        result = await attempt(ctx, name, part, value)
        return combined(self.name, result.output, [(name, part, result)], ctx)


@dataclass(frozen=True)
class _Named(CompositeStep):
    """Evaluates under the name of the strategy whose turn it is."""

    name: str
    inner: Step
    strategies: tuple[str, ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        return digest_of("named", self.inner.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        name = self.strategies[(ctx.iteration - 1) % len(self.strategies)]
        result = await attempt(ctx, name, self.inner, value)
        found = as_evaluation(result.output)
        found = dataclasses.replace(found, votes=(*found.votes, {"strategy": name}))
        return combined(self.name, found, [(name, self.inner, result)], ctx)
