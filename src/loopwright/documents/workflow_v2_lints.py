"""What a `workflow/v2.0` document may say and seldom means, seen where its loops are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .native import Action
from .places import Translated
from .steps import DocumentWorkflow

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["note_last_output"]


def note_last_output(compiler: Compiler, spec: Action, child: DocumentWorkflow, at: Path_) -> None:
    """Note where a loop hands on what the last step of its workflow gave: often a review of the
    work, not the work."""
    others = [step for step in child.steps if step != child.output]
    if at[-1:] != ("execute",) or not isinstance(compiler.source, Translated) or not others:
        return
    for key, text in (spec.with_ or {}).items():
        if isinstance(text, str) and "{{ loop.output }}" in text:
            message = (
                f"this is what {child.output!r} gave, the last step of {spec.workflow}; "
                f"what another one gave is named so: {{{{loop.last.{others[-1]}}}}}"
            )
            problem = compiler.source.problem((*at, "with", key), message)
            compiler.project.notes.append(problem)
