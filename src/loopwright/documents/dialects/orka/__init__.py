"""Loop-node documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...project import Project
from ...schema.document import Document
from ...yaml.reader import Source
from ..dialect import Dialect

__all__ = ["DIALECT", "TEMPLATES", "is_loop_nodes"]

TEMPLATES = "loop_node"  # the `templates` of what it becomes


def is_loop_nodes(value: Mapping[str, Any]) -> bool:
    """Tell if a document is of this dialect: it has an orchestrator, or agents with id and type."""
    agents = value.get("agents")
    listed = agents if isinstance(agents, list) else []
    return "orchestrator" in value or any(
        isinstance(agent, Mapping) and {"id", "type"} <= agent.keys() for agent in listed
    )


def _matches(source: Source, lenient: bool) -> bool:
    del lenient
    value = source.value
    return "$schema" not in value and "schema" not in value and is_loop_nodes(value)


def _translate(source: Source, project: Project) -> tuple[Source, Document]:
    from .translate import translate  # who writes other documents does not load it

    return translate(source, project)


DIALECT = Dialect("loop nodes", _matches, _translate, template_language=TEMPLATES)
