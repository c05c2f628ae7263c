"""Running: a journal in, a Result out; the same run id resumes, a finished run is returned."""

from __future__ import annotations

import asyncio
import re
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
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    Workflow,
    fallback,
    resume,
    retrying,
    run,
    run_sync,
    step,
)
from loopwright.errors import (
    ConfigurationError,
    ReplayMismatch,
    RunLocked,
    RunNotFound,
    StepError,
)
from loopwright.run import SystemClock, new_run_id
from loopwright.testing import run_virtual

from .support import ERROR, KeepingJournal, Script, echo, entries_of, inline, play, scripted

# What a run is given and gives back.


def test_a_function_is_the_simplest_run() -> None:
    """Its output is the result's, its reason is that it completed."""
    result = play(echo, {"a": (1, 2)})
    assert (result.status, result.reason, result.detail) == (
        Status.SATISFIED, Reason.COMPLETED, "echo completed",
    )  # fmt: skip
    assert (result.output, result.name) == ({"a": [1, 2]}, "echo")
    assert result.unwrap() == {"a": [1, 2]}


def test_a_run_that_fails_is_a_result() -> None:
    """An error of the root step has status failed and says where; nothing is raised."""
    result = play(Script([StepError("no")]))
    assert (result.status, result.reason, result.detail) == (
        Status.FAILED, Reason.ERROR, "Script: no",
    )  # fmt: skip


def test_plain_code_runs_without_an_event_loop() -> None:
    """run_sync is run for those without one; inside one it says what to write instead."""
    assert run_sync(lambda value: value * 2, 4).output == 8

    async def work() -> Result:
        return run_sync(echo, 1)

    with pytest.raises(ConfigurationError) as caught:
        run_virtual(work())
    assert str(caught.value) == (
        "run_sync cannot be called inside an event loop; use: await run(…)"
    )


def test_an_error_of_run_sync_stands_alone() -> None:
    """What is raised does not drag along how run_sync looked for an event loop."""
    with pytest.raises(ConfigurationError) as caught:
        run_sync(echo, 1, run_id="a b")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run_id": "a/b"},
         "run_id: 'a/b' is not an id; use 1 to 64 letters, digits, - and _"),
        ({"run_id": "x" * 65}, None),
        ({"value": b"bytes"},
         ("input: bytes is not a JSON value; return text, finite numbers, booleans, lists, "
         "objects with text keys, dataclasses or pydantic models")),
        ({"value": float("nan")}, None),
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_cannot_be_is_refused(options: dict[str, Any], message: str | None) -> None:
    """I10: an id or input that cannot be is a ConfigurationError before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        play(Script([1]), options.pop("value", None), **options)
    assert message is None or str(caught.value) == message


def test_run_ids_sort_by_time_and_do_not_collide() -> None:
    """A thousand runs of one second have a thousand ids."""
    ids = [new_run_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]{6}", run_id) for run_id in ids)


def test_a_run_has_a_budget_of_its_own() -> None:
    """The cap on the whole run binds everything in it; what ended it is the run's reason."""

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1))
        return "x"

    made = step(spends, reserve=Usage(calls=1), name="s")
    loop = Loop(made, name="l", until=MaxIterations(9))
    result = play(loop, budget=Budget(calls=3))
    assert (result.status, result.reason, result.usage.calls, result.output) == (
        Status.EXHAUSTED, Reason.BUDGET, 3, "x",
    )  # fmt: skip
    flow = play(Workflow("w", dict.fromkeys("abcd", made)), budget=Budget(calls=2))
    assert (flow.status, flow.reason, flow.steps) == (
        Status.EXHAUSTED, Reason.BUDGET, {"a": "x", "b": "x"},
    )  # fmt: skip


def test_a_run_that_was_cut_shows_what_its_loops_have() -> None:
    """Without an end of its own a workflow's output is that of the last loop that has one."""
    flow = Workflow("w", {
        "loop": scripted([0.4], until=MaxIterations(1)), "slow": Script(["x"], seconds=60),
    })  # fmt: skip
    outer = Loop(flow, name="outer", until=Timeout(5))
    assert play(outer).output is None

    async def work() -> Result:
        journal = MemoryJournal()
        task = asyncio.ensure_future(run(flow, journal=journal, run_id="r"))
        await asyncio.sleep(2)
        await journal.cancel("r")
        return await task

    result = run_virtual(work())
    assert (result.status, result.output) == (Status.CANCELLED, "output 0.4")


def test_resources_reach_the_steps_that_need_them() -> None:
    """Models, tools and settings are passed in, by name; nothing is global."""

    async def act(value: Any, ctx: Context) -> Any:
        return ctx.run.resources["word"]

    assert play(act, resources={"word": "given"}).output == "given"


# Resume.


