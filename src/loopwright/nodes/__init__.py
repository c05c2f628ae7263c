"""Loop nodes: a loop that is scored by what its agents write and learns from its past rounds.

The engine's part of the loop-node dialect; `documents.loop_nodes` reads its files.
"""

from .learning import Lessons, extract
from .loop_node import LoopNode
from .scoring import Scorer

__all__ = ["Lessons", "LoopNode", "Scorer", "extract"]
