"""Agents as steps: phased (planning, execution, refinement) and reasoning (one conversation until a final answer)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..prompts import tool_prompt
    from ..prompts.tool_prompt import OnResults, call_with_tools
    from .capabilities import AgentState, Capability
    from .final_answer import STATUSES as STATUSES
    from .final_answer import Execution, completion, execution_of, executions
    from .lifecycle import Event, Lifecycle, LifecycleListener, Move, State, lifecycle_of
    from .phased import COMPLEXITIES, ROLES, PhasedAgent
    from .reasoning import ReasoningAgent

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
    "AgentState": ".capabilities",
    "COMPLEXITIES": ".phased",
    "Capability": ".capabilities",
    "Event": ".lifecycle",
    "Execution": ".final_answer",
    "Lifecycle": ".lifecycle",
    "LifecycleListener": ".lifecycle",
    "Move": ".lifecycle",
    "OnResults": "..prompts.tool_prompt",
    "PhasedAgent": ".phased",
    "ROLES": ".phased",
    "ReasoningAgent": ".reasoning",
    "STATUSES": ".final_answer",
    "State": ".lifecycle",
    "call_with_tools": "..prompts.tool_prompt",
    "completion": ".final_answer",
    "execution_of": ".final_answer",
    "executions": ".final_answer",
    "lifecycle_of": ".lifecycle",
    "tool_prompt": "..prompts",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value
