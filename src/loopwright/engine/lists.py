"""The same step on each item of a list: `for_each`, the step that returns the items, and the run of the list.

1. The list is an effect: a resumed run continues with the same items.
2. There is one record per item, failed or not, numbered from 1. Records are committed in the order of
   the items.
3. Items are independent: an item does not see the results of an item that runs at the same time.
4. Outputs have the positions of their items, null where there is no output.
5. The share of satisfied items decides. An exhausted loop is an item that has an output but is not
   satisfied. A timeout is a result too, with the outputs of the items that ended.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from ..conditions import Condition
from ..errors import ConfigurationError, StepError, Stopped, Suspended
from ..records import (
    NOTHING,
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
    codec,
    item_outcomes,
    item_stop,
)
from ..records.codec import Json
from ..records.typed import ValueType, item_type_of, json_of, list_type
from .budgets import Account
from .composites import AtOnce, attempt, retry, run_all, with_timeout
from .context import Context
from .deadlines import DeadlineScope
from .functions import FunctionTypes
from .iteration import Attempt
from .loop import LoopRun
from .loop_options import Undecided, one_of
from .step import (
    AsyncFunction,
    CompositeStep,
    FunctionStep,
    In,
    Leaf,
    Out,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)

if TYPE_CHECKING:
    from ..journal.replay import RecordedRun

__all__ = [
    "MOST_ITEMS",
    "ForEach",
    "ItemsStep",
    "ListRun",
    "for_each",
    "items_step",
]

MOST_ITEMS = 1000  # items of a list without `max_items`; each may cost model calls


class ItemsStep(Leaf):
    """A leaf step whose output is the list of items, so that a resumed run has the same ones.

    Items beyond `most` are left out with a warning. Without `most`, more than MOST_ITEMS are an error.
    `of_input` is whether the items are the input of the list.
    """

    name = "items"
    of_input: ClassVar[bool] = False
    most: int | None

    def bounded(self, items: list[Json], ctx: Context) -> list[Json]:
        """Return the items up to the limit.

        Raises:
            StepError: of kind `items`, for more than MOST_ITEMS without a limit.
        """
        if self.most is None and len(items) > MOST_ITEMS:
            raise StepError(
                f"{len(items)} items are more than {MOST_ITEMS}; set max_items to allow them",
                path=ctx.path,
                kind="items",
                retryable=False,
            )
        if self.most is None or len(items) <= self.most:
            return items
        owner = ctx.path.rpartition("/")[0]
        ctx.run.warn(
            f"only the first {self.most} of {len(items)} items are done, because the limit is {self.most}",
            owner,
            code="items_left_out",
        )
        return items[: self.most]


class _InputItems(ItemsStep):
    """The input of the list as its items."""

    of_input = True

    def __init__(self, most: int | None) -> None:
        self.most = most

    fingerprint = digest_of("items", "input")

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        return self.bounded(_checked(value, ctx), ctx)


class _MadeItems(ItemsStep):
    """The items that a function makes of the input of the list."""

    def __init__(self, function: FunctionStep, most: int | None) -> None:
        self.function = function
        self.most = most
        self.reserve = function.reserve
        self.stub = function.stub

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("items", self.function.fingerprint)

    reserve: Any
    stub: str

    @property
    def types(self) -> FunctionTypes | None:
        """The declared types of the function."""
        return self.function.declared()

    def declared(self) -> FunctionTypes | None:
        """Return the declared types of the function."""
        return self.types

    @property
    def input_type(self) -> ValueType | None:
        return self.function.input_type

    @property
    def output_type(self) -> ValueType | None:
        return self.function.output_type

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        made = await self.function.act(value, ctx if self.function.wants_context else None)
        return self.bounded(_checked(made, ctx), ctx)


def _checked(items: object, ctx: Context) -> list[Json]:
    if isinstance(items, list | tuple):
        return list(items)
    raise StepError(
        f"items: expected a list, not {type(items).__name__}; give for_each(items=...) a function that "
        "returns one",
        path=ctx.path,
        kind="items",
        retryable=False,
    )


def items_step(items: StepLike | None, most: int | None) -> ItemsStep:
    """Return the step that makes the list from the input, by a function; without one the input is the list."""
    if items is None:
        return _InputItems(most)
    made = as_step(items)
    if not isinstance(made, FunctionStep):
        raise ConfigurationError(
            f"for_each: items: {made.name} is not a function; put it before the list in a sequence"
        )
    return _MadeItems(made, most)


class ListRun(LoopRun):
    """The run of one list: `LoopRun` with the items as inputs.

    Each item has a separate scope and account, because several may run at once. `attempts` are the items
    that have begun but are not committed, `left` the numbers of items that are not committed, `begun`
    those of them that began before a crash and have not ended again. `most` is the number of items at a
    time, and `concurrent` says whether it can be above one.
    """

    loop: ForEach

    def __init__(self, each: ForEach, value: Json, ctx: Context) -> None:
        self.items: list[Json] = []
        self.attempts: dict[int, Attempt] = {}
        self.left: deque[int] = deque()
        self.begun: set[int] = set()
        super().__init__(each, value, ctx)
        self.most = AtOnce(self.run_state, self.path, each.at_once)
        # A person may let several run at a time, unless they edit the same files.
        alone = self.run_state.silent or self.scope.files is not None
        self.concurrent = each.at_once > 1 or not alone

    async def run(self) -> Result:
        """Read the items, then execute each; `at_once` of them at a time."""
        if self.ended is None and (stop := await self._read_items()) is not None:
            return await self.finish(stop)
        if not self.concurrent:
            return await super().run()
        stop = self.recorded_stop()
        try:
            if self.ended is None and (stop is None or self.cut is not None):
                await self._execute_all()
                stop = self.decide()
        except (Stopped, asyncio.CancelledError) as error:
            stop = self.stop(error)
        assert stop is not None
        return await self.finish(stop)

    async def _read_items(self) -> Stop | None:
        """Read the items; return why the list ends if they cannot be read."""
        around = Context(self.run_state, self.path, self.ctx.gate, self.account, self.scope.parent)
        try:
            self.items = await around.call("items", self.loop.items, self.scope.initial)
        except StepError as error:
            return Stop(Reason.ERROR, f"its items cannot be read: {error}")
        except (Stopped, asyncio.CancelledError) as error:
            return self.stop(error)
        # Before the first item: loops inside are recorded under the number of their item.
        self.run_state.loops.lists |= {self.path}
        recorded = {item.number for item in self.history}
        self.left.extend(n for n in range(1, len(self.items) + 1) if n not in recorded)
        return None

    async def _execute_all(self) -> None:
        """Execute several items at once; an item that ends early waits for those before it."""
        numbers, replay = list(self.left), self.run_state.replay
        # Those that began before a crash and are not recorded.
        if replay is not None:
            self.begun = {n for n in numbers if replay.began(f"{self.path}/{n}") is not None}
        ended: dict[int, Iteration] = {}

        def keep(place: int, iteration: Iteration) -> None:
            ended[numbers[place]] = iteration
            self.cut = self.cut or self.attempts[numbers[place]].cut
            # In the order of items (rule 2): an item waits until all items before it are committed.
            while self.left and self.left[0] in ended:
                self.commit(ended.pop(self.left[0]))

        jobs = [functools.partial(self._execute, number) for number in numbers]
        try:
            await run_all(
                jobs,
                self.most,
                done=keep,
                over=self._over,
                in_order=self.loop.at_once == 1,
                count=self.ctx.run.count,
            )
        except Suspended:
            # A guard that ended the list has priority over an item that waits for a person.
            if self.cut is None:
                raise
        finally:
            # Finished items are kept, also behind a gap that an interrupted item left.
            for number in sorted(ended):
                self.commit(ended[number])

    def _over(self) -> bool:
        # A guard ended the list after the items that began before the crash: some of them had finished.
        return self._early_stop() is not None and not (self.cut is not None and self.begun)

    async def _execute(self, number: int) -> Iteration:
        begun = number in self.begun
        try:
            if self.cut is None or begun:
                self.admit(number)
        except Stopped as cut:
            if begun or not self.begun:
                raise
            self.cut = cut
        if self.cut is not None and not begun:
            await asyncio.Event().wait()  # it is cancelled once the items that began have ended
        try:
            return await self.iterate()
        finally:
            self.begun.discard(number)

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Start further items if more may run at a time."""
        self.most.tune(limits)

    def refresh(self) -> None:
        """Read the budgets above again, for each item that runs."""
        super().refresh()
        for item in self.attempts.values():
            item.ctx.account.refresh()

    def _restore(self, replay: RecordedRun) -> None:
        self.items = replay.items(self.path)
        super()._restore(replay)

    @property
    def types(self) -> tuple[ValueType | None, ValueType | None]:
        declared, output_type = self.loop.iteration_types
        if declared is None and self.loop.items.of_input:
            declared = item_type_of(getattr(self.scope.initial, "type", None))
        return declared, output_type

    def _typed_item(self, item: Json) -> Json:
        declared = self.types[0]
        return item if declared is None else declared.attach(item)

    def _type_of_input(self, record: Iteration) -> ValueType | None:
        return self.types[0]

    def _deadlines(self, outer: DeadlineScope | None) -> DeadlineScope | None:
        seconds = self.loop.seconds
        if seconds == math.inf:
            return outer
        stop = Stop(Reason.TIMEOUT, f"{self.loop.name} took longer than its {seconds:g} s")
        return DeadlineScope(self.path, outer, deadline=self.start + seconds, stop=stop)

    def recorded_stop(self) -> Stop | None:
        """Return why the list ends without another item, or None."""
        return super().recorded_stop() if self.ended is not None else self.decide()

    def decide(self) -> Stop | None:
        """Return why the list ends after its latest item, or None if another follows."""
        if (stop := self._early_stop()) is not None:
            return stop
        return None if self.left else self.loop.verdict(self.history, len(self.items))

    def _early_stop(self) -> Stop | None:
        return self.cut.stop if self.cut is not None else self.loop.decide(self.history)

    def next_number(self) -> int:
        """Return the first number that is not recorded. After a crash there may be gaps."""
        return self.left[0]

    def _place(self, number: int, path: str) -> None:
        run = self.run_state
        spent = NOTHING if run.replay is None else run.replay.spent(path)
        # Items that run at once see no history, which would depend on their speed (rule 3).
        in_order = self.loop.at_once == 1 and self.most.at(self.began) == 1
        history = self.history if in_order else History()
        scope = self.scope.item(number, len(self.items), history)
        account = Account(path, self.account, None, spent)
        account.iteration_usage = spent
        self.ctx = Context(run, path, self.ctx.gate, account, scope)

    def attempt(self) -> Attempt:
        """Return the attempt of the item that has begun."""
        scope = self.ctx.scope
        assert scope is not None
        number = scope.number
        value = self._typed_item(self.items[number - 1])
        scope.receive(value)
        item = _ItemAttempt(self.ctx, value, self.began)
        self.attempts[number] = item
        return item

    def commit(self, iteration: Iteration) -> Iteration:
        """Commit an item. Its end is now, so that recorded items end in their order."""
        self.attempted = self.attempts.pop(iteration.number)
        self.attempted.ended = self.run_state.now()
        self.left.remove(iteration.number)
        return super().commit(iteration)

    async def finish(self, stop: Stop) -> Result:
        """Record how the list ended, unless an outer guard interrupted it.

        Raises:
            Stopped: If a guard of an outer loop or a cancellation ended it. This is not recorded, so that
                the run continues with the next item after the limit was raised.
        """
        if self.ended is None and self.cut is not None and self.cut.owner != self.path:
            self._register(self._result(stop, self._output(stop), self.account.settled))
            raise self.cut
        return await super().finish(stop)

    def suspend(self, stop: Stop) -> None:
        """Do nothing: a suspended list has no result yet."""

    def _output(self, stop: Stop) -> Json:
        outputs = {item.number: item.output for item in self.history if item.error is None}
        if self.loop.keep == "last":
            return outputs[max(outputs)] if outputs else None
        every = [outputs.get(number) for number in range(1, len(self.items) + 1)]
        declared = self.loop.output_type
        return every if declared is None else declared.attach([json_of(item) for item in every])

    def _result(
        self, stop: Stop, output: Json, usage: Usage, reported: float | None = None
    ) -> Result:
        result = super()._result(stop, output, usage, reported)
        items = [self._typed_item(item) for item in self.items]
        return replace(result, items=item_outcomes(items, self.history))


