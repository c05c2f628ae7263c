"""Groups of native documents: steps in a row, steps at once, and memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..composites import parallel
from ..nodes import AgentGroup, AgentsAtOnce, MemoryRead, MemoryWrite
from ..remembering import RecallFacts, RememberFact
from ..workflow import Workflow
from .native import Action, StepSpec
from .ordering import given_needs

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_memory", "compile_parallel", "compile_steps"]


def compile_steps(compiler: Compiler, spec: Action, name: str, path: Path_, at: Path_) -> Any:
    """Compile steps in a row; None if problems were found."""
    specs = spec.steps or []
    made = compiler.steps(specs, path)
    if not made:
        return None
    needs = given_needs(specs)
    marked = isinstance(spec, StepSpec)
    # What a loop executes hands on the map: nothing but templates asks for its last agent.
    given = _given(compiler, spec, at, ("all", "last") if marked else ("all",))
    if not given:
        return compiler.attempt(path, lambda: Workflow(name, made, needs=needs))
    how = {"marked": marked, "last": given == "last"}
    return compiler.attempt(path, lambda: AgentGroup(name, made, needs=needs, **how))


def compile_parallel(compiler: Compiler, spec: Action, name: str, path: Path_, at: Path_) -> Any:
    """Compile steps at once; None if problems were found."""
    made = compiler.steps(spec.parallel or [], path, ordered=False)
    if not made:
        return None
    step = parallel(*made.values(), name=name)
    return AgentsAtOnce(name, step) if _given(compiler, spec, at, ("all",)) else step


def _given(compiler: Compiler, spec: Action, at: Path_, words: tuple[str, ...]) -> str:
    """Return how a group gives the outputs of its steps, or "" where it does not."""
    if spec.output is None or spec.output in words:
        return spec.output or ""
    which = " or ".join(words)
    compiler.problem(
        (*at, "output"), f"{spec.output!r} is not {which}, which is what this group can give"
    )
    return ""


def compile_memory(compiler: Compiler, spec: Action, name: str, path: Path_) -> Any:
    """Compile texts and facts that outlive the run."""
    assert spec.memory is not None
    memory = spec.memory
    text = compiler.filled((*path, "text"), memory.text)
    if memory.operation in ("remember", "recall"):
        space = f"memory:{memory.namespace}"
        if memory.operation == "remember":
            return RememberFact(name, space, text, memory.category)
        return RecallFacts(name, space, text, memory.category, memory.limit)
    if memory.operation == "read":
        return MemoryRead(name, memory.namespace, text, memory.limit)
    metadata = compiler.filled((*path, "metadata"), memory.metadata)
    return MemoryWrite(name, memory.namespace, text, metadata)
