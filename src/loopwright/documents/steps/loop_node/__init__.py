"""Loop nodes: a loop that is scored by the replies of its agents and learns from its past iterations.

The steps of the loop-node dialect; `documents.dialects.orka` reads its files.
"""

from ....evaluators.parsing.answers import Answer, answer
from ..memory import MemoryRead, MemoryWrite
from .agent_groups import AgentGroup, AgentsAtOnce, ungrouped
from .lessons import LoopNodeLessons, extract
from .loop_node import LoopNode, LoopNodeEvaluator
from .scoring import Scorer, Strategy
from .template_functions import node_expression, node_fill

__all__ = [
    "AgentGroup",
    "AgentsAtOnce",
    "Answer",
    "LoopNode",
    "LoopNodeEvaluator",
    "LoopNodeLessons",
    "MemoryRead",
    "MemoryWrite",
    "Scorer",
    "Strategy",
    "answer",
    "extract",
    "node_expression",
    "node_fill",
    "ungrouped",
]
