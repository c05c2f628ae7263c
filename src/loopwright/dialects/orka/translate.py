"""The translation of loop-node documents, an `orchestrator` and its `agents`, to native documents.

The result makes the same calls in the same order as the document describes, and can be printed. Where the
dialect's documents and program disagree, the tests in tests/dialects/loop_nodes decide. An agent that fails
ends the iteration of its loop, but not the run. Outside of loops it ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from ...documents.detect import CalledDocument
from ...documents.project import Project
from ...documents.schema.document import Document
from ...documents.schema.validate import Gaps, validated
from ...documents.yaml.reader import Location, Source, translated
from ...errors import DocumentError, Problem, listed, nearest
from ...records.codec import Json
from .agents import Agents, Definition, Native, note_unknown_keys, placed
from .fields import (
    IGNORED,
    Defaults,
    LoopNodeDocument,
    LoopNodeSpec,
    OrchestratorSpec,
    StructuredSpec,
)
from .loop_node import BUILT_IN
from .presets import context_of
from .templates import CATEGORIES

__all__ = [
    "definitions",
    "native_loop",
    "queue_order",
    "translate",
]

# Keys of an orchestrator without an effect here, which are too common for a note.
_LABELS = frozenset({
    "memory", "memory_config", "memory_preset", "debug", "structured_output_defaults", "mode", "name",
    "description", "version", "temperature", "timeout", "max_tokens",
})  # fmt: skip


def definitions(agents: Agents, value: Json, at: Location) -> dict[str, Definition]:
    """Return the agents of a list by their ids, and report items that are not agents."""
    result: dict[str, Definition] = {}
    for i, raw in enumerate(value if isinstance(value, list) else ()):
        where = (*at, i)
        ident = raw.get("id") if isinstance(raw, Mapping) else None
        if not isinstance(ident, str) or not ident:
            agents.report(where, "an agent needs an id and a type")
        elif not isinstance(raw.get("type"), str):
            agents.report(where, f"the agent {ident!r} needs a type")
        elif ident in result:
            line = agents.source.position(result[ident].at)[0]
            agents.report((*where, "id"), f"{ident!r} is already an agent, on line {line}")
        else:
            result[ident] = Definition(raw, where)
    return result


def queue_order(
    agents: Agents, value: Json, own: Mapping[str, Definition], at: Location
) -> list[tuple[str, Location]]:
    """Return the names of agents in running order, each with its position: as listed, but behind `depends_on`."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        agents.report(at, "an orchestrator must be a mapping with agents, a list of ids")
        return []
    try:
        spec: OrchestratorSpec = validated(OrchestratorSpec, dict(value), agents.source, at)
    except DocumentError as error:
        agents.problems += error.problems
        return []
    note_unknown_keys(spec, at, agents.note, _LABELS)
    key = "agents" if spec.agents is not None else "queue"
    # In the dialect a text in `queue` is only a label.
    queue = None if isinstance(spec.queue, str) else spec.queue
    names = spec.agents if spec.agents is not None else queue
    if names is None:
        agents.note(
            at, "lists no agents; all run in written order, except those that other agents call"
        )
        targets = {name for each in own.values() for name in _targets_of(each.raw)}
        entries = [(name, (*each.at, "id")) for name, each in own.items() if name not in targets]
    else:
        entries = [(name, (*at, key, i)) for i, name in enumerate(names)]
    for name, place in entries:
        if name not in agents.defined:
            agents.report(place, f"there is no agent {name!r}{nearest(name, agents.defined)}")
    defined: dict[str, Location] = {}
    for name, place in entries:
        if name in defined:
            agents.report(place, f"{name!r} is listed twice; give the second its own id")
        if name in agents.defined:
            defined[name] = place
    return _sorted(agents, list(defined.items()))


def _targets_of(value: Json) -> list[str]:
    """Return the names of the agents that a fork, router or failover calls."""
    params = value.get("params")
    inner = params if isinstance(params, Mapping) else {}
    routes = value.get("routing_map") or inner.get("routing_map")
    values = [value.get("targets"), value.get("children"), routes]
    return [name for item in values for name in _texts(item)]


def _texts(value: Json) -> list[str]:
    if isinstance(value, Mapping):
        value = list(value.values()) if "id" not in value else [value["id"]]
    if isinstance(value, list):
        return [name for item in value for name in _texts(item)]
    return [value] if isinstance(value, str) else []


