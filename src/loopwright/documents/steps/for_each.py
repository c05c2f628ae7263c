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

import asyncio
import functools
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ...conditions import Condition
from ...engine.budget import Account
from ...engine.concurrency import run_all
from ...engine.context import Context
from ...engine.deadlines import DeadlineScope
from ...engine.loop_attempt import Attempt
from ...engine.loop_run import LoopRun
from ...engine.outcomes import attempt
from ...engine.scope import Scope
from ...engine.step import CompositeStep, Leaf, Step, digest_of
from ...errors import StepError, Stopped, Suspended
from ...evaluators.parsing.text import clean_text, read_json, strip_fence
from ...journal.replay import RecordedRun
from ...records import (
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
from ...records.codec import Json
from ...templates.variables import TemplatedValue, rendered

__all__ = ["FILE", "MOST_ITEMS", "ForEach", "Items", "inside", "items_of"]


FILE = "file://"
MAX_BYTES = 5_000_000  # every item is recorded, so a larger file belongs into several runs
MOST_ITEMS = 1000  # items of a list without `max_items`; each may cost model calls


class Items(Leaf):
    """A leaf step whose output is the list of items, so that the content of a file is recorded too.

    Items beyond `most` are left out with a warning. Without `most`, more than MOST_ITEMS are an error.
    Relative paths start in `folder` and must stay inside `root`. Only a template that itself begins with
    `file://` names a file; a rendered value never does.
    """

    fingerprint: str

    name = "items"

    def __init__(
        self, source: TemplatedValue, folder: Path, root: Path, most: int | None = None
    ) -> None:
        self.source = source
        self.most = most
        self.folder = folder
        self.root = root
        text = source.source
        self.from_file = isinstance(text, str) and text.lstrip().startswith(FILE)
        self.fingerprint = digest_of("items", codec.canonical(text))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        source = rendered(self.source, ctx, value)
        if self.from_file:
            source = self._read(codec.text_of(source).strip().removeprefix(FILE), ctx)
        return self._bounded(items_of(source, ctx.path), ctx)

    def _bounded(self, items: list[Json], ctx: Context) -> list[Json]:
        if self.most is None and len(items) > MOST_ITEMS:
            raise _refused(
                f"{len(items)} items are more than {MOST_ITEMS}; set max_items to allow them",
                ctx.path,
            )
        if self.most is None or len(items) <= self.most:
            return items
        owner = ctx.path.rpartition("/")[0]
        ctx.run.warn(
            f"{owner}: only the first {self.most} of {len(items)} items are done, because the limit is {self.most}"
        )
        return items[: self.most]

    def _read(self, name: str, ctx: Context) -> str:
        path = inside(self.folder, name, self.root)
        if path is None:
            raise _refused(f"{FILE}{name} is outside the project folder", ctx.path)
        try:
            with path.open("rb") as file:
                # One byte more than allowed, instead of the file's size, which may change before the read.
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _refused(f"{FILE}{name} cannot be read: {why}", ctx.path) from error
        if len(raw) > MAX_BYTES:
            raise _refused(f"{FILE}{name} has more than {MAX_BYTES:,} bytes; split it", ctx.path)
        return clean_text(raw.decode("utf-8-sig", "replace"))


def inside(folder: Path, name: str, root: Path) -> Path | None:
    """Return the file of this name in a folder, or None if it is outside the root."""
    # The real path, so that a symbolic link does not lead out of the root.
    path = Path(os.path.realpath(folder / name))
    return path if path.is_relative_to(os.path.realpath(root)) else None


def items_of(value: Json, path: str = "") -> list[Json]:
    """Return the items of a value.

    A list is returned unchanged. A text is a JSON array, also in a code fence; otherwise lines of JSON
    objects or arrays; otherwise its lines of text, trimmed and without empty ones.

    Raises:
        StepError: Of kind `items`, for any other value.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        kind = type(value).__name__
        raise _refused(f"items: expected a list, a JSON array or lines of text, not {kind}", path)
    text = strip_fence(value)
    if text.startswith("["):
        reading = read_json(text)
        if reading.problem is None and isinstance(reading.value, list):
            return reading.value
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and all(line[0] in "{[" for line in lines):
        readings = [read_json(line) for line in lines]
        if all(reading.problem is None for reading in readings):
            return [reading.value for reading in readings]
    return list(lines)


def _refused(message: str, path: str) -> StepError:
    return StepError(message, path=path, kind="items", retryable=False)


@dataclass(frozen=True)
class ForEach(CompositeStep):
    """The same step on each item: a loop whose input is the next item and whose limit is the length.

    `seconds` is the time limit of all items. `keep` is `all` for the list of outputs or `last` for the
    last one. `halts` ends the list at the first failed item. `unmet` decides the result if the share of
    satisfied items is below `min_success_rate`: `by_items` fails if an item failed and is exhausted
    otherwise, `failed` always fails.
    """

    name: str
    items: Items
    execute: Step
    at_once: int = 1
    min_success_rate: float = 1.0
    unmet: str = "by_items"
    halts: bool = True
    seconds: float = math.inf
    keep: str = "all"
    over_list: ClassVar[bool] = True

    # `LoopRun` reads these members of a loop. A list has no evaluator, no conditions and no hooks.
    evaluate = adapt = budget = on_iteration = on_terminate = None
    approve = ()
    rejudge = limit = 0
    unbound = ""
    plain = False
    wall = math.inf
    members: ClassVar[tuple[Condition, ...]] = ()
    watched: ClassVar[tuple[Condition, ...]] = ()

    def parts(self) -> Iterable[Step]:
        return [self.execute]

    @functools.cached_property
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


class ListRun(LoopRun):
    """The run of one list: `LoopRun` with the items as inputs.

    Each item has a separate scope and account, because several may run at once. `attempts` are the items
    that have begun but are not committed, `left` the numbers of items that are not committed.
    """

    loop: ForEach

    def __init__(self, each: ForEach, value: Json, ctx: Context) -> None:
        self.items: list[Json] = []
        self.attempts: dict[int, Attempt] = {}
        self.left: deque[int] = deque()
        super().__init__(each, value, ctx)

    async def run(self) -> Result:
        """Read the items, then execute each; `at_once` of them at a time."""
        if self.ended is None and (stop := await self._read_items()) is not None:
            return await self.finish(stop)
        return await (super().run() if self.loop.at_once == 1 else self._run_at_once())

    async def _read_items(self) -> Stop | None:
        """Read the items; return why the list ends if they cannot be read."""
        around = Context(self.run_state, self.path, self.ctx.gate, self.account, self.scope.parent)
        try:
            self.items = await around.call("items", self.loop.items, self.scope.initial)
        except StepError as error:
            return Stop(Reason.ERROR, f"its items cannot be read: {error}")
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.run_state.stopped_by(error)
            return self.cut.stop
        # Before the first item: loops inside are recorded under the number of their item.
        self.run_state.loops.lists.add(self.path)
        recorded = {item.number for item in self.history}
        self.left.extend(n for n in range(1, len(self.items) + 1) if n not in recorded)
        return None

    async def _run_at_once(self) -> Result:
        """Execute several items at once; an item that ends early waits for those before it."""
        stop = self.recorded_stop()
        try:
            if stop is None:
                await self._execute_all()
                stop = self.decide()
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.run_state.stopped_by(error)
            stop = self.cut.stop
        assert stop is not None
        return await self.finish(stop)

    async def _execute_all(self) -> None:
        numbers = list(self.left)
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
                jobs, self.loop.at_once, done=keep, over=lambda: self._early_stop() is not None
            )
        except Suspended:
            # A guard that ended the list has priority over an item that waits for a person.
            if self.cut is None:
                raise
        finally:
            # Finished items are kept, also behind a gap that an interrupted item left.
            for number in sorted(ended):
                self.commit(ended[number])

    async def _execute(self, number: int) -> Iteration:
        self.admit(number)
        return await self.iterate()

    def _restore(self, replay: RecordedRun) -> None:
        self.items = replay.items(self.path)
        super()._restore(replay)

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
        # Items that run at once see no history, which would depend on their speed (rule 3).
        scope.history = self.history if self.loop.at_once == 1 else History()
        account = Account(path, self.account, None, spent)
        account.iteration_usage = spent
        self.ctx = Context(run, path, self.ctx.gate, account, scope)

    def attempt(self) -> Attempt:
        """Return the attempt of the item that has begun."""
        assert self.ctx.scope is not None
        number = self.ctx.scope.number
        item = _ItemAttempt(self.ctx, self.loop.execute, self.items[number - 1], self.began)
        self.attempts[number] = item
        return item

    def commit(self, iteration: Iteration) -> None:
        """Commit an item. Its end is now, so that recorded items end in their order."""
        self.attempted = self.attempts.pop(iteration.number)
        self.attempted.ended = self.run_state.now()
        self.left.remove(iteration.number)
        super().commit(iteration)

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
        if self.loop.keep == "all":
            return [outputs.get(number) for number in range(1, len(self.items) + 1)]
        return outputs[max(outputs)] if outputs else None

    def _result(
        self, stop: Stop, output: Json, usage: Usage, reported: float | None = None
    ) -> Result:
        result = super()._result(stop, output, usage, reported)
        return replace(result, items=item_outcomes(self.items, self.history))


class _ItemAttempt(Attempt):
    """The attempt of one item. Its evaluation describes how the loop inside it ended."""

    __slots__ = ()

    def __init__(self, ctx: Context, execute: Step, item: Json, began: float) -> None:
        super().__init__(ctx, execute, item, began=began, adapts=False, call=self._execute)

    async def _execute(self, name: str, step: Step, value: Json) -> Json:
        result = await attempt(self.ctx, name, step, value)
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
