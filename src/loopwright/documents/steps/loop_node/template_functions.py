"""Helpers of templates that tell what agents said and remembered, by the names of the loop-node dialect.

Roles such as `get_realist_response` are names and no more.

The functions that templates of loop-node documents call, by the names of that dialect.

Where its own documents say what a function gives, that is what it gives; texts for what is not there
are those of its implementation.

The arguments of helpers as data: what templates pass on has text and fields.

Helpers of templates that tell of the rounds before, by the names of the loop-node dialect.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....errors import StepError
from ....evaluators.parsing.answers import read_binary, read_classification, same_decision
from ....evaluators.parsing.replies import agents_in, reply_text
from ....records.codec import text_of
from ....templates import TemplateValue
from .template_view import LoopNodeView

__all__ = ["HELPERS", "OF_AGENTS", "OF_ROUNDS", "fields", "helpers", "plain", "said"]


def plain(value: Any) -> Any:
    """Return a value of a template as plain data: what has fields as its text."""
    return value.text if isinstance(value, TemplateValue) else value


def said(value: Any) -> str:
    """Return a value as text, nothing as empty text."""
    value = plain(value)
    return "" if value is None else reply_text(value)


def fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a value, none of one that has none."""
    if isinstance(value, TemplateValue):
        return value.fields
    return value if isinstance(value, Mapping) else {}


_NO_RESPONSE = "No response available"


def get_agent_response(view: LoopNodeView, agent: Any = "") -> TemplateValue:
    """Return what an agent said: a text, with the fields of its output such as `response`."""
    name = said(agent)
    if name in view.previous and name != "past_loops":
        found: TemplateValue = view.previous[name]
        return found
    missing = f"No response found for {name}"
    return TemplateValue(missing, {"response": missing})


def safe_get_response(
    view: LoopNodeView, agent: Any = "", default: Any = _NO_RESPONSE, previous: Any = None
) -> Any:
    """Return what an agent said, or a text for when it said nothing."""
    among = view.previous if previous is None else fields(previous)
    return said(among.get(said(agent))) or default


def _role(*names: str) -> Callable[[LoopNodeView], str]:
    def get(view: LoopNodeView) -> str:
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


def get_collaborative_responses(view: LoopNodeView) -> str:
    """Return what the agents of all roles said."""
    texts = [(role, get(view)) for role, get in ROLES.items()]
    told = [f"{role.title()}: {text}" for role, text in texts if text != _NO_RESPONSE]
    return "\n\n".join(told) or "No collaborative responses available"


def get_fork_responses(view: LoopNodeView, group: Any = None) -> Any:
    """Return what the agents of a fork said, by agent; without a name, of all forks by fork."""
    found = {
        name: {agent: reply_text(out) for agent, out in agents_in({name: output}).items()}
        for name, output in view.groups.items()
    }
    return found if group is None else found.get(said(group), {})


def joined_results(view: LoopNodeView) -> Any:
    """Return what the agents of the latest fork said, as a list."""
    last = next(reversed(view.groups.items()), None)
    agents = agents_in({last[0]: last[1]}) if last is not None else {}
    return [{"agent_id": agent, "response": reply_text(output)} for agent, output in agents.items()]


def has_context(view: LoopNodeView, agent: Any = "") -> bool:
    """Tell whether an agent said something."""
    return bool(said(view.previous.get(said(agent))))


def routed(view: LoopNodeView, agent: Any = "", *keys: Any) -> bool:
    """Tell whether an agent decided for one of some keys; true, yes and 1 are the same."""
    output = view.agents.get(said(agent))
    return output is not None and any(same_decision(output, said(key)) for key in keys)


def says_yes(_: LoopNodeView, value: Any = "") -> bool:
    """Tell whether a text says yes, by its first word that is a yes or a no."""
    try:
        return read_binary(said(value))
    except StepError:
        return False


def classified(_: LoopNodeView, value: Any = "", options: Any = ()) -> str:
    """Return the only one of some options that a text names."""
    return read_classification(said(value), [said(option) for option in options])


# Memory.


