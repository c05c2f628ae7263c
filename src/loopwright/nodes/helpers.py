"""The functions that templates of loop-node documents call, by the names of that dialect.

Where its own documents say what a function gives, that is what it gives; texts for what is not there
are those of its implementation. Roles such as `get_realist_response` are names and no more.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..codec import text_of
from ..templates import TemplateValue
from .answers import same_decision
from .outputs import agents_in, reply_text
from .scope import CATEGORIES
from .view import View

__all__ = ["HELPERS", "helpers"]

_NO_RESPONSE = "No response available"
_NOTHING = "Unknown"


def _plain(value: Any) -> Any:
    """Return a value of a template as plain data: what has fields as its text."""
    return value.text if isinstance(value, TemplateValue) else value


def _said(value: Any) -> str:
    value = _plain(value)
    return "" if value is None else reply_text(value)


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, TemplateValue):
        return value.fields
    return value if isinstance(value, Mapping) else {}


# Inputs.


def get_input(view: View) -> Any:
    """Return the input, which prints as its text."""
    return view.input


def get_input_field(view: View, *args: Any) -> Any:
    """Return a field: of the input, or of a first argument that is no name."""
    found = list(args)
    owner = view.input if not found or isinstance(found[0], str) else found.pop(0)
    name = _said(found[0]) if found else ""
    return _fields(owner).get(name, found[1] if len(found) > 1 else "")


# Rounds.


def get_loop_number(view: View) -> int:
    """Return the number of the round."""
    return view.number


def has_past_loops(view: View) -> bool:
    """Tell whether a round came before."""
    return bool(view.past)


def get_past_loops(view: View) -> Any:
    """Return the entries of past rounds."""
    return view.past


def get_past_loops_metadata(view: View) -> Any:
    """Return the latest entry, with the latest lessons."""
    return view.metadata


def get_past_insights(view: View) -> Any:
    """Return what the round before found."""
    found = view.lessons[0].get("insights") if view.lessons else None
    return found or _last(view).get("synthesis_insights") or "No synthesis insights found"


def get_past_loop_data(view: View, key: Any = None) -> Any:
    """Return a field of the latest entry, or all of it as text."""
    last = _last(view)
    if not last:
        return "No past loops found"
    if key is None:
        return "\n".join(f"{name}: {_said(value)}" for name, value in last.items())
    return last.get(_said(key), f"No {_said(key)} found")


def get_round_info(view: View) -> str:
    """Return the round as the latest entry calls it, or its number."""
    return _said(_last(view).get("round", str(view.number)))


def get_score_threshold(view: View) -> Any:
    """Return the score that the loop wants."""
    return view.node.threshold if view.node is not None else 0.8


def get_loop_rounds(view: View) -> Any:
    """Return how many rounds are over."""
    if view.round is not None:
        return len(view.round.history)
    return next((o["loops_completed"] for o in _loops(view)), _NOTHING)


def get_final_score(view: View) -> Any:
    """Return the latest score."""
    if view.round is not None:
        return view.score if view.score != "" else _NOTHING
    found = next((o.get("final_score") for o in _loops(view)), None)
    return _NOTHING if found is None else found


def get_loop_status(view: View) -> str:
    """Return how far the loop is."""
    if view.round is not None:
        return "running"
    met = next((o.get("threshold_met") for o in _loops(view)), None)
    return "completed" if met is not False else "exhausted"


def get_loop_output(view: View, agent: Any = None, previous: Any = None) -> Any:
    """Return all that a loop gave."""
    if previous is not None:
        return _fields(_fields(previous).get(_said(agent)))
    output = view.agents.get(_said(agent))
    return output if isinstance(output, Mapping) else {}


def get_debate_evolution(view: View, *_: Any) -> str:
    """Return the scores of past rounds as a sentence."""
    history = view.round.history if view.round is not None else ()
    told = [f"Round {i.number}: Agreement {_NOTHING if i.score is None else f'{i.score:g}'}" for i in history]
    return " -> ".join(told) or "First round of debate"


def format_loop_metadata(view: View, entries: Any = None, most: Any = 5) -> str:
    """Return entries as lines."""
    found = entries if isinstance(entries, list) else view.past
    count = most if isinstance(most, int) and most > 0 else 5
    lines = [
        f"Loop {number}: score={_said(_fields(entry).get('score')) or 'N/A'}, "
        f"status={_said(_fields(entry).get('status')) or 'completed'}"
        for number, entry in enumerate(found[-count:], 1)
    ]
    return "\n".join(lines) or "No previous loops"


def _last(view: View) -> Mapping[str, Any]:
    return _fields(view.past[-1]) if view.past else {}


def _loops(view: View) -> Iterator[Mapping[str, Any]]:
    """Iterate over what loops before gave, the latest first."""
    for output in reversed(view.agents.values()):
        if isinstance(output, Mapping) and "loops_completed" in output:
            yield output


# Agents.


def get_agent_response(view: View, agent: Any = "") -> str:
    """Return what an agent said."""
    name = _said(agent)
    if name in view.previous and name != "past_loops":
        return _said(view.previous[name])
    return f"No response found for {name}"


def safe_get_response(view: View, agent: Any = "", default: Any = _NO_RESPONSE, previous: Any = None) -> Any:
    """Return what an agent said, or a text for when it said nothing."""
    among = view.previous if previous is None else _fields(previous)
    return _said(among.get(_said(agent))) or default


def _role(*names: str) -> Callable[[View], str]:
    def get(view: View) -> str:
        """Return what the agent of a role said."""
        said = (_said(view.previous.get(name)) for name in names)
        return next((text for text in said if text), _NO_RESPONSE)

    return get


ROLES = {
    "progressive": _role("progressive_refinement", "radical_progressive"),
    "conservative": _role("conservative_refinement", "traditional_conservative"),
    "realist": _role("realist_refinement", "pragmatic_realist"),
    "purist": _role("purist_refinement", "ethical_purist"),
}


def get_collaborative_responses(view: View) -> str:
    """Return what the agents of all roles said."""
    said = [(role, get(view)) for role, get in ROLES.items()]
    told = [f"{role.title()}: {text}" for role, text in said if text != _NO_RESPONSE]
    return "\n\n".join(told) or "No collaborative responses available"


def get_fork_responses(view: View, group: Any = None) -> Any:
    """Return what the agents of a fork said, by agent; without a name, of all forks by fork."""
    found = {
        name: {agent: reply_text(out) for agent, out in agents_in({name: output}).items()}
        for name, output in view.groups.items()
    }
    return found if group is None else found.get(_said(group), {})


def joined_results(view: View) -> Any:
    """Return what the agents of the latest fork said, as a list."""
    last = next(reversed(view.groups.items()), None)
    agents = agents_in({last[0]: last[1]}) if last is not None else {}
    return [{"agent_id": agent, "response": reply_text(output)} for agent, output in agents.items()]


def has_context(view: View, agent: Any = "") -> bool:
    """Tell whether an agent said something."""
    return bool(_said(view.previous.get(_said(agent))))


def routed(view: View, agent: Any = "", *keys: Any) -> bool:
    """Tell whether an agent decided for one of some keys; true, yes and 1 are the same."""
    output = view.agents.get(_said(agent))
    return output is not None and any(same_decision(output, _said(key)) for key in keys)


# Memory.


def format_memory_query(view: View, perspective: Any = "", topic: Any = None) -> str:
    """Return a question to a memory."""
    return f"{_said(perspective).title()} perspective on: {_said(view.input if topic is None else topic)}"


def get_my_past_memory(view: View, kind: Any = "") -> str:
    """Return what memories of an agent's type were read."""
    found = [m for o in view.agents.values() for m in _fields(o).get("memories") or ()]
    if not found:
        return "No past memory available"
    mine = [_said(m["content"]) for m in found if _fields(m.get("metadata")).get("agent_type") == _said(kind)]
    return "\n".join(mine[-3:]) or "No past memory for this agent type"


