"""Hints and holds: what reads them, what is recorded, and that a replay is the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Models,
    Reason,
    Status,
    Workflow,
    continue_run,
    hold,
    parallel,
    prompt,
    resume,
    run,
    signal,
    steer,
    step,
    wait,
)
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal
from loopwright.journal.protocol import Posted
from loopwright.journal.questions import answer, pending
from loopwright.models import Reply, Request, ScriptedModel


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A journal of each kind that needs no server."""
    return MemoryJournal() if request.param == "memory" else open_journal(f"sqlite:{tmp_path}/j.db")


class Reader:
    """A loop of functions that keeps what each of its iterations read, and asks a person after each."""

    def __init__(self, iterations: int = 4) -> None:
        self.read: list[list[str]] = []
        self.loop = Loop(
            self.execute, name="l", until=MaxIterations(iterations), approve="iteration"
        )

    async def execute(self, value: int, ctx: Context) -> int:
        self.read.append(ctx.hints)
        return value

    async def next(self, journal: Any) -> None:
        """Let the next iteration run."""
        if self.read:
            [question] = await pending(journal, "r")
            await answer(journal, "r", question.path, {"approve": True})
        await run(self.loop, 1, journal=journal, run_id="r")


async def test_a_hint_is_read_from_the_next_iteration_until_it_is_dropped(journal: Any) -> None:
    """With `once` each loop reads it in one iteration; the entry names what was read."""
    reader = Reader()
    await reader.next(journal)
    await steer("r", "always", journal=journal, who="ann")
    await steer("r", "now", journal=journal, once=True)
    await reader.next(journal)
    await reader.next(journal)
    [first] = await steer("r", drop=1, journal=journal)
    assert (first.text, first.read) == ("now", ("l/2",))
    await reader.next(journal)
    assert reader.read == [[], ["always", "now"], ["always"], []]
    entries = [entry for entry in await journal.entries("r") if entry.kind == "steered"]
    assert [(entry.path, [hint["number"] for hint in entry.value]) for entry in entries] == [
        ("l/2", [1, 2]),
        ("l/3", [1]),
    ]
    assert (entries[0].value[0]["who"], [one["new"] for one in entries[1].value]) == (
        "ann",
        [False],
    )


async def test_the_clocks_of_two_machines_change_no_hint(journal: Any) -> None:
    """A hint of an earlier time that comes later has another number, and each is still read once."""
    reader = Reader()
    await reader.next(journal)
    await steer("r", "first", journal=journal, once=True)
    await reader.next(journal)
    value = {"hint": "second", "loop": "", "once": True}
    await journal.post("r", Posted("steer/0000000001.000000-aa", 0, value, "ann", 1.0))
    await reader.next(journal)
    [hint, _] = await steer("r", journal=journal)
    await steer("r", drop=hint.number, journal=journal)
    await reader.next(journal)
    assert reader.read == [[], ["first"], ["second"], []]
    assert [one.text for one in await steer("r", journal=journal)] == ["first"]


async def test_an_iteration_that_began_with_a_wait_reads_no_new_hint(tmp_path: Path) -> None:
    """Also if its process left meanwhile."""
    journal, read = open_journal(f"sqlite:{tmp_path}/j.db"), []
    body = Workflow(
        "body", {"w": wait("w", event="go"), "r": step(lambda v, ctx: read.append(ctx.hints))}
    )
    loop = Loop(body, name="l", until=MaxIterations(2))
    await run(loop, 1, journal=journal, run_id="r", on_wait="leave")
    await steer("r", "later", journal=f"sqlite:{tmp_path}/j.db")
    for _ in range(2):
        await signal("go", key="r", journal=journal)
    await resume(loop, "r", journal=journal)
    assert read == [[], ["later"]]


async def test_a_rewound_iteration_reads_the_hints_of_now(journal: Any) -> None:
    """A rewind keeps hints; an iteration that is replayed reads what it read."""
    reader = Reader()
    await reader.next(journal)
    await steer("r", "once", journal=journal, once=True)
    await reader.next(journal)
    await journal.rewind("r", "l/2")
    await steer("r", "later", journal=journal)
    await run(reader.loop, 1, journal=journal, run_id="r")
    assert reader.read == [[], ["once"], ["once", "later"]]


