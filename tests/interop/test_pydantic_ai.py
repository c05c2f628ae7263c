"""Agents of pydantic-ai as steps, with the models of the library's own tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, RunContext, StructuredDict, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from loopwright import Budget, Loop, MaxIterations, Passed, resume, resume_sync, run, run_sync
from loopwright.interop import as_step
from loopwright.models import Models, ScriptedModel

pytestmark = pytest.mark.anyio


class Remote(FunctionModel):
    """A model in whose responses a provider names itself."""

    provider_id = ""

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        response = await super().request(*args, **kwargs)
        response.provider_name, response.model_name = self.provider_id, "gpt-4o-mini"
        return response


def writer(*texts: str, name: str = "writer", provider: str = "function") -> Agent[None, str]:
    """Return an agent that answers with one text after the other."""
    replies = iter(texts)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(
            [TextPart(next(replies))],
            usage=RequestUsage(input_tokens=1000, output_tokens=100),
        )

    model = Remote(answer)
    model.provider_id = provider
    return Agent(model, name=name, instructions="Write briefly.")


def test_an_agent_executes_a_loop() -> None:
    """`execute=` takes an agent; its output is the step's, its requests are in the ledger."""
    loop = Loop(
        writer("bad", "good"), lambda text: text == "good", until=MaxIterations(3) | Passed()
    )
    result = run_sync(loop, "a topic")
    assert (result.output, result.iterations) == ("good", 2)
    assert (result.usage.calls, result.usage.tokens) == (2, 2200)
    assert not result.warnings


def test_the_price_is_that_of_the_table() -> None:
    """A response of a known provider costs what the table says, and one of a test model nothing."""
    assert run_sync(writer("x", provider="openai"), "a").usage.usd == pytest.approx(0.00021)
    assert run_sync(writer("x"), "a").usage.usd == 0
    unknown = run_sync(writer("x", provider="elsewhere"), "a").usage
    assert (unknown.usd, unknown.unpriced) == (0, 1)


def test_prices_of_the_run_come_first() -> None:
    """A price that the run's models state is used in place of the table's."""
    models = Models(
        ScriptedModel([{"replies": ["x"]}]), prices={"gpt-4o-mini": {"input": 1000, "output": 0}}
    )
    result = run_sync(writer("x", provider="openai"), "a", resources={"models": models})
    assert result.usage.usd == pytest.approx(1.0)


def test_values_that_are_not_text_are_sent_as_json() -> None:
    """An object is sent as JSON text."""

    def echo(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(str(messages[0].parts[-1].content))])

    assert run_sync(Agent(FunctionModel(echo)), {"a": 1}).output == '{"a": 1}'


class Note(BaseModel):
    title: str
    stars: int


def noted(title: str, stars: int) -> Note:
    """Make a note."""
    return Note(title=title, stars=stars)


def typed_agent(declared: Any) -> Agent[None, Any]:
    """Return an agent that answers with a note in the form of its output type."""
    arguments = {"title": "T", "stars": 3}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            return ModelResponse([ToolCallPart(info.output_tools[0].name, arguments)])
        return ModelResponse([TextPart(json.dumps(arguments))])

    profile = ModelProfile(supports_json_schema_output=True)
    return Agent(FunctionModel(answer, profile=profile), output_type=declared)


@pytest.mark.parametrize(
    "declared",
    [Note, ToolOutput(Note), NativeOutput([Note]), [Note, str], noted],
    ids=["model", "tool", "native", "union", "function"],
)
def test_an_output_arrives_in_its_declared_type(declared: Any, tmp_path: Path) -> None:
    """Later steps, hooks and the result receive the `output_type` of the agent, live and replayed."""
    journal = f"sqlite:{tmp_path}/runs.db"
    received: list[object] = []
    agent = typed_agent(declared)

    def judge(note: Note) -> bool:
        received.append(note)
        return True

    loop = Loop(agent, judge, on_iteration=lambda item: received.append(item.output))
    live = run_sync(loop, "a", journal=journal, run_id="r")
    received.append(live.output)
    received.append(resume_sync(loop, "r", journal=journal).output)
    assert received == [Note(title="T", stars=3)] * 4


