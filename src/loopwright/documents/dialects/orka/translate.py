"""Documents of loop nodes, an `orchestrator` and its `agents`, as native ones.

What comes out runs as the document says, and can be printed: the same calls in the same order with the same result.
Where that dialect's documents and its program disagree, `dialects.md` section 7.2 decides. An agent that fails costs
its loop a round and not the run; one outside of loops ends the run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....errors import DocumentError, Problem, nearest
from ...project import Project
from ...schema.document import Document
from ...schema.partial import Gaps
from ...schema.source_map import translated
from ...schema.validate import validated
from ...yaml.reader import Path, Source
from . import TEMPLATES
from .agents import Agents, Native
from .loops import native_loop
from .models import Defaults
from .order import definitions, in_queue
from .schema import IGNORED, LoopNodeDocument

__all__ = ["translate"]


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a loop-node document as a native one, and its source as asked by native paths.

    Raises:
        DocumentError: with every problem found.
    """
    project.notes += source.notes
    value = source.value
    spec: LoopNodeDocument = validated(LoopNodeDocument, value, source)
    problems: list[Problem] = []

    def report(path: Path, message: str) -> None:
        problems.append(source.problem(path, message))

    def note(path: Path, message: str) -> None:
        project.notes.append(source.problem(path, message))

    for name in spec.model_extra or ():
        if name not in IGNORED:
            note((name,), f"{name!r} has no effect{nearest(name, ('orchestrator', 'agents'))}")
    name = spec.orchestrator.id
    loop = partial(native_loop, owner=name)
    agents = Agents(
        source, {}, Defaults.of(value, project.settings), project.settings.agents, report, note, loop, problems, {},
        structured=spec.orchestrator.structured_output_defaults,
    )  # fmt: skip
    agents.known = definitions(agents, value["agents"], ("agents",))
    queue = in_queue(agents, value["orchestrator"], agents.known, ("orchestrator",))
    agents.around = tuple(name for name, _ in queue)
    steps = [agents.step(name, place) for name, place in queue]
    for said, ids in agents.unnamed.items() if project.settings.model is None else ():
        which = ", ".join(dict.fromkeys(ids))
        note(("agents",), f"{said}: {which}; name one with model: in the agent, or with --model")
    if not queue and not problems:
        report(("orchestrator",), "names no agents")
    if problems and not steps:
        raise DocumentError(dict.fromkeys(problems))
    try:
        whole, document = _document(source, spec, steps)
    except DocumentError as error:
        raise DocumentError(dict.fromkeys(problems or error.problems)) from None
    project.leave_out(source.file, list(dict.fromkeys(problems)), Gaps(head=True))
    return whole, document


def _document(
    source: Source, spec: LoopNodeDocument, steps: list[Native]
) -> tuple[Source, Document]:
    native: dict[str, Any] = {"schema": "loopwright/1", "name": spec.orchestrator.id}
    described = source.value.get("description")
    if isinstance(described, str) and described:
        native["description"] = described
    native |= {"templates": TEMPLATES, "steps": [step.step for step in steps]}
    places: dict[Path, Path] = {("name",): ("orchestrator", "id")}
    for i, step in enumerate(steps):
        places |= {("steps", i, *inner): at for inner, at in step.places.items()}
    whole = translated(source, places)
    document: Document = validated(Document, native, whole)
    return whole, document
