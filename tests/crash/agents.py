"""The program that is killed while agents work: a phased agent with capabilities, tools and an approval, and a
reasoning agent after it, on scripted models.

    agents.py DB FOLDER [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal), or booked (the K-th call of the tool that
must not act twice, once it has acted and before its outcome is on record). Runs, answers what is asked, and resumes,
until the run has ended; prints its result without times. FOLDER holds what was booked.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from approving import World

from loopwright import PhasedAgent, ReasoningAgent, Status, Workflow, run
from loopwright.agents import AgentState, Capability
from loopwright.journal.questions import answer, pending
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.prompts.tool_prompt import tool_prompt
from loopwright.tools import tool

MODEL = "openai:any"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


SCRIPT: list[dict[str, Any]] = [
    {"step": "*planning*", "replies": ["look for flights, then book the cheapest"]},
    {
        "step": "*execution*",
        "replies": [
            call("look", city="Rome"), "two flights: 90 and 120",
            call("book", flight="R90"), "booked R90",
            {"error": "transient"}, call("book", flight="R91"), "booked the way back too",
        ],
    },
    {"step": "*refinement*", "replies": ["You fly with R90.", "You fly with R90 and R91."]},
    {"step": "*think*", "replies": ["Is that all?", "Yes: both ways.", "TASK_COMPLETE: All is booked."]},
]  # fmt: skip


class Counting(Capability):
    """Adds a memory to each iteration, and marks every prompt."""

    name = "counting"

    async def process_prompt(self, agent: AgentState, context: Any, prompt: str) -> str:
        return f"[{agent.current_iteration}: {len(agent.memory)} memories] {prompt}"

    async def process_new_memories(
        self, agent: AgentState, context: Any, response: Any, result: Any, memories: Any
    ) -> Any:
        return [*memories, {"type": "count", "content": agent.iteration}]

    async def should_terminate(self, agent: AgentState, context: Any, response: Any) -> bool:
        return False


def program(world: World) -> Workflow:
    """Return the workflow of both agents."""

    @tool(idempotent=True)
    async def look(city: str) -> list[str]:
        """Look up flights to a city."""
        return [f"{city} 90", f"{city} 120"]

    @tool(approve=True)
    async def book(flight: str) -> str:
        """Book a flight."""
        world.note("bill", flight)
        world.payments += 1
        if world.position == "booked" and world.payments == world.point:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{flight} is yours"

    travel = PhasedAgent(
        prompt("Plan: {{ task }}", model=MODEL),
        tool_prompt("Do: {{ plan }}", [look, book], model=MODEL),
        prompt("Answer {{ task }} from {{ results | length }}", model=MODEL),
        preset="qa_specialist", max_execution_iterations=3, capabilities=[Counting()], name="travel",
    )  # fmt: skip
    return Workflow(
        "program",
        {"travel": travel, "think": ReasoningAgent(model=MODEL)},
        needs={"think": ["travel"]},
    )


def reply(kind: str, path: str, booked: list[str]) -> Any:
    """Return what a person answers; a booking in doubt is looked up."""
    if kind != "doubt":
        return {"approve": True}
    flight = "R90" if "/2/" in path else "R91"
    return {"output": f"{flight} is yours"} if flight in booked else "rerun"


def timeless(data: Any) -> Any:
    """Return a result without what a crash may change: times, and what was spent."""
    gone = (
        "seconds",
        "usage",
        "usage_by",
        "at",
        "tokens",
        "started_at",
        "completed_at",
        "last_interaction_at",
        "interaction_count",  # a call that was in flight at the kill is counted, as it is in what was spent
        "interactions",
    )
    if isinstance(data, dict):
        return {k: timeless(v) for k, v in data.items() if k not in gone}
    return [timeless(item) for item in data] if isinstance(data, list) else data


async def main(db: str, folder: str, position: str, point: int) -> None:
    """Run, answer and resume until the run has ended."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = SqliteJournal(db, on_point=on_point)
    world = World(Path(folder), position, point)
    while True:
        result = await run(
            program(world), "Rome and back", journal=journal, run_id="the-run", random=lambda: 0.0,
            resources={"models": Models(ScriptedModel(SCRIPT), prices={MODEL: "free"})},
        )  # fmt: skip
        if result.status is not Status.SUSPENDED:
            break
        for question in await pending(journal, "the-run"):
            booked = world.noted("bill")
            given = reply(question.kind, question.path, booked)
            await answer(journal, "the-run", question.path, given)
            world.note("answers", f"{question.kind}:{question.path}")
    await journal.close()
    print(json.dumps(timeless(result.to_json()), sort_keys=True))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
