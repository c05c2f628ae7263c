"""Which dialect a text is written in, and its way to a native document with every problem at its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import DocumentError
from .native import Document
from .source import Source, read
from .validating import validated

if TYPE_CHECKING:
    from .loading import Project

__all__ = ["FrontEnd", "parse"]

# A front-end returns the native document, and the source as asked by the document's own paths.
FrontEnd = Callable[[Source, "Project"], tuple[Source, Document]]
_REPEATABLE = frozenset({"steps", "loops"})


def parse(raw: bytes, file: str, project: Project) -> tuple[Source, Document]:
    """Read a document of any dialect.

    Raises:
        DocumentError: with every problem found.
    """
    source = read(raw, file, repeatable=_REPEATABLE)
    value = source.value
    if not isinstance(value, Mapping):
        raise DocumentError(
            [source.problem((), "a document is a mapping; begin with schema: loopwright/1")]
        )
    native = "schema" in value and "$schema" not in value
    front_end = None if native else _front_end(value, source, project)
    if front_end is None:
        _refuse_repeats(source)
        return source, validated(Document, value, source)
    project.notes += source.notes
    return front_end(source, project)


def _front_end(value: Mapping[str, Any], source: Source, project: Project) -> FrontEnd | None:
    """Return the front-end of a foreign dialect; None for the native one."""
    from . import loop_nodes, workflow_v2  # who writes native documents loads neither

    declared = value.get("$schema")
    if isinstance(declared, str) and declared.startswith("workflow/"):
        return workflow_v2.translate
    if declared is None and "schema" not in value and loop_nodes.is_loop_nodes(value):
        return loop_nodes.translate
    if declared is None and workflow_v2.is_fragment(value):
        if project.settings.lenient:
            return workflow_v2.translate
        message = f"says no dialect; begin with $schema: {workflow_v2.SCHEMA}"
        raise DocumentError([source.problem((), f"{message}, or with schema: loopwright/1")])
    return None


def _refuse_repeats(source: Source) -> None:
    keys = [stage.key for stage in source.stages]
    for stage in source.stages:
        if keys.count(stage.key) > 1:
            problem = source.problem(
                (stage.key,), f"{stage.key!r} is given twice; join the lists", key=True
            )
            raise DocumentError([problem])
