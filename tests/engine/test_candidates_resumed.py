"""Candidates and crashes: at any journal write the same result, and nothing that ended runs again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from loopwright import (
    Candidates,
    Combine,
    Context,
    Duel,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    Usage,
    resume,
    run,
    step,
)
from loopwright.errors import OwnershipLost
from loopwright.testing import run_virtual

from .support import DyingJournal, entries_of, inline, play
from .test_crash import in_flight, uncounted, whole

pytestmark = pytest.mark.filterwarnings("ignore::loopwright.errors.LoopwrightWarning")


class World:
    """A loop with candidates, and the ledger of the effects that were really performed."""

    def __init__(self, pick: Any, **several: Any) -> None:
        self.ledger: list[str] = []
        picks: dict[str, Any] = {
            "duel": Duel(self.effect("longer", lambda pair: "first" if len(pair["first"]) > len(pair["second"]) else "second")),
            "combine": Combine(self.effect("join", lambda parts: parts[0]["output"] + "+" * (len(parts) - 1))),
            "python": lambda rows: rows[-1].number,
        }  # fmt: skip
        self.loop = Loop(
            self.effect("write", lambda text: f"{text}{len(text)}", several=True),
            self.effect("rate", lambda text: (sum(map(ord, text)) * 7 % 11) / 11),
            self.effect("adapt", lambda last: last.output),
            candidates=Candidates(
                4, first=5, at_once=3, vary=["a", "b"], pick=picks.get(pick, pick), **several
            ),
            name="l",
            until=MaxIterations(3),
        )

    def effect(self, name: str, answer: Any, *, several: bool = False) -> Any:
        async def act(value: Any, ctx: Context) -> Any:
            self.ledger.append(ctx.path)
            await asyncio.sleep(1.0 + ctx.candidate * 0.1)
            ctx.spend(Usage(calls=1))
            result = answer(value)
            return f"{result}{'x' * (ctx.candidate * 3 % 5)}{ctx.vary}" if several else result

        return step(act, name=name, reserve=Usage(calls=2))

    def live(self, journal: MemoryJournal) -> Result | None:
        """Run until the end or the next death."""
        try:
            return play(self.loop, "in", journal=journal, run_id="r")
        except (asyncio.CancelledError, OwnershipLost):
            return None


PICKS = ("score", "duel", "first_pass", "combine", "python")


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("before", [True, False], ids=["before the write", "after the write"])
def test_a_crash_at_every_write_gives_the_same_result(pick: str, before: bool) -> None:
    """Same choice and rows; what is paid twice was in flight; nothing that ended is judged again."""
    once, journal = World(pick), DyingJournal()
    result = once.live(journal)
    assert result is not None
    expected, writes = uncounted(whole(result, timed=True)), journal.appended
    for at in range(1, writes + 1, 7 if before else 5):
        world, journal = World(pick), DyingJournal(at, before=before)
        assert world.live(journal) is None
        doubtful, performed = in_flight(journal), Counter(world.ledger)
        ended = {e.path for e in entries_of(journal, "r") if e.kind == "finished"}
        journal.at = 0
        again = world.live(journal)
        assert again is not None
        assert uncounted(whole(again, timed=True)) == expected
        repeated = Counter(world.ledger) - Counter(dict.fromkeys(world.ledger, 1))
        assert sum(repeated.values()) <= doubtful
        assert not ended & {p for p in world.ledger if world.ledger.count(p) > performed[p]}


def test_a_recorded_choice_begins_nothing() -> None:
    """After an early end a resume takes the choice: no candidate begins, and the rows are the recorded ones."""
    begun: list[int] = []

    async def write(value: Any, ctx: Context) -> int:
        begun.append(ctx.candidate)
        await asyncio.sleep(0 if ctx.candidate == 3 else 9)
        return ctx.candidate

    loop = Loop(
        write, inline(lambda n: n == 3), name="l", until=MaxIterations(1),
        candidates=Candidates(8, at_once=4, pick="first_pass"),
    )  # fmt: skip
    journal = DyingJournal()
    first = play(loop, "in", journal=journal, run_id="r")
    choice = next(e.seq for e in entries_of(journal, "r") if e.path == "l/1/choice")
    assert begun == [1, 2, 3, 4]
    begun.clear()
    journal = DyingJournal(choice)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(loop, "in", journal=journal, run_id="r")
    begun.clear()
    journal.at = 0
    again = play(loop, "in", journal=journal, run_id="r")
    assert begun == []
    assert uncounted(whole(again, timed=True)) == uncounted(whole(first, timed=True))
    rows = again.history[0].candidates
    assert [row.state for row in rows] == ["stopped", "stopped", "chosen", "stopped"] + ["skipped"] * 4  # fmt: skip


def test_recorded_candidates_are_taken_before_new_ones_begin() -> None:
    """If the process dies after a candidate passed and before the choice, the resume begins no other."""
    begun: list[int] = []

    async def write(value: Any, ctx: Context) -> int:
        begun.append(ctx.candidate)
        await asyncio.sleep(ctx.candidate)
        return ctx.candidate

    loop = Loop(
        write, inline(lambda n: n == 2), name="l", until=MaxIterations(1),
        candidates=Candidates(4, at_once=2, pick="first_pass"),
    )  # fmt: skip
    journal = MemoryJournal()
    play(loop, "in", journal=journal, run_id="whole")
    ended = next(e.seq for e in entries_of(journal, "whole") if e.path == "l/1/candidate-2" and e.kind == "finished")  # fmt: skip
    journal = DyingJournal(ended)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        run_virtual(run(loop, "in", journal=journal, run_id="r"))
    begun.clear()
    journal.at = 0
    result = run_virtual(resume(loop, "r", journal=journal))
    assert (begun, result.output) == ([], 2)


def test_a_failed_candidate_is_not_tried_again() -> None:
    """Its failure is on record like an output."""
    tried: list[int] = []

    async def write(value: Any, ctx: Context) -> int:
        tried.append(ctx.candidate)
        await asyncio.sleep(ctx.candidate)
        if ctx.candidate == 1:
            raise ValueError("no")
        return ctx.candidate

    loop = Loop(write, inline(lambda n: n / 9), candidates=3, name="l", until=MaxIterations(1))
    journal = DyingJournal(7)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(loop, "in", journal=journal, run_id="r")
    journal.at = 0
    result = play(loop, "in", journal=journal, run_id="r")
    assert tried.count(1) == 1
    assert [row.state for row in result.history[0].candidates] == ["failed", "lost", "chosen"]
