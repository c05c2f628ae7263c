"""A pydantic-ai agent inside a loop: it summarises a text until the summary is short and names all facts.

    python examples/pydantic_agent.py
    python examples/pydantic_agent.py openai:gpt-4o-mini

Without a model it answers from a script and needs no key.
"""

from __future__ import annotations

import sys

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from loopwright import Budget, Iteration, Loop, MaxIterations, Passed, run_sync

TEXT = (
    "The library closes for repairs from 3 to 14 March. Books can be returned at the town hall, and no fees "
    "are charged until 21 March. The reading room in the school stays open on weekdays from 9 to 17."
)
FACTS = ("3 to 14 March", "town hall", "21 March")
WORDS = 25
SCRIPT = [
    "The library closes for repairs. You can return books at the town hall.",
    "The library is closed from 3 to 14 March. Return books at the town hall; no fees are charged until 21 March.",
]


class Summary(BaseModel):
    """The output of the agent."""

    text: str


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer as a model that uses the feedback in its prompt."""
    asked_again = "Missing:" in str(messages)
    reply = {"text": SCRIPT[asked_again]}
    return ModelResponse([ToolCallPart(info.output_tools[0].name, reply)])


def summariser(model: str = "") -> Agent[None, Summary]:
    """Return the agent, with a model by name or with the script."""
    return Agent(
        model or FunctionModel(scripted),
        name="summariser",
        output_type=Summary,
        instructions=f"Summarise the text in at most {WORDS} words.",
    )


def rate(output: object) -> dict[str, object]:
    """Return the share of facts in the summary, and a verdict."""
    text = Summary.model_validate(output, from_attributes=True).text
    missing = [fact for fact in FACTS if fact not in text]
    short = len(text.split()) <= WORDS
    gaps = [f"Missing: {', '.join(missing)}."] if missing else []
    gaps += [] if short else [f"It has more than {WORDS} words."]
    return {
        "score": 1 - len(missing) / len(FACTS),
        "passed": short and not missing,
        "feedback": " ".join(gaps),
    }


def ask_again(last: Iteration) -> str:
    """Return the text with the feedback on the last summary."""
    return f"{TEXT}\n\nYour last summary: {last.output}\n{last.feedback}"


def loop(model: str = "") -> Loop:
    """Return the loop around the agent."""
    ends = Passed() | MaxIterations(4)
    return Loop(summariser(model), rate, ask_again, until=ends, name="summarise")


if __name__ == "__main__":
    result = run_sync(loop(*sys.argv[1:2]), TEXT, budget=Budget(calls=8))
    for item in result.history:
        print(f"{item.number}: score {item.score:.2f} {item.feedback}".rstrip())
    print(result.status, f"after {result.usage.calls} requests")
    print(Summary.model_validate(result.output, from_attributes=True).text)
