"""Helpers of templates that tell what agents said and remembered, by the names of the loop-node dialect.

Roles such as `get_realist_response` are names and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import StepError
from .answers import read_binary, read_classification, same_decision
from .outputs import agents_in, reply_text
from .reading import fields, said
from .view import View

__all__ = ["OF_AGENTS"]

_NO_RESPONSE = "No response available"


def get_agent_response(view: View, agent: Any = "") -> str:
    """Return what an agent said."""
    name = said(agent)
    if name in view.previous and name != "past_loops":
        return said(view.previous[name])
    return f"No response found for {name}"


def safe_get_response(
    view: View, agent: Any = "", default: Any = _NO_RESPONSE, previous: Any = None
) -> Any:
    """Return what an agent said, or a text for when it said nothing."""
    among = view.previous if previous is None else fields(previous)
    return said(among.get(said(agent))) or default


def _role(*names: str) -> Callable[[View], str]:
    def get(view: View) -> str:
        """Return what the agent of a role said."""
        texts = (said(view.previous.get(name)) for name in names)
        return next((text for text in texts if text), _NO_RESPONSE)

    return get


ROLES = {
    "progressive": _role("progressive_refinement", "radical_progressive"),
    "conservative": _role("conservative_refinement", "traditional_conservative"),
    "realist": _role("realist_refinement", "pragmatic_realist"),
    "purist": _role("purist_refinement", "ethical_purist"),
}


def get_collaborative_responses(view: View) -> str:
    """Return what the agents of all roles said."""
    texts = [(role, get(view)) for role, get in ROLES.items()]
    told = [f"{role.title()}: {text}" for role, text in texts if text != _NO_RESPONSE]
    return "\n\n".join(told) or "No collaborative responses available"


def get_fork_responses(view: View, group: Any = None) -> Any:
    """Return what the agents of a fork said, by agent; without a name, of all forks by fork."""
    found = {
        name: {agent: reply_text(out) for agent, out in agents_in({name: output}).items()}
        for name, output in view.groups.items()
    }
    return found if group is None else found.get(said(group), {})


def joined_results(view: View) -> Any:
    """Return what the agents of the latest fork said, as a list."""
    last = next(reversed(view.groups.items()), None)
    agents = agents_in({last[0]: last[1]}) if last is not None else {}
    return [{"agent_id": agent, "response": reply_text(output)} for agent, output in agents.items()]


def has_context(view: View, agent: Any = "") -> bool:
    """Tell whether an agent said something."""
    return bool(said(view.previous.get(said(agent))))


def routed(view: View, agent: Any = "", *keys: Any) -> bool:
    """Tell whether an agent decided for one of some keys; true, yes and 1 are the same."""
    output = view.agents.get(said(agent))
    return output is not None and any(same_decision(output, said(key)) for key in keys)


def says_yes(_: View, value: Any = "") -> bool:
    """Tell whether a text says yes, by its first word that is a yes or a no."""
    try:
        return read_binary(said(value))
    except StepError:
        return False


def classified(_: View, value: Any = "", options: Any = ()) -> str:
    """Return the only one of some options that a text names."""
    return read_classification(said(value), [said(option) for option in options])


# Memory.


def format_memory_query(view: View, perspective: Any = "", topic: Any = None) -> str:
    """Return a question to a memory."""
    return f"{said(perspective).title()} perspective on: {said(view.input if topic is None else topic)}"


def get_my_past_memory(view: View, kind: Any = "") -> str:
    """Return what memories of an agent's type were read."""
    found = [m for o in view.agents.values() for m in fields(o).get("memories") or ()]
    if not found:
        return "No past memory available"
    mine = [
        said(m["content"])
        for m in found
        if fields(m.get("metadata")).get("agent_type") == said(kind)
    ]
    return "\n".join(mine[-3:]) or "No past memory for this agent type"


def get_my_past_decisions(view: View, agent: Any = "") -> str:
    """Return what entries of past rounds say under an agent's name, or what it said in them."""
    name = said(agent)
    told = [
        f"Loop {said(fields(e).get('round', fields(e).get('loop_number', '?')))}: {said(fields(e)[name])}"
        for e in view.past
        if name in fields(e)
    ] or [f"Loop {number}: {text}" for number, text in _said_before(view, name)]
    if not view.past:
        return "No past decisions available"
    return "\n".join(told[-2:]) or f"No past decisions for {name}"


def _said_before(view: View, agent: str) -> Iterator[tuple[int, str]]:
    for item in view.round.history if view.round is not None else ():
        outputs = item.output if isinstance(item.output, Mapping) else {}
        if agent in (found := agents_in(outputs)):
            yield item.number, reply_text(found[agent])


def get_agent_memory_context(view: View, kind: Any = "", agent: Any = "") -> str:
    """Return memories and decisions of an agent."""
    memory, decisions = get_my_past_memory(view, kind), get_my_past_decisions(view, agent)
    told = [f"PAST MEMORY:\n{memory}"] if not memory.startswith("No past ") else []
    told += [f"PAST DECISIONS:\n{decisions}"] if not decisions.startswith("No past ") else []
    return "\n\n".join(told) or "No past context available"


OF_AGENTS: Mapping[str, Callable[..., Any]] = {
    **{
        function.__name__: function
        for function in (
            get_agent_response, safe_get_response, get_collaborative_responses, get_fork_responses, joined_results,
            has_context, routed, says_yes, classified, format_memory_query, get_my_past_memory, get_my_past_decisions,
            get_agent_memory_context,
        )
    },
    **{f"get_{role}_response": get for role, get in ROLES.items()},
}  # fmt: skip
