"""A native document to the objects that Python users write: workflow and steps.

Nothing runs here and no token is paid for: names, needs, circles, templates, functions, conditions and bounds are
checked, and everything wrong is reported at once, each with its place.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import nearest
from ..schema.document import Document
from ..steps.steps import DocumentWorkflow
from .compilation import Compilation
from .order import needs_of
from .tools import compile_tools

__all__ = ["compile_document"]


def compile_document(
    document: Document, compilation: Compilation, given: frozenset[str]
) -> DocumentWorkflow | None:
    """Compile a document for a caller that supplies the names in `given`; None if problems were found."""
    declared = frozenset({*document.tools, *document.servers, *compilation.gaps.tools})
    tools = compile_tools(document, compilation)
    inner = replace(compilation.knowing(given), tools=tools, declared=declared)
    made = inner.steps(document.steps, ("steps",))
    names = {spec.name for spec in document.steps}
    known = document.output is None or document.output in names or compilation.gaps.names
    if not known:
        compilation.problem(
            ("output",),
            f"there is no step {document.output!r}{nearest(document.output or '', names)}",
        )
    if compilation.problems or not made:
        return None
    return compilation.attempt(
        ("steps",),
        lambda: DocumentWorkflow(
            document.name,
            made,
            env=document.env,
            needs=needs_of(document, inner.used),
            at_once=document.at_once,
            output=document.output or "",
        ),
    )
