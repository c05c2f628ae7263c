"""The dialects of documents: the detection of a document's dialect, and its translation to a native document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..errors import DocumentError, Problem
from ..records.codec import Json
from .project import Project
from .schema.document import Document
from .schema.validate import Kind, placeholder, readable
from .yaml.reader import Source, read

__all__ = [
    "DIALECTS",
    "NATIVE",
    "REPEATABLE",
    "CalledDocument",
    "Dialect",
    "parse",
]

NATIVE_SCHEMA = "loopwright/1"
V2_SCHEMA = "workflow/v2.0"
# A document of `workflow/v2.0` may list steps and loops in several blocks.
REPEATABLE = frozenset({"steps", "loops"})
_V2_KEYS = frozenset({"run", "template", "until", "workflow", "consensus", "loop"})

# Returns the native document that a document calls by a name; None if it calls none of that name.
CalledDocument = Callable[[str], Document | None]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect of documents.

    `matches` takes a source and whether fragments are accepted (`lenient`); it raises a DocumentError for a fragment
    that is not accepted. `module` is the name of a module with two functions:

    - `translate(source, project)` returns a source that takes native paths, and the native document. It raises a
      DocumentError with every problem of the document.
    - `remarks(document, source, called)` returns the notes on a document that compiled, each with its place.
    """

    name: str
    matches: Callable[[Source, bool], bool]
    module: str

    @property
    def translator(self) -> Any:
        """The module, imported with the first document of the dialect to keep other starts fast."""
        return import_module(self.module, __package__)


def parse(raw: bytes, file: str, project: Project) -> tuple[Dialect, Source, Document]:
    """Read a document of any dialect: the dialect, a source that takes native paths, and the native document.

    Raises:
        DocumentError: with every problem of the document.
    """
    source = read(raw, file, repeatable=REPEATABLE)
    if not isinstance(source.value, Mapping):
        raise DocumentError(
            [source.problem((), "a document is a mapping; begin with schema: loopwright/1")]
        )
    lenient = project.settings.lenient
    dialect = next((one for one in DIALECTS if one.matches(source, lenient)), NATIVE)
    project.dialect = project.dialect or dialect.name
    return dialect, *dialect.translator.translate(source, project)


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a native document; its invalid parts are left out, so that problems in the rest are reported too.

    Raises:
        DocumentError: if nothing is left.
    """
    # The reader joins repeated keys for `workflow/v2.0` before the dialect is known.
    keys = [stage.key for stage in source.stages]
    for key in keys:
        if keys.count(key) > 1:
            message = f"{key!r} is set twice; join the lists"
            raise DocumentError([source.problem((key,), message, key=True)])
    document, problems, gaps = readable(_KIND, source.value, source)
    if document is None:
        raise DocumentError(problems)
    project.leave_out(source.file, problems, gaps)
    return source, document


def remarks(_document: Document, _source: Source, _called: CalledDocument) -> Iterable[Problem]:
    """Return no notes: those on native documents are for all dialects."""
    return ()


def _is_native(source: Source, _lenient: bool) -> bool:
    return "schema" in source.value and "$schema" not in source.value


def _is_loop_nodes(source: Source, _lenient: bool) -> bool:
    """Whether a document has an orchestrator, or agents with id and type."""
    value = source.value
    agents = value.get("agents")
    items = agents if isinstance(agents, list) else []
    return not {"$schema", "schema"} & value.keys() and (
        "orchestrator" in value
        or any(isinstance(agent, Mapping) and {"id", "type"} <= agent.keys() for agent in items)
    )


def _is_archon(source: Source, _lenient: bool) -> bool:
    """Whether a document has nodes with ids."""
    value = source.value
    nodes = value.get("nodes")
    items = nodes if isinstance(nodes, list) else []
    return not {"$schema", "schema", "orchestrator"} & value.keys() and any(
        isinstance(node, Mapping) and "id" in node for node in items
    )


def _is_conductor(source: Source, _lenient: bool) -> bool:
    """Whether a document has a workflow with an entry point, or agents with names and routes."""
    value = source.value
    workflow, agents = value.get("workflow"), value.get("agents")
    items = agents if isinstance(agents, list) else []
    return not {"$schema", "schema", "orchestrator"} & value.keys() and (
        (isinstance(workflow, Mapping) and "entry_point" in workflow)
        or any(isinstance(agent, Mapping) and {"name", "routes"} <= agent.keys() for agent in items)
    )


def _is_v2(source: Source, lenient: bool) -> bool:
    declared = source.value.get("$schema")
    # A document that names no dialect may have steps or loops with the keys of this one.
    lists = [value for key in REPEATABLE if isinstance(value := source.value.get(key), list)]
    fragment = "schema" not in source.value and any(
        isinstance(item, Mapping) and _V2_KEYS & item.keys() for items in lists for item in items
    )
    if declared is not None or not fragment:
        return isinstance(declared, str) and declared.startswith("workflow/")
    # Without `lenient` a guess is refused: a wrong dialect would report misleading problems.
    if lenient:
        return True
    # The native dialect first: an author who writes a new document needs no older one.
    message = f"names no dialect; begin with schema: {NATIVE_SCHEMA}, or with $schema: {V2_SCHEMA}"
    raise DocumentError([source.problem((), message)])


def _stand_in(_list: str, name: str, raw: Json) -> dict[str, Json]:
    """Return the stand-in of a step that is left out, with the needs of the step."""
    needs = raw.get("needs") if isinstance(raw, Mapping) else None
    names = [needs] if isinstance(needs, str) else needs
    valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return {**placeholder(name), **({"needs": names} if valid else {})}


_KIND = Kind(
    model=Document,
    lists=frozenset({"steps", "parallel", "fallback"}),
    head={"schema": NATIVE_SCHEMA, "name": "document"},
    stand_in=_stand_in,
    version="schema",
    keeps=True,
)


# Also for documents of no dialect, whose problems it reports.
NATIVE = Dialect(NATIVE_SCHEMA, _is_native, __name__)
# The first match counts. `workflow/v2.0` is last, because it also reports fragments.
DIALECTS = (
    NATIVE,
    Dialect("loop nodes", _is_loop_nodes, "..dialects.orka.translate"),
    Dialect("Conductor", _is_conductor, "..dialects.conductor.translate"),
    Dialect("Archon", _is_archon, "..dialects.archon.translate"),
    Dialect(V2_SCHEMA, _is_v2, "..dialects.workflow_v2.translate"),
)
