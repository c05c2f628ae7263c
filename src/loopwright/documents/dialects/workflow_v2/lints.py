"""What a `workflow/v2.0` document may say and seldom means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import Problem
from ...schema.document import Action, Document
from ...schema.fields import StrictModel
from ...yaml.reader import Path, Source
from ..dialect import Called

__all__ = ["last_outputs"]


def last_outputs(document: Document, source: Source, called: Called) -> Iterator[Problem]:
    """Iterate over the loops that hand on the output of the last step of their workflow, where it has others.

    That step often reviews the work, and its output is not the work.
    """
    for at, spec in _actions(document, ()):
        child = called(spec.workflow) if at[-1:] == ("execute",) and spec.workflow else None
        if child is None:
            continue
        output = child.output or child.steps[-1].name
        others = [step.name for step in child.steps if step.name != output]
        for key, text in (spec.with_ or {}).items() if others else ():
            if isinstance(text, str) and "{{ loop.output }}" in text:
                message = (
                    f"this is what {output!r} gave, the last step of {spec.workflow}; "
                    f"what another one gave is named so: {{{{loop.last.{others[-1]}}}}}"
                )
                yield source.problem((*at, "with", key), message)


def _actions(value: Any, at: Path) -> Iterator[tuple[Path, Action]]:
    """Iterate over the actions of a document, each with its place."""
    if isinstance(value, StrictModel):
        if isinstance(value, Action):
            yield at, value
        for name, field in type(value).model_fields.items():
            if name in value.model_fields_set:
                yield from _actions(getattr(value, name), (*at, field.alias or name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _actions(item, (*at, i))
