"""A step's place in the run, and the one way in which it acts.

Rules of the context:

1. A step acts only through `ctx.call`. The journal is read before anything acts.
2. Deadlines, budgets and guards chain from the outermost loop inwards: an outer one binds everything
   inside it.
3. Only leaves are effects. A composite step is replayed by running it again.

Rules of an effect, in `_perform`:

4. Nothing acts before its "started" entry is durable.
5. The recorded output is the output: it is normalised before anyone reads it.
6. A cancelled effect is not recorded as finished. What it may have cost is settled all the same.
7. Secrets are removed here, before the output is returned, so that the live run, the journal and a
   replay have the same value.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, ClassVar, cast

from ..errors import (
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
)
from ..journal import Entry, is_note
from ..records import (
    NOTHING,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Usage,
    codec,
    own,
    own_json,
)
from ..records.codec import ATOMS, Json
from ..records.result import key_of
from ..records.typed import ValueType, json_of
from .budget import OVERSHOOT, Account
from .deadlines import DeadlineScope
from .run_state import Run
from .scope import Scope
from .signatures import ANNOTATION_UNREADABLE, UNTYPED_OUTPUT
from .step import CompositeStep, In, Leaf, Out, Step
from .stubs import acting

__all__ = ["Context", "being_cancelled", "retyped", "unrecorded"]


class Context:
    """A step's place in the run. A function with two parameters receives it as the second.

    Use `call` for every action of a composite function, `ask` to wait for a person, `spend` to report
    costs, and `history`, `last`, `outputs`, `initial` and `input` to read what has happened. The loop
    that a property refers to is the nearest one around the step.

    Example:
        >>> from loopwright import Context, run_sync
        >>> async def double(value: int) -> int:
        ...     return 2 * value
        >>> async def twice(value: int, ctx: Context) -> int:
        ...     first = await ctx.call("first", step(double), value)
        ...     return await ctx.call("second", step(double), first)
        >>> from loopwright import step
        >>> run_sync(twice, 3).output
        12
    """

    __slots__ = ("account", "gate", "names", "path", "run", "scope", "spent")
    _typed: ClassVar[bool] = False  # whether its reader receives values in their declared types
    _own = staticmethod(own_json)

    def __init__(
        self, run: Run, path: str, gate: DeadlineScope | None, account: Account, scope: Scope | None
    ) -> None:
        self.run = run
        self.path = path
        self.gate = gate
        self.account = account
        self.scope = scope
        self.spent = NOTHING
        self.names: set[str] | None = None  # of the calls made so far, in a user's function only

    def child(self, path: str) -> Context:
        """Return the context of a step inside this one."""
        return Context(self.run, path, self.gate, self.account, self.scope)

    def within(self, path: str, *, typed: bool = False) -> Context:
        """Return the context of an effect inside this one: each of its calls needs its own name."""
        kind = _TypedContext if typed else Context
        inner = kind(self.run, path, self.gate, self.account, self.scope)
        inner.names = set()
        return inner

    def below(self, name: str) -> str:
        """Return the path of a step inside this one."""
        return f"{self.path}/{name}" if self.path else name

    # What a user's function may read and do.

    @property
    def run_id(self) -> str:
        """The ID of the run."""
        return self.run.run_id

    @property
    def iteration(self) -> int:
        """The number of the current iteration of the enclosing loop, from 1; 0 outside loops."""
        return self.scope.number if self.scope else 0

    @property
    def history(self) -> History:
        """A copy of the finished iterations of the enclosing loop."""
        return self.scope.history.view(typed=self._typed) if self.scope else History()

    @property
    def last(self) -> Iteration | None:
        """A copy of the latest finished iteration of the enclosing loop, or None."""
        return self._view_of(self.scope.history.last) if self.scope else None

    @property
    def initial(self) -> Json:
        """A copy of the first input of the enclosing loop or workflow; it never changes."""
        return self._own(self.scope.initial) if self.scope else None

    @property
    def input(self) -> Json:
        """A copy of the input of the current iteration."""
        return self._own(self.scope.current) if self.scope else None

    @property
    def outputs(self) -> Mapping[str, Json]:
        """Copies of the outputs of the finished steps of the enclosing workflow, by name."""
        return {k: self._own(v) for k, v in self.scope.outputs.items()} if self.scope else {}

    def output_of(self, step: Step[Any, Out]) -> Out:
        """Return a copy of the output of a finished step of an enclosing workflow.

        Args:
            step: the step; it is looked up by its name, from the nearest workflow outwards.

        Raises:
            KeyError: if no finished step has that name; names those that have ended.
        """
        names: list[str] = []
        scope = self.scope
        while scope is not None:
            if (name := key_of(step, scope.members)) in scope.outputs:
                return cast("Out", self._own(scope.outputs[name]))
            names += scope.outputs
            scope = scope.parent
        ended = ", ".join(dict.fromkeys(names)) or "none"
        raise KeyError(f"no step {key_of(step, {})!r} has ended; ended: {ended}")

    def last_of(self, loop: Step[In, Out]) -> Iteration[In, Out] | None:
        """Return a copy of the latest iteration of an enclosing or finished loop, or None.

        Args:
            loop: the loop; it is looked up by its name, from the nearest one outwards.
        """
        scope = self.scope
        while scope is not None:
            if scope.name == loop.name:
                return self._view_of(scope.history.last)
            if (ended := scope.loops.get(loop.name)) is not None:
                return self._view_of(ended.history.last)
            scope = scope.parent
        return None

    def _view_of(self, item: Iteration | None) -> Iteration | None:
        return None if item is None else item.view(typed=self._typed)

    @property
    def idempotency_key(self) -> str:
        """A key of 32 hex digits that stays the same when this effect is repeated after a crash."""
        text = f"{self.run.run_id}\n{self.path}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def remaining(self) -> float:
        """Return the seconds until the nearest deadline, or infinity."""
        return self.gate.remaining(self.run) if self.gate else math.inf

    def spend(self, usage: Usage) -> None:
        """Report what this step spent; every enclosing account settles it when the step ends.

        Args:
            usage: calls, tokens and US dollars, such as `Usage(calls=1, usd=0.02)`.

        Raises:
            StepError: of kind `bad_usage` if it is not a Usage.
        """
        if not isinstance(usage, Usage):
            raise StepError(
                f"{usage!r:.40} is not a usage; spend Usage(calls=…, usd=…)",
                path=self.path,
                kind="bad_usage",
                retryable=False,
            )
        self.spent += usage

    def warn(self, sentence: str, *, code: str = "") -> None:
        """Add a sentence to the result's warnings, once in a run.

        Args:
            sentence: the warning.
            code: a word that programs can test, put before the sentence. Default: none.
        """
        self.run.warn(sentence, self.path, code=code)

    def ask(self, name: str, request: Mapping[str, Json], detail: str) -> Json:
        """Return a person's answer to a question of this step, or suspend the run until there is one.

        Answers are given with `loopwright approve` and survive restarts. When the question is answered,
        the function starts again from its beginning: make each earlier action a `call`.

        Args:
            name: the name of the question in the journal.
            request: what the person is shown. Its `kind` says which answers are valid (see
                `journal.questions`); without one, any answer is.
            detail: the sentence that explains why the run waits.

        Returns:
            The answer.

        Raises:
            Suspended: until there is an answer.
        """
        return own(self.run.ask(self.below(name), own(dict(request)), detail))

    async def sleep(self, seconds: float) -> None:
        """Wait, but not past the nearest deadline.

        Raises:
            Stopped: by the loop whose deadline comes first.
        """
        await self.run.settle()  # a crash during a long wait must not repeat what was paid for
        left = self.remaining()
        await self.run.clock.sleep(max(0.0, min(seconds, left)))
        if self.gate is not None:
            self.gate.ask(self.run)

    def call(
        self,
        name: str,
        step: Step[In, Out],
        value: In = None,  # type: ignore[assignment]
        token: str = "",
    ) -> Coroutine[object, object, Out]:
        """Run a step inside this one and return its output; await it.

        Args:
            name: its name in the path and the journal; each call of a function needs another one.
            step: the step, such as `step(function)` or a Loop.
            value: its input.
            token: replaces the input in the fingerprint, where the input is already on record.

        Returns:
            The output, as recorded.

        Raises:
            StepError: if the step failed, or is a required loop that was not satisfied.
        """
        if self.names is not None:
            return self._called(name, step, value, token)
        if isinstance(step, Leaf):
            plain = step.reserve is None and not step.wants_context
            if plain and self.run.silent and self.gate is None and not self.account.limited:
                return unrecorded(self, name, step, value)
            return _perform(self, f"{self.path}/{name}" if self.path else name, step, value, token)
        if isinstance(step, CompositeStep):
            return self._through(self.below(name), step, value)
        raise self._bad_step(name, step)

    async def outcome(
        self,
        name: str,
        step: Step[In, Out],
        value: In = None,  # type: ignore[assignment]
    ) -> Result[Out]:
        """Run a step inside this one and return how it ended; a leaf completes or raises.

        Args:
            name: its name in the path and the journal.
            step: the step.
            value: its input.

        Returns:
            The result of the step.
        """
        if self.names is None:
            return await self._ended(name, step, value)
        self._take(name)
        return (await self._ended(name, step, self._passed(step, value))).view(typed=self._typed)

    # What the engine does for it.

    async def _called(self, name: str, step: Step, value: Json, token: str) -> Json:
        """Run a step for a user's function, which may change what it passes and what it receives."""
        self._take(name)
        within = Context(self.run, self.path, self.gate, self.account, self.scope)
        return self._own(await within.call(name, step, self._passed(step, value), token))

    def _passed(self, step: Step, value: Json) -> Json:
        """Return an input for a step as it is recorded; the function that passes it may change it."""
        if isinstance(step, Step) and (declared := step.input_type) is not None:
            return declared.write_input(value)
        return own_json(value)

    def _bad_step(self, name: str, step: object) -> StepError:
        return StepError(
            f"{getattr(step, '__name__', step)!r} is not a step; make it one with step(…)",
            path=self.below(name),
            kind="bad_step",
            retryable=False,
        )

    def _take(self, name: str) -> None:
        assert self.names is not None
        if name in self.names:
            raise StepError(
                f"an earlier call of this step is already named {name!r}; give each call another name",
                path=self.below(name),
                kind="used_twice",
                retryable=False,
            )
        self.names.add(name)

    async def _through(self, path: str, step: CompositeStep, value: Json) -> Json:
        if not step.keeps_types:
            value = json_of(value)
        result: Result = await step.run(value, self.child(path))
        if result.status is Status.FAILED and not result.gone_on:
            raise StepError.of(result, path)
        if not result.satisfied and step.required:
            kind = result.status.value
            raise StepError(f"required, but {result.detail}", path=path, kind=kind)
        return result.output

    async def _ended(self, name: str, step: Step, value: Json) -> Result:
        path = self.below(name)
        if isinstance(step, CompositeStep):
            return await step.run(value if step.keeps_types else json_of(value), self.child(path))
        if not isinstance(step, Leaf):
            raise self._bad_step(name, step)
        output = await _perform(self, path, step, value, "")
        return Result(Status.SATISFIED, Reason.COMPLETED, f"{path} completed", output, name=name)

    def __dir__(self) -> list[str]:
        """The names that a user's function may use; the others are the engine's."""
        return sorted(_PUBLIC)


