"""Laws of the phased agent: against a model of it that knows no engine, and under a cut at every entry."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import Context, MemoryJournal, PhasedAgent, Result, run, step
from loopwright.agents import AgentState, Capability
from loopwright.journal import Entry, RunInfo
from loopwright.testing import run_virtual

PHASES = ("planning", "execution", "refinement")
LIMIT = st.integers(0, 5)
DONE = st.lists(st.integers(1, 6), min_size=3, max_size=3)


def done_after(rounds: int) -> Any:
    """Return a phase that says that it is done in one of its rounds."""

    async def act(given: Any, ctx: Context) -> Any:
        return {"answer": f"{given['phase']} {ctx.iteration}", "done": ctx.iteration >= rounds}

    return step(act, inline=True)


def expected(limits: list[int], done: list[int], cap: int | None, reserve: int) -> list[int]:
    """Return the iterations of the phases by the rules alone."""
    total = sum(limits)
    left = cap if cap is not None else total + max(1, int(total * 0.1))
    held = min(reserve, limits[2])
    found = []
    for place, (limit, wanted) in enumerate(zip(limits, done, strict=True)):
        free = max(0, left - held if place < 2 else left)
        if place == 0 and held and limits[1]:  # one iteration is kept for what is refined
            free = max(free - 1, min(free, 1))
        rounds = min(limit, wanted, free)
        found.append(rounds)
        left -= rounds
    return found


@settings(max_examples=60, deadline=None)
@given(st.tuples(LIMIT, LIMIT, LIMIT), DONE, st.none() | st.integers(1, 12), st.integers(0, 3))
def test_the_iterations_are_those_of_the_rules(
    limits: tuple[int, int, int], done: list[int], cap: int | None, reserve: int
) -> None:
    """Any limits, any moment of being done, any cap and reserve: the counters are those of the rules."""
    if not sum(limits):
        return
    made = PhasedAgent(
        *(done_after(rounds) for rounds in done),
        max_iterations=cap,
        reserve_refinement=reserve,
        **{f"max_{p}_iterations": n for p, n in zip(PHASES, limits, strict=True)},
    )
    result = run_virtual(run(made, "task"))
    report = result.agents["agent"]
    rounds = expected(list(limits), done, cap, reserve)
    assert [report["phase_iterations"][phase] for phase in PHASES] == rounds
    assert report["total_iterations"] == sum(rounds) <= report["max_iterations_effective"]
    last = max((place for place in range(3) if rounds[place]), default=None)
    assert result.output == (None if last is None else f"{PHASES[last]} {rounds[last]}")
    left_out = any(limit and not count for limit, count in zip(limits, rounds, strict=True))
    cut = rounds[2] < min(limits[2], done[2])
    if left_out or cut:
        assert not result.satisfied


class Remembering(Capability):
    """Changes results and memories, and ends the agent at its sixth memory."""

    async def init(self, agent: AgentState, context: Any) -> Any:
        return {"mark": "!"}

    async def process_result(
        self, agent: AgentState, context: Any, response: Any, action: Any, result: Any
    ) -> Any:
        return f"{result}{context['mark']}{len(agent.memory)}"

    async def process_new_memories(
        self, agent: AgentState, context: Any, response: Any, result: Any, memories: Any
    ) -> Any:
        return [*memories, agent.iteration]

    async def should_terminate(self, agent: AgentState, context: Any, response: Any) -> bool:
        return len(agent.memory) >= 6

    async def terminate(self, agent: AgentState, context: Any) -> Any:
        return {"memories": len(agent.memory)}


async def _work(given: Any, ctx: Context) -> Any:
    return f"{given['phase']} {ctx.iteration}"


def agent() -> PhasedAgent:
    """Return an agent that a capability ends in its fourth round."""
    work = step(_work, inline=True)
    return PhasedAgent(work, work, work, capabilities=[Remembering()])


def test_an_agent_that_is_cut_off_at_any_entry_goes_on_to_the_same_end() -> None:
    """Whatever was durable when the process ended, the result and the report are the same."""

    async def whole() -> tuple[Result, list[Entry]]:
        journal = MemoryJournal()
        result = await run(agent(), "task", journal=journal, run_id="r")
        return result, await journal.entries("r")

    async def cut(count: int) -> Result:
        journal = MemoryJournal()
        log = await journal.open(RunInfo("r", "agent", "task", agent().fingerprint))
        for entry in entries[:count]:
            log.append(Entry.from_json(entry.to_json()))
        await log.close(log.info)
        return await run(agent(), journal=journal, run_id="r")

    result, entries = run_virtual(whole())
    report = result.agents["agent"]
    assert result.detail == "the capability Remembering asked to terminate in execution"
    assert report["terminated"] == {"Remembering": {"memories": 8}}
    for count in range(1, len(entries) + 1):
        again = run_virtual(cut(count))
        assert (again.output, again.agents["agent"]) == (result.output, report), count
        assert [*again.loops] == [*result.loops], count
