"""Hints and holds with `now`: a coding agent at work is interrupted, and goes on in its session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal
from loopwright import (
    Budget,
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    agent,
    continue_run,
    hold,
    parallel,
    resume,
    run,
    signal,
    steer,
    step,
)
from loopwright.coding.agents import manifest_names
from loopwright.coding.workspace import Workspace
from loopwright.engine.steering import in_flight
from loopwright.errors import ConfigurationError, OwnershipLost
from loopwright.journal import Entry, open_journal

from .fakes import scripted, until_42, working
from .test_agent_waits import EVENT, STARTED, asks, prompts, starts, waiting

GO_ON = "You were interrupted. Go on with your task."
HINTED = f"{GO_ON}\n\nHints of a person:\n<hint>\nUse asyncio.\n</hint>"
# Longer than any test: only an interruption ends it.
WORKS: list[dict[str, Any]] = [
    STARTED, {"write": {"half.txt": "1"}}, {"spend": {"input_tokens": 100, "output_tokens": 20}}, {"say": "Begun."},
    {"run": "touch begun"}, {"wait": 300},
]  # fmt: skip
ENDS: list[Any] = [
    STARTED,
    {"write": {"answer.txt": "42"}},
    {"spend": {"input_tokens": 7}},
    {"say": "Done."},
]
TOLD: Any = {"when": "Hints of a person", "do": ENDS}
GOES_ON: Any = {"when": "You were interrupted", "do": ENDS}


async def until(there: Callable[[], bool]) -> None:
    """Return when it is so."""
    async with asyncio.timeout(30):
        while not there():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def at_work(tmp_path: Path, loop: Any, journal: Any, **options: Any) -> Any:
    """Run a loop whose agent works until it is interrupted; the body begins while it does."""
    task = asyncio.ensure_future(run(loop, journal=journal, run_id="r", **options))
    try:
        await until(lambda: (working(tmp_path) / "begun").exists() or task.done())
        yield task
        await asyncio.wait({task}, timeout=30)
    finally:
        task.cancel()


def finished(entries: Any) -> list[Any]:
    """Return the records of the calls, in order."""
    return [e.value for e in entries if e.kind == "finished" and "/call-" in e.path]


@pytest.mark.parametrize("name", manifest_names())
async def test_a_hint_interrupts_an_agent_and_its_session_goes_on(
    tmp_path: Path, name: str
) -> None:
    """In the same iteration; the call is no failure, and its record has the hint and what was spent."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    loop = until_42(waiting(tmp_path, name, TOLD, WORKS, waits=None), working(tmp_path))
    async with at_work(tmp_path, loop, journal) as task:
        await steer("r", "Use asyncio.", journal=journal, now=True, who="ann")
    result = task.result()
    assert (result.satisfied, result.iterations, starts(tmp_path)) == (True, 1, 2), result.detail
    assert not result.warnings
    entries = await journal.entries("r")
    assert prompts(entries) == ["Fix it.", HINTED]
    first, second = finished(entries)
    assert (first["stop"], first["failure"], second["stop"]) == ("steered", None, "completed")
    [hint] = first["hints"]
    assert (hint["number"], hint["text"], hint["who"]) == (1, "Use asyncio.", "ann")
    assert second["session"] == first["session"]
    asked = [e.value["resumed"] for e in entries if e.kind == "started" and "/call-" in e.path]
    assert asked == [False, True]
    assert result.usage.calls >= 2
    assert not any(entry.kind == "cut" for entry in entries)


async def test_what_was_reported_is_settled_and_not_all_that_a_budget_has_left(
    tmp_path: Path,
) -> None:
    """Otherwise an interruption would use up the budget, and the next call could not begin."""
    price = {"input": 1000.0, "output": 1000.0}
    made = waiting(tmp_path, "claude", TOLD, WORKS, waits=None, price=price)
    loop, journal = until_42(made, working(tmp_path)), MemoryJournal()
    async with at_work(tmp_path, loop, journal, budget=Budget(usd=5.0)) as task:
        await steer("r", "Use asyncio.", journal=journal, now=True)
    assert task.result().satisfied, task.result().detail
    assert task.result().usage.usd == pytest.approx(0.128)


