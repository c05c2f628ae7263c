"""What the tests of the phased agent share: steps for its phases, and a run in virtual time."""

from __future__ import annotations

from typing import Any

from loopwright import Context, PhasedAgent, Result, run, step
from loopwright.testing import run_virtual

NAMES = ("planning", "execution", "refinement")


def inline(function: Any) -> Any:
    """Return a function as a step that virtual time can run."""
    return step(function, inline=True)


@inline
def plan(given: Any) -> Any:
    return f"plan for {given['input']}"


@inline
def work(given: Any, ctx: Context) -> Any:
    return f"found {ctx.iteration}"


@inline
def answer(given: Any, ctx: Context) -> Any:
    return f"answer {ctx.iteration} from {len(given['results'])}"


def agent(**fields: Any) -> PhasedAgent:
    """Return an agent whose phases never are done by themselves."""
    return PhasedAgent(**{"planning": plan, "execution": work, "refinement": answer, **fields})


def limits(planning: int, execution: int, refinement: int) -> dict[str, int]:
    """Return the three limits by name."""
    given = zip(NAMES, (planning, execution, refinement), strict=True)
    return {f"max_{phase}_iterations": limit for phase, limit in given}


def play(made: Any, value: Any = "task", **options: Any) -> Result:
    """Run an agent in virtual time."""
    return run_virtual(run(made, value, **options))


def counted(result: Result) -> list[int]:
    """Return the iterations of the three phases."""
    return [result.agents["agent"]["phase_iterations"][phase] for phase in NAMES]


def lambda_score(score: Any) -> Any:
    """Return an evaluator with one answer."""

    async def evaluate(output: Any) -> Any:
        return score

    return evaluate
