"""A loop under random events: replies, time, crashes, resumes, cancels, other owners, empty purses.

The machine drives a real run in virtual time, one event after the other, beside the reference of
`model.py`; after every step both must agree, and the invariants must hold.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loopwright import (
    Budget,
    Context,
    Loop,
    MaxIterations,
    NoImprovement,
    Result,
    ScoreAtLeast,
    Timeout,
    Usage,
    run,
    step,
)
from loopwright.errors import OwnershipLost, RunLocked, StepError
from loopwright.journal.replay import RecordedRun
from loopwright.testing import VirtualLoop

from .bodies import NONSENSE, marks_of, replaced_best
from .model import Model, Rules
from .support import ERROR, UNDECIDED, KeepingJournal

CALL = Usage(calls=1, input_tokens=10)


class Machine(RuleBasedStateMachine):
    """One run, its journal, its world and the model of what should come of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.journal = KeepingJournal()
        self.task: asyncio.Task[Result] | None = None
        self.pending: asyncio.Future[Any] | None = None
        self.result: Result | None = None
        self.ledger: list[int] = []
        self.seen: list[int] = []
        self.lost = 0
        self.since = 0.0  # when the present life of the run, or its call in flight, began

    def teardown(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.settle()
        self.loop.close()

    def settle(self) -> None:
        """Let everything happen that is ready, without letting time pass."""
        while True:
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
            if not self.loop._ready:
                break
        if self.task is not None and self.task.done() and not self.task.cancelled():
            self.result = self.task.result()
            self.task = None

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    # The run.

    async def execute(self, value: Any, ctx: Context) -> str:
        self.ledger.append(ctx.iteration)
        self.pending = asyncio.get_running_loop().create_future()
        reply = await self.pending
        ctx.spend(CALL)
        if reply == ERROR:
            raise StepError("it broke")
        return f"output {ctx.iteration}"

    async def evaluate(self, output: str) -> Any:
        return self.verdict

    def made(self) -> Loop:
        asked = self.model.rules
        return Loop(
            step(self.execute, name="execute", reserve=CALL), step(self.evaluate, name="evaluate"),
            name="l", on_failure=asked.on_failure, min_iterations=asked.minimum, keep=asked.keep,
            until=ScoreAtLeast(asked.threshold) | MaxIterations(asked.limit)
            | NoImprovement(asked.patience),
            guards=Timeout(asked.seconds) | Budget(calls=asked.calls),
        )  # fmt: skip

    def begin(self, **options: Any) -> None:
        made = run(self.made(), "in", journal=self.journal, run_id="r", **options)
        self.task = self.loop.create_task(made)
        self.since = self.loop.now
        self.settle()

    @property
    def alive(self) -> bool:
        return self.task is not None

    # Events.

    @initialize(
        asked=st.builds(
            Rules, threshold=st.sampled_from([0.5, 1.0]), patience=st.integers(1, 3),
            limit=st.integers(1, 8), seconds=st.sampled_from([6.0, 30.0, 1e6]),
            calls=st.integers(1, 12), on_failure=st.sampled_from(["halt", "continue"]),
            minimum=st.integers(1, 3), keep=st.sampled_from(["best", "last"]),
        )
    )  # fmt: skip
    def start(self, asked: Rules) -> None:
        self.model = Model(asked)
        self.verdict: Any = None
        self.begin()

    def reply(self, mark: Any, verdict: Any) -> None:
        assert self.pending is not None
        self.verdict = verdict
        self.model.active += self.loop.now - self.since
        self.since = self.loop.now
        self.model.spent += 1
        self.model.record(mark, output=mark != ERROR)
        self.pending.set_result(mark)
        self.settle()

    @precondition(lambda self: self.alive)
    @rule(score=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
    def reply_ok(self, score: float) -> None:
        self.reply(score, score)

    @precondition(lambda self: self.alive)
    @rule()
    def reply_error(self) -> None:
        self.reply(ERROR, None)

    @precondition(lambda self: self.alive)
    @rule(nonsense=st.sampled_from(NONSENSE))
    def reply_garbage(self, nonsense: Any) -> None:
        assert self.pending is not None
        self.verdict = nonsense
        self.model.active += self.loop.now - self.since
        self.since = self.loop.now
        self.model.spent += 1
        self.model.record(ERROR)
        self.pending.set_result("fine")
        self.settle()

    @precondition(lambda self: self.alive)
    @rule()
    def reply_undecided(self) -> None:
        self.reply(UNDECIDED, {"undecided": True})

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 60.0]))
    def tick(self, seconds: float) -> None:
        left = self.model.rules.seconds - self.model.active - (self.loop.now - self.since)
        self.do(asyncio.sleep(seconds))
        self.settle()
        if self.model.reason or not self.lives_in_model:
            return
        if seconds >= left:
            self.model.active = self.model.rules.seconds
            self.model.spent += 1
            self.model.cut("timeout")

    lives_in_model = True

    @precondition(lambda self: self.alive)
    @rule()
    def crash(self) -> None:
        assert self.task is not None
        self.journal.crash()
        self.task.cancel()
        task, self.task = self.task, None
        self.settle()
        assert task.cancelled() or isinstance(task.exception(), OwnershipLost)
        self.lives_in_model = False
        self.model.spent += 1  # the call in flight may have been billed
        self.lost += 1

    @precondition(lambda self: not self.alive and not self.model.reason)
    @rule()
    def resume(self) -> None:
        self.lives_in_model = True
        if self.model.spent >= self.model.rules.calls:
            self.model.cut("budget")  # the round that was begun cannot be finished
        self.begin()

    @precondition(lambda self: self.alive)
    @rule()
    def cancel(self) -> None:
        assert self.do(self.journal.cancel("r"))
        self.model.spent += 1
        self.model.cut("cancelled")
        self.settle()

    @precondition(lambda self: self.alive)
    @rule()
    def second_resumer(self) -> None:
        async def work() -> None:
            try:
                await run(self.made(), "in", journal=self.journal, run_id="r")
            except RunLocked:
                return
            raise AssertionError("two owners")

        self.do(work())

    @precondition(lambda self: self.alive)
    @rule()
    def takeover(self) -> None:
        """Another process takes the run; the call in flight of the first one is cancelled."""
        first, waiting = self.task, self.pending
        assert first is not None
        assert waiting is not None
        self.model.spent += 1
        self.lost += 1
        if self.model.spent >= self.model.rules.calls:
            self.model.cut("budget")  # the round that was begun cannot be finished
        self.begin(takeover=True)
        before = len(self.ledger)
        for _ in range(6):
            self.settle()
        assert waiting.cancelled()
        assert len(self.ledger) == before
        assert isinstance(first.exception(), OwnershipLost)

    @precondition(lambda self: not self.alive and bool(self.model.reason))
    @rule()
    def ask_again(self) -> None:
        assert self.result is not None
        calls, known = len(self.ledger), self.result.to_json()
        again = self.do(run(self.made(), journal=self.journal, run_id="r"))
        assert again.to_json() == known
        assert len(self.ledger) == calls

    # What always holds.

    @invariant()
    def the_journal_holds_the_rounds_so_far(self) -> None:
        """I2, I37: rounds are 1..n, what was recorded stays, and it is what the model has."""
        rows = [item for _, item in self.do(self.journal.iterations("r"))]
        assert [item.number for item in rows] == list(range(1, len(rows) + 1))
        assert len(rows) == len(self.model.marks)
        assert len(rows) >= len(self.seen)
        self.seen = [item.number for item in rows]

    @invariant()
    def every_call_is_counted_and_the_cap_holds(self) -> None:
        """I29, I32, I33: calls made <= calls counted <= the cap, over any sequence of crashes."""
        spent = RecordedRun(self.do(self.journal.entries("r"))).spent("").calls
        cap = self.model.rules.calls
        assert len(self.ledger) <= spent <= cap
        flying = 1 if self.alive else 0
        assert spent == self.model.spent + flying

    @invariant()
    def there_is_one_end_and_nothing_after_it(self) -> None:
        """I3, I6: at most one terminal entry, the last; while there is none the run can go on."""
        entries = self.do(self.journal.entries("r"))
        ends = [n for n, entry in enumerate(entries, 1) if entry.kind == "ended" and not entry.path]
        assert ends in ([], [len(entries)])
        assert bool(ends) == bool(self.model.reason)
        assert self.alive == (not ends and self.lives_in_model)

    @invariant()
    def repeated_calls_were_in_flight_at_a_crash(self) -> None:
        """I36: no call is paid twice but those that a crash or a takeover caught in flight."""
        assert len(self.ledger) - len(set(self.ledger)) <= self.lost

    @invariant()
    def the_end_is_the_models(self) -> None:
        """I4, I5, I14, I15, I27, I42: status, reason, rounds and output are what the contract says."""
        if not self.model.reason:
            return
        result, model = self.result, self.model
        assert result is not None
        assert marks_of(result) == model.marks
        assert (result.status.value, result.reason.value) == model.ending()
        number = model.kept()
        assert result.output == (number and f"output {number}")
        assert (result.best and result.best.number) == replaced_best(model)
        assert result.seconds <= model.rules.seconds


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=max(20, settings().max_examples // 2), stateful_step_count=25
)