@pytest.mark.parametrize("cut", ["finished call-1", "steered", "started call-2"])
def test_a_kill_after_an_interruption_changes_nothing(tmp_path: Path, cut: str) -> None:
    """The prompt of the next call follows from the record, and the iteration has read the hint once."""
    kind, _, name = cut.partition(" ")

    class Dying(DyingJournal):
        async def open(self, *words: Any, **options: Any) -> Any:
            log = await super().open(*words, **options)
            write = log.append

            def append(entry: Entry) -> None:
                write(entry)
                if entry.kind == kind and entry.path.endswith(name) and not self.died:
                    self.died = True
                    self.die()

            log.append = append
            return log

        died = False

    journal = Dying()
    made = waiting(tmp_path, "claude", TOLD, WORKS, waits=None, idempotent=True)
    loop = until_42(made, working(tmp_path), until=Passed() | MaxIterations(1))

    async def steered() -> None:
        async with at_work(tmp_path, loop, journal) as task:
            await steer("r", "Use asyncio.", journal=journal, now=True)
        await task

    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        asyncio.run(steered())
    assert journal.died
    result = asyncio.run(resume(loop, "r", journal=journal))
    assert result.satisfied, result.detail
    entries = asyncio.run(journal.entries("r"))
    assert prompts(entries)[-1] == HINTED
    [read] = [entry for entry in entries if entry.kind == "steered"]
    assert (read.path, [one["step"] for one in read.value]) == (f"{loop.name}/1", ["/execute"])
    [hint] = asyncio.run(steer("r", journal=journal))
    assert hint.read == (read.path,)


async def test_a_hold_interrupts_and_the_session_goes_on_after_it(tmp_path: Path) -> None:
    """In a workspace, the files of the interrupted call are there after the hold."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").touch()
    begun = working(tmp_path) / "begun"
    works = [*WORKS[:-2], {"run": f"touch {begun}"}, WORKS[-1]]
    made = waiting(tmp_path, "codex", GOES_ON, works, waits=None, workspace=None, cwd=None)

    def judge(output: Any, ctx: Any) -> bool:
        return {"half.txt", "answer.txt"} <= {path.name for path in ctx.folder.iterdir()}

    space = Workspace(project, home=tmp_path / "home")
    loop = Loop(made, judge, until=Passed() | MaxIterations(1), workspace=space)
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    async with at_work(tmp_path, loop, journal) as task:
        await hold("r", journal=journal)
        with pytest.raises(ConfigurationError, match="is held already"):
            await hold("r", journal=journal)
        assert not task.done()
        await hold("r", journal=journal, now=True)
    assert task.result().reason is Reason.HELD
    assert prompts(await journal.entries("r")) == ["Fix it."]
    await continue_run("r", journal=journal)
    result = await resume(loop, "r", journal=journal)
    assert result.satisfied, result.detail
    entries = await journal.entries("r")
    assert prompts(entries) == ["Fix it.", GO_ON]
    assert [one["stop"] for one in finished(entries)] == ["steered", "completed"]
    assert "cut" not in [entry.kind for entry in entries]


async def test_two_agents_of_two_branches_are_both_told(tmp_path: Path) -> None:
    """Each in its session; a hint for one iteration is read in that one, and the next one has it for other steps only."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    names = ("claude", "codex")
    told: Any = {"when": "Use asyncio", "do": ENDS}
    workers: dict[str, Any] = {
        name: agent(
            scripted(
                tmp_path, name, told,
                [STARTED, {"run": f"touch begun-{name}"}, {"wait": 300}], [STARTED, {"say": "x"}],
            ),
            "Fix it.", name=name, session="loop", workspace="here", cwd=working(tmp_path),
        )
        for name in names
    }  # fmt: skip
    loop = Loop(parallel(**workers), name="l", until=MaxIterations(2))
    task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
    await until(lambda: all((working(tmp_path) / f"begun-{name}").exists() for name in names))
    await steer("r", "Once.", journal=journal, once=True)
    await steer("r", "Use asyncio.", journal=journal, now=True)
    result = await asyncio.wait_for(task, 30)
    assert result.iterations == 2, result.detail
    entries = await journal.entries("r")
    texts = prompts(entries)
    both = HINTED.replace("<hint>", "<hint>\nOnce.\n</hint>\n<hint>")
    assert (len(texts), texts.count(both)) == (6, 2)
    # The next iteration does not repeat it: both sessions have it.
    assert texts[-2:] == ["Fix it.", "Fix it."]
    *_, next_one = [entry for entry in entries if entry.kind == "steered"]
    [hint] = next_one.value
    assert (next_one.path, hint["number"]) == ("l/2", 2)
    assert sorted(hint["told"]) == ["/execute/claude", "/execute/codex"]