def _sorted(agents: Agents, entries: list[tuple[str, Location]]) -> list[tuple[str, Location]]:
    queued = {name for name, _ in entries}
    # An agent inside a fork, router or failover has ended when the outer agent has ended.
    inside = {
        name: owner
        for owner, _ in entries
        for name in _all_targets(agents, owner)
        if name not in queued and name != owner
    }
    needs = {
        name: [inside.get(need, need) for need in _needs(agents, name, inside)]
        for name, _ in entries
    }
    order: list[tuple[str, Location]] = []
    remaining = list(entries)
    while remaining:
        done = {name for name, _ in order}
        # The first one that is ready: the written order stays where `depends_on` allows it.
        ready = next(
            (e for e in remaining if all(n in done or n not in needs for n in needs[e[0]])), None
        )
        if ready is None:
            circle = ", ".join(name for name, _ in remaining)
            where = (*agents.defined[remaining[0][0]].at, "depends_on")
            agents.report(where, f"agents depend on each other in a cycle: {circle}")
            # In written order, so that the other problems of the document are found too.
            return entries
        order.append(ready)
        remaining.remove(ready)
    return order


def _all_targets(agents: Agents, owner: str) -> list[str]:
    """Return the names of all agents that an agent calls, directly or through others."""
    result: dict[str, None] = {}
    remaining = _targets_of(agents.defined[owner].raw)
    while remaining:
        name = remaining.pop()
        if name not in result:
            result[name] = None
            remaining += _targets_of(agents.defined[name].raw) if name in agents.defined else []
    return list(result)


def _needs(agents: Agents, name: str, inside: Mapping[str, str]) -> list[str]:
    result = agents.defined[name]
    value = result.raw.get("depends_on")
    expected = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for i, need in enumerate(expected):
        if not isinstance(need, str) or (need not in agents.defined and need not in inside):
            where = (*result.at, "depends_on", i)
            agents.report(
                where, f"there is no agent {str(need)!r}{nearest(str(need), agents.defined)}"
            )
    return [str(need) for need in expected]


def translate(source: Source, project: Project) -> tuple[Source, Document]:
    """Return a loop-node document as a native one, and a source that takes native paths.

    Raises:
        DocumentError: with every problem of the document.
    """
    project.notes += source.notes
    value = source.value
    spec: LoopNodeDocument = validated(LoopNodeDocument, value, source)
    problems: list[Problem] = []

    def report(path: Location, message: str) -> None:
        problems.append(source.problem(path, message))

    def note(path: Location, message: str) -> None:
        project.notes.append(source.problem(path, message, code="dialect_difference"))

    for name in spec.model_extra or ():
        if name not in IGNORED:
            note((name,), f"{name!r} has no effect{nearest(name, ('orchestrator', 'agents'))}")
    name = spec.orchestrator.id
    loop = partial(native_loop, owner=name)
    agents = Agents(
        source,
        defined={},
        defaults=Defaults.of(value, project.settings),
        outside=project.settings.agents,
        report=report,
        note=note,
        loop=loop,
        problems=problems,
        unnamed={},
        structured=spec.orchestrator.structured_output_defaults,
    )
    agents.defined = definitions(agents, value["agents"], ("agents",))
    queue = queue_order(agents, value["orchestrator"], agents.defined, ("orchestrator",))
    agents.around = tuple(name for name, _ in queue)
    steps = [agents.step(name, place) for name, place in queue]
    # --model is the model of all agents without one.
    for text, ids in agents.unnamed.items() if project.settings.model is None else ():
        which = ", ".join(dict.fromkeys(ids))
        note(("agents",), f"{text}: {which}; set model: in the agent, or use --model")
    if not queue and not problems:
        report(("orchestrator",), "names no agents")
    if problems and not steps:
        raise DocumentError(dict.fromkeys(problems))
    try:
        native_source, document = _document(source, spec, steps)
    except DocumentError as error:
        # Problems of the native form often follow from those of the document.
        raise DocumentError(dict.fromkeys(problems or error.problems)) from None
    # `head`: an invalid agent may have defined the model or the tools of others.
    project.leave_out(source.file, list(dict.fromkeys(problems)), Gaps(head=True))
    return native_source, document


