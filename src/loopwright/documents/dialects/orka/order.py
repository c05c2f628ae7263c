"""Which agents a queue of a loop-node document names, and in which order they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import DocumentError, nearest
from ...schema.validate import validated
from ...yaml.reader import Path
from .agents import Agents, Definition, notes_on
from .schema import OrchestratorSpec

__all__ = ["definitions", "in_queue"]

_LABELS = frozenset({
    "memory", "memory_config", "memory_preset", "debug", "structured_output_defaults", "mode", "name",
    "description", "version", "temperature", "timeout", "max_tokens",
})  # fmt: skip


def definitions(agents: Agents, given: Any, at: Path) -> dict[str, Definition]:
    """Return the agents of a list by their ids, and report what is none."""
    found: dict[str, Definition] = {}
    for i, raw in enumerate(given if isinstance(given, list) else ()):
        where = (*at, i)
        ident = raw.get("id") if isinstance(raw, Mapping) else None
        if not isinstance(ident, str) or not ident:
            agents.report(where, "an agent needs an id and a type")
        elif not isinstance(raw.get("type"), str):
            agents.report(where, f"the agent {ident!r} needs a type")
        elif ident in found:
            line = agents.source.position(found[ident].at)[0]
            agents.report((*where, "id"), f"{ident!r} is already an agent, on line {line}")
        else:
            found[ident] = Definition(raw, where)
    return found


def in_queue(
    agents: Agents, given: Any, own: Mapping[str, Definition], at: Path
) -> list[tuple[str, Path]]:
    """Return the names that run, in order, each with its place: as listed, moved later by depends_on."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        agents.report(at, "an orchestrator is a mapping with agents, a list of ids")
        return []
    try:
        spec: OrchestratorSpec = validated(OrchestratorSpec, dict(given), agents.source, at)
    except DocumentError as error:
        agents.problems += error.problems
        return []
    notes_on(spec, at, agents.note, _LABELS)
    key = "agents" if spec.agents is not None else "queue"
    queue = None if isinstance(spec.queue, str) else spec.queue
    names = spec.agents if spec.agents is not None else queue
    if names is None:
        agents.note(
            at, "lists no agents; they run as they are written, without those that others lead to"
        )
        led = {name for each in own.values() for name in _leads_to(each.raw)}
        listed = [(name, (*each.at, "id")) for name, each in own.items() if name not in led]
    else:
        listed = [(name, (*at, key, i)) for i, name in enumerate(names)]
    known = [(name, place) for name, place in listed if _is_known(agents, name, place)]
    _twice(agents, known)
    return _sorted(agents, list(dict(known).items()))


def _is_known(agents: Agents, name: str, place: Path) -> bool:
    if name not in agents.known:
        agents.report(place, f"there is no agent {name!r}{nearest(name, agents.known)}")
    return name in agents.known


def _twice(agents: Agents, listed: list[tuple[str, Path]]) -> None:
    seen: set[str] = set()
    for name, place in listed:
        if name in seen:
            agents.report(place, f"{name!r} is listed twice; give the second its own id")
        seen.add(name)


def _leads_to(value: Any) -> list[str]:
    """Return the names that a fork, router or failover leads to."""
    params = value.get("params")
    inner = params if isinstance(params, Mapping) else {}
    routes = value.get("routing_map") or inner.get("routing_map")
    given = [value.get("targets"), value.get("children"), routes]
    return [name for item in given for name in _texts(item)]


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = list(value.values()) if "id" not in value else [value["id"]]
    if isinstance(value, list):
        return [name for item in value for name in _texts(item)]
    return [value] if isinstance(value, str) else []


def _sorted(agents: Agents, listed: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    queued = {name for name, _ in listed}
    # Who runs inside of a fork, router or failover has run when that has.
    inside = {
        name: owner
        for owner, _ in listed
        for name in _led_to(agents, owner)
        if name not in queued and name != owner
    }
    needs = {
        name: [inside.get(need, need) for need in _needs(agents, name, inside)]
        for name, _ in listed
    }
    order: list[tuple[str, Path]] = []
    left = list(listed)
    while left:
        done = {name for name, _ in order}
        ready = next(
            (e for e in left if all(n in done or n not in needs for n in needs[e[0]])), None
        )
        if ready is None:
            circle = ", ".join(name for name, _ in left)
            where = (*agents.known[left[0][0]].at, "depends_on")
            agents.report(where, f"agents depend on each other in a circle: {circle}")
            return listed
        order.append(ready)
        left.remove(ready)
    return order


def _led_to(agents: Agents, owner: str) -> list[str]:
    """Return the names of all agents that one leads to, directly or by another."""
    found: dict[str, None] = {}
    left = _leads_to(agents.known[owner].raw)
    while left:
        name = left.pop()
        if name not in found:
            found[name] = None
            left += _leads_to(agents.known[name].raw) if name in agents.known else []
    return list(found)


def _needs(agents: Agents, name: str, inside: Mapping[str, str]) -> list[str]:
    found = agents.known[name]
    given = found.raw.get("depends_on")
    wanted = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    for i, need in enumerate(wanted):
        if not isinstance(need, str) or (need not in agents.known and need not in inside):
            where = (*found.at, "depends_on", i)
            agents.report(
                where, f"there is no agent {str(need)!r}{nearest(str(need), agents.known)}"
            )
    return [str(need) for need in wanted]
