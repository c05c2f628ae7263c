"""A document as a workflow of steps, the objects that Python users write.

Nothing runs here. Names, needs, cycles, templates, functions, conditions and limits are checked, and all problems are
reported together, each with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...errors import nearest
from ..schema.document import Document
from ..schema.traverse import needs_of
from ..steps.steps import DocumentWorkflow
from .agents import compile_phased, compile_reasoning
from .compilation import Compilation, CompileKind
from .loops import compile_loop
from .prompts import compile_consensus, compile_prompt
from .steps import (
    compile_call,
    compile_each,
    compile_fallback,
    compile_memory,
    compile_parallel,
    compile_python,
    compile_set,
    compile_steps,
)
from .tools import compile_command, compile_tool_step, compile_tools

__all__ = ["KINDS", "compile_document"]


KINDS: Mapping[str, CompileKind] = MappingProxyType(
    {
        "python": compile_python,
        "shell": compile_command,
        "workflow": compile_call,
        "loop": compile_loop,
        "each": compile_each,
        "consensus": compile_consensus,
        "steps": compile_steps,
        "parallel": compile_parallel,
        "fallback": compile_fallback,
        "prompt": compile_prompt,
        "tool": compile_tool_step,
        "phased": compile_phased,
        "reasoning": compile_reasoning,
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
    inner = replace(compilation.with_names(value), tools=tools, declared=declared)
    result = inner.steps(document.steps, ("steps",))
    names = {spec.name for spec in document.steps}
    defined = document.output is None or document.output in names or compilation.gaps.names
    if not defined:
        compilation.problem(
            ("output",),
            f"there is no step {document.output!r}{nearest(document.output or '', names)}",
        )
    if compilation.problems or not result:
        return None
    return compilation.attempt(
        ("steps",),
        lambda: DocumentWorkflow(
            document.name,
            result,
            env=document.env,
            needs=needs_of(document, inner.used),
            at_once=document.at_once,
            output=document.output or "",
        ),
    )
