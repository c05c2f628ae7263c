"""Loops that explore: a share of runs continues to the limits, and its result is that of the normal end."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    OnStall,
    Passed,
    ScoreAtLeast,
    Undecided,
    Usage,
    Workflow,
    Workspace,
    resume,
    run,
    step,
)
from loopwright.engine.loop_options import explores
from loopwright.errors import ConfigurationError
from loopwright.prompts import tool_prompt
from loopwright.tools import shell, tool

from .support import interrupted_from_outside

EXPLORING = next(f"r{n}" for n in range(99) if explores(f"r{n}", 0.2))
OTHER = next(f"r{n}" for n in range(99) if not explores(f"r{n}", 0.2))


def loop_of(explore: float, seed: int = 1, made: list[int] | None = None, **options: Any) -> Loop:
    """Return a loop whose scores rise with noise; each iteration costs two calls."""
    chance = random.Random(seed)
    scores = [min(1.0, 0.5 + 0.07 * n + chance.gauss(0, 0.05)) for n in range(12)]
    stage, number = options.pop("kill", ("", 0))

    async def draft(value: Any, ctx: Any) -> str:
        ctx.spend(Usage(2, 10, 10, 0.01))
        if made is not None:
            made.append(ctx.iteration)
        if (stage, number) == ("draft", ctx.iteration):
            await interrupted_from_outside()
        return f"draft {ctx.iteration}"

    async def judge(output: str, ctx: Any) -> Evaluation:
        if (stage, number) == ("judge", ctx.iteration):
            await interrupted_from_outside()
        return Evaluation(scores[int(output.split()[1]) - 1])

    until = options.pop("until", ScoreAtLeast(0.75) | NoImprovement(3) | MaxIterations(9))
    return Loop(draft, judge, until=until, name="write", explore=explore, **options)


async def outcome(loop: Any, run_id: str = EXPLORING) -> Any:
    return await run(loop, "x", journal=MemoryJournal(), run_id=run_id)


def figures(result: Any) -> tuple[Any, ...]:
    """Return what the exploration must not change."""
    items = [(item.number, item.output, item.score) for item in result.history]
    best = result.best.number if result.best else None
    return result.status, result.reason, result.detail, result.output, result.also, best, items


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keep", ["best", "last"])
async def test_the_result_is_that_of_the_normal_end(seed: int, keep: str) -> None:
    """Only usage and the count of explored iterations differ."""
    explored = await outcome(loop_of(0.2, seed, keep=keep))
    normal = await outcome(loop_of(0.0, seed, keep=keep))
    assert figures(explored) == figures(normal)
    assert explored.explored_iterations == 9 - normal.iterations
    assert explored.usage.calls == 18
    assert normal.to_json().keys() <= explored.to_json().keys()


async def test_the_id_of_the_run_decides() -> None:
    """About the declared share of runs explores, and no other one."""
    share = sum(explores(f"run-{number}", 0.1) for number in range(10_000)) / 10_000
    assert 0.09 < share < 0.11
    assert (await outcome(loop_of(0.2), OTHER)).explored_iterations == 0
    assert (await outcome(loop_of(1.0), OTHER)).explored_iterations > 0
    assert not explores(EXPLORING, 0.0)


async def test_the_normal_end_is_an_entry() -> None:
    """`would_stop` has the stop and the iterations; later records are explored."""
    journal = MemoryJournal()
    result = await run(loop_of(0.2), "x", journal=journal, run_id=EXPLORING)
    entries = await journal.entries(EXPLORING)
    (normal,) = [entry for entry in entries if entry.kind == "would_stop"]
    assert normal.path == "write"
    assert normal.value["iterations"] == result.iterations
    assert normal.value["stop"]["reason"] == result.reason.value
    records = [entry.value for entry in entries if entry.kind == "iteration"]
    assert [r.explored for r in records] == [r.number > result.iterations for r in records]


async def test_a_budget_ends_the_exploration_and_not_the_result() -> None:
    """Its status stays that of the normal end."""
    until = ScoreAtLeast(0.75) | MaxIterations(9)
    result = await outcome(loop_of(0.2, until=until, guards=Budget(calls=12)))
    plain = await outcome(loop_of(0.0, until=until, guards=Budget(calls=12)))
    assert figures(result) == figures(plain)
    assert result.explored_iterations + result.iterations == 6


async def test_an_error_ends_the_exploration() -> None:
    """A failure after the normal end has no effect on the result."""

    def draft(value: Any, ctx: Any) -> str:
        if ctx.iteration > 1:
            raise ValueError("lost")
        return "good"

    loop = Loop(draft, lambda output: 1.0, until=ScoreAtLeast(0.5) | MaxIterations(5), explore=1)
    result = await outcome(loop)
    assert (result.satisfied, result.iterations, result.explored_iterations) == (True, 1, 1)
    assert result.error is None


async def test_an_outer_loop_reads_the_normal_end() -> None:
    """Inside a workflow the next step receives the normal output."""
    flow = Workflow("flow", {"write": loop_of(0.2), "after": lambda value: f"after {value}"})
    plain = Workflow("flow", {"write": loop_of(0.0), "after": lambda value: f"after {value}"})
    explored, normal = await outcome(flow), await outcome(plain)
    assert explored.output == normal.output
    assert figures(explored.loops["write"]) == figures(normal.loops["write"])


@pytest.mark.parametrize("kill", range(1, 10))
@pytest.mark.parametrize("stage", ["draft", "judge"])
async def test_a_killed_exploration_continues(kill: int, stage: str) -> None:
    """After a crash in any iteration the result is the same, and no recorded iteration is made again."""
    journal, made = MemoryJournal(), []
    loop = loop_of(0.2, made=made, kill=(stage, kill))
    with pytest.raises(asyncio.CancelledError):
        await run(loop, "x", journal=journal, run_id=EXPLORING)
    result = await resume(loop_of(0.2, made=made), EXPLORING, journal=journal)
    assert figures(result) == figures(await outcome(loop_of(0.0)))
    assert result.explored_iterations == 9 - result.iterations
    assert len(made) <= 9 + 1
    assert sorted(set(made)) == list(range(1, 10))
    entries = await journal.entries(EXPLORING)
    assert sum(entry.kind == "would_stop" for entry in entries) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"approve": "iteration"}, "a loop that asks a person cannot explore"),
        ({"undecided": Undecided(2, "pause")}, "a loop that asks a person cannot explore"),
        ({"on_stall": OnStall("ask")}, "a loop that asks a person cannot explore"),
        ({"explore": 2}, "loop: explore"),
    ],
)
def test_a_loop_that_asks_is_refused(options: dict[str, Any], sentence: str) -> None:
    """At construction, before anything runs."""
    with pytest.raises(ConfigurationError, match=sentence):
        Loop(**{"execute": str, "explore": 0.1, **options})


@pytest.mark.parametrize(
    ("execute", "sentence"),
    [
        (shell("make"), "acts outside the run"),
        (step(lambda v: v, idempotent=False, name="pay"), "pay acts outside the run"),
        (tool_prompt("x", tools=[tool(lambda city: city, name="book")]), "book acts outside"),
    ],
)
async def test_a_loop_that_acts_outside_a_workspace_is_refused(execute: Any, sentence: str) -> None:
    """At the start of the run, before it is recorded."""
    journal = MemoryJournal()
    flow = Workflow("flow", {"first": str, "write": Loop(execute, explore=0.1, name="write")})
    with pytest.raises(ConfigurationError, match=sentence):
        await run(flow, "x", journal=journal)
    assert not await journal.runs()


@pytest.mark.parametrize("place", ["loop", "workflow", "outer", "idempotent"])
async def test_a_workspace_at_any_level_lets_commands_explore(tmp_path: Path, place: str) -> None:
    """Its own, that of a workflow or of a loop around it; a command that may run twice needs none."""
    source = tmp_path / "project"
    source.mkdir()
    space = Workspace(source, home=tmp_path / "home", kind="snapshot")
    command = shell("true", idempotent=True) if place == "idempotent" else shell("echo x >> n.txt")
    loop = Loop(
        command,
        until=MaxIterations(1),
        name="write",
        explore=0.1,
        workspace=space if place == "loop" else None,
    )
    outer = Loop(
        loop, until=MaxIterations(1), name="outer", workspace=space if place == "outer" else None
    )
    flow = Workflow("flow", {"outer": outer}, workspace=space if place == "workflow" else None)
    assert (await run(flow, "x", journal=MemoryJournal())).status.value == "exhausted"


async def test_a_workflow_with_a_workspace_returns_the_files_of_the_normal_end(
    tmp_path: Path,
) -> None:
    """The steps after a loop that explored find the files of its normal end, also when the run is resumed."""
    source = tmp_path / "project"
    source.mkdir()
    (source / "n.txt").write_text("0")

    def count(value: object, ctx: Context) -> int:
        assert ctx.folder is not None
        number = int((ctx.folder / "n.txt").read_text()) + 1
        (ctx.folder / "n.txt").write_text(str(number))
        return number

    def read(value: int, ctx: Context) -> list[Any]:
        assert ctx.folder is not None
        return [value, (ctx.folder / "n.txt").read_text()]

    loop = Loop(
        count, lambda n: n == 2, until=Passed() | MaxIterations(5), name="count", explore=1.0
    )
    workflow = Workflow(
        "filed",
        {"count": loop, "read": read},
        needs={"read": ["count"]},
        workspace=Workspace(source, home=tmp_path / "home", kind="snapshot"),
    )
    journal = MemoryJournal()
    result = await run(workflow, None, journal=journal, run_id="r")
    assert result.output == [2, "2"]
    assert result.explored_iterations == 3
    assert result.workspace is not None
    assert (Path(result.workspace["folder"]) / "n.txt").read_text() == "2"
    assert await run(workflow, None, journal=journal, run_id="r") == result
