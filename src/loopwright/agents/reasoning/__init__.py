"""The reasoning agent: a conversation until the model states its final answer."""

from .agent import ReasoningAgent

__all__ = ["ReasoningAgent"]