def test_a_finished_run_is_returned_and_not_run_again() -> None:
    """I40: the same bytes, no call, whatever is asked for now."""
    execute = Script(["a", "b"])
    loop = Loop(execute, Script([0.1, 0.9]), name="l", until=ScoreAtLeast(0.9),
                adapt=inline(lambda last: "again"))  # fmt: skip
    journal = MemoryJournal()
    first = play(loop, "in", journal=journal, run_id="r")
    again = play(loop, "other input", journal=journal, run_id="r")
    resumed = run_virtual(resume(loop, "r", journal=journal))
    assert again.to_json() == resumed.to_json() == first.to_json()
    assert again.history == first.history
    assert len(execute.calls) == 2


FINISHED = {
    "loop": lambda: scripted([0.2, 0.9], name="l", until=ScoreAtLeast(0.9)),
    "exhausted": lambda: scripted([0.2, ERROR], name="l", until=MaxIterations(2),
                                  on_failure="continue"),
    "failed": lambda: scripted([0.2, ERROR], name="l"),
    "all failed": lambda: scripted([ERROR], name="l", on_failure="continue"),
    "timeout": lambda: Loop(Script(["x"], seconds=2), name="l", until=Timeout(5)),
    "nested": lambda: Loop(scripted([0.1, 0.2], name="inner", until=MaxIterations(2)), name="l",
                           until=MaxIterations(2)),
    "workflow": lambda: Workflow("w", {"a": scripted([0.9], until=ScoreAtLeast(0.5)), "b": echo}),
    "namesakes": lambda: Workflow("w", {"w": scripted([0.9], name="w", until=ScoreAtLeast(0.5))}),
    "retried": lambda: retrying(scripted([0.9], name="l", until=ScoreAtLeast(0.5))),
    "fallback": lambda: fallback(scripted([0.1], name="a", until=MaxIterations(1)),
                                 scripted([0.3], name="b", until=MaxIterations(1))),
    "function": lambda: echo,
    "spending": lambda: Loop(step(_spend), name="l", until=Budget(usd=0.25)),
    "judged": lambda: scripted([Evaluation(0.3, feedback="more", votes=({"v": 1},))], name="l",
                               until=MaxIterations(1)),
    "warning": lambda: Workflow("w", {"a": step(_warn)}),
}  # fmt: skip


async def _spend(value: Any, ctx: Context) -> str:
    ctx.spend(Usage(calls=1, usd=0.1))
    return "x"


async def _warn(value: Any, ctx: Context) -> str:
    ctx.warn("careful")
    return "x"


@pytest.mark.parametrize("kind", FINISHED)
def test_a_finished_run_of_any_kind_gives_the_same_bytes(kind: str) -> None:
    """I40: result, history, loops, steps, usage, warnings and seconds come back as they were."""
    journal = MemoryJournal()
    first = play(FINISHED[kind](), "x", journal=journal, run_id="r")
    again = play(FINISHED[kind](), "x", journal=journal, run_id="r")
    assert again.to_json() == first.to_json()
    assert again.history == first.history
    assert again.loops == first.loops
    assert {n: r.to_json() for n, r in again.loops.items()} == {
        n: r.to_json() for n, r in first.loops.items()
    }


def test_a_journal_changes_nothing_about_the_result() -> None:
    """With and without a journal, and with listeners, a run gives the same."""
    for kind, made in FINISHED.items():
        plain = play(made(), "x", run_id="r").to_json()
        kept = play(made(), "x", run_id="r", journal=KeepingJournal()).to_json()
        heard = play(made(), "x", run_id="r", listeners=[lambda entry: None]).to_json()
        assert plain == kept == heard, kind


def test_resuming_what_is_not_there_is_an_error() -> None:
    """The message says where to look."""
    with pytest.raises(RunNotFound, match=r"there is no run 'r' in this journal; list them with"):
        run_virtual(resume(echo, "r", journal=MemoryJournal()))


def test_a_run_is_found_by_the_beginning_of_its_id() -> None:
    """A unique beginning of the id will do for a resume."""
    journal = MemoryJournal()
    play(echo, 1, journal=journal, run_id="abcdef")
    assert run_virtual(resume(echo, "abc", journal=journal)).output == 1


def test_a_run_has_one_owner() -> None:
    """I39: a second run of the same id is refused while the first is alive."""
    journal = MemoryJournal()

    async def work() -> None:
        first = asyncio.ensure_future(run(Script(["x"], seconds=5), journal=journal, run_id="r"))
        await asyncio.sleep(1)
        with pytest.raises(RunLocked, match="r: another owner is running it"):
            await run(Script(["x"]), journal=journal, run_id="r")
        assert (await first).output == "x"

    run_virtual(work())


