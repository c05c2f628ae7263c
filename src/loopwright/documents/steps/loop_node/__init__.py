"""Loop nodes: a loop that is scored by the replies of its agents and learns from its past iterations.

The steps of the loop-node dialect; `documents.dialects.orka` reads its files.
"""

from ....evaluators.answers import Answer, answer
from ..memory import MemoryRead, MemoryWrite
from .loop_node import (
    AgentGroup,
    AgentsAtOnce,
    LoopNode,
    LoopNodeEvaluator,
    LoopNodeLessons,
    extract,
    ungrouped,
)
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
