"""A document as a workflow of steps, the objects that Python users write.

Nothing runs here. Names, needs, cycles, templates, functions, conditions and limits are checked, and all problems are
reported together, each with its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ...engine.composites import fallback, parallel, retry, with_timeout
from ...engine.lists import ForEach
from ...engine.step import FunctionStep, Step
from ...engine.workflow import Workflow
from ...errors import nearest
from ...records.codec import Json
from ...templates.variables import OF_ITEMS
from ..schema.document import Action, Document, StepSpec
from ..schema.inputs import DeclaredInputs
from ..schema.traverse import given_needs, has_groups, needs_of
from ..steps import FILE, CallDocument, DocumentWorkflow, Items, RecallFacts, RememberFact, SetValue
from ..yaml.reader import Location
from .compilation import COMPILER, Compilation, extension, named

__all__ = [
    "KINDS",
    "compile_call",
    "compile_document",
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
    # Functions are repeatable by default, commands are not: the rule of the Python API.
    idempotent = True if spec.idempotent is None else spec.idempotent
    return compilation.attempt(
        path, lambda: FunctionStep(function, name=name, idempotent=idempotent, typed=True)
    )


def compile_call(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> CallDocument | None:
    """Compile a call of another document; None if it has problems."""
    assert spec.workflow is not None
    variables = compilation.template((*at, "with"), spec.with_ or {})
    # A called document sees the loop or the case around the call, but no other variables of its caller.
    around = {name for name in compilation.defined if name.partition(".")[0] == "loop"}
    if "case.inputs" in compilation.defined:
        around |= {"case", "case.inputs"}
    supplied = frozenset({*(spec.with_ or {}), *around})
    # Variables of a key that was left out may be missing.
    if any(field[:-1] == at for field in compilation.gaps.fields):
        return None
    child = compilation.call(compilation, spec.workflow, (*at, "workflow"), supplied)
    if child is None:
        return None
    if child.inputs is not None:
        _check_inputs(compilation, child.inputs, spec.with_ or {}, (*at, "with"))
    for i, step in enumerate(spec.expose):
        if step not in child.steps:
            message = f"{spec.workflow} has no step {step!r}{nearest(step, child.steps)}"
            compilation.problem((*at, "expose", i), message)
    return CallDocument(name, child, variables, tuple(spec.expose))


def _check_inputs(
    compilation: Compilation, inputs: DeclaredInputs, given: Mapping[str, Json], at: Location
) -> None:
    """Add a problem for each value of a call that the called document would refuse, as far as it is known."""
    for name, value in given.items():
        known = not isinstance(value, dict | list) and "{" not in str(value)
        if name != "input" and (known or name not in inputs.specs):
            compilation.attempt((*at, name), partial(inputs.value, name, value, text=True))
    if given and "input" not in given:
        compilation.attempt(at, partial(inputs.require, given, called=True))


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
    group = extension("steps")
    how = {"marked": isinstance(spec, StepSpec), "last": output == "last"}
    return compilation.attempt(path, lambda: group(name, steps, needs=needs, **how))


def compile_parallel(
    compilation: Compilation, spec: Action, name: str, at: Location
) -> Step | None:
    """Compile concurrent steps; None if they have problems."""
    path = (*at, "parallel")
    result = compilation.steps(spec.parallel or [], path, ordered=False)
    if not result:
        return None
    step: Step = parallel(*result.values(), name=name)
    grouped = _group_output(compilation, spec, at, ("all",))
    return extension("parallel")(name, step) if grouped else step


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
    last: object = memory.limit
    if memory.operation == "write":
        last = compilation.template((*path, "metadata"), memory.metadata)
    step: Step = extension(memory.operation)(name, memory.namespace, text, last)
    return step


def compile_each(
    compilation: Compilation, action: Action, name: str, at: Location
) -> ForEach | None:
    """Compile a step for each item of a list; None if it has problems."""
    assert action.each is not None
    spec, path = action.each, (*at, "each")
    source = compilation.template((*path, "items"), spec.items)
    written = spec.items.strip() if isinstance(spec.items, str) else ""
    allowed = compilation.folder
    if written.startswith(FILE):
        allowed = compilation.sent(written.removeprefix(FILE), (*path, "items"), written)
        compilation.need((*path, "items"), compilation.project.sent[-1].missing)
    inner = compilation.with_names(["loop", *(f"loop.{field}" for field in OF_ITEMS)])
    if spec.at_once > 1:  # these items have no files
        inner = replace(inner, in_workspace=False)
    execute = inner.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    if execute is None:
        return None
    if spec.item_timeout is not None:
        execute = with_timeout(execute, spec.item_timeout)
    if spec.on_failure == "retry":
        execute = retry(execute, attempts=spec.max_retries + 1, delay=spec.retry_delay)
    items = Items(source, compilation.folder, allowed, spec.max_items)
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


# What compiles each kind, as text: a document loads those of its own steps.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        kind: f"{COMPILER}.{module}:compile_{function}"
        for kind, module, function in (
            ("python", "steps", "python"),
            ("shell", "tools", "command"),
            ("workflow", "steps", "call"),
            ("loop", "loops", "loop"),
            ("each", "steps", "each"),
            ("steps", "steps", "steps"),
            ("parallel", "steps", "parallel"),
            ("fallback", "steps", "fallback"),
            ("prompt", "prompts", "prompt"),
            ("tool", "tools", "tool_step"),
            ("phased", "agents", "phased"),
            ("reasoning", "agents", "reasoning"),
            ("agent", "agents", "agent"),
            ("gepa", "datasets", "gepa"),
            ("memory", "steps", "memory"),
            ("wait", "waits", "wait"),
            ("set", "steps", "set"),
        )
    }
)


def compile_document(
    document: Document, compilation: Compilation, value: frozenset[str]
) -> DocumentWorkflow | None:
    """Compile a document for a caller that supplies the names in `value`; None if it has problems."""
    declared = frozenset({*document.tools, *document.servers, *compilation.gaps.tools})
    tools = {}
    if document.tools or document.servers:
        tools = named(f"{COMPILER}.tools:compile_tools")(document, compilation)
    around = compilation.in_workspace or document.workspace is not None
    inner = replace(
        compilation.with_names(value),
        tools=tools,
        declared=declared,
        in_workspace=around,
        refine_from=getattr(document.workspace, "refine_from", compilation.refine_from),
    )
    if document.eval is not None:
        made = named(f"{COMPILER}.datasets:compile_eval")(inner, document.eval, ("eval",))
        result = {} if made is None else {"eval": made}
        names = {"eval"}
    else:
        result = inner.steps(document.steps, ("steps",))
        names = {spec.name for spec in document.steps}
    workspace = None
    if document.workspace is not None:
        compile_workspace = named(f"{COMPILER}.tools:compile_workspace")
        workspace = compile_workspace(compilation, document.workspace, ("workspace",))
    # With gaps the named step may be one that was left out.
    defined = document.output is None or document.output in names or compilation.gaps.names
    if not defined:
        compilation.problem(
            ("output",),
            f"there is no step {document.output!r}{nearest(document.output or '', names)}",
        )
    # A step is also missing if the document that it calls has problems.
    if compilation.problems or not names <= result.keys():
        return None
    return compilation.attempt(
        ("steps",),
        lambda: DocumentWorkflow(
            document.name,
            result,
            env=document.env,
            exposed=extension("output") if has_groups(document) else None,
            # With concurrent steps, a template that names a step waits for that step.
            needs=needs_of(document, inner.used),
            inputs=DeclaredInputs(document.name, document.inputs) if document.inputs else None,
            at_once=document.at_once,
            output=document.output or "",
            workspace=workspace,
        ),
    )
