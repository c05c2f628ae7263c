"""A loop: its run, and its decision after each iteration; `loop_options` has what it declares.

1. Each iteration is one record, failed or not. The record is committed before the decision.
2. Each output is evaluated, and adapt is the first step of the next iteration: n iterations adapt n-1
   times.
3. Conditions are checked after each record. Limits of time and cost are also checked before each effect.
4. A loop that reaches a limit has a result, with the best output, the history and the reason.

`LoopRun.run` and `LoopRun.iterate` are the loop; each other function is a detail of one of their lines.
`_restore`, `recorded_stop` and `admit` restore the state in the journal. A subclass runs another kind of loop with
the same record and the same rules: `ListRun` chooses the next number, the input and the decision, and
`WorkspaceLoopRun` puts files in place. Each `Attempt` has a context, so that several can run at a time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from ..conditions import (
    FEEDBACK_SHOWN,
    AllCriteriaMet,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    Impossible,
    OnStall,
    Passed,
    Timeout,
    TreeReading,
    check_safely,
    from_json,
    named,
    prefer,
    raised,
    raised_budget,
    tag_of,
    tampering_stop,
    tightest,
    time_limits,
    tuned,
    with_sigma,
)
from ..errors import (
    BROKEN_EVALUATOR,
    LoopwrightWarning,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
)
from ..journal import Entry
from ..records import (
    NOTHING,
    Evaluation,
    Failure,
    History,
    Iteration,
    Origin,
    Reason,
    Record,
    Result,
    Status,
    Stop,
    Usage,
    begin_at,
    failure_of,
)
from ..records.codec import Json, error_line
from ..records.display import shortened
from ..records.typed import ValueType, json_of
from .budgets import CANNOT_BIND, Account
from .context import Context, Scope
from .deadlines import DeadlineScope
from .effects import being_cancelled, journaled, recorded, retyped, unrecorded
from .files import Snapshots
from .iteration import (
    Attempt,
    Call,
    approved,
    evaluate_input,
    evaluate_output_again,
    judge_sentences,
    settled,
)
from .loop_options import (
    NO_GOAL,
    NO_GOAL_SENTENCE,
    RULES,
    LoopDeclaration,
    LoopOptions,
    Undecided,
    explores,
    may_continue,
)
from .step import (
    AsyncFunction,
    CompositeStep,
    EvaluatorLike,
    In,
    Out,
    Step,
    StepLike,
)

if TYPE_CHECKING:
    from ..journal.replay import RecordedRun
    from ..search.optimise import Proposals
    from .loop_options import LoopKeywords
    from .metrics import LoopMetrics
    from .plan import Policies

__all__ = [
    "Loop",
    "LoopRun",
    "any_of",
    "loop_of_rules",
    "origin_from",
]


class LoopRun:
    """The run of one loop.

    `history` holds the recorded iterations, `attempted` is the latest iteration. `members` are the
    conditions, with the limits that a person changed; `seconds` and `wall` are its limits of time. `task`
    executes an iteration now. `cut` is the guard or the cancellation that ended the last iteration early or
    prevented one. `cause` is the exception of the last iteration that failed in this process. `asks` says
    whether its decision is more than that of its conditions. `normal` is the normal end of a loop that
    explores, with its history then, and `explored` counts the iterations since. `ended` is the result once
    the loop has ended, and `terminated` says whether `on_terminate` was called.
    """

    __slots__ = (
        "account",
        "asks",
        "attempted",
        "began",
        "call",
        "cause",
        "ctx",
        "cut",
        "duels",
        "ended",
        "explored",
        "history",
        "loop",
        "members",
        "normal",
        "path",
        "proposals",
        "run_state",
        "scope",
        "seconds",
        "snapshots",
        "start",
        "task",
        "terminated",
        "wall",
    )
    proposals: Proposals | None  # of the optimiser that takes the place of adapt

    async def run(self) -> Result:
        """Execute and evaluate; adapt and repeat, until a condition stops the loop."""
        hook = self.loop.on_iteration
        try:
            initial_stop = await self.baseline() if self.ended is None else None
            # `begin` starts the next iteration and returns None, or returns the stop that prevents it.
            if self.loop.hints is not None:
                await self._take_hints(self.loop.hints["event"])
            stop = self.recorded_stop() or initial_stop or self.begin()
            while stop is None:
                iteration = await self.iterate()
                # Recorded before the decision, which a resumed run makes again from the same record.
                iteration = self.commit(iteration)
                if hook is not None:
                    await self._call_hook("on_iteration", hook, iteration)
                if self.loop.hints is not None:
                    await self._take_hints(self.loop.hints["event"])
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
        call, ctx, inputs, count = attempt.call, attempt.ctx, None, 1
        if loop.candidates is not None:
            from .candidates import Round, count_of  # for the few loops that have them

            count = count_of(self)
        try:
            if attempt.stage == "adapt" and loop.optimise is not None:
                self.proposals = self.proposals or loop.optimise.begin(self)
                inputs = await self.proposals.inputs(self, attempt, count)
                attempt.adapted(inputs[0])
            elif attempt.stage == "adapt":
                # "round" replaces the input in the fingerprint: the input is the last iteration, which
                # is on record and may be long. Recorded fingerprints contain the word, so it stays.
                # After a new beginning, adapt gets a record of the input with the number 0.
                parent = self.scope.continued or Iteration(
                    0, self.scope.initial, evaluation=self.scope.baseline
                )
                attempt.adapted(await call(ctx, "adapt", loop.adapt, parent, "round"))
            if count > 1:
                await Round(self, attempt, count, inputs).run()
            else:
                output = await call(ctx, "execute", loop.execute, attempt.input)
                attempt.executed(loop.execute, output)
                if loop.evaluate is not None:
                    attempt.evaluated(await call(ctx, "evaluate", loop.evaluate, attempt.output))
                    if attempt.evaluation is not None and attempt.evaluation.undecided:
                        attempt.evaluation = settled(self, attempt)
            if loop.measured is not None and loop.measured.confirm is not None:
                from .confirming import confirmed

                attempt.evaluation = await confirmed(self, attempt.iteration())
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
        value = self._typed_input(value)
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
        self.proposals = None
        self.scope = Scope(loop.name, value, ctx.scope, path)
        if loop.measured is not None:
            self.compare_with(None)
        self.snapshots: Snapshots | None = None
        # Whether the judge of each duel so far named one position in both orders, by path.
        self.duels: dict[str, bool] | None = None
        self.task: asyncio.Task[object] | None = None
        self.members = loop.members
        self.asks = bool(loop.explore or loop.approve or loop.on_stall)
        if run.noise is not None and (sigma := run.noise.get(loop.name)) is not None:
            self.members = tuple(with_sigma(member, sigma) for member in loop.members)
        self.seconds, self.wall = loop.seconds, loop.wall
        spent, budget = NOTHING, loop.budget
        if run.replay is not None and (limits := run.replay.raised.get(path)):
            used = len(run.replay.records.get(path, ()))
            self.members = raised(self.members, limits, used)
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
        self.ctx = Context(run, path, self._deadlines(ctx.gate), self.account, self.scope)
        self.scope.declare(*self.types)
        # Context.call makes the same choice for each call; here it is made once.
        self.call: Call = Context.call
        if loop.plain:
            self.call = recorded
            if (
                self.ctx.gate is None
                and not self.account.limited
                and (run.silent or run.unobserved)
            ):
                self.call = unrecorded if run.silent else journaled
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
        return run.take_back(task)

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
            self.scope.restore(record)
            # The `seconds` of an iteration are those of its loop, so this is the loop's beginning.
            self.start = entry.at - entry.seconds
            # The reason and the owner of the guard that interrupted it.
            if (error := entry.error) is not None:
                self.cut = Stopped(error.path, Stop(Reason(error.kind), error.message))
            self.explored += record.explored
            if would_stop is not None and record.number == would_stop["iterations"]:
                self.normal = Stop.from_json(would_stop["stop"]), self.history
        self.scope.record(self.history)
        self.scope.hint(replay.steered.get(f"{self.path}/{self.scope.number}", ()))
        ended = replay.ended.get(self.path)
        stall = self.loop.on_stall
        fresh = stall is not None and stall.then == "fresh" and len(self.history) > 1
        # In runs of earlier versions, `fresh` had another meaning, and no plan was recorded.
        if ended is None and fresh and f"{self.path}/2/plan" not in replay.plans:
            raise ReplayMismatch(
                f"{self.path}: on_stall: then: fresh meant the last iteration when this run was recorded, and now means "
                "the beginning; write then: last to go on as before",
                path=self.path,
                recorded="last",
                now="fresh",
            )
        if ended is not None:
            self._return_to_normal_end()
            stop = Stop.from_json(ended["stop"])
            spent, reported = replay.spent(self.path), ended.get("reported_score")
            output, declared = ended["output"], self.loop.output_type
            if declared is not None:
                output = declared.attach(output)
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
        if self.history.last is None:
            return None
        tuned, replay = self.run_state.tuned, self.run_state.replay
        # The next iteration had begun, so that the decision was to continue. It is not made again
        # where a limit changed since: the live run did not make it again either.
        if (
            tuned is not None
            and replay is not None
            and self.cut is None
            and replay.began(f"{self.path}/{self.next_number()}") is not None
        ):
            return None
        return self.decide()

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
        stalled = False
        if stall is not None and stall.then == "ask":
            stalled = stall.stalled(self.history)
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
            self.scope.record(self.history)
            # A limit that the exploration reached did not cut the loop itself.
            if self.cut is not None and self.cut.owner == self.path:
                self.cut = None

    def begin(self) -> Stop | None:
        """Begin the next iteration and return None, or return the stop that prevents it."""
        try:
            self.admit(self.next_number())
        except Stopped as cut:
            return self.stop(cut)
        return None

    def stop(self, error: BaseException) -> Stop:
        """End by an interruption outside the iterations; return its stop. Raise one that is not of the run again."""
        self.cut = cut = self.run_state.stopped_by(error, self.path)
        return cut.stop

    def fail(self, error: StepError) -> Stop:
        """Fail before the first iteration, because the evaluator cannot judge; return the stop."""
        self.cause = error.__cause__
        detail = f"before the first iteration: {error}"
        return Stop(Reason.EVALUATOR_UNUSABLE, self.run_state.redact(detail))

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
        run, replay = self.run_state, self.run_state.replay
        self.scope.begin(number)
        self.ctx.at(path)
        if self.loop.policies is not None:
            self._plan(self.loop.policies, f"{path}/plan")
        if run.steering is not None or (replay is not None and replay.steered):
            self._read_hints(path)
        # The recorded usage of this iteration counts for it, whether or not its effects are replayed.
        self.account.iteration_usage = NOTHING if replay is None else replay.spent(path)

    def _plan(self, policies: Policies, path: str) -> None:
        """Decide from where the iteration continues: as it is recorded, if it is."""
        from .plan import Place, Plan, next_plan

        run, replay, history = self.run_state, self.run_state.replay, self.history
        policies = policies.ordered(run.orders.get(self.loop.name))
        if replay is not None and (recorded := replay.plans.get(path)) is not None:
            plan = Plan.from_json(recorded)
        else:
            seed = f"{run.log.info.seed} {path}"
            plan = next_plan(history, policies, seed, explored=self.normal is not None)
            if len(history) and not run.silent:
                value, baseline = plan.to_json(), self.scope.baseline
                # A leaf has the evaluation of the input on record.
                if len(history) == 1 and baseline and isinstance(self.loop.evaluate, CompositeStep):
                    value["baseline"] = run.clean(baseline.to_json())
                # Durable with the first effect, so that it costs no commit.
                run.append(Entry("planned", path, run.now(), value=value))
        self.scope.stand(Place.of(plan, history, policies))

    def compare_with(self, baseline: Evaluation | None) -> None:
        """Set what the first iterations are compared with."""
        begin_at(self.history, origin_from(self.loop.measured, baseline))

    async def _take_hints(self, event: str) -> None:
        """Make hints of the events that came for a loop which declares them."""
        if self.ended is None:
            from .steering import take_hints

            await take_hints(self.run_state, self.path, event)

    def _read_hints(self, path: str) -> None:
        """Read the hints of people for an iteration: the recorded ones, if it began before."""
        run, replay = self.run_state, self.run_state.replay
        recorded = {} if replay is None else replay.steered
        hints: list[Json] = recorded.get(path, [])
        begun = path in recorded or (replay is not None and replay.began(path) is not None)
        if not begun and run.steering is not None:
            hints = run.clean(run.steering.read(self.path, path, self.scope.hints))
            if hints:
                # Durable with the first effect, so that it costs no commit.
                run.append(Entry("steered", path, run.now(), value=hints))
        self.scope.hint(hints)

    def attempt(self) -> Attempt:
        """Return the iteration that was begun, with the input of the last one or of a person."""
        replay, value = self.run_state.replay, self.scope.current
        if not self.run_state.silent:
            self.task = asyncio.current_task()
        proposes = self.loop.optimise is not None
        adapts = proposes or (self.loop.adapt is not None and self.scope.number > 1)
        place = self.scope.place
        if place is not None and place.fresh:
            value, adapts = self.scope.initial, proposes
            self.scope.receive(value)
        if replay is not None and (answer := f"{self.ctx.path}/input") in replay.answers:
            # A person wrote it in place of adapt.
            value, adapts = self._typed_input(replay.answers[answer]), False
            self.scope.receive(value)
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
        # The iterations of a case are no progress of the run.
        if not iteration.explored and self.scope.case is None:
            run.note(iteration)
        # Without a limit, effects of earlier processes are not counted.
        effects = self.account.effects if self.account.limited else 0
        self.history = self.history.with_iteration(
            iteration, elapsed, self.account.settled, wall, effects
        )
        self.scope.record(self.history)
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
            chosen = self._chosen(stop.reason)
            reported = await evaluate_output_again(self, stop, self._output(stop), chosen)
        remarks = list(loop.remarks(stop, self.history))
        stop = run.cleaned_stop(stop)
        for code, remark in remarks:
            run.warn(remark, self.path, code=code)
        result = self._result(stop, self._output(stop), self.account.settled, reported)
        if loop.evaluate is not None and (steps := tuple(loop.evaluate.conclusions())):
            result = replace(result, held_out=await self.concluded(steps, result))
        if self.snapshots is not None:
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

    async def concluded(self, steps: Iterable[Step], result: Result) -> Mapping[str, Json] | None:
        """Run the conclusions of the evaluator on the iteration of the result; their failure is a warning."""
        chosen, run = self.chosen(result), self.run_state
        if chosen is None or self.cut is not None:
            return None
        outputs: dict[str, Json] = {}
        self.ctx.at(f"{self.path}/end")
        for step in steps:
            try:
                outputs[step.name] = await self.ctx.call(step.name, step, chosen.number)
            except (StepError, Stopped) as error:
                run.warn(
                    f"{step.name}: the held-out tests did not run: {error}", code="not_held_out"
                )
        return outputs or None

    def chosen(self, result: Result) -> Iteration | None:
        """Return the iteration of the result; None for the beginning."""
        return self._chosen(result.reason)

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

    def _chosen(self, reason: Reason) -> Iteration | None:
        history = self.history
        satisfied = reason.status is Status.SATISFIED
        if satisfied and reason is not Reason.IMPROVED and history.last is not None:
            return history.last
        return history.latest_eligible if self.loop.keep == "last" else history.best

    def _output(self, stop: Stop) -> Json:
        history, chosen = self.history, self._chosen(stop.reason)
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
        # The loops of 100,000 cases would fill the memory.
        if self.scope.case is None:
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


def origin_from(metrics: LoopMetrics | None, baseline: Evaluation | None) -> Origin:
    """Return what the first iterations of a loop are compared with."""
    if metrics is not None and metrics.objective:
        return metrics.origin(baseline)
    return Origin(baseline, None if baseline is None else baseline.standing)


NOT_APPLICABLE = "condition_not_applicable"
PASSED_UNREAD = "passed_unread"
# A function without `return` is the usual cause.
EMPTY_EVALUATIONS = (
    "its evaluator returned neither a score nor a verdict, so it cannot be satisfied; return a score from 0 to 1, "
    "True or False, or an Evaluation"
)


class Loop(LoopOptions[In, Out]):
    """A loop: execute, evaluate and adapt, until a condition stops it.

    Args:
        execute: makes an output from an input. A function `f(input)` or `f(input, ctx)`, or any step.
        evaluate: judges an output. Returns a score from 0 to 1, True or False, or an Evaluation.
            Default: no evaluation.
        adapt: makes the next input from the last Iteration, failed or not. Default: the same input.
        until: conditions, of which any stops the loop, checked after each iteration. Default: the
            evaluation passes, if there is one. Without a limit, 10 iterations are the most.
        guards: conditions that are also checked before each effect inside the loop.
        name: its name in paths. Default: the name of `execute`.
        on_failure: `halt` stops the loop at the first error. `continue` records the error and adapts.
            `retry` tries the failed step again. An evaluator that cannot judge any output, such as
            tests without pytest, always stops the loop as `evaluator_unusable`.
        max_retries: the most further attempts of a step under `retry`.
        retry_delay: the longest wait before the first further attempt, in seconds; it doubles each time.
        keep: the output of an unsatisfied loop: the `best` one by score, or the `last` one.
        min_iterations: the iterations before a condition other than a limit may stop the loop.
        required: whether the workflow around it ends if it is not satisfied.
        max_failures: under `continue`, the failures in a row that stop the loop; None for no such limit.
        accept: those of the statuses `failed`, `exhausted` and `impossible` that do not count for the
            workflow around it.
        baseline: whether the input is evaluated before the first iteration. If it passes, the loop is
            satisfied without an iteration; templates have its feedback as `loop.feedback`.
        on_stall: what happens after iterations without progress, an `OnStall`, or only its word. Default: nothing.
        strategies: values by name, as `ctx.strategy`: each chain takes the next one. They need `on_stall`.
        strategy_order: `declared`, or `learned`: those first that improved the best iteration of past runs most
            often for their cost.
        refine_from: the iteration from which the next one continues: the `last` or the `best` one of its chain, one
            drawn by `sample` or `pareto`, or `{"rule": "sample", "power": 1.0, "fresh_share": 0.15}`.
            Default: `last`.
        candidates: how many outputs each iteration makes, of which one is chosen: a number, or `Candidates`. Default: 1.
        impossible: when evaluations that call the task impossible end the loop, an `Impossible`. Default: two
            in a row, from the third iteration on.
        undecided: what happens after evaluations in a row that could not decide, an `Undecided`. Default:
            the second one in a row ends the loop as `evaluator_unusable`.
        explore: the share of runs, from 0 to 1, that continue to the limits after their normal end; the run
            ID decides. Status, reason and output are those of the normal end. Replay uses the explored
            iterations. Default: 0.
        hints: `{"event": NAME}`: events of this name whose key is the ID of the run are hints, as those of `steer`.
            Default: no event is one.
        rejudge: how often the final output is evaluated again. The mean is the result's
            `reported_score`; the score by which the output was chosen is the highest of several.
        approve: when a person is asked whether to continue: after each `iteration`, at the `limit`, or
            both. The run is suspended until there is an answer.
        optimise: an `Optimise`: an optimiser that proposes the parameters of each candidate, in place of `adapt`.
            Default: none.
        metrics: how the loop orders and shows metrics of its evaluations, by name: `minimise`, `maximise`
            or a `Metric`. Default: they are recorded only.
        objective: the metric that orders the iterations: the best one, `patience`, acceptance. Of several, the
            first one does, and `Result.front` has the iterations that no other one is better than. Default: the
            only metric with a direction, else the score.
        confirm: a `Confirm`: an iteration is accepted only after a test of new measurements, of its output and of the
            last accepted one. The loop continues from the last accepted iteration. Default: one value decides.
        score: a `MetricScore`: the score that a metric makes. Default: a metric makes no score.
        min_score: the score that satisfies the loop, as `ScoreAtLeast`. This and the next six are joined
            with `until`, which must not name the same limit. Default of each: none.
        max_iterations: the most iterations, as `MaxIterations`.
        patience: the iterations in a row without a better score that stop the loop, as `NoImprovement`.
        max_calls: the most model calls, as `Budget`.
        max_total_tokens: the most input and output tokens together, as `Budget`.
        max_usd: the most US dollars, as `Budget`.
        timeout: the most active seconds, as `Timeout`.
        workspace: a `Workspace`: the folder in which its commands run, captured after each iteration and
            put back to the best one at the end. Default: that of the loop or workflow around it.
        on_iteration: called with each Iteration once it is durable. Its failure is a warning.
        on_terminate: called once with the Result, however the loop ends.

    Returns:
        A step. Its output is that of the iteration that satisfied it, else the one that `keep` names.

    Raises:
        ConfigurationError: for a contradictory or invalid option.

    Example:
        >>> from loopwright import Loop, MaxIterations, ScoreAtLeast, run_sync
        >>> loop = Loop(
        ...     lambda number: number * 2,
        ...     evaluate=lambda output: min(output / 10, 1.0),
        ...     adapt=lambda last: last.output,
        ...     until=ScoreAtLeast(0.8) | MaxIterations(5),
        ... )
        >>> result = run_sync(loop, 1)
        >>> result.output, result.reason.value, result.iterations
        (8, 'condition_met', 3)
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            execute: AsyncFunction[In, Out],
            evaluate: EvaluatorLike[Out] | None = ...,
            adapt: StepLike[Iteration[In, Out], In] | None = ...,
            until: Condition | None = ...,
            guards: Condition | None = ...,
            name: str = ...,
            **options: Unpack[LoopKeywords[In, Out]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            execute: StepLike[In, Out],
            evaluate: EvaluatorLike[Out] | None = ...,
            adapt: StepLike[Iteration[In, Out], In] | None = ...,
            until: Condition | None = ...,
            guards: Condition | None = ...,
            name: str = ...,
            **options: Unpack[LoopKeywords[In, Out]],
        ) -> None: ...
        def __init__(self, *arguments: object, **options: object) -> None: ...

    def run(self, value: Json, ctx: Context) -> Coroutine[object, object, Result]:
        """Run it to its end, from where the journal stands."""
        # The stages are steps since `__post_init__`.
        declaration = cast("LoopDeclaration", self)
        around = None if ctx.scope is None else ctx.scope.files
        # A dry run changes no files, so it needs none.
        if (self.workspace is None and around is None) or ctx.run.stubs is not None:
            return LoopRun(declaration, value, ctx).run()
        from .workspace_loop import WorkspaceLoopRun  # it derives from LoopRun

        return WorkspaceLoopRun(declaration, value, ctx, self.workspace, around).run()

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether the evaluation before the first iteration satisfies the loop."""
        first = History([Iteration(0, evaluation=evaluation)])
        answers = {sentence: evaluation.answer(sentence) for sentence in self.sentences}
        return TreeReading(self.members, first, answers, of_input=True).value() == "yes"

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop should end after its latest record, or None: a pure function.

        `members` are its conditions with the limits that a person raised; by default its own.
        """
        stops: list[Stop] | None = None
        # The rules about failures, judges and tampering concern only iterations that cannot satisfy.
        sound = history.can_satisfy
        if not sound:
            # Failures before conditions: a failed iteration has no evaluation to decide on.
            if (stop := self._failed(history) or self._undecidable(history)) is not None:
                return stop
            if (tampered := tampering_stop(history)) is not None:
                stops = [tampered]
        for condition in members or self.members:
            # Conditions of this package do not fail, and need no copies of the history.
            stop = condition.check(history) if condition.ours else check_safely(condition, history)
            if stop is None:
                continue
            # `min_iterations` delays conditions, but not limits and not the failure of a condition.
            if not condition.early or history.length >= self.min_iterations or stop.failure:
                stops = [stop] if stops is None else [*stops, stop]
        if self.on_stall is not None and (stalled := self.on_stall.check(history)) is not None:
            stops = [*(stops or []), stalled]
        if not sound and (given_up := self.impossible.check(history)) is not None:
            stops = [*(stops or []), given_up]
        if stops is None:
            return None
        if len(stops) == 1 and not stops[0].failure:
            return stops[0]
        preferred = prefer(stops)
        if preferred is not None and preferred.failure:
            return named(preferred, self.name)
        return preferred

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return the limit or the failure that ends a loop that explores, or None."""
        if (stop := self._failed(history)) is not None:
            return stop
        limits = (c for c in members or self.members if not c.early)
        return prefer([stop for c in limits if (stop := c.check(history)) is not None])

    def _failed(self, history: History) -> Stop | None:
        last = history[-1]
        error = last.error
        if error is None or last.interrupted:
            return None
        if error.kind == BROKEN_EVALUATOR and error.stage == "evaluate":
            return Stop(Reason.EVALUATOR_UNUSABLE, f"iteration {last.number}: {error.message}")
        if self.on_failure != "continue":
            return Stop(Reason.ERROR, f"iteration {last.number}: {error.stage}: {error.message}")
        if self.max_failures is not None and history.failures >= self.max_failures:
            detail = (
                f"{history.failures} iterations in a row failed, the last with: {error.message}"
            )
            return Stop(Reason.REPEATED_FAILURE, detail)
        return None

    def _undecidable(self, history: History) -> Stop | None:
        undecided = history.undecided
        if undecided < self.undecided.after:
            return None
        detail = f"the evaluation was undecided {undecided} times in a row"
        last = history[-1]
        verdicts = None if last.evaluation is None else last.evaluation.verdicts
        unread = [v["feedback"] for v in (verdicts or {}).values() if v["passed"] is None]
        # The answer to a sentence, else the feedback of the iteration.
        why = shortened(" ".join([*unread, last.feedback][0].split()), FEEDBACK_SHOWN)
        return Stop(Reason.EVALUATOR_UNUSABLE, f"{detail}: {why}" if why else detail)

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return the stop to report: if every iteration failed, the loop failed, whatever ended it."""
        if stop.reason.status is not Status.EXHAUSTED or history.last is None:
            return stop
        if history.last.error is None or history.failures < len(history):
            return stop
        failed = [item for item in history if not item.interrupted]
        if not failed:
            return stop
        last = failed[-1].feedback
        detail = f"all {len(failed)} iterations failed, the last with: {last}"
        if len(failed) == 1:
            detail = f"its only iteration failed: {last}"
        return Stop(Reason.ALL_FAILED, detail, (stop.reason, *stop.also))

    def _passed_unread(self, stop: Stop, history: History) -> int | None:
        """Return the first iteration that passed and did not end the loop, if no condition reads that; or None."""
        if self._optimises or not self.goals or any(map(_reads_verdict, self.members)):
            return None
        waits = max(self.min_iterations, *(getattr(c, "min_iterations", 1) for c in self.goals))
        ended = history.length if stop.satisfied else 0
        passed = (item.number for item in history if item.passed is True and item.can_satisfy)
        return next((number for number in passed if number >= waits and number != ended), None)

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over warnings, each a code and a sentence, on conditions of success that could not hold.

        No evaluation had the field that such a condition reads, or none reads the verdict that one had.
        """
        if (number := self._passed_unread(stop, history)) is not None:
            yield (
                PASSED_UNREAD,
                (
                    f"iteration {number} passed its evaluation, and no condition reads that, so the loop went on; add "
                    "passed to until, if it should end"
                ),
            )
        if stop.reason is not Reason.MAX_ITERATIONS and (
            self.has_goal or stop.reason.status is not Status.EXHAUSTED
        ):
            return
        if history.best is None:
            return
        items = list(history)
        if any(goal.applies_to(item) and item.eligible for item in items for goal in self.goals):
            return
        evaluations = [item.evaluation for item in items if item.evaluation is not None]
        scored = any(evaluation.score is not None for evaluation in evaluations)
        judged = any(evaluation.passed is not None for evaluation in evaluations)
        empty = not scored and not judged and not any(one.metrics for one in evaluations)
        for goal in self.goals:
            if self.evaluate is not None and empty:
                yield NOT_APPLICABLE, EMPTY_EVALUATIONS
                return
            # A score without a verdict: the loop lacks the score that is enough.
            if not self.has_goal or (isinstance(goal, Passed) and scored):
                yield NO_GOAL, NO_GOAL_SENTENCE
                continue
            lack = (
                "it has no evaluate" if self.evaluate is None else f"no iteration had {goal.reads}"
            )
            yield NOT_APPLICABLE, f"{lack}, so {tag_of(type(goal))} could not hold"


def _reads_verdict(condition: Condition) -> bool:
    """Return whether a condition may read `passed`."""
    if not condition.ours or isinstance(condition, Passed | AllCriteriaMet):
        return True
    return any(map(_reads_verdict, condition.parts()))


class ReplayedLoop(Loop):
    """A loop that decides about records only: its declaration was checked when it ran."""

    replayed = True


def replayed(loop: Loop, **options: Any) -> Loop:
    """Return a loop with other options, for decisions about records only."""
    known = {one.name: getattr(loop, one.name) for one in dataclasses.fields(loop) if one.init}
    return ReplayedLoop(**{**known, **options})


def loop_of_rules(name: str, rules: Mapping[str, Json]) -> Loop:
    """Return a loop that ends as the one whose `rules` were recorded; its steps do nothing.

    Raises:
        ConfigurationError: for a condition that is not JSON, as a class of a Python program.
    """
    from .confirmation import Confirm
    from .metrics import Metric

    read: Mapping[str, Callable[[Any], object]] = {
        "until": from_json,
        "guards": from_json,
        "metrics": lambda metrics: {
            name: Metric(**item) if isinstance(item, Mapping) else item
            for name, item in metrics.items()
        },
        "confirm": lambda fields: Confirm(**fields),
        "on_stall": lambda fields: OnStall(**fields),
        "impossible": lambda fields: Impossible(**fields),
        # What happens then is in the record.
        "undecided": lambda fields: Undecided(fields["after"]),
    }
    options: dict[str, Any] = {
        key: read[key](value) if key in read else value
        for key, value in rules.items()
        if key in RULES
    }
    with warnings.catch_warnings():
        # The remarks are for loops that run.
        warnings.simplefilter("ignore", LoopwrightWarning)
        return ReplayedLoop(
            _nothing, _nothing if rules.get("evaluate") else None, name=name, **options
        )


def _nothing(value: Json) -> None:
    """Stand for a step of a loop that does not run."""


def any_of(*conditions: Condition | None) -> Condition | None:
    """Return the conditions joined by "or", without the missing ones; None if there is none."""
    present = tuple(c for c in conditions if c is not None)
    return None if not present else present[0] if len(present) == 1 else AnyOf(present)
