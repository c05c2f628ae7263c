"""Agents as steps: phased (planning, execution, refinement) and reasoning (a conversation until the model
states its final answer)."""

from ..prompts import tool_prompt
from ..prompts.tool_calls import OnResults, call_with_tools
from ..records.sanitize import sanitised as sanitised
from .lifecycle import Event, Lifecycle, LifecycleListener, Move, State, lifecycle_of
from .phased.agent import COMPLEXITIES, ROLES, PhasedAgent
from .phased.capabilities import AgentState, Capability
from .reasoning.agent import ReasoningAgent
from .reasoning.completion import completion
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
