"""A document as a workflow of steps, the objects that Python users write.

Nothing runs here. Names, needs, cycles, templates, functions, conditions and limits are checked, and all problems are
reported together, each with its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...agents.phased import PHASES_CAPPED, PhasedAgent
from ...agents.phased_run import PHASES
from ...agents.reasoning import ReasoningAgent
from ...engine.composites import fallback, parallel, retry, with_timeout
from ...engine.lists import ForEach
from ...engine.step import FunctionStep, Step
from ...engine.workflow import Workflow
from ...errors import nearest
from ...records.codec import Json
from ...templates.variables import OF_ITEMS
from ..schema.document import Action, Document, StepSpec
from ..schema.traverse import given_needs, has_groups, needs_of, phases_of
from ..steps import FILE, CallDocument, DocumentWorkflow, Items, RecallFacts, RememberFact, SetValue
from ..yaml.reader import Location
from .compilation import Compilation, CompileKind, extension
from .evaluators import compile_evaluators
from .loops import compile_loop
from .prompts import compile_prompt, compile_settings
from .tools import (
    compile_agent,
    compile_command,
    compile_tool_step,
    compile_tools,
    compile_workspace,
    resolve_tools,
)

__all__ = [
    "KINDS",
    "compile_call",
    "compile_document",
    "compile_each",
    "compile_fallback",
    "compile_memory",
    "compile_parallel",
    "compile_phased",
    "compile_python",
    "compile_reasoning",
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
    # A called document sees the loop around the call, but no other variables of its caller.
    of_loop = {name for name in compilation.defined if name.partition(".")[0] == "loop"}
    supplied = frozenset({*(spec.with_ or {}), *of_loop})
    # Variables of a key that was left out may be missing.
    if any(field[:-1] == at for field in compilation.gaps.fields):
        return None
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
        place = compilation.source.problem((*path, "items"), "")
        compilation.project.needs.append((place, compilation.project.sent[-1]))
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


# Names in the templates of phases, in addition to the names of the steps before.
PHASE_NAMES = ("loop", "task", "plan", "results")


def compile_phased(
    compilation: Compilation, action: Action, name: str, at: Location
) -> PhasedAgent | None:
    """Compile a phased agent; None if it has problems."""
    assert action.phased is not None
    spec, path = action.phased, (*at, "phased")
    before = len(compilation.problems)
    inner = compilation.with_names(PHASE_NAMES)
    steps: dict[str, Json] = {
        phase: inner.action(action, phase, (*path, phase)) for phase, action in phases_of(spec)
    }
    evaluate = compile_evaluators(inner, spec.evaluate, path)
    if spec.role not in (None, spec.preset) and "preset" in spec.model_fields_set:
        compilation.problem((*path, "role"), f"preset is {spec.preset!r}; set only one of them")
    capabilities = [
        one
        for i, reference in enumerate(spec.capabilities)
        if (one := _capability(compilation, reference, (*path, "capabilities", i))) is not None
    ]
    if len(compilation.problems) > before:
        return None
    # A check imports no Python, so the objects are placeholders that the agent would refuse.
    if not compilation.project.execute:
        capabilities = []
    planning, execution, refinement = spec.token_split
    # Only fields that are set: the preset of the agent supplies the others.
    values = spec.model_fields_set - {*PHASES, "evaluate", "capabilities", "token_split", "role"}
    fields = {field: value for field in values if (value := getattr(spec, field)) is not None}
    if spec.role is not None:
        fields["preset"] = spec.role
    result: PhasedAgent | None = compilation.attempt(
        path,
        lambda: PhasedAgent(
            **steps, name=name, evaluate=evaluate, capabilities=capabilities,
            token_split=(planning, execution, refinement), **fields,
        ),
    )  # fmt: skip
    for code, sentence in result.warnings if result is not None else ():
        if code == PHASES_CAPPED:  # `lints` reports the others
            note = compilation.source.problem((*path, "max_iterations"), sentence, code=code)
            compilation.project.notes.append(note)
    return result


def _capability(compilation: Compilation, reference: str, at: Location) -> object:
    result = compilation.function(at, reference)
    if result is None or not compilation.project.execute:
        return result
    return compilation.attempt(at, result)


def compile_reasoning(
    compilation: Compilation, action: Action, name: str, at: Location
) -> ReasoningAgent | None:
    """Compile a reasoning agent; None if it has problems."""
    assert action.reasoning is not None
    spec, path = action.reasoning, (*at, "reasoning")
    prompt = compilation.template((*path, "prompt"), spec.prompt) if spec.prompt else ""
    system = compilation.template((*path, "system"), spec.system) if spec.system else ""
    prompt_settings = compile_settings(compilation, spec, path)
    tools = resolve_tools(compilation, spec.tools, (*path, "tools"))
    if prompt_settings is None or tools is None:
        return None
    return compilation.attempt(
        path,
        lambda: ReasoningAgent(
            prompt, name=name, role=spec.role, goal=spec.goal, backstory=spec.backstory,
            system=system, max_iterations=spec.max_iterations, mode=spec.mode,
            notice_lead=spec.notice_lead, max_prompt_chars=spec.max_prompt_chars, model_settings=prompt_settings,
            tools=tools, tool_rounds=spec.max_tool_rounds,
        ),
    )  # fmt: skip


KINDS: Mapping[str, CompileKind] = MappingProxyType(
    {
        "python": compile_python,
        "shell": compile_command,
        "workflow": compile_call,
        "loop": compile_loop,
        "each": compile_each,
        "steps": compile_steps,
        "parallel": compile_parallel,
        "fallback": compile_fallback,
        "prompt": compile_prompt,
        "tool": compile_tool_step,
        "phased": compile_phased,
        "reasoning": compile_reasoning,
        "agent": compile_agent,
        "memory": compile_memory,
        "set": compile_set,
    }
)


def compile_document(
    document: Document, compilation: Compilation, value: frozenset[str]
) -> DocumentWorkflow | None:
    """Compile a document for a caller that supplies the names in `value`; None if it has problems."""
    declared = frozenset({*document.tools, *document.servers, *compilation.gaps.tools})
    tools = compile_tools(document, compilation)
    around = compilation.in_workspace or document.workspace is not None
    inner = replace(
        compilation.with_names(value), tools=tools, declared=declared, in_workspace=around
    )
    result = inner.steps(document.steps, ("steps",))
    workspace = compile_workspace(compilation, document.workspace, ("workspace",))
    names = {spec.name for spec in document.steps}
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
            at_once=document.at_once,
            output=document.output or "",
            workspace=workspace,
        ),
    )
