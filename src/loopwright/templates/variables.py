"""What templates see, and values with templates in them.

`input` the workflow's input, `value` the step's own, each earlier step's output by its name, `steps` and `loops` by
name, `env`, `given` what a caller's `with:` supplies (also by its own name), and inside a loop `loop` with `iteration`,
`initial`, `input`, `last`, `best`, `history`, `output` and `outputs` (of the rounds that did not fail); over a list
also `index`, `count`, `current` and `stats`. After a loop, `loop` is the one that ended last.
A workflow called with `with:` sees those values by name instead of its caller's, and the loop that calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.scope import Scope
from ..errors import StepError
from ..records import History, Iteration, Result
from ..records.codec import Json
from . import (
    Expression,
    Template,
    TemplateError,
    TemplateValue,
    compile_expression,
    compile_template,
)
from .syntax import COUNTER_FIELDS

__all__ = [
    "FIXED",
    "OF_ITEMS",
    "OF_LOOPS",
    "OF_ROUNDS",
    "TemplatedValue",
    "fill",
    "needed",
    "rendered",
    "variables",
]

FIXED = frozenset({"input", "value", "steps", "loops", "env", "given", "workflow", "strategy"})
OF_ITEMS = frozenset({"index", "count", "current", "stats"})  # fields of `loop` over a list only
OF_LOOPS = frozenset({  # those of any loop; the last four once it has ended
    "name", "iteration", "initial", "input", "last", "best", "history", "output", "outputs", "steps", "succeeded",
    "failed", "iterations", "exit_reason", "status", "score",
})  # fmt: skip
OF_ROUNDS = frozenset({"output", "score", "passed", "feedback", "error", "improvements"})


def variables(ctx: Context, value: Json) -> dict[str, Json]:
    """Return the variables that a step at `ctx` sees; `value` is its own input."""
    steps: dict[str, Json] = {}
    loops: dict[str, Json] = {}
    seen: dict[str, Json] = {"value": value, "steps": steps, "loops": loops, "input": value}
    scope, given, ended = ctx.scope, None, None
    while scope is not None and given is None:
        if scope.number and "loop" not in seen:
            seen["loop"] = loop_variables(scope)
        ended = ended or next(iter(reversed(list(scope.loops.values()))), None)
        for name, output in scope.outputs.items():
            steps.setdefault(name, output)
        for name, result in (*scope.loops.items(), *scope.results.items()):
            if name in scope.loops or result.iterations:
                loops.setdefault(name, result_variables(scope.loops.get(name, result)))
        given = scope.variables
        if given is not None:
            seen |= {"input": scope.initial, "env": given.get("env", {})}
        scope = scope.parent
    if ended and "loop" not in seen:
        seen["loop"] = result_variables(ended)
    while scope is not None and "loop" not in seen:  # the loop around the call of this workflow
        if scope.number:
            seen["loop"] = loop_variables(scope)
        scope = scope.parent
    if isinstance(around := seen.get("loop"), dict) and "current" not in around:
        seen["loop"] = {**_of_list(ctx.scope), **around}
    supplied = {name: item for name, item in (given or {}).items() if name != "env"}
    return {**supplied, **steps, **seen, "given": supplied}


def _of_list(scope: Scope | None) -> dict[str, Json]:
    """Return what a loop inside a list sees of it: the item and its place; nothing outside a list."""
    while scope is not None and not scope.total:
        scope = scope.parent
    return (
        {} if scope is None else {k: v for k, v in loop_variables(scope).items() if k in OF_ITEMS}
    )


def loop_variables(scope: Scope) -> dict[str, Json]:
    """Return what a template sees as `loop` inside of it."""
    found = {
        "name": scope.name,
        "iteration": scope.number,
        "initial": scope.initial,
        "input": scope.current,
        **_rounds(scope.history),
    }
    if scope.total:
        stats = {"succeeded": found["succeeded"], "failed": found["failed"]}
        found |= {
            "index": scope.number - 1,
            "count": scope.total,
            "current": scope.current,
            "stats": stats,
        }
    return found


def result_variables(result: Result) -> dict[str, Json]:
    """Return what a template sees of a finished loop."""
    best = result.best
    return {
        "name": result.name,
        "iteration": result.iterations,
        "iterations": result.iterations,
        "exit_reason": result.reason.value,
        "status": result.status.value,
        "score": best.score if best else None,
        **_rounds(result.history),
        "output": "" if result.output is None else result.output,
    }


def _rounds(history: History) -> dict[str, Json]:
    """Return what a template sees of the rounds of a loop."""
    whole = [item for item in history if item.error is None and not item.interrupted]
    outputs = [item.output for item in whole]
    return {
        "last": iteration_variables(history.last),
        "best": iteration_variables(history.best),
        "history": [iteration_variables(item) for item in history],
        "output": outputs[-1] if outputs and outputs[-1] is not None else "",
        "outputs": outputs,
        "steps": dict(whole[-1].steps or {}) if whole else {},
        "succeeded": len(whole),
        "failed": len(history) - len(whole),
    }


_NO_ITERATION = TemplateValue(
    "",
    {
        "iteration": 0, "output": "", "score": None, "passed": None,
        "feedback": "", "error": "", "improvements": [],
    },
)  # fmt: skip


def iteration_variables(item: Iteration | None) -> Json:
    """Return what a template sees of a finished iteration; of none, empty values in what is false."""
    if item is None:
        return _NO_ITERATION
    found = item.evaluation
    return {
        "iteration": item.number,
        "output": "" if item.output is None else item.output,
        "score": item.score,
        "passed": item.passed,
        "feedback": item.feedback,
        "error": item.error.message if item.error else "",
        "improvements": list(found.improvements) if found else [],
    }


@dataclass(frozen=True, slots=True)
class TemplatedValue:
    """A value with templates compiled: text that is one expression gives its value, other text is rendered.

    `names` are those that something must supply; a member of `given`, of `steps` and `loops`, or of what only a loop
    over a list or no loop has, is named with its parent: `given.max-words`, `steps.draft`, `loop.index`. `see` makes
    of a place what is filled in there.
    """

    source: Json
    fill: Callable[[Any], Json]
    names: frozenset[str]
    see: Callable[[Context, Json], Any] = variables


def fill(source: Json) -> TemplatedValue:
    """Compile the templates inside a value.

    Raises:
        TemplateError: for a template that cannot be read, with its place inside the text.
    """
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, Mapping):
        parts = {key: fill(item) for key, item in source.items()}
        return TemplatedValue(
            source, lambda seen: {k: part.fill(seen) for k, part in parts.items()},
            frozenset().union(*(p.names for p in parts.values())),
        )  # fmt: skip
    if isinstance(source, list):
        items = [fill(item) for item in source]
        return TemplatedValue(
            source, lambda seen: [item.fill(seen) for item in items],
            frozenset().union(*(i.names for i in items)),
        )  # fmt: skip
    return TemplatedValue(source, lambda _: source, frozenset())


def _text(source: str) -> TemplatedValue:
    bare = source.strip()
    if "{" not in bare:
        return TemplatedValue(source, lambda _: source, frozenset())
    inner = bare[2:-2]
    if bare.startswith("{{") and bare.find("}}") == len(bare) - 2 and "{{" not in inner:
        try:
            expression = compile_expression(inner.strip("-+").strip())
        except TemplateError:
            compile_template(source)  # says where in the text it goes wrong
            raise
        return TemplatedValue(source, expression.evaluate, needed(expression))
    template = compile_template(source)
    return TemplatedValue(source, template.render, needed(template))


def needed(part: Template | Expression) -> frozenset[str]:
    """Return the names that must be supplied; see `TemplatedValue`."""
    given = {f"given.{name}" for name in part.members("given")}
    fields = part.members("loop")  # those of a counter too, where {% for %} has one of that name
    items = {f"loop.{name}" for name in fields & OF_ITEMS | fields - OF_LOOPS - COUNTER_FIELDS}
    steps = {f"{of}.{name}" for of in ("steps", "loops") for name in part.members(of)}
    return part.required | given | items | steps


def rendered(part: TemplatedValue | Template | Expression, ctx: Context, value: Json) -> Any:
    """Fill in a compiled template where it runs; a template error is a failure of the step.

    Raises:
        StepError: of kind `template`.
    """
    try:
        if isinstance(part, TemplatedValue):
            return part.fill(part.see(ctx, value))
        run = part.render if isinstance(part, Template) else part.evaluate
        return run(variables(ctx, value))
    except TemplateError as error:
        raise StepError(str(error), path=ctx.path, kind="template", retryable=False) from error