async def test_a_second_hint_for_the_same_call_is_told_too(tmp_path: Path) -> None:
    """An agent can be interrupted as often as a person wants, which is no retry."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    again = {"when": "no. [1-3]", "do": [STARTED, {"run": "touch begun"}, {"wait": 300}]}
    ends = {"when": "no. 4", "do": ENDS}
    loop = until_42(waiting(tmp_path, "claude", again, ends, WORKS, waits=None), working(tmp_path))
    begun = working(tmp_path) / "begun"
    task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
    for number in range(1, 5):
        await until(begun.exists)
        begun.unlink()
        await steer("r", f"no. {number}", journal=journal, now=True)
        if number == 1:
            await steer("r", "and this", journal=journal, now=True)
    result = await asyncio.wait_for(task, 30)
    assert result.satisfied, result.detail
    texts = "".join(prompts(await journal.entries("r")))
    assert [texts.count(f"no. {number}") for number in range(1, 5)] == [1] * 4
    assert texts.count("and this") == 1


async def test_what_cannot_be_interrupted_is_left_alone(tmp_path: Path) -> None:
    """Functions, programs without sessions, agents that judge, and agents in loops that the hint is not for."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")

    async def function(value: Any, ctx: Context) -> str:
        while ctx.run.steering is None:  # until the run has read the hint
            await ctx.sleep(0.01)
        (working(tmp_path) / "go").touch()
        return "done"

    works = [{"run": "touch begun; while [ ! -e go ]; do sleep 0.01; done"}, {"say": "x"}]  # fmt: skip
    options: Any = {"workspace": "here", "cwd": working(tmp_path)}
    plain = agent(scripted(tmp_path, "text", works), "x", name="plain", **options)
    other = agent(scripted(tmp_path, "claude", works), "x", name="other", **options)
    judging = agent(scripted(tmp_path, "gemini", works), "x", name="judging", output={"type": "boolean"}, **options)  # fmt: skip
    inner = Loop(other, name="inner", until=MaxIterations(1))
    judged = Loop(step(lambda value: value), judging, name="judged", until=MaxIterations(1))
    body = parallel(plain=plain, function=step(function), inner=inner, judged=judged)
    loop = Loop(body, name="outer", until=MaxIterations(1))
    task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))

    async def calls(wanted: str | None) -> str:
        return in_flight(await journal.find("r"), await journal.entries("r"), wanted)

    await until((working(tmp_path) / "begun").exists)
    async with asyncio.timeout(30):
        while (await calls(None)).count("/") < 4:
            await asyncio.sleep(0.01)
    left = "left alone: outer/1/execute/function, outer/1/execute/plain/call-1"
    judge = "outer/1/execute/judged/1/evaluate"
    claude = "claude at outer/1/execute/inner/1/execute"
    assert await calls(None) == f"interrupts {claude}, gemini at {judge}; {left}"
    assert await calls("") == (
        "interrupts claude at outer/1/execute/inner/1/execute; "
        f"left alone: outer/1/execute/function, {judge}/call-1, outer/1/execute/plain/call-1"
    )
    assert (await calls("outer")).startswith("interrupts nothing; left alone: ")
    await steer("r", "Use asyncio.", journal=journal, loop="outer", now=True)
    await asyncio.wait_for(task, 30)
    assert "steered" not in [one["stop"] for one in finished(await journal.entries("r"))]


async def test_a_wait_stays(tmp_path: Path) -> None:
    """Nothing is in flight then: the next iteration reads the hint, and the agent goes on with its result."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    over = {
        "when": "The wait is over",
        "do": [STARTED, {"write": {"answer.txt": "41"}}, {"say": "x"}],
    }
    made = waiting(tmp_path, "claude", over, asks(EVENT), ENDS)
    loop = until_42(made, working(tmp_path))
    task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
    async with asyncio.timeout(30):
        while not await journal.waits("r"):
            await asyncio.sleep(0.01)
    assert (
        in_flight(await journal.find("r"), await journal.entries("r"), "") == "interrupts nothing"
    )
    await steer("r", "Use asyncio.", journal=journal, now=True)
    await signal("ci", key="k", journal=journal)
    result = await asyncio.wait_for(task, 30)
    assert (result.iterations, starts(tmp_path)) == (2, 3), result.detail
    texts = prompts(await journal.entries("r"))
    assert ["Hints of a person" in text for text in texts] == [False, False, True]


async def test_a_session_that_is_gone_is_told_the_task_with_the_hint(tmp_path: Path) -> None:
    """A program may be interrupted before it has stored its conversation."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    made = scripted(tmp_path, "claude", TOLD, WORKS)
    code = (
        "import sys, runpy\n"
        "if '-r' in sys.argv: sys.stderr.write('No conversation found with session ID: x\\n'); sys.exit(1)\n"
        "runpy.run_module('loopwright.testing.fake_agent', run_name='__main__')"
    )
    made = made.model_copy(update={"program": [made.program[0], "-c", code, *made.program[4:]]})
    made_step = agent(made, "Fix it.", workspace="here", cwd=working(tmp_path))
    loop = until_42(made_step, working(tmp_path))
    async with at_work(tmp_path, loop, journal) as task:
        await steer("r", "Use asyncio.", journal=journal, now=True)
    assert task.result().satisfied, task.result().detail
    texts = prompts(await journal.entries("r"))
    assert texts == ["Fix it.", HINTED, f"Fix it.\n\n{HINTED}"]
