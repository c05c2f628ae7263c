"""The course of one loop in one run: its rounds, what the journal already holds of them, and its
end."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .budget import Account
from .codec import Json
from .conditions import Deadline, Timeout, raised, raised_budget
from .context import Context
from .effects import unrecorded
from .errors import StepError, Stopped
from .journal import Entry
from .records import (
    NOTHING,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Stop,
    Usage,
    as_evaluation,
)
from .replay import Replay
from .runtime import Gate, Scope

if TYPE_CHECKING:
    from .loop import Loop

__all__ = ["Course"]


class Course:
    """One loop while it runs.

    `history` is what is recorded so far; `known` the result, if the journal already holds its end;
    `members` its conditions, with the limits that a person raised; `cut` what cut its last recorded round short, if something did.
    """

    __slots__ = (
        "account",
        "call",
        "ctx",
        "current",
        "cut",
        "history",
        "known",
        "loop",
        "members",
        "path",
        "run",
        "scope",
        "start",
    )

    def __init__(self, loop: Loop, value: Json, ctx: Context) -> None:
        self.loop = loop
        self.run = run = ctx.run
        own = ctx.path.rsplit("/", 1)[-1] == loop.name
        self.path = path = ctx.path if own else ctx.below(loop.name)
        self.current = value
        self.start = run.now()
        self.history = History()
        self.known: Result | None = None
        self.cut: Stopped | None = None
        self.scope = Scope(loop.name, value, ctx.scope, path)
        self.members = loop.members
        spent, budget = NOTHING, loop.budget
        if run.replay is not None:
            spent = run.replay.spent(path)
            self._restore(run.replay)
            if told := run.replay.raised.get(path):
                self.members = raised(loop.members, told)
                budget = raised_budget(budget, told) if budget is not None else None
        self.account = Account(path, ctx.account, budget, spent)
        self.ctx = Context(run, path, self._gate(ctx.gate), self.account, self.scope)
        # What Context.call would choose for each of them, chosen once.
        unread = run.silent and loop.plain and self.ctx.gate is None
        self.call: Callable[..., Awaitable[Any]] = unrecorded if unread else Context.call

    def _gate(self, outer: Gate | None) -> Gate | None:
        loop = self.loop
        if loop.seconds == math.inf and loop.wall == math.inf and not loop.watched:
            return outer
        last = History(elapsed=loop.seconds, now=loop.wall)
        limits = [c for c in loop.members if isinstance(c, Timeout | Deadline)]
        stops = {stop.reason: stop for c in limits if (stop := c.check(last)) is not None}
        return Gate(
            self.path,
            outer,
            deadline=self.start + loop.seconds,
            stop=stops.get(Reason.TIMEOUT),
            wall=loop.wall,
            wall_stop=stops.get(Reason.DEADLINE),
            guards=loop.watched,
            view=self._view,
        )

    def _view(self) -> History:
        run = self.run
        return self.history.seen_at(
            elapsed=run.now() - self.start, usage=self.account.settled, now=run.clock.wall()
        )

    def _restore(self, replay: Replay) -> None:
        """Take up the rounds, and the end, that the journal holds."""
        wall = self.run.clock.wall() if self.loop.wall < math.inf else 0.0
        began = replay.began(self.path)
        if began is not None:
            self.start = began
        usage = NOTHING
        for entry in replay.rounds.get(self.path, ()):
            record: Iteration = entry.value
            usage += record.usage
            self.history = self.history.appended(record, entry.seconds, usage, wall)
            self.current = self.scope.current = record.input
            self.start = entry.at - entry.seconds
            self.cut = _cut_of(entry)
        self.scope.history = self.history
        ended = replay.ended.get(self.path)
        if ended is not None:
            stop = Stop.from_json(ended["stop"])
            spent, reported = replay.spent(self.path), ended.get("reported_score")
            self.known = self._result(stop, ended["output"], spent, reported)
            cut = ended.get("cut")
            self.cut = cut and Stopped(cut["owner"], Stop.from_json(cut["stop"]))
            self._show(self.known)

    def _begin(self) -> float:
        """Number a new round and return when it began, which may be before a crash.

        Raises:
            Stopped: if a gate or an account lets none begin; nothing of it is there then.
        """
        run, ctx, account, replay = self.run, self.ctx, self.account, self.run.replay
        ctx.spent = NOTHING
        if run.cancelled is not None:
            raise Stopped("", run.cancelled)
        number = len(self.history) + 1
        path = f"{self.path}/{number}"
        began = None if replay is None else replay.began(path)
        if began is None:  # else it was admitted before the crash; its next new effect is asked
            if ctx.gate is not None:
                ctx.gate.ask(run)
            if account.capped:
                account.admit()
            began = run.now()
        self.scope.number, self.scope.parts = number, None
        # The context is private to the course: every step gets a child of it.
        ctx.path = path
        # What a replay holds of this round was spent in it, whatever is replayed and when.
        account.round = NOTHING if replay is None else replay.spent(path)
        return began

    async def round(self) -> Stopped | None:
        """Run and record one round; return the guard that cut it short, if one did.

        Raises:
            Stopped: if it may not begin.
        """
        loop, run, ctx = self.loop, self.run, self.ctx
        began = self._begin()
        output: Json = None
        evaluation = failure = cut = None
        stage = "adapt"
        try:
            if run.replay is not None and f"{ctx.path}/input" in run.replay.answers:
                self.current = run.replay.answers[f"{ctx.path}/input"]  # a person adapted
            elif self.scope.number > 1 and loop.adapt is not None:
                given = await self.call(ctx, "adapt", loop.adapt, self.history.last, "round")
                self.current = given if type(given) is not Evaluation else given.to_json()
            self.scope.current = self.current
            stage = "execute"
            output = await self.call(ctx, "execute", loop.execute, self.current)
            if type(output) is Evaluation:  # an evaluation is one only where it judges
                output = output.to_json()
            stage = "evaluate"
            if loop.evaluate is not None:
                evaluation = as_evaluation(await self.call(ctx, "evaluate", loop.evaluate, output))
        except StepError as error:
            failure = _failed(stage, error)
        except (Stopped, asyncio.CancelledError) as error:
            cut = run.stopped_by(error)
            output = self._rescued(cut) if stage == "execute" else output
            failure = Failure(stage, "interrupted", cut.stop.detail, ctx.path)
        now = run.now()
        record = Iteration(
            self.scope.number, self.current, output, evaluation, failure, self.account.round,
            now - began, cut is not None, steps=self.scope.parts,
        )  # fmt: skip
        self._commit(record, now, cut)
        if loop.on_iteration is not None:
            await self._tell(loop.on_iteration, record)
        return cut

    def _commit(self, record: Iteration, now: float, cut: Stopped | None) -> None:
        elapsed = now - self.start
        wall = self.run.clock.wall() if self.loop.wall < math.inf else 0.0
        if not self.run.silent:
            entry = Entry("iteration", self.path, now, record)
            entry.seconds = elapsed
            if cut is not None:
                entry.error = Failure("", cut.stop.reason.value, cut.stop.detail, cut.owner)
            self.run.append(entry)
            self.run.note(record)
        self.history = self.history.appended(record, elapsed, self.account.settled, wall)
        self.scope.history = self.history

    async def rejudged(self, stop: Stop) -> float | None:
        """Return the mean score of fresh votes on the output, in which its choice had no part.

        There is none if the loop wants none, if nobody scores its output, or if neither time nor
        budget is left: the loop has ended, so that is a warning.
        """
        loop, output = self.loop, self._output(stop)
        bought_out = stop.reason in (
            Reason.CANCELLED,
            Reason.TIMEOUT,
            Reason.DEADLINE,
            Reason.BUDGET,
        )
        best = self.history.best
        if not loop.rejudge or loop.evaluate is None or bought_out or best is None:
            return None
        scores = []
        try:
            for number in range(1, loop.rejudge + 1):
                self.ctx.path = f"{self.path}/rejudge/{number}"
                found = as_evaluation(await self.ctx.call("evaluate", loop.evaluate, output))
                if found.score is not None and not found.undecided:
                    scores.append(found.score)
        except StepError as error:
            self.run.warn(f"{self.path}: its output could not be judged again: {error}")
        except (Stopped, asyncio.CancelledError) as error:
            cut = self.run.stopped_by(error)
            self.run.warn(f"{self.path}: its output could not be judged again: {cut.stop.detail}")
        return sum(scores) / len(scores) if scores else None

    async def finish(
        self, stop: Stop, cut: Stopped | None, reported: float | None = None
    ) -> Result:
        """Record how the loop ended, and whose guard or cancel it was if not its own; return it."""
        result = self._result(stop, self._output(stop), self.account.settled, reported)
        if not self.run.silent:
            ended = {"name": self.loop.name, "stop": stop.to_json(), "output": result.output}
            if reported is not None:
                ended["reported_score"] = reported
            if cut is not None and cut.owner != self.path:
                ended["cut"] = {"owner": cut.owner, "stop": cut.stop.to_json()}
            self.run.append(Entry("ended", self.path, self.run.now(), value=ended))
        self._register(result)
        if self.loop.on_terminate is not None:
            await self._tell(self.loop.on_terminate, result)
        return result

    def leave(self, stop: Stop) -> None:
        """Show how far a suspended loop is; it has not ended, so nothing is recorded."""
        self._register(self._result(stop, self._output(stop), self.account.settled))

    def _output(self, stop: Stop) -> Json:
        history = self.history
        if stop.satisfied and history.last is not None:
            return history.last.output
        kept = history.latest_eligible if self.loop.keep == "last" else history.best
        if kept is None and history.last is not None and history.last.interrupted:
            kept = history.last  # nothing was judged here, but what a loop inside had is not lost
        return kept.output if kept is not None else None

    def _rescued(self, cut: Stopped) -> Json:
        """Return what the loop inside had, which the same guard cut short."""
        inner = next(iter(reversed(list(self.scope.loops.values()))), None)
        return inner.output if inner is not None and inner.reason is cut.stop.reason else None

    def _result(
        self, stop: Stop, output: Json, usage: Usage, reported: float | None = None
    ) -> Result:
        return Result(
            stop.reason.status,
            stop.reason,
            stop.detail,
            output,
            self.history,
            usage,
            run_id=self.run.run_id,
            name=self.loop.name,
            also=stop.also,
            seconds=self.history.elapsed,
            reported_score=reported,
        )

    def _register(self, result: Result) -> None:
        self.run.loops.keep(self.path, result)
        self._show(result)

    def _show(self, result: Result) -> None:
        if self.scope.parent is not None:
            self.scope.parent.keep_loop(self.loop.name, result)

    async def _tell(self, hook: Any, record: Any) -> None:
        """Tell a hook what is durable; a hook watches, it never steers, and a cancel cuts it short."""
        run = self.run
        try:
            await run.settled()
            answer = hook(record)
            if inspect.isawaitable(answer):
                await answer
        except asyncio.CancelledError:
            if run.cancelled is None:
                raise
        except Exception as error:
            run.warn(f"{self.path}: a hook failed: {type(error).__name__}: {error}")


def _cut_of(entry: Entry) -> Stopped | None:
    """Return what cut a recorded round short: the reason and the owner of the guard."""
    error = entry.error
    if error is None:
        return None
    return Stopped(error.path, Stop(Reason(error.kind), error.message))


def _failed(stage: str, error: StepError) -> Failure:
    return Failure(stage, error.kind, str(error), error.path, error.retryable, error.retry_after)