async def test_nested_loops_read_their_own_hints(journal: Any) -> None:
    """A hint for a loop is read by that loop only; steps in lists and branches read those of their iteration."""
    read: dict[str, list[str]] = {}

    def reading(name: str) -> Any:
        def keep(value: Any, ctx: Context) -> Any:
            read[name] = ctx.hints
            return value

        return step(keep, name=name)

    inner = Loop(reading("inner"), name="inner", until=MaxIterations(1))
    body = Workflow("body", {"inner": inner, "both": parallel(reading("a"), reading("b"))})
    outer = Loop(body, name="outer", until=MaxIterations(2), approve="iteration")
    await run(outer, 1, journal=journal, run_id="r")
    await steer("r", "for inner", journal=journal, loop="inner")
    await steer("r", "for outer", journal=journal, loop="outer")
    [question] = await pending(journal, "r")
    await answer(journal, "r", question.path, {"approve": True})
    await run(outer, 1, journal=journal, run_id="r")
    assert read == {"inner": ["for inner"], "a": ["for outer"], "b": ["for outer"]}


async def test_a_prompt_that_does_not_use_the_name_gets_the_hints_after_its_text() -> None:
    """Only prompts of `execute`; a hint is never a template."""
    journal, texts = MemoryJournal(), []

    class Model(ScriptedModel):
        async def complete(self, request: Request, **options: Any) -> Reply:
            texts.append(request.messages[-1].content)
            return await super().complete(request, **options)

    model = Model([{"replies": ["1"]}])
    texts_of = {
        "plain": "write",
        "other": "{{ loop.iteration }}",
        "named": "write: {{ loop.hints }}",
    }
    draft = Workflow("w", {name: prompt(text) for name, text in texts_of.items()})
    loop = Loop(
        draft,
        adapt=prompt("adapt", name="adapt"),
        name="l",
        until=MaxIterations(2),
        approve="iteration",
    )
    options: dict[str, Any] = {
        "journal": journal,
        "run_id": "r",
        "models": Models(model),
        "model": "openai:m",
    }
    first = await run(loop, "x", **options)
    assert first.status is Status.SUSPENDED, first.detail
    await steer("r", "Use {{ asyncio }}.", journal=journal)
    [question] = await pending(journal, "r")
    await answer(journal, "r", question.path, {"approve": True})
    await run(loop, "x", **options)
    told = "\n\nHints of a person:\n<hint>\nUse {{ asyncio }}.\n</hint>"
    assert texts[-4:] == [
        "adapt",
        f"write{told}",
        f"2{told}",
        'write: ["Use {{ asyncio }}."]',
    ]


