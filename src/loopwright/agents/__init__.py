"""Agents as steps: phased (planning, execution, refinement) and reasoning (a conversation until the model
states its final answer)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..prompts import tool_prompt
    from ..prompts.tool_prompt import OnResults, call_with_tools
    from ..records.codec import sanitised as sanitised
    from .lifecycle import Event, Lifecycle, LifecycleListener, Move, State, lifecycle_of
    from .phased.agent import COMPLEXITIES, ROLES, PhasedAgent
    from .phased.capabilities import AgentState, Capability
    from .reasoning.agent import ReasoningAgent
    from .reasoning.completion import completion
    from .reasoning.executions import STATUSES as STATUSES
    from .reasoning.executions import Execution, execution_of, executions

__all__ = [
    "COMPLEXITIES",
    "ROLES",
    "AgentState",
    "Capability",
    "Event",
    "Execution",
    "Lifecycle",
    "LifecycleListener",
    "Move",
    "OnResults",
    "PhasedAgent",
    "ReasoningAgent",
    "State",
    "call_with_tools",
    "completion",
    "execution_of",
    "executions",
    "lifecycle_of",
    "tool_prompt",
]

# Loaded at first use: templates, models and tools take half a second.
_LAZY = {
    "AgentState": ".phased.capabilities",
    "COMPLEXITIES": ".phased.agent",
    "Capability": ".phased.capabilities",
    "Event": ".lifecycle",
    "Execution": ".reasoning.executions",
    "Lifecycle": ".lifecycle",
    "LifecycleListener": ".lifecycle",
    "Move": ".lifecycle",
    "OnResults": "..prompts.tool_calls",
    "PhasedAgent": ".phased.agent",
    "ROLES": ".phased.agent",
    "ReasoningAgent": ".reasoning.agent",
    "STATUSES": ".reasoning.executions",
    "State": ".lifecycle",
    "call_with_tools": "..prompts.tool_calls",
    "completion": ".reasoning.completion",
    "execution_of": ".reasoning.executions",
    "executions": ".reasoning.executions",
    "lifecycle_of": ".lifecycle",
    "sanitised": "..records.sanitize",
    "tool_prompt": "..prompts",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