def format_memory_query(view: LoopNodeView, perspective: Any = "", topic: Any = None) -> str:
    """Return a question to a memory."""
    return f"{said(perspective).title()} perspective on: {said(view.input if topic is None else topic)}"


def get_my_past_memory(view: LoopNodeView, kind: Any = "") -> str:
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


def get_my_past_decisions(view: LoopNodeView, agent: Any = "") -> str:
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


def _said_before(view: LoopNodeView, agent: str) -> Iterator[tuple[int, str]]:
    for item in view.round.history if view.round is not None else ():
        outputs = item.output if isinstance(item.output, Mapping) else {}
        if agent in (found := agents_in(outputs)):
            yield item.number, reply_text(found[agent])


def get_agent_memory_context(view: LoopNodeView, kind: Any = "", agent: Any = "") -> str:
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

_NOTHING = "Unknown"


def get_loop_number(view: LoopNodeView) -> int:
    """Return the number of the round."""
    return view.number


def has_past_loops(view: LoopNodeView) -> bool:
    """Tell whether a round came before."""
    return bool(view.past)


def get_past_loops(view: LoopNodeView) -> Any:
    """Return the entries of past rounds."""
    return view.past


def get_past_loops_metadata(view: LoopNodeView) -> Any:
    """Return the latest entry, with the latest lessons."""
    return view.metadata


def get_past_insights(view: LoopNodeView) -> Any:
    """Return what the round before found."""
    found = view.lessons[0].get("insights") if view.lessons else None
    return found or _last(view).get("synthesis_insights") or "No synthesis insights found"


def get_past_loop_data(view: LoopNodeView, key: Any = None) -> Any:
    """Return a field of the latest entry, or all of it as text."""
    last = _last(view)
    if not last:
        return "No past loops found"
    if key is None:
        return "\n".join(f"{name}: {said(value)}" for name, value in last.items())
    return last.get(said(key), f"No {said(key)} found")


def get_round_info(view: LoopNodeView) -> str:
    """Return the round as the latest entry calls it, or its number."""
    return said(_last(view).get("round", str(view.number)))


def get_score_threshold(view: LoopNodeView) -> Any:
    """Return the score that the loop wants."""
    return view.node.threshold if view.node is not None else 0.8


def get_loop_rounds(view: LoopNodeView) -> Any:
    """Return how many rounds are over."""
    if view.round is not None:
        return len(view.round.history)
    return next((o["loops_completed"] for o in _loops(view)), _NOTHING)


def get_final_score(view: LoopNodeView) -> Any:
    """Return the latest score."""
    if view.round is not None:
        return view.score if view.score != "" else _NOTHING
    found = next((o.get("final_score") for o in _loops(view)), None)
    return _NOTHING if found is None else found


def get_loop_status(view: LoopNodeView) -> str:
    """Return how far the loop is."""
    if view.round is not None:
        return "running"
    met = next((o.get("threshold_met") for o in _loops(view)), None)
    return "completed" if met is not False else "exhausted"


def get_loop_output(view: LoopNodeView, agent: Any = None, previous: Any = None) -> Any:
    """Return all that a loop gave."""
    if previous is not None:
        return fields(fields(previous).get(said(agent)))
    output = view.agents.get(said(agent))
    return output if isinstance(output, Mapping) else {}


def get_debate_evolution(view: LoopNodeView, *_: Any) -> str:
    """Return the scores of past rounds as a sentence."""
    history = view.round.history if view.round is not None else ()
    told = [
        f"Round {i.number}: Agreement {_NOTHING if i.score is None else f'{i.score:g}'}"
        for i in history
    ]
    return " -> ".join(told) or "First round of debate"


def format_loop_metadata(view: LoopNodeView, entries: Any = None, most: Any = 5) -> str:
    """Return entries as lines."""
    found = entries if isinstance(entries, list) else view.past
    count = most if isinstance(most, int) and most > 0 else 5
    lines = [
        f"Loop {number}: score={said(fields(entry).get('score')) or 'N/A'}, "
        f"status={said(fields(entry).get('status')) or 'completed'}"
        for number, entry in enumerate(found[-count:], 1)
    ]
    return "\n".join(lines) or "No previous loops"


