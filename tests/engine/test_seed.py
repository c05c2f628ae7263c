"""The seed of a run."""

from __future__ import annotations

from typing import Any

from loopwright import Context, MemoryJournal, Workflow, resume, run, run_sync


def draw(value: object, ctx: Context) -> list[float]:
    return [ctx.random.random(), ctx.random.random()]


def test_equal_seeds_draw_equal_numbers_and_each_step_its_own() -> None:
    """What a step draws follows from the seed of the run and the path of the step."""
    two = Workflow("both", {"one": draw, "two": draw})
    first, second = (run_sync(two, seed=7, run_id=name) for name in ("a", "b"))
    other = run_sync(two, seed=8)
    assert first.steps == second.steps != other.steps
    assert first.steps["one"] != first.steps["two"]


async def test_a_resumed_run_draws_with_its_recorded_seed() -> None:
    """A resume without a seed has that of the run, so a step that failed draws the same again."""
    journal, drawn = MemoryJournal(), []

    def fail_once(value: object, ctx: Context) -> Any:
        drawn.append(ctx.random.random())
        if len(drawn) == 1:
            raise ValueError("once")
        return drawn[-1]

    failed = await run(fail_once, journal=journal, run_id="r", seed=11)
    await resume(fail_once, "r", journal=journal, retry=True)
    assert failed.status.value == "failed"
    assert drawn[0] == drawn[1]
    assert (await journal.find("r")).seed == 11
