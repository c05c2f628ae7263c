"""Steps of documents: functions, calls of documents, groups, lists, values and memories."""

from __future__ import annotations

import math

from ...engine.composites import fallback, parallel, retry, with_timeout
from ...engine.step import FunctionStep, Step
from ...engine.workflow import Workflow
from ...errors import nearest
from ...templates.variables import OF_ITEMS
from ..schema.document import Action, StepSpec
from ..schema.traverse import given_needs
from ..steps.for_each import FILE, ForEach, Items, inside
from ..steps.loop_node import AgentGroup, AgentsAtOnce, MemoryRead, MemoryWrite
from ..steps.memory import RecallFacts, RememberFact
from ..steps.steps import CallDocument, SetValue
from ..yaml.source import Location
from .compilation import Compilation

__all__ = [
    "compile_call",
    "compile_each",
    "compile_fallback",
    "compile_memory",
    "compile_parallel",
    "compile_python",
    "compile_set",
    "compile_steps",
]


def compile_python(compilation: Compilation, spec: Action, name: str, at: Location) -> Step | None:
    """Compile a call of a function; None if it has problems."""
    assert spec.python is not None
    path = (*at, "python")
    function = compilation.function(path, spec.python)
    if function is None or isinstance(function, Step):
        return function
    idempotent = True if spec.idempotent is None else spec.idempotent
    return compilation.attempt(
        path, lambda: FunctionStep(function, name=name, idempotent=idempotent)
    )


def compile_call(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> CallDocument | None:
    """Compile a call of another document; None if it has problems."""
    assert spec.workflow is not None
    variables = compilation.template((*at, "with"), spec.with_ or {})
    of_loop = {name for name in compilation.known if name.partition(".")[0] == "loop"}
    supplied = frozenset({*(spec.with_ or {}), *of_loop})
    child = compilation.call(compilation, spec.workflow, (*at, "workflow"), supplied)
    if child is None:
        return None
    for i, step in enumerate(spec.expose):
        if step not in child.steps:
            message = f"{spec.workflow} has no step {step!r}{nearest(step, child.steps)}"
            compilation.problem((*at, "expose", i), message)
    return CallDocument(name, child, variables, tuple(spec.expose))


def compile_steps(compilation: Compilation, spec: Action, name: str, at: Location) -> Step | None:
    """Compile consecutive steps; None if they have problems."""
    path = (*at, "steps")
    specs = spec.steps or []
    steps = compilation.steps(specs, path)
    if not steps:
        return None
    needs = given_needs(specs)
    output = _group_output(compilation, spec, at, ("all", "last"))
    if not output:
        return compilation.attempt(path, lambda: Workflow(name, steps, needs=needs))
    how = {"marked": isinstance(spec, StepSpec), "last": output == "last"}
    return compilation.attempt(path, lambda: AgentGroup(name, steps, needs=needs, **how))


def compile_parallel(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> Step | None:
    """Compile concurrent steps; None if they have problems."""
    path = (*at, "parallel")
    result = compilation.steps(spec.parallel or [], path, ordered=False)
    if not result:
        return None
    step = parallel(*result.values(), name=name)
    return AgentsAtOnce(name, step) if _group_output(compilation, spec, at, ("all",)) else step


def _group_output(
    compilation: Compilation, spec: Action, at: Location, words: tuple[str, ...]
) -> str:
    """Return the `output` of a group, "" if it has none."""
    if spec.output is None or spec.output in words:
        return spec.output or ""
    message = f"the output of this group is {' or '.join(words)}, not {spec.output!r}"
    compilation.problem((*at, "output"), message)
    return ""


def compile_fallback(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> Step | None:
    """Compile steps that are tried in order; None if they have problems."""
    result = compilation.steps(spec.fallback or [], (*at, "fallback"), ordered=False)
    return fallback(*result.values(), name=name) if result else None


def compile_set(compilation: Compilation, spec: Action, name: str, at: Location) -> SetValue:
    """Compile a value with templates."""
    return SetValue(name, compilation.template((*at, "set"), spec.set))


def compile_memory(compilation: Compilation, spec: Action, name: str, at: Location) -> Step | None:
    """Compile an operation on texts or facts in memory."""
    assert spec.memory is not None
    memory, path = spec.memory, (*at, "memory")
    text = compilation.template((*path, "text"), memory.text)
    if memory.operation in ("remember", "recall"):
        space = f"memory:{memory.namespace}"
        if memory.operation == "remember":
            return RememberFact(name, space, text, memory.category)
        return RecallFacts(name, space, text, memory.category, memory.limit)
    if memory.operation == "read":
        return MemoryRead(name, memory.namespace, text, memory.limit)
    metadata = compilation.template((*path, "metadata"), memory.metadata)
    return MemoryWrite(name, memory.namespace, text, metadata)


def compile_each(
    compilation: Compilation, action: Action, name: str, at: Location
) -> ForEach | None:
    """Compile a step for each item of a list; None if it has problems."""
    assert action.each is not None
    spec, path = action.each, (*at, "each")
    source = compilation.template((*path, "items"), spec.items)
    root = compilation.project.root_of(compilation.folder)
    written = spec.items.strip() if isinstance(spec.items, str) else ""
    # The folder before a placeholder can be checked now: no value leads back from another folder.
    file, brace, _ = written.removeprefix(FILE).partition("{{")
    head, slash, _ = file.rpartition("/")
    folder = (head or slash) if brace else file
    if written.startswith(FILE) and inside(compilation.folder, folder, root) is None:
        compilation.problem((*path, "items"), f"{written} is outside the project folder")
    inner = compilation.with_names(["loop", *(f"loop.{field}" for field in OF_ITEMS)])
    execute = inner.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    if execute is None:
        return None
    if spec.item_timeout is not None:
        execute = with_timeout(execute, spec.item_timeout)
    if spec.on_failure == "retry":
        execute = retry(execute, attempts=spec.max_retries + 1, delay=spec.retry_delay)
    items = Items(source, compilation.folder, root, spec.max_items)
    return ForEach(
        name,
        items,
        execute,
        at_once=spec.at_once,
        min_success_rate=spec.min_success_rate,
        unmet=spec.unmet,
        halts=spec.on_failure != "continue",
        seconds=spec.timeout or math.inf,
        keep=spec.keep,
    )
