"""`workflow/v2.0`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import DocumentError
from ...project import Project
from ...schema.document import Document
from ...yaml.reader import Source
from ..dialect import Dialect
from .lints import last_outputs

__all__ = ["DIALECT", "SCHEMA", "is_fragment"]

SCHEMA = "workflow/v2.0"


def is_fragment(value: Mapping[str, Any]) -> bool:
    """Tell if a document that says no dialect looks like a part of this one."""
    lists = [value[key] for key in ("steps", "loops") if isinstance(value.get(key), list)]
    items = [item for found in lists for item in found]
    own = {"run", "template", "until", "workflow", "consensus", "loop"}
    return "schema" not in value and any(isinstance(i, Mapping) and own & i.keys() for i in items)


def _matches(source: Source, lenient: bool) -> bool:
    declared = source.value.get("$schema")
    if declared is not None or not is_fragment(source.value):
        return isinstance(declared, str) and declared.startswith("workflow/")
    if lenient:
        return True
    message = f"says no dialect; begin with $schema: {SCHEMA}"
    raise DocumentError([source.problem((), f"{message}, or with schema: loopwright/1")])


def _translate(source: Source, project: Project) -> tuple[Source, Document]:
    from .translate import translate  # who writes other documents does not load it

    return translate(source, project)


DIALECT = Dialect(SCHEMA, _matches, _translate, remarks=last_outputs)