class _ItemAttempt(Attempt):
    """The attempt of one item. Its evaluation describes how the loop inside it ended."""

    __slots__ = ()

    def __init__(self, ctx: Context, item: Json, began: float) -> None:
        super().__init__(ctx, item, began, adapts=False, call=self._execute)

    async def _execute(self, ctx: Context, name: str, step: Step, value: Json) -> Json:
        result = await attempt(ctx, name, step, value)
        self.evaluation = None
        # How the loop in an item ended; an item that is no loop has only completed.
        if result.reason is not Reason.COMPLETED:
            stop = Stop(result.reason, result.detail, result.also)
            self.evaluation = Evaluation(
                passed=result.satisfied,
                feedback="" if result.satisfied else result.detail,
                votes=({"ended": stop.to_json()},),
            )
        return result.output

    def _refuse_no_output(self) -> None:
        """Accept a missing output: the record of an item says how its loop ended."""

    def _rescued(self, cut: Stopped) -> Json:
        """Return None, so that the list contains only the outputs of finished items."""


Item = TypeVar("Item")


@dataclass(frozen=True)
class ForEach(CompositeStep):
    """The same step on each item: a loop whose input is the next item and whose limit is the length.

    `seconds` is the time limit of all items. `keep` is `all` for the list of outputs or `last` for the
    last one. `halts` ends the list at the first failed item. `unmet` decides the result if the share of
    satisfied items is below `min_success_rate`: `by_items` fails if an item failed and is exhausted
    otherwise, `failed` always fails.
    """

    noun: ClassVar[str] = "list"
    renewed: ClassVar[Sequence[tuple[int, str]]] = (
        (1, "how many items of a list must succeed by default"),
    )
    name: str
    items: ItemsStep
    execute: Step
    at_once: int = 1
    min_success_rate: float = 1.0
    unmet: str = "by_items"
    halts: bool = True
    seconds: float = math.inf
    keep: str = "all"
    over_list: ClassVar[bool] = True
    keeps_types: ClassVar[bool] = True

    # `LoopRun` reads these members of a loop. A list has no evaluator, no conditions and no hooks.
    evaluate = adapt = budget = on_iteration = on_terminate = None
    approve = ()
    rejudge = limit = 0
    baseline: ClassVar[bool] = False
    sentences: ClassVar[Mapping[str, Step]] = MappingProxyType({})
    on_stall: ClassVar[None] = None
    optimise: ClassVar[None] = None
    candidates: ClassVar[None] = None
    policies: ClassVar[None] = None
    measured: ClassVar[None] = None
    undecided: ClassVar[Undecided] = Undecided()
    explore: ClassVar[float] = 0.0
    hints: ClassVar[None] = None
    unbound = ""
    plain = False
    wall = math.inf
    members: ClassVar[tuple[Condition, ...]] = ()
    watched: ClassVar[tuple[Condition, ...]] = ()

    def parts(self) -> Iterable[Step]:
        return [self.execute]

    @property
    def input_type(self) -> ValueType | None:
        return self._input_type if self.items.of_input else self.items.input_type

    @functools.cached_property
    def _input_type(self) -> ValueType | None:
        return list_type(self.execute.input_type, self.name)

    @functools.cached_property
    def output_type(self) -> ValueType | None:
        declared = self.execute.output_type
        return list_type(declared, self.name, or_none=True) if self.keep == "all" else declared

    @property
    def iteration_types(self) -> tuple[ValueType | None, ValueType | None]:
        """The declared types of an item and of its output."""
        declared = self.execute.input_type or item_type_of(self.items.output_type)
        return declared, self.execute.output_type

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the items, the step and the limits."""
        # Without `at_once` and `seconds`: a run may continue with another speed or more time.
        limits = f"{self.items.most} {self.min_success_rate} {self.halts} {self.keep} {self.unmet}"
        return digest_of(
            "each", self.name, self.items.fingerprint, self.execute.fingerprint, limits
        )

    async def run(self, value: Json, ctx: Context) -> Result:
        """Execute the items that the journal does not hold yet, and return the result."""
        return await ListRun(self, value, ctx).run()

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the list ends early: at a failed item, if `halts` is set."""
        failed = next((item for item in history if item.error is not None), None)
        if failed is None or not self.halts:
            return None
        return Stop(Reason.ERROR, f"item {failed.number}: {failed.feedback}")

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return None: a list does not explore."""

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether an evaluation of the input satisfies it: a list has none."""
        del evaluation
        return False

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return the stop to report, which is the stop itself."""
        return stop

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over the remarks: a list has no condition that could not hold."""
        return iter(())

    def verdict(self, history: History, total: int) -> Stop:
        """Return the stop of a list whose items have all ended, by the share of satisfied items."""
        if not total:
            return Stop(Reason.COMPLETED, "there were no items")
        by_items = self.unmet != "failed"
        errors = [item for item in history if item.error is not None]
        # A list without any success fails, also if no success is required.
        if len(errors) == total:
            detail = f"all {total} items failed, the last with: {errors[-1].feedback}"
            strict = by_items and self.min_success_rate > 0
            return Stop(Reason.ITEMS_FAILED if strict else Reason.ALL_FAILED, detail)
        ends = [(item.number, item_stop(item)) for item in history]
        short = [(number, stop) for number, stop in ends if not stop.satisfied]
        satisfied = len(ends) - len(short)
        detail = f"{satisfied} of {total} items succeeded"
        needed = math.ceil(total * self.min_success_rate - 1e-9)  # 0.1 * 30 is above 3 in binary
        if satisfied >= needed:
            return Stop(Reason.COMPLETED, detail)
        failed = [(n, stop) for n, stop in short if stop.reason.status is Status.FAILED]
        # A failed item explains more than an exhausted one.
        number, stop = (failed or short)[0]
        detail = f"{detail}, and at least {needed} must; item {number}: {stop.detail}"
        if not by_items:
            return Stop(Reason.SUCCESS_RATE, detail)
        return Stop(Reason.ITEMS_FAILED if failed else Reason.ITEMS_EXHAUSTED, detail)


