"""The assertion that a step replays from its journal."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Reason, Result, Status, sequence
from loopwright.engine.step import CompositeStep
from loopwright.testing import assert_replays


def test_a_loop_replays_with_its_iterations() -> None:
    """The result of the first run is returned, and no effect runs in the replay."""
    calls: list[int] = []

    def work(value: int) -> int:
        calls.append(value)
        return value + 1

    result = assert_replays(Loop(work, until=MaxIterations(3), name="count"), 1)
    assert (result.iterations, len(calls)) == (3, 3)


def test_a_replay_that_takes_another_path_fails() -> None:
    """A step that chooses its effects by something outside of the record is reported."""
    turn = itertools.count()

    class Choosing(CompositeStep):
        """A composite whose inner step depends on how often it ran."""

        name = "choosing"
        fingerprint = "choosing/1"

        async def run(self, value: Any, ctx: Any) -> Any:
            output = await ctx.call(f"turn-{next(turn)}", sequence(lambda v: v, name="same"), value)
            return Result(Status.SATISFIED, Reason.COMPLETED, "", output, name=self.name)

    with pytest.raises(AssertionError, match="replay"):
        assert_replays(Choosing(), 1)