async def test_what_no_loop_reads_is_refused(tmp_path: Path) -> None:
    """A hint for an ended run, for a run without loops, for an unknown loop, or without text."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    await run(
        Loop(lambda n: n, name="l", until=MaxIterations(1)), 1, journal=journal, run_id="ended"
    )
    flow = Workflow("flow", {"w": wait("w", event="go"), "one": step(lambda v: v)})
    await run(flow, journal=journal, run_id="flow", on_wait="leave")
    for run_id, options, said in (
        ("ended", {"text": "x"}, "so no loop reads a hint any more"),
        ("flow", {"text": "x"}, "no loop of it reads a hint"),
        ("flow", {"text": "x", "loop": "m"}, "has no loop 'm'"),
        ("flow", {"drop": 3}, "has no hint 3"),
        ("flow", {"text": " "}, "a hint has 1 to 4,000 characters"),
        ("flow", {"text": "x" * 4001}, "this one has 4,001"),
    ):
        with pytest.raises(ConfigurationError) as error:
            await steer(run_id, journal=journal, **options)
        assert said in str(error.value)


async def test_a_held_run_stops_before_the_next_effect_of_each_branch(journal: Any) -> None:
    """Calls in flight end; the question is asked once, and its answer lets all branches go on."""
    begun = asyncio.Event()

    async def turn(value: int) -> int:
        begun.set()
        await asyncio.sleep(0.01)
        return value

    def branches() -> Any:
        return parallel(**{name: Loop(turn, name=name, until=MaxIterations(1000)) for name in "ab"})

    task = asyncio.ensure_future(run(branches(), 1, journal=journal, run_id="r"))
    await begun.wait()
    await hold("r", journal=journal, who="ann")
    with pytest.raises(ConfigurationError, match="is held already"):
        await hold("r", journal=journal)
    result = await asyncio.wait_for(task, 20)
    assert (result.status, result.reason) == (Status.SUSPENDED, Reason.HELD)
    entries = await journal.entries("r")
    assert [entry.path for entry in entries if entry.kind == "asked"] == ["hold 1"]
    # One whose intent was on its way to the disk has not begun, so nothing is in doubt.
    assert all(entry.value == {"asks": "hold 1"} for entry in entries if entry.kind == "cut")
    [question] = await pending(journal, "r")
    assert (question.path, question.kind) == ("hold 1", "hold")
    with pytest.raises(ConfigurationError, match="cancel it"):
        await answer(journal, "r", "hold 1", {"approve": False})
    await continue_run("r", journal=journal)
    effects = len([entry for entry in entries if entry.kind == "finished"])
    task = asyncio.ensure_future(resume(branches(), "r", journal=journal))
    while len([e for e in await journal.entries("r") if e.kind == "finished"]) <= effects:
        await asyncio.sleep(0.01)
    await hold("r", journal=journal)
    assert (await asyncio.wait_for(task, 20)).request["path"] == "hold 2"
    await continue_run("r", journal=journal)
    with pytest.raises(ConfigurationError, match="is not held"):
        await continue_run("r", journal=journal)


async def test_a_suspended_run_is_held_at_once_and_no_event_wakes_it(tmp_path: Path) -> None:
    """The event stays; after the end of the hold the wait takes it."""
    journal = open_journal(f"sqlite:{tmp_path}/j.db")
    flow = Workflow("flow", {"w": wait("w", event="go")})
    await run(flow, journal=journal, run_id="r", on_wait="leave")
    info = await hold("r", journal=journal)
    assert (info.status, info.reason) == ("suspended", "held")
    await signal("go", 1, key="r", journal=journal)
    held = await resume(flow, "r", journal=journal)
    assert held.reason is Reason.HELD
    await continue_run("r", journal=journal)
    assert (await resume(flow, "r", journal=journal)).output["value"] == 1


async def test_a_wait_in_its_process_ends_by_a_hold(journal: Any) -> None:
    """A hold that is ended before the run reads it has no effect."""
    flow = Workflow("flow", {"w": wait("w", event="go")})
    task = asyncio.ensure_future(run(flow, journal=journal, run_id="r"))
    while not await journal.waits("r"):
        await asyncio.sleep(0.01)
    await hold("r", journal=journal)
    assert (await asyncio.wait_for(task, 10)).reason is Reason.HELD
    await continue_run("r", journal=journal)
    await hold("r", journal=journal)
    await continue_run("r", journal=journal)
    await signal("go", 1, key="r", journal=journal)
    assert (await resume(flow, "r", journal=journal)).output["value"] == 1


async def test_events_are_hints_of_a_loop_that_says_so(journal: Any) -> None:
    """Each is read from the next iteration on, once in the list; another value is a warning."""
    read: list[list[str]] = []

    async def execute(value: int, ctx: Context) -> int:
        read.append(ctx.hints)
        if ctx.iteration == 1:
            await signal("review", "Shorter.", key=ctx.run_id, journal=journal, who="ann")
            await signal("review", 7, key=ctx.run_id, journal=journal)
        return value

    loop = Loop(execute, name="l", until=MaxIterations(3), hints={"event": "review"})
    result = await run(loop, 1, journal=journal, run_id="r")
    assert read == [[], ["Shorter."], ["Shorter."]]
    assert [warning.partition(":")[0] for warning in result.warnings] == ["event_refused"]
    assert await journal.waits("r") == []
    assert [hint.who for hint in await steer("r", journal=journal)] == ["ann"]
    for wrong in ({"events": "x"}, {"event": "a b"}, "review"):
        with pytest.raises(ConfigurationError):
            Loop(execute, hints=wrong)  # type: ignore[arg-type]
