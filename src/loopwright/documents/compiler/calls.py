"""Steps that call what stands elsewhere: functions of Python and other documents."""

from __future__ import annotations

from ...engine.step import FunctionStep, Step
from ...errors import nearest
from ..schema.document import Action
from ..steps.steps import CallDocument
from .compilation import Compilation, Path_

__all__ = ["compile_call", "compile_python"]


def compile_python(compilation: Compilation, spec: Action, name: str, at: Path_) -> Step | None:
    """Compile a call of a function; None if problems were found."""
    assert spec.python is not None
    path = (*at, "python")
    found = compilation.function(path, spec.python)
    if found is None or isinstance(found, Step):
        return found
    idempotent = True if spec.idempotent is None else spec.idempotent
    return compilation.attempt(path, lambda: FunctionStep(found, name=name, idempotent=idempotent))


def compile_call(
    compilation: Compilation, spec: Action, name: str, at: Path_
) -> CallDocument | None:
    """Compile a call of another document; None if problems were found."""
    assert spec.workflow is not None
    given = compilation.filled((*at, "with"), spec.with_ or {})
    around = {known for known in compilation.known if known.partition(".")[0] == "loop"}
    supplied = frozenset({*(spec.with_ or {}), *around})
    child = compilation.call(compilation, spec.workflow, (*at, "workflow"), supplied)
    if child is None:
        return None
    for i, step in enumerate(spec.expose):
        if step not in child.steps:
            what = f"{spec.workflow} has no step {step!r}{nearest(step, child.steps)}"
            compilation.problem((*at, "expose", i), what)
    return CallDocument(name, child, given, tuple(spec.expose))