class _TypedContext(Context):
    """The context of a user's function, which receives values in their declared types."""

    __slots__ = ()
    _typed = True
    _own = staticmethod(own)


_PUBLIC = (
    "ask", "call", "history", "idempotency_key", "initial", "input", "iteration", "last", "last_of",
    "outcome", "output_of", "outputs", "path", "remaining", "run_id", "sleep", "spend", "spent", "warn",
)  # fmt: skip


_PLAIN = ATOMS | {dict, list, tuple}  # types of values that are JSON, or are made so


async def _perform(ctx: Context, path: str, step: Leaf, value: Json, token: str) -> Json:
    """Perform an effect by the rules above, or return its recorded output."""
    run, replay = ctx.run, ctx.run.replay
    fingerprint, request = "", None
    if run.keeps:
        fingerprint = f"{step.fingerprint}:{token or codec.digest(value)}"
        if replay is not None and (recorded := replay.finished.get(path)) is not None:
            return _replayed(run, recorded, fingerprint, step)
        request = step.asks()
        if request is not None:
            request = run.clean(request)
    _check_allowed(ctx)
    started = Entry("started", path, run.now(), request, fingerprint)
    if replay is not None and path in replay.doubts:  # it was counted when it was restored
        if (answer := _doubt(run, path, step)) is not None:
            return _settled_by(run, answer, started, step)
    elif ctx.account.limited and not is_note(step.fingerprint):
        ctx.account.begin()
    if step.reserve is not None:
        await _reserve(ctx, step, value, started)
    run.append(started)
    pending = run.settle() if run.listeners else run.sync()
    if pending is not None:
        await _durable(ctx, started, pending)
    return await _act(ctx, step, value, started)