def _document(
    source: Source, spec: LoopNodeDocument, steps: list[Native]
) -> tuple[Source, Document]:
    native: dict[str, Json] = {"schema": "loopwright/1", "name": spec.orchestrator.id}
    described = source.value.get("description")
    if isinstance(described, str) and described:
        native["description"] = described
    native |= {"templates": "loop_node", "steps": [step.step for step in steps]}
    places: dict[Location, Location] = {("name",): ("orchestrator", "id")}
    for i, step in enumerate(steps):
        places |= {("steps", i, *inner): at for inner, at in step.places.items()}
    mapped = translated(source, places)
    document: Document = validated(Document, native, mapped)
    return mapped, document


# The kinds of strategies for scores, and the field that each needs.
_NEEDS = {"pattern": "patterns", "direct_key": "key", "agent_key": "agents"}


def native_loop(agents: Agents, definition: Definition, owner: str) -> Native | None:
    """Return a loop node as a native loop; None if it has problems. `owner` is the document's name."""
    at = definition.at
    try:
        spec: LoopNodeSpec = validated(LoopNodeSpec, definition.raw, agents.source, at)
    except DocumentError as error:
        agents.problems += error.problems
        return None
    note_unknown_keys(spec, at, agents.note)
    inner = _inner(agents, spec, at)
    if not inner:
        return None
    loop: dict[str, Json] = {
        "execute": {"steps": [native.step for native in inner], "output": "all"},
        "node": _node(agents, spec, at, owner),
        "max_iterations": spec.max_loops,
        "guards": {"timeout": spec.timeout},
        "on_failure": "continue",  # a failed agent ends its iteration only
        **({"keep": "last"} if spec.parity else {}),
    }
    result = placed({"name": spec.id, "loop": loop}, at, {("loop", "execute", "steps"): inner})
    result.places |= _places(spec, at)
    return result


def _inner(agents: Agents, spec: LoopNodeSpec, at: Location) -> list[Native]:
    """Return the agents of the internal workflow, which may also name agents of the outer workflow."""
    where = (*at, "internal_workflow")
    workflow = spec.internal_workflow
    own = definitions(agents, workflow.get("agents"), (*where, "agents"))
    scope = replace(agents, defined={**agents.defined, **own})
    queue = queue_order(scope, workflow.get("orchestrator"), own, (*where, "orchestrator"))
    if not queue:
        agents.report(
            where if workflow else at,
            "internal_workflow has no agents; list them in its orchestrator",
        )
        return []
    scope.around = tuple(name for name, _ in queue)
    common = (workflow.get("orchestrator") or {}).get("structured_output_defaults")
    if common is not None:
        scope.structured = StructuredSpec.model_validate(common)
    return [scope.step(name, place, (spec.id,)) for name, place in queue]


def _node(agents: Agents, spec: LoopNodeSpec, at: Location, owner: str) -> dict[str, Json]:
    low, high = spec.score_scale or (0.0, 1.0)
    # Native thresholds are shares from 0 to 1.
    node: dict[str, Json] = {"threshold": (spec.score_threshold - low) / (high - low)}
    if spec.score_scale:
        node["scale"] = list(spec.score_scale)
    if strategies := _strategies(agents, spec, at):
        node["strategies"] = strategies
    if spec.high_priority_agents:
        node["first"] = spec.high_priority_agents
    if spec.scoring is not None and spec.scoring.preset:
        own = spec.scoring.custom_weights
        context = spec.scoring.context or context_of(own, default="loop_convergence")
        node["preset"] = {"level": spec.scoring.preset, "context": context}
        node["preset"] |= {"weights": own} if own else {}
    scores = {"fallback_score": spec.fallback_score, "timeout_score": spec.timeout_score}
    node |= {name: score for name, score in scores.items() if score is not None}
    if spec.score_missing != "count":
        node["score_missing"] = spec.score_missing
    if spec.parity:
        node["prefer"] = "first"
    if (config := spec.score_extraction_config) is not None and config.agreement_fallback:
        node["agreement"] = True
    if lessons := _lessons(agents, spec, at, owner):
        node["lessons"] = lessons
    return node


