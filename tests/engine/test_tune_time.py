"""I42 for tuned limits of time: a run ends at the limit that is in force then, over kills and resumes."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from loopwright import Loop, MaxIterations, Reason, Result, Timeout
from loopwright.errors import OwnershipLost
from loopwright.journal import Entry, surviving
from loopwright.journal.replay import request
from loopwright.testing import run_virtual

from .support import DyingJournal, entries_of, examples, play

GRACE = 0.5  # seconds that a cancelled call gets to clean up
RESOLUTION = 0.01  # seconds of a timer

seconds = st.integers(1, 400).map(lambda tenths: tenths / 10)
limits = st.one_of(st.none(), seconds)
calls = st.lists(
    st.tuples(seconds, st.lists(st.tuples(seconds, limits), max_size=3)), min_size=1, max_size=5
)


@dataclass
class Tuner:
    """A loop whose calls take the planned seconds, while a person sets limits after others."""

    journal: DyingJournal
    plan: list[tuple[float, list[tuple[float, float | None]]]]
    began: itertools.count[int] = field(default_factory=itertools.count)
    posted: itertools.count[int] = field(default_factory=itertools.count)

    async def set_limit(self, new: float | None) -> None:
        """Request a limit of time."""
        number = next(self.posted)
        change = {"loop": "paced", "key": "timeout", "old": None, "new": new}
        posted = request([change], reason="", who="Ann", at=float(number))
        await self.journal.post("r", posted)

    async def call(self, value: int) -> int:
        """Take the planned seconds of the next call."""
        duration, changes = self.plan[next(self.began) % len(self.plan)]
        for delay, new in changes:
            await asyncio.sleep(delay)
            await self.set_limit(new)
        await asyncio.sleep(duration)
        return value + 1

    def play(self, limit: float) -> Result:
        """Run the loop, or continue it."""
        loop = Loop(
            self.call,
            adapt=lambda last: last.output,
            until=MaxIterations(6) | Timeout(limit),
            name="paced",
        )
        return play(loop, 1, journal=self.journal, run_id="r", in_doubt="rerun")


def _timeline(entries: list[Entry]) -> tuple[list[tuple[float, float | None]], float]:
    """Return the new limits with the seconds at which each was set, and the seconds when a limit ended the loop."""
    active, changes = 0.0, []
    began: float | None = None
    for entry in entries:
        active = max(active, entry.at + (0.0 if entry.kind == "iteration" else entry.seconds))
        if entry.kind == "started" and began is None:
            began = entry.at
        elif entry.kind == "tuned":
            changes.append((active - (began or 0.0), entry.value["new"]))
        elif entry.path == "paced" and (entry.kind == "ended" or entry.error is not None):
            # The record of an iteration that a limit cut is the decision: later limits do not change it.
            return changes, entry.at - (began or 0.0)
    raise AssertionError("the loop has no end")


@given(
    limit=seconds,
    plan=calls,
    kills=st.lists(st.tuples(st.integers(1, 25), limits), max_size=4),
)
@examples(0.6)
def test_a_run_ends_at_the_limit_of_time_in_force(
    limit: float,
    plan: list[tuple[float, list[tuple[float, float | None]]]],
    kills: list[tuple[int, float | None]],
) -> None:
    """Never before a raised limit, and after a lowered one by no more than a call needs to be cancelled."""
    journal = DyingJournal()
    tuner = Tuner(journal, plan)
    for at, new in kills:
        journal.at = at
        try:
            tuner.play(limit)
            break
        except (asyncio.CancelledError, OwnershipLost):
            journal.at = 0
            run_virtual(tuner.set_limit(new))  # while no process runs it
    result = tuner.play(limit)
    changes, used = _timeline(surviving(entries_of(journal, "r")))
    every = [(0.0, limit), *changes]
    # The loop still runs when the next limit is set, so the one before may not have ended it long before.
    for (since, in_force), (until, _) in itertools.pairwise([*every, (used, None)]):
        assert in_force is None or until <= max(in_force, since) + GRACE + RESOLUTION
    if result.reason is Reason.TIMEOUT:
        last = every[-1][1]
        assert last is not None
        assert used >= last - RESOLUTION
    else:
        assert result.reason is Reason.MAX_ITERATIONS
    assert tuner.play(limit) == result
