"""The course of one loop in one run: its rounds, what the journal already holds of them, and its
end."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

from .budget import Account
from .codec import Json
from .context import Context
from .errors import StepError, Stopped
from .journal import Entry
from .records import NOTHING, Failure, History, Iteration, Result, Stop, as_evaluation
from .runtime import Gate, Scope

if TYPE_CHECKING:
    from .loop import Loop

__all__ = ["Course"]


class Course:
    """One loop while it runs.

    `history` is what is recorded so far; `known` the result, if the journal already holds its end.
    """

    __slots__ = (
        "account",
        "ctx",
        "current",
        "history",
        "known",
        "loop",
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
        spent = NOTHING
        if run.replay is not None:
            spent = run.replay.spent(path)
            self._restore(value)
        self.account = Account(path, ctx.account, loop.budget, spent)
        self.scope = Scope(loop.name, value, ctx.scope, path)
        self.ctx = Context(run, path, self._gate(ctx.gate), self.account, self.scope)

    def _gate(self, outer: Gate | None) -> Gate | None:
        loop = self.loop
        if loop.seconds == math.inf and loop.wall == math.inf and not loop.watched:
            return outer
        stop = None
        if loop.seconds < math.inf:
            from .conditions import Timeout

            stop = Timeout(loop.seconds).check(History(elapsed=loop.seconds))
        return Gate(
            self.path,
            outer,
            deadline=self.start + loop.seconds,
            stop=stop,
            wall=loop.wall,
            guards=loop.watched,
            view=self._view,
        )

    def _view(self) -> History:
        run = self.run
        return self.history.seen_at(
            elapsed=run.now() - self.start, usage=self.account.settled, now=run.clock.wall()
        )

    def _restore(self, value: Json) -> None:
        """Take up the rounds, and the end, that the journal holds."""
        replay = self.run.replay
        assert replay is not None
        began = replay.began(self.path)
        if began is not None:
            self.start = began
        usage = NOTHING
        for entry in replay.rounds.get(self.path, ()):
            record: Iteration = entry.value
            usage += record.usage
            self.history = self.history.appended(record, entry.seconds, usage, entry.at)
            self.current = record.input
            self.start = entry.at - entry.seconds
        ended = replay.ended.get(self.path)
        if ended is not None:
            stop = Stop.from_json(ended["stop"])
            self.known = self._result(stop, ended["output"], replay.spent(self.path))
            self._register(self.known)

    def admit(self) -> None:
        """Ask the gates whether a new round may begin. Raises Stopped."""
        self.ctx.spent = NOTHING
        if self.run.cancelled is not None:
            raise Stopped("", self.run.cancelled)
        if self.ctx.gate is not None:
            self.ctx.gate.ask(self.run)

    async def round(self) -> Stopped | None:
        """Run and record one round; return the guard that cut it short, if one did."""
        loop, run, account = self.loop, self.run, self.account
        number = len(self.history) + 1
        self.scope.number = number
        # What a replay holds of this round was spent in it, whatever is replayed and when.
        replay = run.replay
        account.round = NOTHING if replay is None else replay.spent(f"{self.path}/{number}")
        ctx = self.ctx  # private to the course: every step gets a child of it
        ctx.path = f"{self.path}/{number}"
        began = run.now()
        output: Json = None
        evaluation = failure = cut = None
        stage = "adapt"
        try:
            if number > 1 and loop.adapt is not None:
                last = self.history.last
                self.current = await ctx.call("adapt", loop.adapt, last, token=f"round {number}")
            self.scope.current = self.current
            stage = "execute"
            output = await ctx.call("execute", loop.execute, self.current)
            stage = "evaluate"
            if loop.evaluate is not None:
                evaluation = as_evaluation(await ctx.call("evaluate", loop.evaluate, output))
        except StepError as error:
            failure = Failure(stage, error.kind, str(error), error.path, error.retryable)
        except Stopped as stopped:
            cut = stopped
            failure = Failure(stage, "interrupted", stopped.stop.detail, ctx.path)
        now = run.now()
        record = Iteration(
            number,
            self.current,
            output,
            evaluation,
            failure,
            account.round,
            now - began,
            cut is not None,
        )
        self._commit(record, now)
        if loop.on_iteration is not None:
            await run.settle()
            await self._tell(loop.on_iteration, record)
        return cut

    def _commit(self, record: Iteration, now: float) -> None:
        elapsed = now - self.start
        wall = self.run.clock.wall() if self.loop.wall < math.inf else 0.0
        if not self.run.silent:
            entry = Entry("iteration", self.path, now, value=record, seconds=elapsed)
            self.run.append(entry)
        self.history = self.history.appended(record, elapsed, self.account.settled, wall)
        self.scope.history = self.history

    async def finish(self, stop: Stop) -> Result:
        """Record how the loop ended and return it."""
        result = self._result(stop, self._output(stop), self.account.settled)
        ended = {"name": self.loop.name, "stop": stop.to_json(), "output": result.output}
        self.run.append(Entry("ended", self.path, self.run.now(), value=ended))
        self._register(result)
        if self.loop.on_terminate is not None:
            await self.run.settle()
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
        return kept.output if kept is not None else None

    def _result(self, stop: Stop, output: Json, usage: Any) -> Result:
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
        )

    def _register(self, result: Result) -> None:
        self.run.loops.pop(self.loop.name, None)
        self.run.loops[self.loop.name] = result
        outer = self.scope.parent if hasattr(self, "scope") else None
        if outer is not None:
            outer.keep(self.loop.name, result, output=False)

    async def _tell(self, hook: Any, record: Any) -> None:
        try:
            answer = hook(record)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # a hook watches; it never steers
            self.run.warn(f"{self.path}: a hook failed: {type(error).__name__}: {error}")
