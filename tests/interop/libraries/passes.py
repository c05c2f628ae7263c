"""Objects of other libraries that a type checker must accept; read by `test_checked.py`, never imported."""

from typing import Any, assert_type

from autoevals import Factuality, Levenshtein
from deepeval.metrics import ExactMatchMetric
from inspect_ai.scorer import match
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.graph.state import CompiledStateGraph
from pydantic_ai import Agent
from pydantic_evals.evaluators import EqualsExpected, LLMJudge

from loopwright import Loop, run_sync


def write(text: str) -> str:
    return text


def count(text: str) -> float:
    return len(text) / 10


def of_graph(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
    Loop(graph, lambda state: True)


Loop(RunnableLambda(write), EqualsExpected())
Loop(ChatOpenAI(), LLMJudge("It is short."))
Loop(write, Levenshtein())
Loop(write, Factuality())
assert_type(Loop(write, ExactMatchMetric()), Loop[str, str])
assert_type(Loop(write, match()), Loop[str, str])
assert_type(Loop(Agent("openai:gpt-4o-mini"), count), Loop[Any, str])
assert_type(run_sync(Agent("openai:gpt-4o-mini", output_type=int), "Count.").unwrap(), int)