def get_my_past_decisions(view: View, agent: Any = "") -> str:
    """Return what entries of past rounds say under an agent's name, or what it said in them."""
    name = _said(agent)
    told = [
        f"Loop {_said(_fields(e).get('round', _fields(e).get('loop_number', '?')))}: {_said(_fields(e)[name])}"
        for e in view.past
        if name in _fields(e)
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


# Values.


def safe_get(_: View, owner: Any = None, key: Any = "", default: Any = "") -> Any:
    """Return a field, or a default."""
    found = _fields(owner).get(_said(key))
    return default if found is None else found


def safe_str(_: View, value: Any = None) -> str:
    """Return a value as text, nothing as empty text."""
    return _said(value)


def truncate(_: View, value: Any = "", length: Any = 100, suffix: Any = "...") -> str:
    """Return a text of at most some characters."""
    text, end = _said(value), _said(suffix)
    most = max(length, 0) if isinstance(length, int) else 100
    return text if len(text) <= most else text[: max(most - len(end), 0)] + end


def get_execution_artifacts(view: View, *_: Any) -> Any:
    """Return what all agents said, by agent."""
    return {agent: reply_text(output) for agent, output in view.agents.items()}


def to_json_string(_: View, value: Any = None, indent: Any = None) -> str:
    """Return a value as JSON."""
    space = indent if isinstance(indent, int) and 0 <= indent <= 8 else None
    return json.dumps(_deep(value), ensure_ascii=False, indent=space)


def _deep(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, Mapping):
        return {key: _deep(item) for key, item in value.items()}
    return [_deep(item) for item in value] if isinstance(value, list) else value


def agreed(view: View, target: Any = "") -> str:
    """Return what a validator is to judge: an agent's reply, or all replies as JSON."""
    name = _said(target)
    if name:
        return get_agent_response(view, name)
    return text_of({agent: reply_text(output) for agent, output in view.agents.items()})


def round_before(view: View, target: Any = "") -> str:
    """Return what an agent said in the round before, and its score; "" in the first round."""
    if view.latest is None:
        return ""
    outputs = view.latest.output if isinstance(view.latest.output, Mapping) else {}
    agents = agents_in(outputs)
    name = _said(target)
    texts = [reply_text(agents[name])] if name in agents else [f"{k}: {reply_text(o)}" for k, o in agents.items()]
    return "\n".join([*texts, *([f"Its score: {view.score:g}"] if view.score != "" else [])])


_ALL: tuple[Callable[..., Any], ...] = (
    get_input, get_input_field, get_loop_number, has_past_loops, get_past_loops, get_past_loops_metadata,
    get_past_insights, get_past_loop_data, get_round_info, get_score_threshold, get_loop_rounds,
    get_final_score, get_loop_status, get_loop_output, get_debate_evolution, format_loop_metadata,
    get_agent_response, safe_get_response, get_collaborative_responses, get_fork_responses,
    joined_results, has_context, routed, format_memory_query, get_my_past_memory, get_my_past_decisions,
    get_agent_memory_context, safe_get, safe_str, truncate, get_execution_artifacts, to_json_string,
    agreed, round_before,
)  # fmt: skip
_TABLE: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in _ALL},
    **{f"get_{role}_response": get for role, get in ROLES.items()},
    "get_current_topic": get_input,
    "truncate_text": truncate,
    "tojson": to_json_string,
}
HELPERS = frozenset(_TABLE)
# What entries of rounds may name beside the helpers.
ENTRY = frozenset({"reasoning_quality", "convergence_trend", "timestamp", *CATEGORIES})


def helpers(view: View) -> dict[str, Callable[..., Any]]:
    """Return the functions that a template at a place may call."""
    return {name: functools.partial(function, view) for name, function in _TABLE.items()}
