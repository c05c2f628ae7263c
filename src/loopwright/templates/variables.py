"""The variables of templates, and values that contain templates.

`input` is the input of the workflow, `value` the input of the step. Each earlier output is a variable with
the name of its step; `steps` and `loops` contain them by name. `env` has the constants of the document,
`given` the values of a caller's `with:`, which are variables as well. Inside a loop, `loop` has `iteration`,
`initial`, `input`, `last`, `best`, `history`, `feedback`, `output` and `outputs` (of the iterations that did not fail),
and `parent`, `chain`, `chains` and `strategy`, which `engine.plan` explains;
in a list also `index`, `count`, `current` and `stats`. After a loop, `loop` is the last loop that ended.
A workflow that is called with `with:` has these values instead of its caller's, and the calling loop.
`signal_url(NAME, KEY)` is the address at which another program sends an event to the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..engine.context import Context, Scope
from ..errors import ConfigurationError, StepError, TemplateError
from ..records import History, Iteration, Result
from ..records.codec import Json
from ..records.display import idea_of
from ..records.history import table_text

if TYPE_CHECKING:
    from .template import Expression, Template

__all__ = [
    "FIXED",
    "OF_ITEMS",
    "OF_ITERATIONS",
    "OF_LOOPS",
    "OF_ROUNDS",
    "SIGNAL_URL",
    "TemplateValue",
    "TemplatedValue",
    "expression",
    "fill",
    "needed",
    "rendered",
    "variables",
]

SIGNAL_URL = "signal_url"  # a function; see `journal.signal_urls`
FIXED = frozenset(
    {"input", "value", "steps", "loops", "env", "given", "workflow", "strategy", SIGNAL_URL}
)
OF_ITEMS = frozenset({"index", "count", "current", "stats"})  # fields of `loop` only over a list
OF_LOOPS = frozenset({  # fields of every loop; the last four exist after its end
    "name", "iteration", "initial", "input", "last", "best", "history", "output", "outputs", "steps", "succeeded",
    "failed", "feedback", "verdicts", "baseline", "parent", "chain", "chains", "strategy", "candidate", "vary",
    "hints", "table", "iterations", "exit_reason", "status", "score",
})  # fmt: skip
OF_ROUNDS = frozenset({
    "output", "score", "passed", "feedback", "error", "improvements", "metrics", "accepted", "idea", "verdicts",
})  # fmt: skip
OF_ITERATIONS = OF_ROUNDS | {"iteration"}  # fields of `loop.last`, `loop.best` and `loop.parent`
# Fields of the counter of a `{% for %}` that paths read, and all of its fields.
LOOP_FIELDS = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"}
    | {"revindex", "revindex0"}
)
COUNTER_FIELDS = LOOP_FIELDS | {"cycle"}


@dataclass(frozen=True, slots=True)
class TemplateValue:
    """Text with fields: it prints as `text`, and `{{ value.name }}` is `fields["name"]`.

    Args:
        text: The printed text. An empty text is false in conditions.
        fields: Plain data or further values of this kind, by name. Default: none.

    Example:
        >>> from loopwright.templates import compile_template
        >>> reply = TemplateValue("Paris", {"score": 0.9})
        >>> compile_template("{{ reply }}: {{ reply.score }}").render({"reply": reply})
        'Paris: 0.9'
    """

    text: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)


def variables(ctx: Context, value: Json) -> dict[str, Json]:
    """Return the variables of a step at `ctx`; `value` is its own input."""
    steps: dict[str, Json] = {}
    loops: dict[str, Json] = {}
    variables: dict[str, Json] = {"value": value, "steps": steps, "loops": loops, "input": value}
    scope, supplied, loop = ctx.scope, None, None
    last: Result | None = None
    # A scope with supplied variables belongs to a document; outer scopes are not visible.
    while scope is not None and supplied is None:
        loop = loop or (loop_variables(scope) if scope.number else None)
        last = last or next(iter(reversed(list(scope.loops.values()))), None)
        # Those of an inner scope take precedence.
        for name, output in scope.outputs.items():
            steps.setdefault(name, output)
        for name, result in (*scope.loops.items(), *scope.results.items()):
            # A composite step has a result without iterations, which is not a loop.
            if name in scope.loops or result.iterations:
                loops.setdefault(name, result_variables(scope.loops.get(name, result)))
        supplied = scope.variables
        if supplied is not None:
            variables |= {"input": scope.initial, "env": supplied.get("env", {})}
        scope = scope.parent
    # The innermost running loop, otherwise the loop that ended last, otherwise the loop around the call.
    loop = loop or (result_variables(last) if last else None)
    while loop is None and scope is not None:
        loop = loop_variables(scope) if scope.number else None
        scope = scope.parent
    if loop is not None and "current" not in loop:
        # With the item of the surrounding list and its position.
        around = ctx.scope
        while around is not None and not around.total:
            around = around.parent
        fields = loop_variables(around) if around is not None else {}
        loop = {**{k: v for k, v in fields.items() if k in OF_ITEMS}, **loop}
    if loop is not None:
        variables["loop"] = loop
    case = None if ctx.scope is None else ctx.scope.case
    if case is not None:
        variables["case"] = case.variables()
    supplied = {name: item for name, item in (supplied or {}).items() if name != "env"}
    # Predefined names win over steps, and steps over the caller's variables.
    return {**supplied, **steps, **variables, "given": supplied}


def loop_variables(scope: Scope) -> dict[str, Json]:
    """Return the variable `loop` inside a running loop."""
    # In the first iteration, feedback and verdicts are those of the baseline; also after a fresh start.
    last, baseline, place, parent = scope.last, scope.baseline, scope.place, scope.continued
    chain = 1 if place is None else place.plan.chain
    evaluation = baseline if last is None else last.evaluation
    before = _NO_ITERATION if baseline is None else {
        "iteration": 0, "output": "", "score": baseline.score, "passed": baseline.passed,
        "feedback": baseline.feedback, "error": "", "improvements": list(baseline.improvements),
        "metrics": dict(baseline.metrics), "accepted": None, "idea": "",
        "verdicts": dict(baseline.verdicts or {}),
    }  # fmt: skip
    fields = {
        "name": scope.name,
        "iteration": scope.number,
        "initial": scope.initial,
        "input": scope.current,
        **_iterations(scope.history, None if place is None else place.seen),
        "feedback": last.feedback if last is not None else baseline.feedback if baseline else "",
        "verdicts": dict(evaluation.verdicts or {}) if evaluation is not None else {},
        "baseline": before,
        "candidate": scope.candidate,
        "vary": "" if scope.vary is None else scope.vary,
        "parent": _NO_ITERATION if parent is None else iteration_variables(parent),
        "chain": chain,
        "chains": [
            iteration_variables(item)
            for number, item in (() if place is None else scope.history.chains.items())
            if number != chain
        ],
        "strategy": "" if place is None or place.strategy is None else place.strategy,
        # Of documents that are recorded with a run; in place of it is `chain`.
        "restarts": chain - 1,
        "hints": [hint["text"] for hint in around.hints if "step" not in hint]
        if (around := scope.iteration_scope)
        else [],
    }
    if scope.total:
        stats = {"succeeded": fields["succeeded"], "failed": fields["failed"]}
        fields |= {
            "index": scope.number - 1,
            "count": scope.total,
            "current": scope.current,
            "stats": stats,
        }
    return fields


def result_variables(result: Result) -> dict[str, Json]:
    """Return the variable of a finished loop."""
    best = result.best
    return {
        "name": result.name,
        "iteration": result.iterations,
        "iterations": result.iterations,
        "exit_reason": result.reason.value,
        "status": result.status.value,
        "score": best.score if best else None,
        **_iterations(result.history),
        "output": "" if result.output is None else result.output,
    }


def _iterations(history: History, seen: Sequence[Iteration] | None = None) -> dict[str, Json]:
    """Return the fields of a loop that describe its iterations; `seen` are those of the chain, if not all."""
    items, best = list(history), history.best
    seen = items if seen is None else seen
    completed = [item for item in seen if item.error is None and not item.interrupted]
    succeeded = sum(item.error is None and not item.interrupted for item in items)
    outputs = [item.output for item in completed]
    rows = [iteration_variables(item) for item in items]
    return {
        "last": iteration_variables(seen[-1]) if seen else _NO_ITERATION,
        "best": next(
            (row for item, row in zip(items, rows, strict=True) if item is best), _NO_ITERATION
        ),
        "history": rows,
        # Empty text instead of null, which would print as "None" in a prompt.
        # Only iterations that are accepted or rejected have a table.
        "table": table_text(history) if items and items[-1].accepted is not None else "",
        "output": outputs[-1] if outputs and outputs[-1] is not None else "",
        "outputs": outputs,
        "steps": dict(completed[-1].steps or {}) if completed else {},
        "succeeded": succeeded,
        "failed": len(items) - succeeded,
    }


# A false value with empty fields, so that `loop.last.output` needs no test in the first iteration.
_NO_ITERATION = TemplateValue(
    "",
    {
        "iteration": 0, "output": "", "score": None, "passed": None,
        "feedback": "", "error": "", "improvements": [], "metrics": {}, "accepted": None, "idea": "",
        "verdicts": {},
    },
)  # fmt: skip


def iteration_variables(item: Iteration) -> Json:
    """Return the variable of a finished iteration."""
    evaluation = item.evaluation
    return {
        "iteration": item.number,
        "output": "" if item.output is None else item.output,
        "score": item.score,
        "passed": item.passed,
        "feedback": item.feedback,
        "error": item.error.message if item.error else "",
        "improvements": list(evaluation.improvements) if evaluation else [],
        "metrics": dict(evaluation.metrics) if evaluation else {},
        "accepted": item.accepted,
        "idea": idea_of(item),
        "verdicts": dict(evaluation.verdicts or {}) if evaluation else {},
    }


@dataclass(frozen=True, slots=True)
class TemplatedValue:
    """A value with compiled templates. A text that is one expression has its value, other text is rendered.

    `names` are the names that need a value. A member of `given`, `steps` or `loops`, and a field of `loop`
    that not every loop has, includes its parent: `given.max-words`, `steps.draft`, `input.topic`, `loop.index`.
    `optional` are the names, in the same form, that have a default or are tested. `variables_of` returns the
    variables of a context.
    """

    source: Json
    fill: Callable[[Json], Json]
    names: frozenset[str]
    variables_of: Callable[[Context, Json], Json] = variables
    optional: frozenset[str] = frozenset()


def fill(source: Json) -> TemplatedValue:
    """Compile the templates inside a value.

    Raises:
        TemplateError: For an invalid template, with its position in the text.
    """
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, Mapping):
        parts = {key: fill(item) for key, item in source.items()}
        return TemplatedValue(
            source, lambda values: {k: part.fill(values) for k, part in parts.items()},
            frozenset().union(*(p.names for p in parts.values())),
            optional=frozenset().union(*(p.optional for p in parts.values())),
        )  # fmt: skip
    if isinstance(source, list):
        items = [fill(item) for item in source]
        return TemplatedValue(
            source, lambda values: [item.fill(values) for item in items],
            frozenset().union(*(i.names for i in items)),
            optional=frozenset().union(*(i.optional for i in items)),
        )  # fmt: skip
    return TemplatedValue(source, lambda _: source, frozenset())


def expression(source: str) -> TemplatedValue:
    """Compile an expression, such as that of an `if`.

    Raises:
        TemplateError: For an invalid expression.
    """
    from .template import compile_expression

    compiled = compile_expression(source)
    return TemplatedValue(source, compiled.evaluate, needed(compiled), optional=compiled.optional)


def _text(source: str) -> TemplatedValue:
    bare = source.strip()
    if "{" not in bare:
        return TemplatedValue(source, lambda _: source, frozenset())
    from .template import compile_template

    inner = bare[2:-2]
    if bare.startswith("{{") and bare.find("}}") == len(bare) - 2 and "{{" not in inner:
        try:
            return replace(expression(inner.strip("-+").strip()), source=source)
        except TemplateError:
            compile_template(source)  # raises an error with the position in the text
            raise
    template = compile_template(source)
    return TemplatedValue(source, template.render, needed(template), optional=template.optional)


def needed(part: Template | Expression) -> frozenset[str]:
    """Return the names that need a value. See `TemplatedValue`."""
    supplied = {f"given.{name}" for name in part.members("given")}
    fields = part.members("loop")  # includes fields of the counter of a {% for %}
    items = {f"loop.{name}" for name in fields & OF_ITEMS | fields - OF_LOOPS - COUNTER_FIELDS}
    # With the parent, so that a check can distinguish a missing step from a missing variable.
    steps = {f"{of}.{name}" for of in ("steps", "loops") for name in part.members(of)}
    # Otherwise an iteration before would be paid for first: `loop.last` has empty fields in the first one.
    wrong = {
        f"{of}.{name}"
        for of in ("loop.last", "loop.best", "loop.parent")
        for name in part.members(of) - OF_ITERATIONS
    }
    inputs = {f"input.{name}" for name in part.members("input")}
    return part.required | supplied | items | steps | wrong | inputs


def rendered(part: TemplatedValue, ctx: Context, value: Json) -> Json:
    """Render a compiled template for a context.

    Raises:
        StepError: Of kind `template`, for a template error. It is not retried, because rendering is a pure
            function of its values.
    """
    try:
        values = part.variables_of(ctx, value)
        if SIGNAL_URL in part.names and isinstance(values, dict):
            from ..journal.signal_urls import signal_url  # for the few templates that use it
            from .sandbox import Helper

            function = partial(signal_url, ctx.run.run_id)
            values = {SIGNAL_URL: Helper(SIGNAL_URL, function), **values}
        return part.fill(values)
    except ConfigurationError as error:
        raise StepError(str(error), path=ctx.path, kind="template", retryable=False) from error
