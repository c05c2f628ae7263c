"""Which dialect a text is written in, and its way to a native document with every problem at its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import DocumentError
from ..project import Project
from ..schema.document import Document
from ..schema.partial import Kind, placeholder, readable
from ..yaml.reader import Source, read
from .dialect import Dialect
from .orka import DIALECT as LOOP_NODES
from .workflow_v2 import DIALECT as WORKFLOW_V2

__all__ = ["DIALECTS", "NATIVE", "parse"]

NATIVE_SCHEMA = "loopwright/1"
_REPEATABLE = frozenset({"steps", "loops"})


def parse(raw: bytes, file: str, project: Project) -> tuple[Dialect, Source, Document]:
    """Read a document of any dialect: which one it is, its source as asked by native paths, the native document.

    Raises:
        DocumentError: with every problem found.
    """
    source = read(raw, file, repeatable=_REPEATABLE)
    if not isinstance(source.value, Mapping):
        raise DocumentError(
            [source.problem((), "a document is a mapping; begin with schema: loopwright/1")]
        )
    lenient = project.settings.lenient
    dialect = next((one for one in DIALECTS if one.matches(source, lenient)), NATIVE)
    project.dialect = project.dialect or dialect.name
    return dialect, *dialect.translate(source, project)


def _is_native(source: Source, lenient: bool) -> bool:
    del lenient
    return "schema" in source.value and "$schema" not in source.value


def _native(source: Source, project: Project) -> tuple[Source, Document]:
    _refuse_repeats(source)
    return source, _as_far_as_readable(source.value, source, project)


def _as_far_as_readable(value: Mapping[str, Any], source: Source, project: Project) -> Document:
    """Return a native document without what is wrong in it, which the project keeps as problems."""
    document, problems, gaps = readable(_NATIVE, value, source)
    if document is None:
        raise DocumentError(problems)
    project.leave_out(source.file, problems, gaps)
    return document  # type: ignore[no-any-return]


def _stand_in(_list: str, name: str, raw: Any) -> dict[str, Any]:
    needs = raw.get("needs") if isinstance(raw, Mapping) else None
    listed = [needs] if isinstance(needs, str) else needs
    known = isinstance(listed, list) and all(isinstance(need, str) for need in listed)
    return {**placeholder(name), **({"needs": listed} if known else {})}


_NATIVE = Kind(
    Document,
    frozenset({"steps", "parallel", "fallback"}),
    {"schema": NATIVE_SCHEMA, "name": "document"},
    _stand_in,
    "schema",
)


def _refuse_repeats(source: Source) -> None:
    keys = [stage.key for stage in source.stages]
    for stage in source.stages:
        if keys.count(stage.key) > 1:
            problem = source.problem(
                (stage.key,), f"{stage.key!r} is given twice; join the lists", key=True
            )
            raise DocumentError([problem])


NATIVE = Dialect(NATIVE_SCHEMA, _is_native, _native)  # and what is of no dialect is refused as one
DIALECTS = (NATIVE, LOOP_NODES, WORKFLOW_V2)  # the first that matches counts
