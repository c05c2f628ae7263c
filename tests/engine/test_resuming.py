"""The same run id resumes; a finished run is returned, a rewound one goes on from there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    Workflow,
    fallback,
    resume,
    retry,
    run,
    step,
)
from loopwright.errors import ReplayMismatch, RunLocked, RunNotFound, StepError
from loopwright.testing import run_virtual

from .support import (
    ERROR,
    KeepingJournal,
    Script,
    echo,
    inline,
    interrupted_from_outside,
    play,
    scripted,
)

# Resume.


def test_a_finished_run_is_returned_and_not_run_again() -> None:
    """I40: the same bytes, no call, for the input of the run or none."""
    execute = Script(["a", "b"])
    loop = Loop(execute, Script([0.1, 0.9]), name="l", until=ScoreAtLeast(0.9),
                adapt=inline(lambda last: "again"))  # fmt: skip
    journal = MemoryJournal()
    first = play(loop, "in", journal=journal, run_id="r")
    again = play(loop, "in", journal=journal, run_id="r")
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
    "retried": lambda: retry(scripted([0.9], name="l", until=ScoreAtLeast(0.5))),
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
        await interrupted_from_outside()

    with pytest.raises(asyncio.CancelledError):
        play(interrupted, "one", journal=journal, run_id="r")
    with pytest.raises(ReplayMismatch) as caught:
        play(interrupted, "two", journal=journal, run_id="r")
    assert str(caught.value) == (
        "r: its input was 'one' when it was recorded, now it is 'two'; "
        "resume without an input, or use another run ID"
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
    await interrupted_from_outside()


def test_a_run_keeps_its_row() -> None:
    """Status, reason, figures and the best score of a run are in its row, and how to load it."""
    journal = MemoryJournal()
    play(scripted([0.2, 0.7, 0.1], name="l", until=MaxIterations(3)), "in", journal=journal,
         run_id="r", source={"file": "a.yaml"})  # fmt: skip
    info = run_virtual(journal.find("r"))
    assert (info.status, info.reason, info.iterations, info.score, info.input) == (
        "exhausted", "max_iterations", 3, 0.7, "in",
    )  # fmt: skip
    until = [{"max_iterations": {"limit": 3}}, {"passed": {}}]  # it is judged, so passing ends it
    rules = {"evaluate": True, "until": {"max_iterations": {"limit": 3}}}
    bounds = {"loops": [{"name": "l", "until": until, "rules": rules}]}
    assert (info.name, info.source["file"], info.source["bounds"]) == ("l", "a.yaml", bounds)
    assert list(info.source["code"]["parts"]) == ["l", "l: evaluate", "l: until", "l/Script"]
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