def test_an_output_without_a_json_form_stays_json() -> None:
    """A type that pydantic cannot describe is no error; the output is JSON, as the schema says."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    agent = Agent(TestModel(custom_output_args={"title": "T"}), output_type=StructuredDict(schema))
    assert run_sync(agent, "a").output == {"title": "T"}


class Grade(BaseModel):
    passed: bool
    score: float
    feedback: str


def test_an_agent_evaluates_a_loop() -> None:
    """`evaluate=` takes an agent whose output has the fields of an evaluation."""
    grade = {"passed": True, "score": 0.9, "feedback": "fine"}
    judge = Agent(TestModel(custom_output_args=grade), output_type=Grade, name="judge")
    result = run_sync(Loop(lambda text: text, judge, until=Passed() | MaxIterations(2)), "a")
    assert result.satisfied
    assert result.history[0].feedback == "fine"


def test_requests_inside_an_agent_count_one_by_one() -> None:
    """A tool call takes two requests, and both are counted."""
    agent = Agent(TestModel())

    @agent.tool_plain
    def look_up(word: str) -> str:
        return word.upper()

    assert run_sync(agent, "a").usage.calls == 2


def test_requests_of_agents_that_tools_call_are_counted() -> None:
    """A tool that runs another agent with the usage of its context adds to the usage of the step."""
    inner, outer = writer("inner"), Agent(TestModel())

    @outer.tool
    async def ask(ctx: RunContext[None], word: str) -> str:
        return (await inner.run(word, usage=ctx.usage)).output

    usage = run_sync(outer, "a").usage
    assert usage.calls == 3
    assert usage.input_tokens >= 1000


def test_an_agent_that_fails_has_spent_what_it_used() -> None:
    """Requests before a failure are in the ledger."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            raise RuntimeError("the model is gone")
        return ModelResponse([ToolCallPart("again", {})], usage=RequestUsage(input_tokens=10))

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def again() -> str:
        raise ModelRetry("once more")

    result = run_sync(Loop(agent, until=MaxIterations(1)), "a")
    assert result.error is not None
    assert result.usage.calls == 1
    assert result.usage.input_tokens == 10


def test_a_budget_of_calls_ends_a_loop_of_an_agent() -> None:
    """Calls of an agent use up a budget."""
    loop = Loop(writer(*"abcdef"), lambda text: False, until=MaxIterations(9))
    result = run_sync(loop, "a", budget=Budget(calls=2))
    assert (result.reason, result.usage.calls) == ("budget", 2)


def test_a_budget_in_dollars_needs_the_price_of_the_model() -> None:
    """An agent whose model has no known price is refused before it is called."""

    class Unknown(TestModel):
        @property
        def system(self) -> str:
            return "elsewhere"

    called: list[int] = []
    agent = Agent(Unknown(call_tools=[]), instructions=lambda: called.append(1) or "x")
    result = run_sync(Loop(agent, until=MaxIterations(1)), "a", budget=Budget(usd=1))
    assert result.error is not None
    assert result.error.kind == "unreported_usage"
    assert not called


def test_a_fingerprint_has_name_model_and_instructions() -> None:
    """Another instruction or model is another step; the same agent in another process is not."""

    def made(**options: Any) -> str:
        return as_step(
            Agent(**{"model": "openai:gpt-4o-mini", "defer_model_check": True, **options})
        ).fingerprint

    assert made() == made()
    variants = [
        made(),
        made(instructions="Be brief."),
        made(system_prompt="Be brief."),
        made(model="openai:gpt-4o"),
        made(output_type=Note),
        made(name="writer"),
    ]
    assert len(set(variants)) == len(variants)


async def test_a_recorded_answer_is_not_asked_for_again(tmp_path: Path) -> None:
    """A finished run returns its record, and the agent is not called."""
    journal = f"sqlite:{tmp_path}/runs.db"
    loop = Loop(writer("once"), lambda text: True, until=Passed(), name="write")
    first = await run(loop, "a", journal=journal, run_id="r")
    again = await resume(loop, "r", journal=journal)
    assert (first.output, again.output) == ("once", "once")


def test_an_agent_is_not_idempotent_by_default() -> None:
    """Tools of an agent act, so a call in flight at a crash is a question, unless an option says otherwise."""
    assert not as_step(writer()).idempotent  # type: ignore[attr-defined]
    assert as_step(writer(), idempotent=True).idempotent  # type: ignore[attr-defined]
