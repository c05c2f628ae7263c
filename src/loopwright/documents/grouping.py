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
    if not _all(compiler, spec, at):
        return compiler.attempt(path, lambda: Workflow(name, made, needs=needs))
    marked = isinstance(spec, StepSpec)
    return compiler.attempt(path, lambda: AgentGroup(name, made, needs=needs, marked=marked))


def compile_parallel(compiler: Compiler, spec: Action, name: str, path: Path_, at: Path_) -> Any:
    """Compile steps at once; None if problems were found."""
    made = compiler.steps(spec.parallel or [], path, ordered=False)
    if not made:
        return None
    step = parallel(*made.values(), name=name)
    return AgentsAtOnce(name, step) if _all(compiler, spec, at) else step


def _all(compiler: Compiler, spec: Action, at: Path_) -> bool:
    """Whether a group gives the outputs of all its steps."""
    if spec.output not in (None, "all"):
        compiler.problem(
            (*at, "output"), f"{spec.output!r} is not all, which is what a group can give"
        )
    return bool(spec.output == "all")


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
