"""The run of a list: `LoopRun` with the items as inputs, in order or several at once.

`for_each` declares the list and states its rules.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ..errors import StepError, Stopped, Suspended
from ..journal.replay import RecordedRun
from ..records import (
    NOTHING,
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Stop,
    Usage,
    item_outcomes,
)
from ..records.codec import Json
from ..records.typed import ValueType, item_type_of, json_of
from .budget import Account
from .concurrency import AtOnce, run_all
from .context import Context, Scope
from .deadlines import DeadlineScope
from .list_items import ItemsStep
from .loop_attempt import Attempt
from .loop_declaration import LoopDeclaration
from .loop_run import LoopRun
from .outcomes import attempt
from .step import Step

__all__ = ["ListDeclaration", "ListRun"]


class ListDeclaration(LoopDeclaration, Protocol):
    """The members of a list that its run uses; `ForEach` explains them."""

    @property
    def items(self) -> ItemsStep: ...

    @property
    def at_once(self) -> int: ...

    def verdict(self, history: History, total: int) -> Stop:
        """Return the stop of a list whose items have all ended."""


class ListRun(LoopRun):
    """The run of one list: `LoopRun` with the items as inputs.

    Each item has a separate scope and account, because several may run at once. `attempts` are the items
    that have begun but are not committed, `left` the numbers of items that are not committed, `begun`
    those of them that began before a crash and have not ended again. `most` is the number of items at a
    time, and `concurrent` says whether it can be above one.
    """

    loop: ListDeclaration

    def __init__(self, each: ListDeclaration, value: Json, ctx: Context) -> None:
        self.items: list[Json] = []
        self.attempts: dict[int, Attempt] = {}
        self.left: deque[int] = deque()
        self.begun: set[int] = set()
        super().__init__(each, value, ctx)
        self.most = AtOnce(self.run_state, self.path, each.at_once)
        # A person may let several run at a time, unless they edit the same files.
        alone = self.run_state.silent or self.scope.files is not None
        self.concurrent = each.at_once > 1 or not alone
        if each.at_once > 1:
            # Items at the same time would edit the same files.
            self.scope.files = None

    async def run(self) -> Result:
        """Read the items, then execute each; `at_once` of them at a time."""
        if self.ended is None and (stop := await self._read_items()) is not None:
            return await self.finish(stop)
        return await (self._run_at_once() if self.concurrent else super().run())

    async def _read_items(self) -> Stop | None:
        """Read the items; return why the list ends if they cannot be read."""
        around = Context(self.run_state, self.path, self.ctx.gate, self.account, self.scope.parent)
        try:
            self.items = await around.call("items", self.loop.items, self.scope.initial)
        except StepError as error:
            return Stop(Reason.ERROR, f"its items cannot be read: {error}")
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.run_state.stopped_by(error, self.path)
            return self.cut.stop
        # Before the first item: loops inside are recorded under the number of their item.
        self.run_state.loops.lists |= {self.path}
        recorded = {item.number for item in self.history}
        self.left.extend(n for n in range(1, len(self.items) + 1) if n not in recorded)
        return None

    async def _run_at_once(self) -> Result:
        """Execute several items at once; an item that ends early waits for those before it."""
        stop = self.recorded_stop()
        try:
            if self.ended is None and (stop is None or self.cut is not None):
                await self._execute_all()
                stop = self.decide()
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.run_state.stopped_by(error, self.path)
            stop = self.cut.stop
        assert stop is not None
        return await self.finish(stop)

    async def _execute_all(self) -> None:
        numbers = list(self.left)
        self.begun = {number for number in numbers if self._began(number)}
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
                jobs, self.most, done=keep, over=self._over, in_order=self.loop.at_once == 1
            )
        except Suspended:
            # A guard that ended the list has priority over an item that waits for a person.
            if self.cut is None:
                raise
        finally:
            # Finished items are kept, also behind a gap that an interrupted item left.
            for number in sorted(ended):
                self.commit(ended[number])

    def _began(self, number: int) -> bool:
        """Return whether an item began before a crash and is not recorded."""
        replay = self.run_state.replay
        return replay is not None and replay.began(f"{self.path}/{number}") is not None

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
        scope = Scope(self.loop.name, self.scope.initial, self.scope.parent, self.path)
        scope.number, scope.total = number, len(self.items)
        scope.types = self.scope.types
        # Items that run at once see no history, which would depend on their speed (rule 3).
        scope.history = self.history if self._in_order(path) else History()
        account = Account(path, self.account, None, spent)
        account.iteration_usage = spent
        self.ctx = Context(run, path, self.ctx.gate, account, scope)

    def _in_order(self, path: str) -> bool:
        """Return whether an item began while one ran at a time, so that it sees the earlier ones."""
        return self.loop.at_once == 1 and self.most.at(self.began) == 1

    def attempt(self) -> Attempt:
        """Return the attempt of the item that has begun."""
        assert self.ctx.scope is not None
        number = self.ctx.scope.number
        value = self._typed_item(self.items[number - 1])
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
        self.evaluation = _evaluation_of(result)
        return result.output

    def _refuse_no_output(self) -> None:
        """Accept a missing output: the record of an item says how its loop ended."""

    def _rescued(self, cut: Stopped) -> Json:
        """Return None, so that the list contains only the outputs of finished items."""


def _evaluation_of(result: Result) -> Evaluation | None:
    """Return how the loop in an item ended, as an evaluation; None if the item is not a loop."""
    if result.reason is Reason.COMPLETED:
        return None
    stop = Stop(result.reason, result.detail, result.also)
    return Evaluation(
        passed=result.satisfied,
        feedback="" if result.satisfied else result.detail,
        votes=({"ended": stop.to_json()},),
    )