def test_another_input_under_the_same_id_is_refused() -> None:
    """I41: resuming with an input that differs from the recorded one names both."""
    journal = MemoryJournal()

    async def interrupted(value: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        play(interrupted, "one", journal=journal, run_id="r")
    with pytest.raises(ReplayMismatch) as caught:
        play(interrupted, "two", journal=journal, run_id="r")
    assert str(caught.value) == (
        "r: its input was 'one' when it was recorded, now it is 'two'; "
        "resume without an input, or use another run id"
    )
    assert (caught.value.recorded, caught.value.now) == ("'one'", "'two'")
    assert run_virtual(journal.find("r")).status == "interrupted"


def test_another_name_under_the_same_id_is_refused() -> None:
    """I41: the name is the root of every path, so nothing recorded would be found under another."""
    journal = MemoryJournal()
    with pytest.raises(asyncio.CancelledError):
        play(step(_interrupted, name="one"), journal=journal, run_id="r")
    with pytest.raises(ReplayMismatch, match="r: it was recorded as 'one', not as 'two'"):
        play(step(_interrupted, name="two"), journal=journal, run_id="r")


async def _interrupted(value: Any) -> None:
    raise asyncio.CancelledError


def test_a_run_keeps_its_row() -> None:
    """Status, reason, figures and the best score of a run are in its row, and how to load it."""
    journal = MemoryJournal()
    play(scripted([0.2, 0.7, 0.1], name="l", until=MaxIterations(3)), "in", journal=journal,
         run_id="r", source={"file": "a.yaml"})  # fmt: skip
    info = run_virtual(journal.find("r"))
    assert (info.status, info.reason, info.iterations, info.score, info.input) == (
        "exhausted", "max_iterations", 3, 0.7, "in",
    )  # fmt: skip
    assert (info.name, info.source) == ("l", {"file": "a.yaml"})
    flow = Workflow("w", {"a": scripted([0.6], until=ScoreAtLeast(0.5)), "b": echo})
    play(flow, journal=journal, run_id="f")
    info = run_virtual(journal.find("f"))
    assert (info.iterations, info.score) == (1, 0.6)
    play(echo, journal=journal, run_id="e")
    assert run_virtual(journal.find("e")).score is None


def test_many_runs_in_one_journal_give_what_they_give_alone() -> None:
    """I44, I46: 50 concurrent runs of 4 rounds share nothing; their 50 x 4 rounds are all there."""
    journal = MemoryJournal()

    def made(number: int) -> Loop:
        return Loop(Script([lambda v: [number, v]], seconds=number % 3), Script([0.1]),
                    name="l", until=MaxIterations(4))  # fmt: skip

    async def work() -> list[Result]:
        return await asyncio.gather(
            *(run(made(n), n, journal=journal, run_id=f"r{n}") for n in range(50))
        )

    for number, result in enumerate(run_virtual(work(), seed=5)):
        alone = play(made(number), number, run_id=f"r{number}")
        assert result.to_json() == alone.to_json()
    rounds = [len(run_virtual(journal.iterations(f"r{n}"))) for n in range(50)]
    assert rounds == [4] * 50


# Rewind.


def test_a_failed_run_can_be_opened_again() -> None:
    """Rewinding to the failed round and resuming does that round again, and only that one."""
    execute = Script(["a", StepError("no"), "b"])
    loop = Loop(execute, Script([0.1, 0.9]), name="l", until=ScoreAtLeast(0.9))
    journal = MemoryJournal()
    first = play(loop, journal=journal, run_id="r")
    assert first.status is Status.FAILED
    rewound = run_virtual(journal.rewind("r", "l/2"))
    assert (rewound.path, rewound.entries) == ("l/2", 5)
    again = run_virtual(resume(loop, "r", journal=journal))
    assert (again.status, again.output, len(execute.calls)) == (Status.SATISFIED, "b", 3)
    assert [item.number for item in again.history] == [1, 2]


def test_a_rewound_run_has_the_time_that_it_had_then() -> None:
    """What came after the place of the rewind does not count against a timeout."""
    loop = Loop(Script(["x"], seconds=3), name="l", until=Timeout(10))
    journal = MemoryJournal()
    assert play(loop, journal=journal, run_id="r").seconds == pytest.approx(10)
    run_virtual(journal.rewind("r", "l/2"))
    again = run_virtual(resume(loop, "r", journal=journal))
    assert (again.iterations, again.seconds) == (4, pytest.approx(10))


# Clocks and stores.


def test_the_system_clock_is_the_machines() -> None:
    """Outside of virtual time seconds are those of the machine, and a pause is a pause."""

    async def work() -> tuple[float, float, float]:
        clock = SystemClock()
        began, wall = clock.monotonic(), clock.wall()
        await clock.sleep(0.01)
        return began, clock.monotonic(), clock.wall() - wall

    began, ended, passed = asyncio.run(work())
    assert ended > began
    assert passed >= 0


def test_a_journal_may_be_given_by_its_url(tmp_path: Path) -> None:
    """A URL opens the store for this run and closes it after; what is in it can be resumed."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    first = run_sync(echo, "x", journal=url, run_id="r")
    assert run_sync(echo, journal=url, run_id="r").output == first.output == "x"
    assert asyncio.run(resume(echo, "r", journal=url)).output == "x"


def test_entries_tell_the_whole_story_of_a_run() -> None:
    """I3: exactly one terminal event, and nothing after it, for every kind of ending."""
    for kind, made in FINISHED.items():
        journal = MemoryJournal()
        play(made(), "x", journal=journal, run_id="r")
        entries = entries_of(journal, "r")
        ends = [number for number, e in enumerate(entries) if e.kind == "ended" and not e.path]
        assert ends == [len(entries) - 1], kind