class ForEachOptions(TypedDict, total=False):
    """The options of `for_each`, which explains them."""

    name: str
    at_once: int
    max_items: int | None
    min_success_rate: float
    unmet: Literal["by_items", "failed"]
    on_failure: Literal["halt", "continue", "retry"]
    max_retries: int
    retry_delay: float
    item_timeout: float | None
    timeout: float | None


@overload
def for_each(
    execute: AsyncFunction[Item, Out],
    *,
    keep: Literal["all"] = ...,
    **options: Unpack[ForEachOptions],
) -> CompositeStep[Sequence[Item], list[Out | None]]: ...
@overload
def for_each(
    execute: StepLike[Item, Out],
    *,
    keep: Literal["all"] = ...,
    **options: Unpack[ForEachOptions],
) -> CompositeStep[Sequence[Item], list[Out | None]]: ...
@overload
def for_each(
    execute: AsyncFunction[Item, Out],
    *,
    items: Callable[[In], Sequence[Item]],
    keep: Literal["all"] = ...,
    **options: Unpack[ForEachOptions],
) -> CompositeStep[In, list[Out | None]]: ...
@overload
def for_each(
    execute: StepLike[Item, Out],
    *,
    items: Callable[[In], Sequence[Item]],
    keep: Literal["all"] = ...,
    **options: Unpack[ForEachOptions],
) -> CompositeStep[In, list[Out | None]]: ...
@overload
def for_each(
    execute: AsyncFunction[Any, Out],
    *,
    items: StepLike | None = ...,
    keep: Literal["last"],
    **options: Unpack[ForEachOptions],
) -> CompositeStep[Any, Out]: ...
@overload
def for_each(
    execute: StepLike[Any, Out],
    *,
    items: StepLike | None = ...,
    keep: Literal["last"],
    **options: Unpack[ForEachOptions],
) -> CompositeStep[Any, Out]: ...
@overload
def for_each(
    execute: StepLike[Any, Out],
    *,
    items: StepLike,
    keep: Literal["all"] = ...,
    **options: Unpack[ForEachOptions],
) -> CompositeStep[Any, list[Out | None]]: ...
def for_each(
    execute: StepLike,
    *,
    items: StepLike | None = None,
    name: str = "",
    at_once: int = 1,
    max_items: int | None = None,
    min_success_rate: float = 1.0,
    unmet: str = "by_items",
    on_failure: str = "halt",
    max_retries: int = 2,
    retry_delay: float = 0.5,
    item_timeout: float | None = None,
    timeout: float | None = None,
    keep: str = "all",
) -> CompositeStep:
    """Run a step on each item of a list, like `each` in a document.

    Each item is recorded as one iteration. After a crash, finished items are not repeated.

    Args:
        execute: makes an output from an item: a function or any step.
        items: a function that makes the list from the input. Default: the input is the list.
        name: its name in paths. Default: the name of `execute`.
        at_once: the most items that run at a time.
        max_items: the most items; further ones are left out with a warning. Default: more than 1000 items
            are an error.
        min_success_rate: the share of items, from 0 to 1, that must be satisfied.
        unmet: the status if fewer are satisfied: `by_items` is failed if an item failed, else exhausted;
            `failed` is always failed.
        on_failure: `halt` stops at the first failed item. `continue` goes on with the others. `retry`
            repeats the item first.
        max_retries: the most further attempts of an item under `retry`.
        retry_delay: the longest wait before the first further attempt, in seconds; it doubles each time.
        item_timeout: the most seconds for one item. Default: no limit.
        timeout: the most active seconds for the list; the outputs of finished items stay. Default: no limit.
        keep: the output: `all` is the list of outputs in the order of the items, with None for an item
            without one; `last` is the last output.

    Returns:
        A step. `Result.items` of the list has one row for each item.

    Raises:
        ConfigurationError: for an invalid option.

    Example:
        >>> from loopwright import for_each, run_sync
        >>> run_sync(for_each(str.upper, at_once=2), ["a", "b"]).output
        ['A', 'B']
    """
    most = None if max_items is None else codec.integer("for_each: max_items", max_items, minimum=1)
    one_of("for_each: unmet", unmet, ("by_items", "failed"))
    one_of("for_each: on_failure", on_failure, ("halt", "continue", "retry"))
    one_of("for_each: keep", keep, ("all", "last"))
    seconds = math.inf
    if timeout is not None:
        seconds = codec.number("for_each: timeout", timeout, minimum=0, above=True)
    made = as_step(execute)
    name = name or made.name.replace("/", "-")
    if item_timeout is not None:
        made = with_timeout(made, item_timeout)
    if on_failure == "retry":
        attempts = codec.integer("for_each: max_retries", max_retries, minimum=0) + 1
        made = retry(made, attempts=attempts, delay=retry_delay)
    return ForEach(
        name,
        items_step(items, most),
        made,
        at_once=codec.integer("for_each: at_once", at_once, minimum=1),
        min_success_rate=codec.number(
            "for_each: min_success_rate", min_success_rate, minimum=0, maximum=1
        ),
        unmet=unmet,
        halts=on_failure != "continue",
        seconds=seconds,
        keep=keep,
    )
