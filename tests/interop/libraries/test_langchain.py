"""Runnables of LangChain and graphs of LangGraph as steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

from loopwright import Budget, Loop, MaxIterations, Passed, Usage, run_sync
from loopwright.interop import as_step
from loopwright.models import Models, ScriptedModel
from models.mock_server import serving


def model(*texts: str, seen: bool = True) -> GenericFakeChatModel:
    """Return a chat model that answers with one text after the other."""
    tokens = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    metadata = {"model_name": "gpt-4o-mini"}
    usage: Any = {"usage_metadata": tokens, "response_metadata": metadata} if seen else {}
    return GenericFakeChatModel(messages=iter(AIMessage(text, **usage) for text in texts))


PROMPT = ChatPromptTemplate.from_template("Write about {topic}.")


def test_a_chain_executes_a_loop() -> None:
    """A message becomes its text, and each call is in the ledger."""
    loop = Loop(
        PROMPT | model("bad", "good"),
        lambda text: text == "good",
        until=Passed() | MaxIterations(3),
    )
    result = run_sync(loop, {"topic": "trees"})
    assert (result.output, result.iterations) == ("good", 2)
    assert (result.usage.calls, result.usage.tokens) == (2, 2200)


@pytest.fixture
def server() -> Iterator[str]:
    with serving(lambda body, headers: (200, "A reply.")) as url:
        yield url


def test_a_chat_model_over_http_reports_its_usage(server: str) -> None:
    """The OpenAI client's usage arrives; a server of one's own has no known price."""
    chat = ChatOpenAI(model="gpt-4o-mini", base_url=server, api_key="none")
    result = run_sync(PROMPT | chat, {"topic": "trees"})
    assert result.output == "A reply."
    assert result.usage == Usage(calls=1, input_tokens=7, output_tokens=5, unpriced=1)


def test_prices_that_the_run_states_are_used(server: str) -> None:
    """A price that the run's models state holds for the runnable's calls too, also under a budget."""
    chat = ChatOpenAI(model="gpt-4o-mini", base_url=server, api_key="none")
    prices = {"gpt-4o-mini": {"input": 1000, "output": 0}}
    models = Models(ScriptedModel([{"replies": ["x"]}]), prices=prices)
    result = run_sync(chat, "hi", resources={"models": models}, budget=Budget(usd=1))
    assert result.usage.usd == pytest.approx(0.007)


def test_an_unknown_price_is_refused_under_a_budget_in_dollars(server: str) -> None:
    """The first call shows that the price is unknown, and the step fails."""
    chat = ChatOpenAI(model="gpt-4o-mini", base_url=server, api_key="none")
    result = run_sync(Loop(chat, until=MaxIterations(3)), "hi", budget=Budget(usd=1))
    assert result.error is not None
    assert (result.error.kind, result.usage.calls) == ("unreported_usage", 1)


def test_a_reserve_allows_an_unknown_price(server: str) -> None:
    """With a reserve, the budget holds by the reserve."""
    chat = ChatOpenAI(model="gpt-4o-mini", base_url=server, api_key="none")
    step = as_step(chat, reserve=Usage(calls=1, usd=0.1))
    assert run_sync(Loop(step, until=MaxIterations(3)), "hi", budget=Budget(usd=1)).error is None


@pytest.mark.parametrize("target", [model("a", "b", seen=False), FakeListLLM(responses=["a", "b"])])
def test_a_call_without_usage_is_counted_and_warned_of(target: Any) -> None:
    """A model that reports no tokens is one call without a price, with a warning."""
    result = run_sync(target, "hi")
    assert result.output == "a"
    assert (result.usage.calls, result.usage.unpriced) == (1, 1)
    assert result.warnings[0].startswith("unreported_usage")


def test_a_runnable_without_a_model_costs_nothing() -> None:
    """A lambda and a parallel have no calls, and their values are JSON."""
    both = RunnableParallel(
        double=RunnableLambda(lambda n: 2 * n), same=RunnableLambda(lambda n: n)
    )
    result = run_sync(both, 3, budget=Budget(calls=1, effects=9))
    assert result.output == {"double": 6, "same": 3}
    assert not result.warnings


def graph(reply: str) -> Any:
    builder = StateGraph(MessagesState)
    chat = model(*[reply] * 9)
    builder.add_node("answer", lambda state: {"messages": [chat.invoke(state["messages"])]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(name="answers")


def test_a_graph_is_a_step() -> None:
    """A state is an object whose messages are objects, and calls inside nodes are counted."""
    result = run_sync(graph("Hello."), {"messages": [{"role": "user", "content": "hi"}]})
    assert [message["content"] for message in result.output["messages"]] == ["hi", "Hello."]
    assert result.usage.calls == 1


def test_the_state_of_a_graph_is_its_next_input() -> None:
    """The recorded state of an iteration continues in the next one."""
    loop = Loop(
        graph("Again."),
        lambda state: len(state["messages"]) >= 3,
        lambda last: {"messages": [*last.output["messages"], {"role": "user", "content": "more"}]},
        until=Passed() | MaxIterations(4),
    )
    result = run_sync(loop, {"messages": [{"role": "user", "content": "hi"}]})
    assert (result.satisfied, result.iterations, len(result.output["messages"])) == (True, 2, 4)


def test_a_runnable_evaluates_a_loop() -> None:
    """A runnable that returns a score or an object with one is an evaluator."""
    rate = RunnableLambda(lambda text: {"score": 0.9, "feedback": "fine"})
    result = run_sync(Loop(lambda text: text, rate, until=MaxIterations(1)), "a")
    assert result.history[0].score == 0.9


def test_fingerprints_follow_models_and_templates() -> None:
    """Another template, model or function is another step."""

    def chat(name: str) -> ChatOpenAI:
        return ChatOpenAI(model=name, api_key="none")

    def other(text: str) -> str:
        return text + "!"

    variants = [
        PROMPT | chat("gpt-4o-mini"),
        PROMPT | chat("gpt-4o"),
        ChatPromptTemplate.from_template("Describe {topic}.") | chat("gpt-4o-mini"),
        PROMPT | chat("gpt-4o-mini") | RunnableLambda(lambda message: message.content),
        PROMPT | chat("gpt-4o-mini") | RunnableLambda(other),
    ]
    assert len({as_step(variant).fingerprint for variant in variants}) == len(variants)
    assert as_step(PROMPT | chat("a")).fingerprint == as_step(PROMPT | chat("a")).fingerprint
