"""What is odd about the prompts of loop-node documents, told before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ....errors import nearest
from ....templates import TemplateError
from ....templates.variables import FIXED
from ...steps.loop_node.template_functions import HELPERS
from ...steps.loop_node.templates import node_template

__all__ = ["remarks"]

_NAMES = frozenset(
    {"previous_outputs", "loop_number", "score", "past_loops_metadata", "orchestrator"}
)


def remarks(text: str, agents: Collection[str]) -> Iterator[str]:
    """Iterate over what is odd about a prompt; `agents` are those that the document has."""
    try:
        template = node_template(text)
    except TemplateError:
        return  # it is refused when it is compiled
    yield from template.notes
    known = {*HELPERS, *FIXED, *_NAMES, *agents}
    for name in sorted(template.required - known):
        yield f"nothing supplies {name!r}, so it is empty{nearest(name, known)}"
    for name in sorted(template.members("previous_outputs") - {*agents, "past_loops"}):
        yield f"there is no agent {name!r}, so previous_outputs.{name} is empty{nearest(name, agents)}"