async def _act(ctx: Context, step: Leaf, value: Json, started: Entry) -> Json:
    """Act, settle and record how it ended."""
    run, gate, path, cause = ctx.run, ctx.gate, started.path, None
    types = step.types
    if types is not None and not types.simple:
        types = step.declared()
    inner = ctx.within(path, typed=types is not None) if step.wants_context else None
    began = started.at + started.seconds
    finished = Entry("finished", path, began, None, started.fingerprint)
    try:
        # The step gets a copy: what it does to its input changes nothing that is recorded.
        given = own_json(value) if types is None else types.read(value)
        act = step.act if run.stubs is None else acting(run.stubs, step, path)
        if gate is None:
            output = await act(given, inner)
        else:
            output = await gate.limit(run, functools.partial(act, given, inner), path)
        if type(output) in ATOMS and types is not None and types.simple and run.redactor is None:
            output = codec.normalise(output, what="output")
        else:
            output = _written(ctx, step, output, path)
        finished.value = output
    except BaseException as error:
        _broken(error, ctx, inner, started, finished)
        cause = _cause(error)
    if inner is not None or started.reserved is not NOTHING:
        _settle(ctx, inner, started, finished)
    finished.seconds = run.now() - began
    run.append(finished)
    if ctx.account.capped and finished.usage and (spent := ctx.account.overshot(finished.usage)):
        run.warn(spent, path, code=OVERSHOOT)
    if finished.error is not None:
        try:
            raise finished.error.to_error() from cause
        finally:
            cause = None  # or this frame and its traceback would hold each other
    return output


