"""What templates see, and values with templates in them.

`input` the workflow's input, `value` the step's own, each earlier step's output by its name, `steps` and `loops` by
name, `env`, and inside a loop `loop` with `iteration`, `initial`, `input`, `last`, `best` and `history`.
A workflow called with `with:` sees those values by name instead of its caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .codec import Json
from .context import Context
from .errors import StepError
from .records import Iteration, Result
from .runtime import Scope
from .templates import Expression, Template, TemplateError, compile_expression, compile_template

__all__ = ["FIXED", "Filled", "fill", "variables"]

FIXED = frozenset({"input", "value", "steps", "loops", "loop", "env", "workflow", "strategy"})


def variables(ctx: Context, value: Json) -> dict[str, Json]:
    """Return the variables that a step at `ctx` sees; `value` is its own input."""
    seen: dict[str, Json] = {}
    steps: dict[str, Json] = {}
    loops: dict[str, Json] = {}
    scope = ctx.scope
    while scope is not None:
        if scope.number and "loop" not in seen:
            seen["loop"] = loop_variables(scope)
        for name, output in scope.outputs.items():
            steps.setdefault(name, output)
        for name, result in scope.results.items():
            if result.iterations or result.name == name and result.history is not None:
                loops.setdefault(name, result_variables(result))
        if scope.variables is not None:
            seen.update({k: v for k, v in scope.variables.items() if k not in seen})
            seen.setdefault("input", scope.initial)
            break
        scope = scope.parent
    for name, output in steps.items():
        seen.setdefault(name, output)
    seen.update(value=value, steps=steps, loops=loops)
    seen.setdefault("input", value)
    return seen


def loop_variables(scope: Scope) -> dict[str, Json]:
    """Return what a template sees as `loop`."""
    history = scope.history
    best = history.best
    return {
        "name": scope.name,
        "iteration": scope.number,
        "initial": scope.initial,
        "input": scope.current,
        "last": iteration_variables(history.last),
        "best": iteration_variables(best),
        "history": [iteration_variables(item) for item in history],
    }


def iteration_variables(item: Iteration | None) -> dict[str, Json]:
    """Return what a template sees of a finished iteration; of none, empty values."""
    if item is None:
        return {"iteration": 0, "output": "", "score": None, "passed": None, "feedback": "", "error": "", "improvements": []}  # fmt: skip
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


def result_variables(result: Result) -> dict[str, Json]:
    """Return what a template sees of a finished loop."""
    best = result.best
    return {
        "iterations": result.iterations,
        "exit_reason": result.reason.value,
        "status": result.status.value,
        "output": result.output,
        "score": best.score if best else None,
        "history": [iteration_variables(item) for item in result.history],
    }


@dataclass(frozen=True, slots=True)
class Filled:
    """A value with templates compiled: text that is one expression gives its value, other text is rendered."""

    source: Json
    fill: Callable[[Mapping[str, Json]], Json]
    names: frozenset[str]


def fill(source: Json) -> Filled:
    """Compile the templates inside a value.

    Raises:
        TemplateError: for a template that cannot be read, with its place inside the text.
    """
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, Mapping):
        parts = {key: fill(item) for key, item in source.items()}
        return Filled(
            source, lambda seen: {k: part.fill(seen) for k, part in parts.items()},
            frozenset().union(*(p.names for p in parts.values())),
        )  # fmt: skip
    if isinstance(source, list):
        items = [fill(item) for item in source]
        return Filled(
            source, lambda seen: [item.fill(seen) for item in items],
            frozenset().union(*(i.names for i in items)),
        )  # fmt: skip
    return Filled(source, lambda _: source, frozenset())


def _text(source: str) -> Filled:
    bare = source.strip()
    if "{" not in bare:
        return Filled(source, lambda _: source, frozenset())
    template = compile_template(source)
    inner = bare[2:-2]
    if bare.startswith("{{") and bare.endswith("}}") and "{{" not in inner and "}}" not in inner:
        expression = compile_expression(inner.strip("-").strip())
        return Filled(source, expression.evaluate, template.names)
    return Filled(source, template.render, template.names)


def rendered(part: Filled | Template | Expression, ctx: Context, value: Json) -> Any:
    """Fill in a compiled template where it runs; a template error is a failure of the step.

    Raises:
        StepError: of kind `template`.
    """
    run: Callable[[Mapping[str, Json]], Any]
    if isinstance(part, Filled):
        run = part.fill
    else:
        run = part.render if isinstance(part, Template) else part.evaluate
    try:
        return run(variables(ctx, value))
    except TemplateError as error:
        raise StepError(f"template: {error}", path=ctx.path, kind="template", retryable=False) from error
