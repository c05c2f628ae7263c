"""The same step on each item of a list, in order or several at once.

Rules:

1. The list is an effect: a resumed run continues with the same items.
2. There is one record per item, failed or not, numbered from 1. Records are committed in the order of
   the items.
3. Items are independent: an item does not see the results of an item that runs at the same time.
4. Outputs have the positions of their items, null where there is no output.
5. The share of satisfied items decides. An exhausted loop is an item that has an output but is not
   satisfied. A timeout is a result too, with the outputs of the items that ended.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack, overload

from ..conditions import Condition
from ..records import (
    Evaluation,
    History,
    Reason,
    Result,
    Status,
    Stop,
    codec,
    item_stop,
)
from ..records.codec import Json
from ..records.typed import ValueType, item_type_of, list_type
from .composites import retry, with_timeout
from .context import Context
from .list_items import ItemsStep, items_step
from .list_run import ListRun
from .loop_options import one_of
from .loop_verdicts import Undecided
from .step import (
    AsyncFunction,
    CompositeStep,
    In,
    Out,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)

__all__ = ["ForEach", "for_each"]

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
    measured: ClassVar[None] = None
    undecided: ClassVar[Undecided] = Undecided()
    explore: ClassVar[float] = 0.0
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