async def unrecorded(ctx: Context, name: str, step: Leaf, value: Json, token: str = "") -> Json:
    """Perform an effect of a run that nobody can ever read: only its output matters.

    Without it the row "the same without a journal, to bare" of `benchmarks.engine` is 50 % slower.
    """
    run, path = ctx.run, ctx.path
    if run.cancelled is not None:
        raise Stopped("", run.cancelled)
    try:
        types = step.types
        if types is not None and types.simple:
            given = own(value)
        else:
            types = step.declared()
            given = own_json(value) if types is None else types.read(value)
        output = await step.act(given, None)
        if type(output) in ATOMS and types is not None and types.simple and run.redactor is None:
            return codec.normalise(output, what="output")
        return _written(ctx, step, output, name)
    except asyncio.CancelledError as error:
        if run.cancelled is not None:
            raise Stopped("", run.cancelled) from None
        if not _unasked(error, ctx):
            raise
        raise run.failure(error, f"{path}/{name}" if path else name).to_error() from error
    except (Exception, SystemExit) as error:
        failure = run.failure(error, f"{path}/{name}" if path else name)
        raise failure.to_error() from _cause(error)


def _written(ctx: Context, step: Leaf, output: object, path: str) -> Json:
    """Return an output as it is recorded: normalised, or in its declared type, and without secrets."""
    types, redactor = step.types, ctx.run.redactor
    if types is None or (types.simple and type(output) in _PLAIN):
        plain = codec.normalise(output, what="output")
        return plain if redactor is None else redactor.clean(plain)
    if types.problem:
        ctx.run.warn(types.problem, code=ANNOTATION_UNREADABLE)
    if (
        type(output) not in _PLAIN
        and not path.endswith("evaluate")
        and (sentence := types.untyped(output))
    ):
        ctx.run.warn(sentence, code=UNTYPED_OUTPUT)
    if ctx.run.stubs is not None and types.output is not None:  # a rule writes JSON
        return types.output.write_input(output, what="output")
    return types.write(output, None if redactor is None else redactor.clean)


