"""Agents on the one engine: phased (planning, execution, refinement), reasoning (a conversation with
itself until it says that it is done), and the conversation with tools that both are made of.
"""

from .calling import call_with_tools
from .capability import AgentState, Capability
from .executions import Execution, execution_of, executions
from .following import Follower, lifecycle_of
from .lifecycle import Lifecycle
from .markers import completion
from .phased import PhasedAgent
from .presets import COMPLEXITIES, ROLES
from .reasoning import ReasoningAgent
from .sanitising import sanitised

__all__ = [
    "COMPLEXITIES",
    "ROLES",
    "AgentState",
    "Capability",
    "Execution",
    "Follower",
    "Lifecycle",
    "PhasedAgent",
    "ReasoningAgent",
    "call_with_tools",
    "completion",
    "execution_of",
    "executions",
    "lifecycle_of",
    "sanitised",
]
