"""The functions that templates of loop-node documents call, by the names of that dialect.

Where its own documents say what a function gives, that is what it gives; texts for what is not there
are those of its implementation.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..codec import text_of
from .agent_helpers import OF_AGENTS
from .outputs import agents_in, reply_text
from .reading import fields, plain, said
from .round_helpers import OF_ROUNDS
from .view import View

__all__ = ["HELPERS", "helpers"]


# Inputs.


def get_input(view: View) -> Any:
    """Return the input, which prints as its text."""
    return view.input


def get_input_field(view: View, *args: Any) -> Any:
    """Return a field: of the input, or of a first argument that is no name."""
    found = list(args)
    owner = view.input if not found or isinstance(found[0], str) else found.pop(0)
    name = said(found[0]) if found else ""
    return fields(owner).get(name, found[1] if len(found) > 1 else "")


# Values.


def safe_get(_: View, owner: Any = None, key: Any = "", default: Any = "") -> Any:
    """Return a field, or a default."""
    found = fields(owner).get(said(key))
    return default if found is None else found


def safe_str(_: View, value: Any = None) -> str:
    """Return a value as text, nothing as empty text."""
    return said(value)


def truncate(_: View, value: Any = "", length: Any = 100, suffix: Any = "...") -> str:
    """Return a text of at most some characters."""
    text, end = said(value), said(suffix)
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
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: _deep(item) for key, item in value.items()}
    return [_deep(item) for item in value] if isinstance(value, list) else value


def to_validate(view: View, target: Any = "") -> str:
    """Return what a validator is to judge: an agent's reply, or all replies as JSON."""
    name = said(target)
    if name:
        found: str = OF_AGENTS["get_agent_response"](view, name)
        return found
    return text_of({agent: reply_text(output) for agent, output in view.agents.items()})


def round_before(view: View, target: Any = "") -> str:
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


def helpers(view: View) -> dict[str, Callable[..., Any]]:
    """Return the functions that a template at a place may call."""
    return {name: functools.partial(function, view) for name, function in _TABLE.items()}
