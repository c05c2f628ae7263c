"""The run of one loop: adapt, execute, evaluate, record and decide, until a condition ends it.

`LoopRun.run` and `LoopRun.iterate` are the loop; each other function is a detail of one of their lines.
`_restore`, `recorded_stop` and `admit` restore the state in the journal. `loop_evaluations` has the evaluations
outside the iterations, `workspace_loop` the files.

A subclass runs another kind of loop with the same record and the same rules: the list of a document
(`ListRun`) chooses the next number, the input and the decision. Each `Attempt` has a context, so
that several can run at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..conditions import (
    Budget,
    Deadline,
    Timeout,
    raised,
    raised_budget,
    tightest,
    time_limits,
    tuned,
    with_sigma,
)
from ..errors import StepError, Stopped, Suspended
from ..journal import Entry
from ..journal.replay import RecordedRun
from ..records import (
    NOTHING,
    Failure,
    History,
    Iteration,
    Reason,
    Record,
    Result,
    Status,
    Stop,
    Usage,
    failure_of,
)
from ..records.codec import Json, error_line
from ..records.typed import ValueType, json_of
from .budget import CANNOT_BIND, Account
from .context import Context, Scope
from .deadlines import DeadlineScope
from .effects import being_cancelled, recorded, retyped, unrecorded
from .loop_approval import approved, settled
from .loop_attempt import Attempt, Call
from .loop_declaration import LoopDeclaration
from .loop_evaluations import evaluate_input, evaluate_output_again, judge_sentences
from .loop_exploration import explores, may_continue
from .snapshots import Snapshots

__all__ = ["LoopRun"]


class LoopRun:
    """The run of one loop.

    `history` holds the recorded iterations, `attempted` is the latest iteration and `current` its
    input. `members` are the conditions, with the limits that a person changed; `seconds` and `wall` are
    its limits of time. `task` executes an iteration now. `cut` is the guard or
    the cancellation that ended the last iteration early or prevented one. `cause` is the exception of
    the last iteration that failed in this process. `asks` says whether its decision is more than that
    of its conditions. `normal` is the normal end of a loop that explores, with
    its history then, and `explored` counts the iterations since. `ended` is the result once the loop has ended, and
    `terminated` says whether `on_terminate` was called.
    """

    __slots__ = (
        "account",
        "asks",
        "attempted",
        "began",
        "call",
        "cause",
        "ctx",
        "current",
        "cut",
        "ended",
        "explored",
        "history",
        "loop",
        "members",
        "normal",
        "path",
        "run_state",
        "scope",
        "seconds",
        "snapshots",
        "start",
        "task",
        "terminated",
        "wall",
    )

    async def run(self) -> Result:
        """Execute and evaluate; adapt and repeat, until a condition stops the loop."""
        hook = self.loop.on_iteration
        try:
            initial_stop = await self.baseline() if self.ended is None else None
            # `begin` starts the next iteration and returns None, or returns the stop that prevents it.
            stop = self.recorded_stop() or initial_stop or self.begin()
            while stop is None:
                iteration = await self.iterate()
                # Recorded before the decision, which a resumed run makes again from the same record.
                iteration = self.commit(iteration)
                if hook is not None:
                    await self._call_hook("on_iteration", hook, iteration)
                stop = self.decide() or self.begin()
            return await self.finish(stop)
        except Suspended as question:  # the run continues when a person has answered
            self.suspend(question.stop)
            raise
        except asyncio.CancelledError:  # the task is cancelled, not the run: it can be resumed
            await self.abandon()
            raise

    async def iterate(self) -> Iteration:
        """Adapt the input, execute it and evaluate the output; a failure is part of the iteration."""
        loop, attempt = self.loop, self.attempt()
        call, ctx = attempt.call, attempt.ctx
        try:
            if attempt.stage == "adapt":
                # "round" replaces the input in the fingerprint: the input is the last iteration, which
                # is on record and may be long. Recorded fingerprints contain the word, so it stays.
                attempt.adapted(await call(ctx, "adapt", loop.adapt, self.history.last, "round"))
            output = await call(ctx, "execute", loop.execute, attempt.input)
            attempt.executed(loop.execute, output)
            if loop.evaluate is not None:
                attempt.evaluated(await call(ctx, "evaluate", loop.evaluate, attempt.output))
                if attempt.evaluation is not None and attempt.evaluation.undecided:
                    attempt.evaluation = settled(self, attempt.output, attempt.evaluation)
            if loop.sentences:
                attempt.stage = "until"
                attempt.evaluation = await judge_sentences(self, attempt.iteration(), self._view())
        except (StepError, Stopped, asyncio.CancelledError) as error:
            # A suspension or a lost journal passes: it ends the run, not the iteration.
            self._failed(attempt, error)
        return attempt.iteration()

    def __init__(self, loop: LoopDeclaration, value: Json, ctx: Context) -> None:
        self.loop = loop
        self.run_state = run = ctx.run
        # A step of a workflow has the name of its loop in its path already.
        named = ctx.path.rsplit("/", 1)[-1] == loop.name
        self.path = path = ctx.path if named else ctx.below(loop.name)
        self.current = value = self._typed_input(value)
        self.start = run.now()
        self.history = History()
        if run.redactor is not None:
            self.history.redact_with(run.redact)
        self.cut: Stopped | None = None
        self.cause: BaseException | None = None
        self.ended: Result | None = None
        self.terminated = False
        self.normal: tuple[Stop, History] | None = None
        self.explored = 0
        self.scope = Scope(loop.name, value, ctx.scope, path)
        self.snapshots: Snapshots | None = None
        self.task: asyncio.Task[object] | None = None
        self.members = loop.members
        self.asks = bool(loop.explore or loop.approve or loop.on_stall)
        if run.noise is not None and (sigma := run.noise.get(loop.name)) is not None:
            self.members = tuple(with_sigma(member, sigma) for member in loop.members)
        self.seconds, self.wall = loop.seconds, loop.wall
        spent, budget = NOTHING, loop.budget
        if run.replay is not None and (limits := run.replay.raised.get(path)):
            self.members = raised(self.members, limits)
            budget = raised_budget(budget, limits) if budget is not None else None
        if run.tuned is not None and (limits := run.tuned.of(path)):
            budget = self._retune(limits)
        if run.replay is not None:
            spent = run.replay.spent(path)
            self._restore(run.replay)
        self.account = Account(path, ctx.account, budget, spent)
        if run.replay is not None and self.account.limited:
            self.history.effects = self.account.effects
        if budget is not None and loop.unbound:
            run.warn(loop.unbound, code=CANNOT_BIND)
        self.ctx = Context(run, path, None, self.account, self.scope)
        self.ctx.gate = self._deadlines(ctx.gate)
        declared, output_type = self.types
        self.scope.types = (_carried(declared), _carried(output_type))
        # Context.call makes the same choice for each call; here it is made once.
        self.call: Call = Context.call
        if loop.plain:
            unread = run.silent and self.ctx.gate is None and not self.account.limited
            self.call = unrecorded if unread else recorded
        if not run.silent and self.ended is None:
            run.open_loops[path] = self

    def _retune(self, limits: Mapping[str, Json]) -> Budget | None:
        """Change the conditions as a person set their limits; return the new budget."""
        self.members = tuned(self.members, limits)
        self.seconds, self.wall = time_limits(self.members)
        return tightest(*(c for c in self.members if isinstance(c, Budget)))

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Change limits of the running loop; its next decision and its next calls use them.

        The caller cuts calls in flight that a new limit of time ends.
        """
        self.account.set_cap(self._retune(limits))
        gate = self.ctx.gate
        own = gate is not None and gate.owner == self.path
        outer = gate.outer if gate is not None and own else gate
        scope = self._deadlines(outer)
        if gate is not None and own:
            gate.move(None if scope is outer else scope)  # calls in flight wait at this object
        else:
            self.ctx.gate = scope

    def refresh(self) -> None:
        """Read the budgets above again, after a person changed one."""
        self.account.refresh()

    def _failed(
        self, attempt: Attempt, error: StepError | Stopped | asyncio.CancelledError
    ) -> None:
        """Let the attempt fail, or cut it."""
        attempt.failed(error)
        if self._take_back_cancellation():
            # The caller of the run cancelled its task too, which has priority over a limit.
            raise asyncio.CancelledError

    def _take_back_cancellation(self) -> bool:
        """Take back the cancellation by which a limit of time cut this loop: only the loop ends, not its task.

        Returns:
            Whether the task is being cancelled by its caller as well.
        """
        run, task = self.run_state, self.task
        if run.timed is None or run.timed.owner != self.path or task is None:
            return False
        run.timed = None
        return task.uncancel() > 0 and run.cancelled is None

    def _deadlines(self, outer: DeadlineScope | None) -> DeadlineScope | None:
        """Return the deadlines and guards around the iterations: the loop's own within the outer ones."""
        loop = self.loop
        if self.seconds == math.inf and self.wall == math.inf and not loop.watched:
            return outer
        # The sentences of the conditions at their limit, for calls that are cancelled there.
        last = History(elapsed=self.seconds, now=self.wall)
        limits = [c for c in self.members if isinstance(c, Timeout | Deadline)]
        stops = {stop.reason: stop for c in limits if (stop := c.check(last)) is not None}
        return DeadlineScope(
            self.path,
            outer,
            deadline=self.start + self.seconds,
            stop=stops.get(Reason.TIMEOUT),
            wall=self.wall,
            wall_stop=stops.get(Reason.DEADLINE),
            guards=loop.watched,
            view=self._view,
        )

    def _view(self) -> History:
        """Return the history as a guard sees it during an iteration: with the time and usage of now."""
        run = self.run_state
        history = self.history.at_time(
            elapsed=run.now() - self.start, usage=self.account.settled, now=run.clock.wall()
        )
        history.effects = self.account.effects
        return history

    def _restore(self, replay: RecordedRun) -> None:
        """Restore the recorded iterations, and the recorded end."""
        # Only the condition on the wall clock reads it.
        wall = self.run_state.clock.wall() if self.wall < math.inf else 0.0
        began = replay.began(self.path)
        if began is not None:
            self.start = began
        usage, would_stop = NOTHING, replay.would_stop.get(self.path)
        for entry in replay.records.get(self.path, ()):
            record = self._typed_record(entry.value)
            usage += record.usage
            self.history = self.history.with_iteration(record, entry.seconds, usage, wall)
            self.current = self.scope.current = record.input
            self.scope.number = record.number
            # The `seconds` of an iteration are those of its loop, so this is the loop's beginning.
            self.start = entry.at - entry.seconds
            self.cut = _cut_of(entry) or self.cut
            self.explored += record.explored
            if would_stop is not None and record.number == would_stop["iterations"]:
                self.normal = Stop.from_json(would_stop["stop"]), self.history
        self.scope.history = self.history
        ended = replay.ended.get(self.path)
        if ended is not None:
            self._return_to_normal_end()
            stop = Stop.from_json(ended["stop"])
            spent, reported = replay.spent(self.path), ended.get("reported_score")
            output = self._typed_output(ended["output"])
            result = self._result(stop, output, spent, reported)
            more = {name: ended.get(name) for name in ("workspace", "held_out")}
            self.ended = replace(result, **more)
            self.terminated = True
            cut = ended.get("cut")
            self.cut = cut and Stopped(cut["owner"], Stop.from_json(cut["stop"]))
            self._show(self.ended)

    # Values of declared types: those of `execute`, live and replayed.

    def _typed_input(self, value: Json) -> Json:
        """Return an input with the type that `execute` declares; a value may carry another one."""
        declared = self.loop.input_type
        return value if declared is None else declared.attach(value)

    def _typed_output(self, value: Json) -> Json:
        declared = self.loop.output_type
        return value if declared is None else declared.attach(value)

    def _typed_record(self, record: Iteration) -> Iteration:
        """Return a recorded iteration with the declared types of its input and output.

        Raises:
            ReplayMismatch: if the output no longer fits.
        """
        declared, output_type = self._type_of_input(record), self.types[1]
        if (declared is None or declared.is_json) and (output_type is None or output_type.is_json):
            return record
        value, output = json_of(record.input), json_of(record.output)
        if declared is not None:
            value = declared.attach(value)
        if output_type is not None and output is not None:
            output = retyped(output_type, output, f"{self.path}/{record.number}")
        return replace(record, input=value, output=output)

    @property
    def types(self) -> tuple[ValueType | None, ValueType | None]:
        """The declared types of the input and the output of an iteration."""
        return self.loop.iteration_types

    def _type_of_input(self, record: Iteration) -> ValueType | None:
        """Return the type of a recorded input.

        Without a declaration, the input has the type of the loop's input, or of the output of adapt.
        """
        declared, adapt = self.loop.input_type, self.loop.adapt
        if declared is not None:
            return declared
        if adapt is None or record.number == 1:
            return getattr(self.scope.initial, "type", None)
        return adapt.output_type

    # The lines of `run` and `iterate`.

    def recorded_stop(self) -> Stop | None:
        """Return why the loop ends after the iterations in the journal, or None if it continues."""
        if (result := self.ended) is not None:
            return Stop(result.reason, result.detail, result.also)
        if self.history.last is None or self._went_on():
            return None
        return self.decide()

    def _went_on(self) -> bool:
        """Whether the next iteration had begun, so that the decision was to continue.

        It is not made again where a limit changed since: the live run did not make it again either.
        """
        run = self.run_state
        if run.tuned is None or run.replay is None or self.cut is not None:
            return False
        return run.replay.began(f"{self.path}/{self.next_number()}") is not None

    async def baseline(self) -> Stop | None:
        """Evaluate the input of a loop with a baseline; return the stop if no iteration is needed or possible."""
        loop = self.loop
        if not loop.baseline or loop.evaluate is None:
            return None
        return await evaluate_input(self, loop.evaluate)

    def decide(self) -> Stop | None:
        """Return why the loop ends after its latest iteration, or None if it continues.

        Raises:
            Suspended: if a person decides and has not answered yet.
        """
        # The record of an iteration that was cut short is incomplete, so it does not decide.
        if self.cut is not None:
            return self.cut.stop
        if self.normal is not None:
            return self.loop.at_limit(self.history, self.members)
        stop = self.loop.decide(self.history, self.members)
        return self._reconsidered(stop) if self.asks else stop

    def _reconsidered(self, stop: Stop | None) -> Stop | None:
        """Return the stop of a loop that explores, or that asks a person."""
        if stop is not None and self.loop.explore and self._explores(stop):
            return self.loop.at_limit(self.history, self.members)
        stall = self.loop.on_stall
        stalled = stall is not None and stall.then == "ask" and stall.restarts_now(self.history)
        if self.loop.approve or stalled:
            return approved(self, stop, stalled=stalled)
        return stop

    def _explores(self, stop: Stop) -> bool:
        """Whether the loop continues after its normal end; that end is recorded then."""
        run = self.run_state
        # Without a journal, no replay could use the iterations.
        if run.silent or not may_continue(stop) or not explores(run.run_id, self.loop.explore):
            return False
        self.normal = stop, self.history
        value = {"stop": run.cleaned_stop(stop).to_json(), "iterations": len(self.history)}
        run.append(Entry("would_stop", self.path, run.now(), value=value))
        return True

    def _return_to_normal_end(self) -> None:
        """Restore the history of the normal end: what was explored has no effect on the result."""
        if self.normal is not None:
            _, self.history = self.normal
            self.scope.history = self.history
            # A limit that the exploration reached did not cut the loop itself.
            if self.cut is not None and self.cut.owner == self.path:
                self.cut = None

    def begin(self) -> Stop | None:
        """Begin the next iteration and return None, or return the stop that prevents it."""
        try:
            self.admit(self.next_number())
        except Stopped as cut:
            self.cut = cut
            return cut.stop
        return None

    def next_number(self) -> int:
        """Return the number of the next iteration."""
        return self.scope.number + 1

    def admit(self, number: int) -> None:
        """Begin iteration `number`, or continue one that began before a crash.

        Raises:
            Stopped: if a deadline, a guard, a budget or a cancellation prevents it; then nothing of it
                is recorded.
        """
        run, gate, replay = self.run_state, self.ctx.gate, self.run_state.replay
        if run.cancelled is not None:
            raise Stopped("", run.cancelled)
        path = f"{self.path}/{number}"
        began = None if replay is None else replay.began(path)
        # One that began before the crash was admitted then; the limits apply to its next new effect.
        if began is None:
            if gate is not None:
                gate.check(run)
            if self.account.capped:
                self.account.admit()
            began = run.now()
        self.began = began
        self._place(number, path)

    def _place(self, number: int, path: str) -> None:
        """Set the context of iteration `number`; a loop runs one at a time, so all share one context."""
        ctx, replay = self.ctx, self.run_state.replay
        self.scope.number, self.scope.parts = number, None
        if (stall := self.loop.on_stall) is not None:
            self.scope.restarts = stall.restarts_after(self.history)
        # Changed in place: steps get children of this context, never the context itself.
        ctx.path, ctx.spent = path, NOTHING
        # The recorded usage of this iteration counts for it, whether or not its effects are replayed.
        self.account.iteration_usage = NOTHING if replay is None else replay.spent(path)

    def attempt(self) -> Attempt:
        """Return the iteration that was begun, with the input of the last one or of a person."""
        replay, value = self.run_state.replay, self.current
        if not self.run_state.silent:
            self.task = asyncio.current_task()
        adapts = self.loop.adapt is not None and self.scope.number > 1
        if replay is not None and (answer := f"{self.ctx.path}/input") in replay.answers:
            # A person wrote it in place of adapt.
            value, adapts = self._typed_input(replay.answers[answer]), False
        self.attempted = Attempt(self.ctx, value, self.began, adapts, self.call)
        return self.attempted

    def commit(self, iteration: Iteration) -> Iteration:
        """Commit the iteration of the latest attempt to the journal and the history; return its record."""
        if (metrics := self.loop.measured) is not None:
            iteration = metrics.judged(iteration, self.history, self.scope.baseline)
        run, attempt = self.run_state, self.attempted
        if self.normal is not None:
            iteration = replace(iteration, explored=True)
            self.explored += 1
        self.current = attempt.input
        if attempt.cut is not None:
            self.cut = attempt.cut
        elif attempt.failure is not None:
            self.cause = attempt.cause
        elapsed = attempt.ended - self.start
        wall = run.clock.wall() if self.wall < math.inf else 0.0
        if not run.silent:
            if self._take_back_cancellation():  # a step that went on although it was cancelled
                raise asyncio.CancelledError
            self.task = None  # from here, no limit of time cuts it
            entry = Entry("iteration", self.path, attempt.ended, iteration)
            entry.seconds = elapsed
            if (cut := attempt.cut) is not None:
                entry.error = Failure("", cut.stop.reason.value, cut.stop.detail, cut.owner)
            run.append(entry)
            if not iteration.explored:
                run.note(iteration)
        else:
            run.iterations += 1
        # Without a limit, effects of earlier processes are not counted.
        effects = self.account.effects if self.account.limited else 0
        self.history = self.scope.history = self.history.with_iteration(
            iteration, elapsed, self.account.settled, wall, effects
        )
        return iteration

    async def finish(self, stop: Stop) -> Result:
        """Record how the loop ended, unless the journal has it, and return its result.

        Raises:
            Stopped: if a guard of an outer loop or a cancellation ended it.
        """
        if self.ended is None:
            if self.normal is not None:
                stop, _ = self.normal
                self._return_to_normal_end()
            await self._end(stop)
        if not self.run_state.silent:
            self.run_state.open_loops.pop(self.path, None)
        # The end of this loop is recorded; the outer loop that stopped it ends too.
        if self.cut is not None and self.cut.owner != self.path:
            raise self.cut
        assert self.ended is not None
        return self.ended

    async def _end(self, stop: Stop) -> None:
        """Record how the loop ended, with the owner of the guard if that is not this loop."""
        loop, run, cut, reported = self.loop, self.run_state, self.cut, None
        stop = loop.ending(stop, self.history)
        # A loop that was cut short must end now, without further votes.
        if loop.rejudge and cut is None:
            reported = await evaluate_output_again(self, stop, self._output(stop))
        remarks = list(loop.remarks(stop, self.history))
        stop = run.cleaned_stop(stop)
        for code, remark in remarks:
            run.warn(remark, self.path, code=code)
        result = self._result(stop, self._output(stop), self.account.settled, reported)
        if self.snapshots is not None:
            result = replace(result, held_out=await self.concluded(result))
            where = await self.snapshots.end(self.history, result, loop.keep)
            result = replace(result, workspace=where)
        if not run.silent:
            ended = {"name": loop.name, "stop": stop.to_json(), "output": result.output}
            if reported is not None:
                ended["reported_score"] = reported
            for name in ("workspace", "held_out"):
                if (value := getattr(result, name)) is not None:
                    ended[name] = value
            if cut is not None and cut.owner != self.path:
                ended["cut"] = {"owner": cut.owner, "stop": cut.stop.to_json()}
            run.append(Entry("ended", self.path, run.now(), value=ended))
        self._register(result)
        # Set before the hook is called, so that a cancellation during the hook keeps this end.
        self.ended = result
        if loop.on_terminate is not None:
            await self._terminated()

    async def concluded(self, result: Result) -> Mapping[str, Json] | None:
        """Return what the conclusions of the evaluator returned; a loop with a workspace has them."""
        return None

    async def abandon(self) -> None:
        """Call `on_terminate` when the task of the loop is cancelled; the run can be resumed."""
        if self.ended is None:
            stop = Stop(Reason.CANCELLED, "the task that ran it was cancelled")
            self.ended = self._result(stop, self._output(stop), self.account.settled)
        await self._terminated(at_once=True)

    async def _terminated(self, *, at_once: bool = False) -> None:
        """Call `on_terminate` with the result, once."""
        hook = self.loop.on_terminate
        if hook is not None and self.ended is not None and not self.terminated:
            await self._call_hook("on_terminate", hook, self.ended, at_once=at_once)

    def suspend(self, stop: Stop) -> None:
        """Show the progress of a suspended loop; it has not ended, so nothing is recorded."""
        if not self.run_state.silent:
            self.run_state.open_loops.pop(self.path, None)
        stop = self.run_state.cleaned_stop(stop)
        self._register(self._result(stop, self._output(stop), self.account.settled))

    def _output(self, stop: Stop) -> Json:
        history = self.history
        satisfied = stop.reason.status is Status.SATISFIED
        if satisfied and stop.reason is not Reason.IMPROVED and history.last is not None:
            return history.last.output
        chosen = history.latest_eligible if self.loop.keep == "last" else history.best
        if chosen is None:  # an output without a verdict is better than none
            others = (item for item in reversed(history) if not item.rejected)
            chosen = next((item for item in others if item.output is not None), None)
        return chosen.output if chosen is not None else None

    def _result(
        self, stop: Stop, output: Json, usage: Usage, reported: float | None = None
    ) -> Result:
        return Result(
            status=stop.reason.status,
            reason=stop.reason,
            detail=stop.detail,
            output=output,
            history=self.history,
            usage=usage,
            run_id=self.run_state.run_id,
            name=self.loop.name,
            also=stop.also,
            seconds=self.history.elapsed,
            reported_score=reported,
            explored_iterations=self.explored,
            error=(error := failure_of(stop, self.history)),
            cause=self.cause if error is not None else None,
        )

    def _register(self, result: Result) -> None:
        self._show(result)
        self.run_state.loops.keep(self.path, result)

    def _show(self, result: Result) -> None:
        if self.scope.parent is not None:
            self.scope.parent.keep_loop(self.loop.name, result)

    async def _call_hook(
        self, name: str, hook: Callable[..., object], record: Record, *, at_once: bool = False
    ) -> None:
        """Call a hook once the record is durable, or `at_once` while the task is being cancelled.

        A hook observes the loop and cannot change it: an exception in it is a warning, and a
        cancellation of the run ends it.
        """
        run = self.run_state
        try:
            if not at_once:
                await run.settled()
            self.terminated = self.terminated or name == "on_terminate"
            try:
                answer = hook(record.view())
                if inspect.isawaitable(answer):
                    await answer
            except GeneratorExit:  # the event loop is closing
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and being_cancelled():
                    raise
                text = f"{name} failed: {error_line(error, run.redact)}"
                run.warn(text, self.path, code="hook_failed")
        except asyncio.CancelledError:
            if run.cancelled is None:
                raise


def _carried(declared: ValueType | None) -> ValueType | None:
    """Return a type that values carry; those of JSON types only are written like untyped values."""
    return None if declared is None or declared.is_json else declared


def _cut_of(entry: Entry) -> Stopped | None:
    """Return what interrupted a recorded iteration: the reason and the owner of the guard."""
    error = entry.error
    if error is None:
        return None
    return Stopped(error.path, Stop(Reason(error.kind), error.message))
