"""Loops of native documents that are given what earlier runs of them came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loop import Loop
from ..nodes import LoopNode
from ..remembering import Remembering, remembering
from .native import LoopSpec
from .native_nodes import LoopMemorySpec

if TYPE_CHECKING:
    from .compiling import Compiler

__all__ = ["remembers", "with_memory"]


def remembers(spec: LoopSpec) -> bool:
    """Whether a loop is given the lessons of earlier runs."""
    return spec.persist_across_runs or spec.memory is not None


def with_memory(
    compiler: Compiler, spec: LoopSpec, loop: Loop | LoopNode
) -> Loop | LoopNode | Remembering:
    """Return a loop with its memory, if it has one."""
    if not remembers(spec):
        return loop
    given = spec.memory or LoopMemorySpec()
    project = compiler.project
    document = project.documents[str(project.open[-1])].name
    space = given.space or f"{document}/{loop.name}"
    return remembering(loop, space=space, most=given.most, facts=given.facts)
