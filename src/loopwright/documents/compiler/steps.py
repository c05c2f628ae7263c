"""Groups of native documents: steps in a row, steps at once, a step for each item, and memories."""

from __future__ import annotations

import math

from ...engine.composites import fallback, limited, parallel, retrying
from ...engine.step import Step
from ...engine.workflow import Workflow
from ...templates.variables import OF_ITEMS
from ..schema.document import Action, StepSpec
from ..steps.for_each import FILE, ForEach, Items, inside
from ..steps.loop_node import AgentGroup, AgentsAtOnce, MemoryRead, MemoryWrite
from ..steps.memory import RecallFacts, RememberFact
from ..steps.steps import SetValue
from .compilation import Compilation, Path_
from .order import given_needs

__all__ = [
    "compile_each",
    "compile_fallback",
    "compile_memory",
    "compile_parallel",
    "compile_set",
    "compile_steps",
]


def compile_steps(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Compile steps in a row; None if problems were found."""
    path = (*at, "steps")
    specs = spec.steps or []
    made = compilation.steps(specs, path)
    if not made:
        return None
    needs = given_needs(specs)
    marked = isinstance(spec, StepSpec)
    given = _given(compilation, spec, at, ("all", "last"))
    if not given:
        return compilation.attempt(path, lambda: Workflow(name, made, needs=needs))
    how = {"marked": marked, "last": given == "last"}
    return compilation.attempt(path, lambda: AgentGroup(name, made, needs=needs, **how))


def compile_parallel(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Compile steps at once; None if problems were found."""
    path = (*at, "parallel")
    made = compilation.steps(spec.parallel or [], path, ordered=False)
    if not made:
        return None
    step = parallel(*made.values(), name=name)
    return AgentsAtOnce(name, step) if _given(compilation, spec, at, ("all",)) else step


def _given(compilation: Compilation, spec: Action, at: Path_, words: tuple[str, ...]) -> str:
    """Return how a group gives the outputs of its steps, or "" where it does not."""
    if spec.output is None or spec.output in words:
        return spec.output or ""
    which = " or ".join(words)
    compilation.problem(
        (*at, "output"), f"{spec.output!r} is not {which}, which is what this group can give"
    )
    return ""


def compile_fallback(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Compile steps of which the next one runs where one failed; None if problems were found."""
    made = compilation.steps(spec.fallback or [], (*at, "fallback"), ordered=False)
    return fallback(*made.values(), name=name) if made else None


def compile_set(compilation: Compilation, spec: Action, name: str, at: Path_) -> SetValue:
    """Compile a value with templates."""
    return SetValue(name, compilation.filled((*at, "set"), spec.set))


def compile_memory(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Compile texts and facts that outlive the run."""
    assert spec.memory is not None
    memory, path = spec.memory, (*at, "memory")
    text = compilation.filled((*path, "text"), memory.text)
    if memory.operation in ("remember", "recall"):
        space = f"memory:{memory.namespace}"
        if memory.operation == "remember":
            return RememberFact(name, space, text, memory.category)
        return RecallFacts(name, space, text, memory.category, memory.limit)
    if memory.operation == "read":
        return MemoryRead(name, memory.namespace, text, memory.limit)
    metadata = compilation.filled((*path, "metadata"), memory.metadata)
    return MemoryWrite(name, memory.namespace, text, metadata)


def compile_each(compilation: Compilation, action: Action, name: str, at: Path_) -> ForEach | None:
    """Compile a walk over items; None if problems were found."""
    assert action.each is not None
    spec, path = action.each, (*at, "each")
    source = compilation.filled((*path, "items"), spec.items)
    root = compilation.project.root_of(compilation.folder)
    written = spec.items.strip() if isinstance(spec.items, str) else ""
    # What stands before a placeholder is known now: no value leads back from another folder.
    head, slash, _ = written.removeprefix(FILE).partition("{{")[0].rpartition("/")
    known = head or slash
    if "{{" not in written:
        known = written.removeprefix(FILE)
    if written.startswith(FILE) and inside(compilation.folder, known, root) is None:
        compilation.problem((*path, "items"), f"{written} leads out of the project folder")
    around = compilation.knowing(["loop", *(f"loop.{field}" for field in OF_ITEMS)])
    execute = around.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    if execute is None:
        return None
    if spec.item_timeout is not None:
        execute = limited(execute, spec.item_timeout)
    if spec.on_failure == "retry":
        execute = retrying(execute, attempts=spec.max_retries + 1, delay=spec.retry_delay)
    return ForEach(
        name, Items(source, compilation.folder, root, spec.max_items), execute, spec.at_once,
        spec.min_success_rate, spec.unmet, spec.on_failure != "continue", spec.timeout or math.inf, spec.keep,
    )  # fmt: skip
