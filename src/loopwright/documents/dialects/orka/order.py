"""Which agents a queue of a loop-node document names, and in which order they run."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import DocumentError, nearest
from ....records.codec import Json
from ...schema.validate import validated
from ...yaml.reader import Location
from .agents import Agents, Definition, note_unknown_keys
from .schema import OrchestratorSpec

__all__ = ["definitions", "queue_order"]

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
    """Return the names that run, in order, each with its place: as listed, moved later by depends_on."""
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
    defined = [(name, place) for name, place in entries if _is_known(agents, name, place)]
    _report_duplicates(agents, defined)
    return _sorted(agents, list(dict(defined).items()))


def _is_known(agents: Agents, name: str, place: Location) -> bool:
    if name not in agents.known:
        agents.report(place, f"there is no agent {name!r}{nearest(name, agents.known)}")
    return name in agents.known


def _report_duplicates(agents: Agents, entries: list[tuple[str, Location]]) -> None:
    visited: set[str] = set()
    for name, place in entries:
        if name in visited:
            agents.report(place, f"{name!r} is listed twice; give the second its own id")
        visited.add(name)


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
    # An agent inside a fork, router or failover has run when the outer agent has.
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
        ready = next(
            (e for e in remaining if all(n in done or n not in needs for n in needs[e[0]])), None
        )
        if ready is None:
            circle = ", ".join(name for name, _ in remaining)
            where = (*agents.known[remaining[0][0]].at, "depends_on")
            agents.report(where, f"agents depend on each other in a cycle: {circle}")
            return entries
        order.append(ready)
        remaining.remove(ready)
    return order


def _all_targets(agents: Agents, owner: str) -> list[str]:
    """Return the names of all agents that an agent calls, directly or through others."""
    result: dict[str, None] = {}
    remaining = _targets_of(agents.known[owner].raw)
    while remaining:
        name = remaining.pop()
        if name not in result:
            result[name] = None
            remaining += _targets_of(agents.known[name].raw) if name in agents.known else []
    return list(result)


def _needs(agents: Agents, name: str, inside: Mapping[str, str]) -> list[str]:
    result = agents.known[name]
    value = result.raw.get("depends_on")
    expected = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for i, need in enumerate(expected):
        if not isinstance(need, str) or (need not in agents.known and need not in inside):
            where = (*result.at, "depends_on", i)
            agents.report(
                where, f"there is no agent {str(need)!r}{nearest(str(need), agents.known)}"
            )
    return [str(need) for need in expected]
