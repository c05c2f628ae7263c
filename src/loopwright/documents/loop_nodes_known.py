"""The types of agents that loop-node documents may name."""

from __future__ import annotations

from collections.abc import Mapping

from .loop_nodes_fields import IGNORED, AgentSpec

__all__ = ["IGNORED", "KNOWN", "MISSING", "TYPES"]

KNOWN = frozenset(AgentSpec.model_fields)
# type -> which of the translations it has
TYPES: Mapping[str, str] = {
    "openai-answer": "answer", "openai-binary": "binary", "openai-classification": "classification",
    "local_llm": "answer", "binary": "rule", "classification": "rule",
    "fork": "fork", "join": "join", "router": "router", "failover": "failover",
    "loop_validator": "validator", "plan_validator": "planned", "validate_and_structure": "structured",
    "memory": "memory", "memory-reader": "memory", "memory-writer": "memory",
}  # fmt: skip
MISSING: Mapping[str, str] = {
    "duckduckgo": "no search engine is connected", "google-search": "no search engine is connected",
    "web_search": "no search engine is connected", "rag": "there is no vector store to search",
    "brain": "its memory of skills is a backend of its own",
    "graph-scout": "finding a path through agents at run time would leave nothing to check before",
    "graph_scout": "finding a path through agents at run time would leave nothing to check before",
    "path_executor": "it runs what graph-scout proposes, and there is none",
    "invariant_validator": "it checks the execution engine of another program",
    "failing": "it only ever fails", "tool": "no tools are connected",
}  # fmt: skip