def _last(view: LoopNodeView) -> Mapping[str, Any]:
    return fields(view.past[-1]) if view.past else {}


def _loops(view: LoopNodeView) -> Iterator[Mapping[str, Any]]:
    """Iterate over what loops before gave, the latest first."""
    for output in reversed(view.agents.values()):
        if isinstance(output, Mapping) and "loops_completed" in output:
            yield output


OF_ROUNDS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        get_loop_number, has_past_loops, get_past_loops, get_past_loops_metadata, get_past_insights, get_past_loop_data,
        get_round_info, get_score_threshold, get_loop_rounds, get_final_score, get_loop_status, get_loop_output,
        get_debate_evolution, format_loop_metadata,
    )
}  # fmt: skip


# Inputs.


def get_input(view: LoopNodeView) -> Any:
    """Return the input, which prints as its text."""
    return view.input


def get_input_field(view: LoopNodeView, *args: Any) -> Any:
    """Return a field: of the input, or of a first argument that is no name."""
    found = list(args)
    owner = view.input if not found or isinstance(found[0], str) else found.pop(0)
    name = said(found[0]) if found else ""
    return fields(owner).get(name, found[1] if len(found) > 1 else "")


# Values.


def safe_get(_: LoopNodeView, owner: Any = None, key: Any = "", default: Any = "") -> Any:
    """Return a field, or a default."""
    found = fields(owner).get(said(key))
    return default if found is None else found


def safe_str(_: LoopNodeView, value: Any = None) -> str:
    """Return a value as text, nothing as empty text."""
    return said(value)


def truncate(_: LoopNodeView, value: Any = "", length: Any = 100, suffix: Any = "...") -> str:
    """Return a text of at most some characters."""
    text, end = said(value), said(suffix)
    most = max(length, 0) if isinstance(length, int) else 100
    return text if len(text) <= most else text[: max(most - len(end), 0)] + end


def get_execution_artifacts(view: LoopNodeView, *_: Any) -> Any:
    """Return what all agents said, by agent."""
    return {agent: reply_text(output) for agent, output in view.agents.items()}


def to_json_string(_: LoopNodeView, value: Any = None, indent: Any = None) -> str:
    """Return a value as JSON."""
    space = indent if isinstance(indent, int) and 0 <= indent <= 8 else None
    return json.dumps(_deep(value), ensure_ascii=False, indent=space)


def _deep(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: _deep(item) for key, item in value.items()}
    return [_deep(item) for item in value] if isinstance(value, list) else value


def to_validate(view: LoopNodeView, target: Any = "") -> str:
    """Return what a validator is to judge: an agent's reply, or all replies as JSON."""
    name = said(target)
    if name:
        return said(OF_AGENTS["get_agent_response"](view, name))
    return text_of({agent: reply_text(output) for agent, output in view.agents.items()})


def round_before(view: LoopNodeView, target: Any = "") -> str:
    """Return what an agent said in the round before, and its score; "" in the first round."""
    if view.latest is None:
        return ""
    outputs = view.latest.output if isinstance(view.latest.output, Mapping) else {}
    agents = agents_in(outputs)
    name = said(target)
    texts = (
        [reply_text(agents[name])]
        if name in agents
        else [f"{k}: {reply_text(o)}" for k, o in agents.items()]
    )
    return "\n".join([*texts, *([f"Its score: {view.score:g}"] if view.score != "" else [])])


_TABLE: Mapping[str, Callable[..., Any]] = {
    **OF_ROUNDS,
    **OF_AGENTS,
    **{
        function.__name__: function
        for function in (
            get_input, get_input_field, safe_get, safe_str, truncate, get_execution_artifacts, to_json_string,
            to_validate, round_before,
        )
    },
    "get_current_topic": get_input,
    "truncate_text": truncate,
    "tojson": to_json_string,
}  # fmt: skip
HELPERS = frozenset(_TABLE)


def helpers(view: LoopNodeView) -> dict[str, Callable[..., Any]]:
    """Return the functions that a template at a place may call."""
    return {name: functools.partial(function, view) for name, function in _TABLE.items()}