def _check_allowed(ctx: Context) -> None:
    """Raise Stopped if a deadline, a guard or a cancel forbids that anything begins."""
    if ctx.gate is not None:
        ctx.gate.ask(ctx.run)
    if ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled)


async def _reserve(ctx: Context, step: Leaf, value: Json, started: Entry) -> None:
    """Reserve the most that a call may cost in every account, waiting for its turn.

    `started.seconds` records how long that took: a loop began when it asked, not when it was served.
    """
    run, path = ctx.run, started.path
    assert step.reserve is not None
    try:
        amount = step.reserve(value)
    except Exception as error:  # a user's function
        raise run.failure(error, path).to_error() from error
    if not amount:
        return
    reserve = functools.partial(ctx.account.reserve, path, amount)
    try:
        await (reserve() if ctx.gate is None else ctx.gate.limit(run, reserve))
        _check_allowed(ctx)  # again: waiting took time
    except BaseException:
        ctx.account.settle(path, NOTHING)
        raise
    started.reserved = amount
    started.seconds = run.now() - started.at


async def _durable(ctx: Context, started: Entry, pending: Awaitable[None]) -> None:
    """Wait until the intent is durable; a call that may not begin after that has cost nothing."""
    try:
        await pending
        _check_allowed(ctx)
    except BaseException as error:
        _cut(ctx, started, NOTHING, error)
        raise


def _broken(
    error: BaseException, ctx: Context, inner: Context | None, started: Entry, finished: Entry
) -> None:
    """Record an error of the step; raise any other again."""
    own = isinstance(error, Exception | SystemExit) and not isinstance(error, JournalError)
    if own or _unasked(error, ctx):
        finished.error = ctx.run.failure(error, started.path)
        return
    # At the larger of what was reported and what was reserved: the cost of a cut call is unknown.
    # A call that suspended to ask a person was not cut: it spent what it reported.
    reported = inner.spent if inner is not None else NOTHING
    suspended = isinstance(error, Suspended)
    usage = reported if suspended else reported.settled_at(started.reserved)
    _cut(ctx, started, usage, error)
    if isinstance(error, asyncio.CancelledError) and ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled) from None
    raise error


def _unasked(error: BaseException, ctx: Context) -> bool:
    """Return whether a step was cancelled by itself or a library, not by anyone who cancelled the run."""
    if not isinstance(error, asyncio.CancelledError) or ctx.run.cancelled is not None:
        return False
    return not being_cancelled()