def _strategies(agents: Agents, spec: LoopNodeSpec, at: Location) -> list[dict[str, Json]]:
    result: list[dict[str, Json]] = []
    if spec.score_extraction_key:
        result.append({"key": spec.score_extraction_key})
    if spec.score_extraction_pattern:
        return [*result, {"patterns": [spec.score_extraction_pattern]}]
    config = spec.score_extraction_config
    for i, strategy in enumerate((config.strategies or ()) if config else ()):
        where = (*at, "score_extraction_config", "strategies", i)
        note_unknown_keys(strategy, where, agents.note)
        if strategy.type not in _NEEDS:
            hint = nearest(strategy.type, _NEEDS) or listed(strategy.type, _NEEDS)
            what = f"{strategy.type!r} is not a score strategy and has no effect{hint}"
            agents.note((*where, "type"), what)
        elif strategy.type == "pattern" and strategy.patterns:
            result.append({"patterns": strategy.patterns})
        elif strategy.type == "direct_key" and strategy.key:
            result.append({"key": strategy.key})
        elif strategy.type == "agent_key" and strategy.agents:
            result.append({"agents": strategy.agents, "key": strategy.key or "response"})
        else:
            agents.report(
                where, f"a strategy of type {strategy.type} needs {_NEEDS[strategy.type]}"
            )
    if config is not None and config.agreement_fallback:
        what = "agreement is measured by the words that replies share, because no embedding model is connected"
        agents.note((*at, "score_extraction_config", "agreement_fallback"), what)
    scored = spec.scoring is not None and spec.scoring.preset
    if not result and not scored:
        agents.note(
            at,
            "has no score_extraction_pattern; scores are read after labels such as SCORE: and QUALITY:",
        )
    # A key without an explicit configuration: replies that are not JSON are read by the usual labels.
    only_keys = result and not any("patterns" in strategy for strategy in result)
    return [*result, {"patterns": list(BUILT_IN)}] if only_keys and config is None else result


def _lessons(agents: Agents, spec: LoopNodeSpec, at: Location, owner: str) -> dict[str, Json]:
    lessons: dict[str, Json] = {}
    cognitive = spec.cognitive_extraction
    if cognitive is not None:
        where = (*at, "cognitive_extraction")
        note_unknown_keys(cognitive, where, agents.note)
        if cognitive.agent_priorities is not None:
            agents.note(
                (*where, "agent_priorities"),
                "has no effect: agents are read in the order in which they ran",
            )
        value = cognitive.extract_patterns
        for category in value.keys() - set(CATEGORIES):
            hint = nearest(category, CATEGORIES) or listed(category, CATEGORIES)
            what = f"{category!r} is not a category of lessons and has no effect{hint}"
            agents.note((*where, "extract_patterns", category), what)
        names = {name: list(value[name]) for name in value if name in CATEGORIES and value[name]}
        if cognitive.enabled is not False and names:
            lessons["patterns"] = names
            lessons["longest"] = cognitive.max_length_per_category
    if spec.past_loops_metadata is not None:
        lessons["entry"] = spec.past_loops_metadata
    # With the document's name: loops of different documents often have the same ID.
    if spec.persist_across_runs:
        lessons["persist"] = f"{owner}.{spec.id}"
    return lessons


def _places(spec: LoopNodeSpec, at: Location) -> Mapping[Location, Location]:
    node = ("loop", "node")
    places: dict[Location, Location] = {
        ("loop",): at,
        (*node, "threshold"): (*at, "score_threshold"),
        (*node, "strategies"): (*at, "score_extraction_config", "strategies"),
        (*node, "score_missing"): (*at, "score_missing"),
        (*node, "preset"): (*at, "scoring"),
        (*node, "preset", "weights"): (*at, "scoring", "custom_weights"),
        (*node, "lessons", "patterns"): (*at, "cognitive_extraction", "extract_patterns"),
        (*node, "lessons", "entry"): (*at, "past_loops_metadata"),
        ("loop", "max_iterations"): (*at, "max_loops"),
        ("loop", "guards", "timeout"): (*at, "timeout"),
    }
    if spec.score_extraction_pattern:
        index = 1 if spec.score_extraction_key else 0
        places[(*node, "strategies", index, "patterns", 0)] = (*at, "score_extraction_pattern")
    return places


def remarks(document: Document, source: Source, called: CalledDocument) -> Iterable[Problem]:
    """Return no notes, because the translation reports them all."""
    del document, source, called
    return ()
