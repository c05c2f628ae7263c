"""Agents as steps: phased (planning, execution, refinement) and reasoning (one conversation until a final answer)."""

from typing import TYPE_CHECKING

from .._lazy import names_of

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
_MODULES = {
    "..prompts": ("tool_prompt",),
    "..prompts.tool_prompt": (
        "OnResults",
        "call_with_tools",
    ),
    ".capabilities": (
        "AgentState",
        "Capability",
    ),
    ".final_answer": (
        "Execution",
        "STATUSES",
        "completion",
        "execution_of",
        "executions",
    ),
    ".lifecycle": (
        "Event",
        "Lifecycle",
        "LifecycleListener",
        "Move",
        "State",
        "lifecycle_of",
    ),
    ".phased": (
        "COMPLEXITIES",
        "PhasedAgent",
        "ROLES",
    ),
    ".reasoning": ("ReasoningAgent",),
}

if not TYPE_CHECKING:
    __getattr__ = names_of(__name__, _MODULES)