def being_cancelled() -> bool:
    """Return whether someone asked for the current task to be cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _settle(ctx: Context, inner: Context | None, started: Entry, finished: Entry) -> None:
    # A step without a context cannot report what it spent: then it is what was reserved.
    usage = inner.spent if inner is not None else started.reserved
    if usage is not NOTHING or started.reserved is not NOTHING:
        finished.usage = usage
        ctx.account.settle(started.path, usage)


def _cut(ctx: Context, started: Entry, usage: Usage, error: BaseException) -> None:
    """Settle an effect that was begun and has no outcome."""
    ctx.account.settle(started.path, usage)
    if isinstance(error, JournalError | OwnershipLost):
        return  # there is nothing to write to
    entry = Entry("cut", started.path, started.at, fingerprint=started.fingerprint, usage=usage)
    if isinstance(error, Suspended):
        entry.value = {"asks": error.path}
    entry.seconds = ctx.run.now() - started.at
    ctx.run.append(entry)


def _cause(error: BaseException) -> BaseException | None:
    """Return the exception that was raised first, if it is wrapped in the error of an inner step."""
    inner = isinstance(error, StepError) and error.traceback and error.__cause__ is not None
    return error.__cause__ if inner else error


def _replayed(run: Run, recorded: Entry, fingerprint: str, step: Leaf) -> Json:
    """Return the recorded output, or raise the recorded error.

    Raises:
        ReplayMismatch: if the step or its input changed, unless that was accepted.
    """
    if recorded.fingerprint and recorded.fingerprint != fingerprint:
        assert run.replay is not None
        if run.replay.accepted.get(recorded.path) != fingerprint:
            _refuse_change(run, recorded, fingerprint)
    if recorded.error is not None:
        raise recorded.error.to_error()
    declared = step.output_type
    return recorded.value if declared is None else retyped(declared, recorded.value, recorded.path)


def retyped(declared: ValueType, value: Json, path: str) -> Json:
    """Return a recorded value with its declared type.

    Raises:
        ReplayMismatch: if it no longer fits.
    """
    if problem := declared.check(value):
        raise ReplayMismatch(
            f"{path}: the recorded value is no longer a {declared.name}: {problem}; give new fields "
            "a default, resume with the old version, or rewind to before it",
            path=path,
            recorded="",
            now=declared.name,
        )
    return declared.attach(value)


def _refuse_change(run: Run, recorded: Entry, fingerprint: str) -> None:
    if run.accept_changes:
        run.append(Entry("accepted", recorded.path, run.now(), fingerprint=fingerprint))
        return
    code_before, input_before = recorded.fingerprint.split(":", 1)
    code_now, input_now = fingerprint.split(":", 1)
    changed, before, now = "its input", input_before, input_now
    if code_before != code_now:
        changed, before, now = "the step's code", code_before, code_now
    raise ReplayMismatch(
        f"{recorded.path}: {changed} changed since it was recorded ({before} then, {now} now); "
        "resume with the old version, rewind to before it, or give accept_changes",
        path=recorded.path,
        recorded=recorded.fingerprint,
        now=fingerprint,
    )


def _doubt(run: Run, path: str, step: Leaf) -> Json:
    """Return None if an effect in doubt may run again, else a person's answer.

    Raises:
        Suspended: until there is an answer.
    """
    if step.idempotent or run.in_doubt == "rerun":
        return None
    detail = (
        f"{path} was in flight when the process died and may have acted; "
        "say whether to run it again, or mark the step idempotent"
    )
    request = {"kind": "doubt", "step": step.name}
    answer = run.ask(path, request, detail, Reason.NEEDS_ATTENTION)
    return None if answer == "rerun" else answer


def _settled_by(run: Run, answer: Json, started: Entry, step: Leaf) -> Json:
    """Record a person's answer as the outcome of an effect in doubt, at the cost that was reserved."""
    assert run.replay is not None
    path, doubt = started.path, run.replay.doubts[started.path]
    finished = Entry("finished", path, run.now(), fingerprint=started.fingerprint)
    finished.usage = doubt.reserved.at_most()
    if isinstance(answer, dict):
        finished.value = answer["output"]
        if (declared := step.output_type) is not None:
            finished.value = declared.attach(finished.value)
    else:
        message = "it was in flight when the process died, and a person said that it failed"
        finished.error = Failure("", "in_doubt", message, path, retryable=False)
    run.append(finished)
    if finished.error is not None:
        raise finished.error.to_error()
    return finished.value
