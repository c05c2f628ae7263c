"""Agents on the one engine: phased (planning, execution, refinement), reasoning (a conversation with
itself until it says that it is done), and the conversation with tools that both are made of.
"""

from ..prompts.tool_calls import call_with_tools
from ..records.sanitize import sanitised
from .lifecycle import Lifecycle, LifecycleListener, lifecycle_of
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
    "Execution",
    "Lifecycle",
    "LifecycleListener",
    "PhasedAgent",
    "ReasoningAgent",
    "call_with_tools",
    "completion",
    "execution_of",
    "executions",
    "lifecycle_of",
    "sanitised",
]
