"""What the tests of the reasoning agent share: a conversation on a script, and what was said in it."""

from __future__ import annotations

from typing import Any

from loopwright import Result, run
from loopwright.models import Models, ScriptedModel

NOTICE = (
    "IMPORTANT: This is iteration {0} of {1} maximum. You MUST provide your final answer with "
    "TASK_COMPLETE: [answer] in this response."
)


class Conversation:
    """A model on a script, and what it was told."""

    def __init__(self, *replies: Any) -> None:
        self.told: list[Any] = []
        self.script = [{"replies": list(replies)}]

    async def ask(
        self, made: Any, value: Any = "What is 6 x 7?", *, journal: Any = None, run_id: str = ""
    ) -> Result:
        """Run an agent, each time as a new process would."""
        models = Models(ScriptedModel(self.script), transcript=self.told.append)
        return await run(
            made, value, journal=journal, run_id=run_id,
            resources={"models": models, "model": "openai:any"}, random=lambda: 0.0,
        )  # fmt: skip

    def users(self) -> list[str]:
        """Return the last user's message of each call."""
        return [row["messages"][-1]["content"] for row in self.told]


def report(result: Result) -> Any:
    """Return what the agent reported."""
    return result.agents["agent"]
