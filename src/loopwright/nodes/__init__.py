"""Loop nodes: a loop that is scored by what its agents write and learns from its past rounds.

The engine's part of the loop-node dialect; `documents.loop_nodes` reads its files.
"""

from .answers import Answer, answer
from .groups import AgentGroup, AgentsAtOnce, ungrouped
from .learning import Lessons, extract
from .loop_node import LoopNode, ScoreRound
from .memory import MemoryRead, MemoryWrite
from .scoring import Scorer, Strategy
from .texts import node_expression, node_fill

__all__ = [
    "AgentGroup",
    "AgentsAtOnce",
    "Answer",
    "Lessons",
    "LoopNode",
    "MemoryRead",
    "MemoryWrite",
    "ScoreRound",
    "Scorer",
    "Strategy",
    "answer",
    "extract",
    "node_expression",
    "node_fill",
    "ungrouped",
]
