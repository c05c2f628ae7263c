"""The loops of loop-node documents as native loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....errors import DocumentError, listed, nearest
from ....evaluators.presets import context_of
from ...schema.validate import validated
from ...steps.loop_node.scoring import BUILT_IN
from ...steps.loop_node.template_view import CATEGORIES
from ...yaml.reader import Path
from .agents import Agents, Definition, Native, notes_on, placed
from .order import definitions, in_queue
from .schema import LoopNodeSpec, StructuredSpec

__all__ = ["native_loop"]

# Ways to find a score, and the field that each needs.
_NEEDS = {"pattern": "patterns", "direct_key": "key", "agent_key": "agents"}


def native_loop(agents: Agents, found: Definition, owner: str) -> Native | None:
    """Return a loop node as a native loop; None if problems were found. `owner` is the document's name."""
    at = found.at
    try:
        spec: LoopNodeSpec = validated(LoopNodeSpec, found.raw, agents.source, at)
    except DocumentError as error:
        agents.problems += error.problems
        return None
    notes_on(spec, at, agents.note)
    inner = _inner(agents, spec, at)
    if not inner:
        return None
    loop: dict[str, Any] = {
        "execute": {"steps": [native.step for native in inner], "output": "all"},
        "node": _node(agents, spec, at, owner),
        "max_iterations": spec.max_loops,
        "guards": {"timeout": spec.timeout},
        "on_failure": "continue",
        **({"keep": "last"} if spec.parity else {}),
    }
    made = placed({"name": spec.id, "loop": loop}, at, {("loop", "execute", "steps"): inner})
    made.places |= _places(spec, at)
    return made


def _inner(agents: Agents, spec: LoopNodeSpec, at: Path) -> list[Native]:
    """Return the agents of the internal workflow, which may name those of the workflow around it."""
    where = (*at, "internal_workflow")
    workflow = spec.internal_workflow
    own = definitions(agents, workflow.get("agents"), (*where, "agents"))
    scope = replace(agents, known={**agents.known, **own})
    queue = in_queue(scope, workflow.get("orchestrator"), own, (*where, "orchestrator"))
    if not queue:
        agents.report(
            where if workflow else at,
            "internal_workflow has no agents; name some in its orchestrator",
        )
        return []
    scope.around = tuple(name for name, _ in queue)
    common = workflow.get("orchestrator", {}).get("structured_output_defaults")
    if common is not None:
        scope.structured = StructuredSpec.model_validate(common)
    return [scope.step(name, place, (spec.id,)) for name, place in queue]


def _node(agents: Agents, spec: LoopNodeSpec, at: Path, owner: str) -> dict[str, Any]:
    low, high = spec.score_scale or (0.0, 1.0)
    node: dict[str, Any] = {"threshold": (spec.score_threshold - low) / (high - low)}
    if spec.score_scale:
        node["scale"] = list(spec.score_scale)
    if strategies := _strategies(agents, spec, at):
        node["strategies"] = strategies
    if spec.high_priority_agents:
        node["first"] = spec.high_priority_agents
    if spec.scoring is not None and spec.scoring.preset:
        scoring = spec.scoring
        context = scoring.context or context_of(scoring.custom_weights, default="loop_convergence")
        node["preset"] = {"level": scoring.preset, "context": context}
        if scoring.custom_weights:
            node["preset"]["weights"] = scoring.custom_weights
    for name in ("fallback_score", "timeout_score"):
        if getattr(spec, name) is not None:
            node[name] = getattr(spec, name)
    if spec.score_missing != "count":
        node["score_missing"] = spec.score_missing
    if spec.parity:
        node["prefer"] = "first"
    if (config := spec.score_extraction_config) is not None and config.agreement_fallback:
        node["agreement"] = True
    if lessons := _lessons(agents, spec, at, owner):
        node["lessons"] = lessons
    return node


def _strategies(agents: Agents, spec: LoopNodeSpec, at: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if spec.score_extraction_key:
        found.append({"key": spec.score_extraction_key})
    if spec.score_extraction_pattern:
        return [*found, {"patterns": [spec.score_extraction_pattern]}]
    config = spec.score_extraction_config
    for i, strategy in enumerate((config.strategies or ()) if config else ()):
        where = (*at, "score_extraction_config", "strategies", i)
        notes_on(strategy, where, agents.note)
        if strategy.type not in _NEEDS:
            hint = nearest(strategy.type, _NEEDS) or listed(strategy.type, _NEEDS)
            what = f"{strategy.type!r} is no way to find a score here and has no effect{hint}"
            agents.note((*where, "type"), what)
        elif strategy.type == "pattern" and strategy.patterns:
            found.append({"patterns": strategy.patterns})
        elif strategy.type == "direct_key" and strategy.key:
            found.append({"key": strategy.key})
        elif strategy.type == "agent_key" and strategy.agents:
            found.append({"agents": strategy.agents, "key": strategy.key or "response"})
        else:
            agents.report(
                where, f"a strategy of type {strategy.type} needs {_NEEDS[strategy.type]}"
            )
    if config is not None and config.agreement_fallback:
        what = "agreement is measured by the words that replies share, as no model of embeddings is connected"
        agents.note((*at, "score_extraction_config", "agreement_fallback"), what)
    scored = spec.scoring is not None and spec.scoring.preset
    if not found and not scored:
        agents.note(
            at,
            "names no score_extraction_pattern; a score is looked for behind SCORE:, QUALITY: and the like",
        )
    only_keys = found and not any("patterns" in strategy for strategy in found)
    return [*found, {"patterns": list(BUILT_IN)}] if only_keys and config is None else found


def _lessons(agents: Agents, spec: LoopNodeSpec, at: Path, owner: str) -> dict[str, Any]:
    lessons: dict[str, Any] = {}
    cognitive = spec.cognitive_extraction
    if cognitive is not None:
        where = (*at, "cognitive_extraction")
        notes_on(cognitive, where, agents.note)
        if cognitive.agent_priorities is not None:
            agents.note(
                (*where, "agent_priorities"),
                "has no effect: agents are read in the order in which they ran",
            )
        given = cognitive.extract_patterns
        for category in given.keys() - set(CATEGORIES):
            hint = nearest(category, CATEGORIES) or listed(category, CATEGORIES)
            what = f"{category!r} is no category of lessons and has no effect{hint}"
            agents.note((*where, "extract_patterns", category), what)
        known = {name: list(given[name]) for name in given if name in CATEGORIES and given[name]}
        if cognitive.enabled is not False and known:
            lessons["patterns"] = known
            lessons["longest"] = cognitive.max_length_per_category
    if spec.past_loops_metadata is not None:
        lessons["entry"] = spec.past_loops_metadata
    if spec.persist_across_runs:
        lessons["persist"] = f"{owner}.{spec.id}"
    return lessons


def _places(spec: LoopNodeSpec, at: Path) -> Mapping[Path, Path]:
    node = ("loop", "node")
    places: dict[Path, Path] = {
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
