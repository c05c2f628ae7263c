"""The context of a step: its place in the run, the variables around it, and the one way in which it acts.

1. A step acts only through `ctx.call`. `effects` performs the calls of leaf steps.
2. Deadlines, budgets and guards chain from the outermost loop inwards: an outer one binds everything
   inside it.
3. Only leaf steps have effects. A composite step is replayed by running it again.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..errors import ConfigurationError, StepError
from ..records import (
    NOTHING,
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Usage,
    latest_kept,
    own,
    own_json,
)
from ..records.codec import Json
from ..records.result import key_of
from ..records.typed import CARRIERS, ValueType, json_of
from .budgets import Account
from .deadlines import DeadlineScope
from .effects import perform, unrecorded
from .files import Snapshots
from .run_state import Run
from .step import CompositeStep, In, Leaf, Out, Step, StepLike, as_step

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from ..datasets import Case
    from .early import Curve, Early
    from .plan import Place

__all__ = ["Context", "Scope"]

Effort = Callable[[], tuple[float, float | None]]
_UNBEGUN = History()  # of a scope before its first iteration
_NOTHING_YET: Mapping[str, Json] = MappingProxyType({})

_UNTYPED: tuple[ValueType | None, ValueType | None] = (None, None)


class Scope:
    """The variables of one loop or workflow under its name. A child never changes those of its parent."""

    __slots__ = (
        "baseline",
        "candidate",
        "case",
        "checked",
        "current",
        "effort",
        "files",
        "hints",
        "history",
        "initial",
        "loops",
        "members",
        "name",
        "number",
        "outputs",
        "parent",
        "parts",
        "path",
        "place",
        "prepared",
        "results",
        "talks",
        "total",
        "types",
        "variables",
        "vary",
    )

    def __init__(
        self,
        name: str,
        initial: Json,
        parent: Scope | None,
        path: str = "",
        *,
        members: Mapping[str, object] = _NOTHING_YET,
        variables: dict[str, Json] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        # Conversations that continue from one iteration to the next.
        self.talks: dict[str, Any] | None = None
        self.parent = parent
        self.initial = initial
        self.current = initial
        # The snapshots of the workspace that its steps run in; None without one.
        self.files: Snapshots | None = None if parent is None else parent.files
        # The case of a data set that its steps work on.
        self.case: Case | None = None if parent is None else parent.case
        # Returns the seconds and the US dollars that its task took, None for an unknown price, once it has ended.
        self.effort: Effort | None = None if parent is None else parent.effort
        self.number = 0
        self.baseline: Evaluation | None = None  # of the input, before the first iteration
        # What the iteration sees by its plan; None in a loop that continues from the last one.
        self.place: Place | None = None
        # What the preparations of the evaluator returned, by their fingerprints.
        self.prepared: Mapping[str, Json] = _NOTHING_YET
        # What the evaluators without a model said of the present output, if others follow them.
        self.checked: bool | None = None
        self.total = 0  # items, if it runs over a list
        # The number of a candidate, and what differs in it, in an iteration with several.
        self.candidate, self.vary = 0, None
        # Of people, that the iteration has read. Those with a `step` interrupted it, and the others do not see them:
        # whether they came before would be different in a replay.
        self.hints: Sequence[Mapping[str, Json]] = ()
        # Outputs of steps, for the record of the current iteration.
        self.parts: Mapping[str, Json] | None = None
        self.history = _UNBEGUN
        # Read-only until `keep` replaces them: most scopes are loops', which have neither.
        self.outputs: Mapping[str, Json] = _NOTHING_YET
        self.types = _UNTYPED  # of the input and the output of a loop's iterations
        self.members = members  # the steps of a workflow by name
        self.results: Mapping[str, Result] = _NOTHING_YET
        self.loops: Mapping[str, Result] = _NOTHING_YET  # in the order of their ends
        # Variables of a document, which has no access to those outside it.
        self.variables = variables

    def item(self, number: int, total: int, history: History) -> Scope:
        """Return the scope of one item of this list; several may be open at a time."""
        inner = Scope(self.name, self.initial, self.parent, self.path)
        inner.number, inner.total, inner.types, inner.history = number, total, self.types, history
        return inner

    def of_candidate(self, number: int, vary: Json) -> Scope:
        """Return the scope of one candidate of an iteration; several may be open at a time."""
        inner = copy.copy(self)
        inner.candidate, inner.vary = number, vary
        return inner

    def adopt(self, chosen: Scope) -> None:
        """Continue with what the chosen candidate left."""
        for name in ("current", "parts", "checked", "talks", "outputs", "results", "loops"):
            setattr(self, name, getattr(chosen, name))

    def judged(self, goal: Json) -> Scope:
        """Return a copy for an evaluator whose goal is not the input of the loop."""
        inner = copy.copy(self)
        inner.initial = goal
        return inner

    def declare(self, input_type: ValueType | None, output_type: ValueType | None) -> None:
        """Set the declared types of an iteration, as far as values carry them."""
        # Values of JSON types are written like untyped ones.
        self.types = (
            None if input_type is None or input_type.is_json else input_type,
            None if output_type is None or output_type.is_json else output_type,
        )

    def work_in(self, files: Snapshots) -> None:
        """Let the steps run in a workspace."""
        self.files = files

    def prepare(self, fingerprint: str, value: Json) -> None:
        """Show what a preparation of the evaluator returned."""
        self.prepared = {**self.prepared, fingerprint: value}

    def compare_with(self, baseline: Evaluation) -> None:
        """Set the evaluation of the input."""
        self.baseline = baseline

    def restore(self, record: Iteration) -> None:
        """Continue after a recorded iteration."""
        self.number, self.current = record.number, record.input

    def begin(self, number: int) -> None:
        """Begin an iteration."""
        self.number, self.parts = number, None

    def stand(self, place: Place) -> None:
        """Show the iterations that the plan of the present one leaves to see."""
        self.place = place

    def work_on(self, case: Case, effort: Effort | None = None) -> None:
        """Set the case of a data set that the steps work on, and for its evaluators what its task took."""
        self.case, self.effort = case, effort

    def receive(self, value: Json) -> None:
        """Set the input of the iteration."""
        self.current = value

    def expose(self, parts: Mapping[str, Json]) -> None:
        """Set the outputs of steps for the record of the iteration."""
        self.parts = parts

    def check(self, verdicts: Iterable[bool | None]) -> None:
        """Combine what the evaluators without a model said of the output."""
        said = [passed for passed in verdicts if passed is not None]
        self.checked = all(said) if said else None

    def record(self, history: History) -> None:
        """Show the recorded iterations."""
        self.history = history

    def talk(self, part: str, conversation: object) -> None:
        """Keep the conversation of a prompt for the next iteration."""
        self.talks = {**(self.talks or {}), f"{self.begun} {part}": conversation}

    def talked(self, part: str) -> Any:
        """Return the conversation that the iteration continues, or None."""
        return (self.talks or {}).get(f"{self.begun} {part}")

    def show(self, outputs: Mapping[str, Json]) -> None:
        """Show values under their names, as if steps had returned them."""
        self.outputs = {**self.outputs, **outputs}

    def hint(self, hints: Sequence[Mapping[str, Json]]) -> None:
        """Show the hints that the iteration has read."""
        self.hints = hints

    @property
    def iteration_path(self) -> str:
        """The path of the iteration, or of the candidate."""
        path = f"{self.path}/{self.number}"
        return f"{path}/candidate-{self.candidate}" if self.candidate else path

    @property
    def last(self) -> Iteration | None:
        """The latest iteration of the chain, in its first one the parent; None after a fresh start."""
        if self.place is None:
            return self.history.last
        seen = self.place.seen
        return seen[-1] if seen else None

    @property
    def line(self) -> Sequence[int] | None:
        """The numbers of the iterations whose conversation the present one continues; None for all before it."""
        return None if self.place is None else self.place.line

    @property
    def begun(self) -> int:
        """The number of the iteration in which its conversation began."""
        return 1 if self.line is None else (*self.line, self.number)[0]

    @property
    def continued(self) -> Iteration | None:
        """The record that the iteration continues from; None at the beginning."""
        return latest_kept(self.history) if self.place is None else self.place.parent

    @property
    def iteration_scope(self) -> Scope | None:
        """The scope of the iteration around; those of lists and workflows are in it."""
        scope: Scope | None = self
        while scope is not None and (scope.total or not scope.number):
            scope = scope.parent
        return scope

    def keep(self, name: str, result: Result) -> None:
        """Show the result of a step under its name."""
        # Replaced, not changed: steps that run at the same time may be reading them.
        self.results = {**self.results, name: result}
        self.outputs = {**self.outputs, name: result.output}

    def keep_loop(self, name: str, result: Result) -> None:
        """Show how a loop ended, under its name, after the loops that ended before it."""
        others = {key: other for key, other in self.loops.items() if key != name}
        self.loops = {**others, name: result}


class _Names(set[str]):
    """The names of the calls of one function, and how many of its calls have not ended."""

    calls = 0


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
        ...     first = await ctx.call("first", double, value)
        ...     return await ctx.call("second", double, first)
        >>> run_sync(twice, 3).output
        12
    """

    __slots__ = (
        "account", "curve", "drawn", "gate", "names", "path", "run", "scope", "spent", "spent_exact",
    )  # fmt: skip
    curve: Curve  # set by `interim`
    drawn: Random  # set by `random`
    # Readers get copies: what a function does to a value must not change the record.
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
        self.spent_exact = False  # whether a cancellation can no longer add to `spent`
        # Names of the calls so far. Only user functions get a set: the engine names its own calls.
        self.names: _Names | None = None

    def at(self, path: str) -> None:
        """Go to another path; a loop does so for each iteration, and its steps get children of this context."""
        self.path = path

    def child(self, path: str) -> Context:
        """Return the context of a step inside this one."""
        return Context(self.run, path, self.gate, self.account, self.scope)

    def within(self, path: str, *, typed: bool = False) -> Context:
        """Return the context of an effect inside this one: each of its calls needs its own name."""
        kind = _TypedContext if typed else Context
        inner = kind(self.run, path, self.gate, self.account, self.scope)
        inner.names = _Names()
        return inner

    def below(self, name: str) -> str:
        """Return the path of a step inside this one."""
        return f"{self.path}/{name}" if self.path else name

    # What a user's function may read and do.

    @property
    def folder(self) -> Path | None:
        """The folder of the workspace that this step runs in; None without a workspace."""
        files = None if self.scope is None else self.scope.files
        return None if files is None else files.folder

    @property
    def run_id(self) -> str:
        """The ID of the run."""
        return self.run.run_id

    @property
    def random(self) -> Random:
        """The random numbers of this step, a `random.Random` from the seed of the run and the path of the step."""
        try:
            return self.drawn
        except AttributeError:
            from random import Random

            self.drawn = Random(f"{self.run.log.info.seed} {self.path}")
            return self.drawn

    @property
    def case(self) -> Case | None:
        """A copy of the case of a data set that the step works on, or None; a task does not see what is expected."""
        case = None if self.scope is None else self.scope.case
        return None if case is None else case.view(typed=self._typed)

    @property
    def iteration(self) -> int:
        """The number of the current iteration of the enclosing loop, from 1; 0 outside loops."""
        return self.scope.number if self.scope else 0

    @property
    def candidate(self) -> int:
        """The number of the candidate that this step makes, from 1; 0 in an iteration with one."""
        scope = None if self.scope is None else self.scope.iteration_scope
        return 0 if scope is None else scope.candidate

    @property
    def vary(self) -> Json:
        """A copy of the value that differs between the candidates of an iteration, or None."""
        scope = None if self.scope is None else self.scope.iteration_scope
        return None if scope is None else self._own(scope.vary)

    @property
    def history(self) -> History:
        """A copy of the finished iterations of the enclosing loop."""
        return self.scope.history.view(typed=self._typed) if self.scope else History()

    @property
    def hints(self) -> list[str]:
        """The hints of people that the current iteration has read; see `steer`."""
        scope = None if self.scope is None else self.scope.iteration_scope
        hints = () if scope is None else scope.hints
        return [hint["text"] for hint in hints if "step" not in hint]

    @property
    def last(self) -> Iteration | None:
        """A copy of the latest finished iteration of the enclosing loop, or None; in a loop with chains, of its chain."""
        return self._view_of(self.scope.last) if self.scope else None

    @property
    def parent(self) -> Iteration | None:
        """A copy of the iteration that the current one continues from, or None at the beginning."""
        return self._view_of(self.scope.continued) if self.scope else None

    @property
    def strategy(self) -> Json:
        """A copy of the value of the strategy of the current chain; None in a loop without strategies."""
        place = self.scope.place if self.scope else None
        return None if place is None else self._own(place.strategy)

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
                return self._view_of(scope.last)
            if (ended := scope.loops.get(loop.name)) is not None:
                return self._view_of(ended.history.last)
            scope = scope.parent
        return None

    def _view_of(self, item: Iteration | None) -> Iteration | None:
        return None if item is None else item.view(typed=self._typed)

    @property
    def idempotency_key(self) -> str:
        """A key of 32 hex digits that stays the same when this effect is repeated after a crash."""
        # Of run and path only: the key of a repeated attempt must be the same.
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

    def interim(self, value: float, step: float, early: Early | None = None) -> None:
        """Report a value of an evaluation on the way, such as a loss, which may end the evaluation here.

        In the evaluation of a loop with an objective, it ends if the value is worse than the median of those that
        earlier iterations had at this step. It then has no value, and `passed` is false. Elsewhere nothing happens.

        Args:
            value: the value; the direction of the objective says whether lower or higher ones are better.
            step: the step, such as the number of the batch.
            early: from which step on, and after how many iterations. Default: `Early()`, from the first step on, after
                three.

        Raises:
            StoppedEarly: to end the evaluation; let it pass.

        Example:
            >>> from loopwright import Context, Loop, run_sync
            >>> def train(rate: float, ctx: Context) -> dict:
            ...     for step in range(10):
            ...         ctx.interim(1 / (rate * (step + 1)), step)
            ...     return {"metrics": {"loss": 1 / rate}}
            >>> loop = Loop(
            ...     lambda rate: rate, train, lambda last: last.input / 2, metrics={"loss": "minimise"}, max_iterations=4
            ... )
            >>> run_sync(loop, 1.0).history[-1].feedback
            'stopped early at step 0: 8 is worse than the median 2 of 3'
        """
        from .early import Early, interim  # for the few evaluators that have such values

        interim(self, value, step, early or Early())

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
            request: the values to show to the person. Its `kind` decides which answers are valid (see
                `journal.questions`); without one, any answer is.
            detail: the sentence that explains why the run waits.

        Returns:
            The answer.

        Raises:
            Suspended: until there is an answer.
        """
        return own(self.run.ask(self.below(name), own(dict(request)), detail))

    async def wait(self, name: str, **options: Json) -> Json:
        """Wait until something outside of the run is true; a process is not needed meanwhile.

        When all branches of the run wait, its time stands, and with `on_wait="leave"` it is suspended. After a restart
        the function starts again from its beginning: make each earlier action a `call`.

        Args:
            name: the name of the wait in the path and the journal.
            options: those of `loopwright.wait`, such as `event="ci-finished"` and `timeout="2h"`.

        Returns:
            `{ended, which, value, seconds}`, as recorded.

        Raises:
            StepError: of kind `wait_timeout`, if it ends without a default, or `bad_wait` for wrong options.
            Suspended: if the run leaves its process.
        """
        from .waiting import waited  # for the few functions that wait

        written = {key.removesuffix("_"): value for key, value in options.items()}
        if self.names is None:
            return own(await waited(self, self.below(name), written))
        self._take(name)
        self._begin_call()
        try:
            return own(await waited(self, self.below(name), written))
        finally:
            self._end_call()

    def _begin_call(self) -> None:
        assert self.names is not None
        # The first call replaces the function as a branch of the run; others are more branches.
        if self.names.calls:
            self.run.count(1)
        self.names.calls += 1

    def _end_call(self) -> None:
        assert self.names is not None
        self.names.calls -= 1
        if self.names.calls:
            self.run.count(-1)

    async def sleep(self, seconds: float) -> None:
        """Pause in this process, but not past the nearest deadline; `wait` needs no process.

        Raises:
            Stopped: by the loop whose deadline comes first.
        """
        await self.run.settle()  # a crash during a long wait must not repeat what was paid for
        # Sleeping past a deadline would only delay the stop.
        await self.run.clock.sleep(max(0.0, min(seconds, self.remaining())))
        if self.gate is not None:
            self.gate.check(self.run)

    def call(
        self,
        name: str,
        step: StepLike[In, Out],
        value: In = None,  # type: ignore[assignment]
        token: str = "",
    ) -> Coroutine[object, object, Out]:
        """Run a step inside this one and return its output; await it.

        Args:
            name: its name in the path and the journal; each call of a function needs another one.
            step: a step, a function or an object of another library, as for `Loop`.
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
            # The one place that chooses the fast path; `LoopRun` makes the same choice once per
            # loop.
            if plain and self.run.silent and self.gate is None and not self.account.limited:
                return unrecorded(self, name, step, value)
            return perform(self, f"{self.path}/{name}" if self.path else name, step, value, token)
        if isinstance(step, CompositeStep):
            return self._through(self.below(name), step, value)
        return self.call(name, self._as_step(name, step), value, token)

    async def outcome(
        self,
        name: str,
        step: StepLike[In, Out],
        value: In = None,  # type: ignore[assignment]
    ) -> Result[Out]:
        """Run a step inside this one and return how it ended; a leaf completes or raises.

        Args:
            name: its name in the path and the journal.
            step: a step, a function or an object of another library.
            value: its input.

        Returns:
            The result of the step.
        """
        target = self._as_step(name, step)
        if self.names is None:
            return await self._ended(name, target, value)
        self._take(name)
        self._begin_call()
        try:
            result = await self._ended(name, target, self._passed(target, value))
        finally:
            self._end_call()
        return result.view(typed=self._typed)

    # For the engine only.

    async def _called(self, name: str, step: StepLike, value: Json, token: str) -> Json:
        """Run a step for a user's function, with copies of its input and output."""
        target = self._as_step(name, step)
        self._take(name)
        # A context without names: the name was checked here, and the engine's own calls are not
        # counted.
        inner = Context(self.run, self.path, self.gate, self.account, self.scope)
        self._begin_call()
        try:
            return self._own(await inner.call(name, target, self._passed(target, value), token))
        finally:
            self._end_call()

    def _passed(self, step: Step, value: Json) -> Json:
        """Return an input for a step as it is recorded; the function that passes it may change it."""
        if (declared := step.input_type) is not None:
            return declared.write_input(value)
        return own_json(value)

    def _as_step(self, name: str, step: StepLike) -> Step:
        """Return the target of a call as a step.

        Raises:
            StepError: of kind `bad_step`, if it cannot be one.
        """
        try:
            result = as_step(step)
        except ConfigurationError as error:
            problem = str(error)
        else:
            if isinstance(result, Leaf | CompositeStep):
                return result
            problem = f"{result!r:.60} is neither a Leaf nor a CompositeStep"
        raise StepError(problem, path=self.below(name), kind="bad_step", retryable=False)

    def _take(self, name: str) -> None:
        # Paths are the keys of a replay: two calls of one name would share one recorded output.
        assert self.names is not None
        if name in self.names:
            raise StepError(
                f"an earlier call of this step is already named {name!r}; use another name for each call",
                path=self.below(name),
                kind="used_twice",
                retryable=False,
            )
        self.names.add(name)

    async def _through(self, path: str, step: CompositeStep, value: Json) -> Json:
        if not step.keeps_types and type(value) in CARRIERS:
            value = json_of(value)
        # A composite step has no entry: on a resume it runs again over the recorded effects.
        result: Result = await step.run(value, self.child(path))
        if result.status is Status.FAILED and not result.gone_on:
            raise StepError.of(result, path)
        if not result.satisfied and step.required:
            raise StepError(f"required, but {result.detail}", path=path, kind=result.status.value)
        return result.output

    async def _ended(self, name: str, step: Step, value: Json) -> Result:
        path = self.below(name)
        if isinstance(step, CompositeStep):
            if not step.keeps_types and type(value) in CARRIERS:
                value = json_of(value)
            return await step.run(value, self.child(path))
        assert isinstance(step, Leaf)  # a step is a leaf or a composite
        output = await perform(self, path, step, value, "")
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
    "ask", "call", "case", "folder", "history", "idempotency_key", "initial", "input", "iteration", "last", "last_of",
    "outcome", "output_of", "outputs", "path", "remaining", "run_id", "sleep", "spend", "spent", "wait", "warn",
)  # fmt: skip
