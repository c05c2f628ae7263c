"""The same action on each item of a list, in order or several at once.

Rules:

1. The list is an effect: a resumed run goes over the same items.
2. One record per item, failed or not, numbered from 1 and committed in the order of the items.
3. Items are alone: what one does, another at the same time does not see.
4. Running out of time is a result: it has the outputs of the items that were done.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..budget import Account
from ..codec import Json
from ..composites import Composite, limited, retrying
from ..context import Context
from ..errors import StepError, Stopped, Suspended
from ..journal import Entry
from ..records import NOTHING, Failure, History, Iteration, Reason, Result, Stop
from ..runtime import Gate, Scope
from ..step import digest_of
from ..together import question_of
from ..variables import OF_ITEMS
from .items import FILE, Items, inside
from .native import EachSpec

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["MOST_ITEMS", "Each", "compile_each"]

MOST_ITEMS = 1000  # of a list that names no `max_items`


@dataclass(frozen=True)
class Each(Composite):
    """The same step on each item; `seconds` for all, `keep` says whether its output is a list."""

    name: str
    items: Items
    execute: Any
    at_once: int = 1
    max_items: int | None = None
    min_success_rate: float = 0.0
    halts: bool = True
    seconds: float = math.inf
    keep: str = "all"

    def made_of(self) -> Iterable[Any]:
        return [self.execute]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of what is done to which items."""
        limits = f"{self.max_items} {self.min_success_rate} {self.halts} {self.keep}"
        return digest_of(
            "each", self.name, self.items.fingerprint, self.execute.fingerprint, limits
        )

    async def run(self, value: Json, ctx: Context) -> Result:
        """Go over the items, from where the journal stands."""
        return await _Walk(self, value, ctx).run()


class _Walk:
    """One list while it is gone over."""

    def __init__(self, each: Each, value: Json, ctx: Context) -> None:
        self.each, self.value, self.ctx = each, value, ctx
        self.state = state = ctx.run
        own = ctx.path.rsplit("/", 1)[-1] == each.name
        self.path = path = ctx.path if own else ctx.below(each.name)
        self.history = History()
        self.start = state.now()
        self.cut: Stopped | None = None
        self.spent = NOTHING
        if state.replay is not None:
            self._restore()
        self.account = Account(path, ctx.account, None, self.spent)
        stop = Stop(Reason.TIMEOUT, f"{each.name} took longer than its {each.seconds:g} s")
        self.gate = ctx.gate
        if each.seconds < math.inf:
            self.gate = Gate(path, ctx.gate, deadline=self.start + each.seconds, stop=stop)

    def _restore(self) -> None:
        """Take up the items that the journal holds."""
        replay = self.state.replay
        assert replay is not None
        began = replay.began(self.path)
        self.start = self.start if began is None else began
        self.spent = replay.spent(self.path)
        usage = NOTHING
        for entry in replay.rounds.get(self.path, ()):
            usage += entry.value.usage
            self.history = self.history.appended(entry.value, entry.seconds, usage)

    async def run(self) -> Result:
        replay = self.state.replay
        known = replay.ended.get(self.path) if replay is not None else None
        if known is not None:
            return self._show(Stop.from_json(known["stop"]), known["output"])
        try:
            inner = Context(self.state, self.path, self.gate, self.account, self.ctx.scope)
            items = await inner.call("items", self.each.items, self.value)
            items = self._bounded(items)
            await (self._in_turn(items) if self.each.at_once == 1 else self._together(items))
            if self.cut is not None:
                raise self.cut
        except (Stopped, asyncio.CancelledError) as error:
            cut = self.state.stopped_by(error)
            if cut.owner != self.path:
                self._show(cut.stop, self._output())
                raise cut from None
            return self._end(cut.stop)
        return self._end(self._verdict(len(items)))

    def _bounded(self, items: list[Json]) -> list[Json]:
        most = self.each.max_items
        if most is None and len(items) > MOST_ITEMS:
            what = f"{len(items)} items are more than {MOST_ITEMS}; give max_items to allow them"
            raise StepError(what, path=self.path, kind="items", retryable=False)
        if most is not None and len(items) > most:
            what = f"{self.path}: only the first {most} of {len(items)} items are done: that is its limit"
            self.state.warn(what)
            return items[:most]
        return items

    def _over(self) -> bool:
        failed = any(item.error is not None for item in self.history)
        return self.cut is not None or (self.each.halts and failed)

    def _left(self, items: list[Json]) -> list[tuple[int, Json]]:
        done = {item.number for item in self.history}
        return [pair for pair in enumerate(items, start=1) if pair[0] not in done]

    async def _in_turn(self, items: list[Json]) -> None:
        for number, item in self._left(items):
            if self._over():
                return
            self._commit(await self._one(number, item, len(items), self.history))

    async def _together(self, items: list[Json]) -> None:
        """Work on several items at once; what is done first waits for those before it."""
        left = self._left(items)
        flying: dict[asyncio.Task[Iteration], int] = {}
        done: dict[int, Iteration] = {}
        asks: dict[int, Suspended] = {}
        order = [number for number, _ in left]
        try:
            while (left or flying) and not self._over():
                while left and len(flying) < self.each.at_once:
                    number, item = left.pop(0)
                    work = self._one(number, item, len(items), History())
                    flying[asyncio.ensure_future(work)] = number
                ended, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(ended, key=lambda task: flying[task]):
                    number = flying.pop(task)
                    if (asked := question_of(task)) is None:
                        done[number] = task.result()
                    else:  # the other items need not wait for its answer
                        asks[number] = asked
                while order and order[0] in done:
                    self._commit(done.pop(order.pop(0)))
        finally:
            for task in flying:
                task.cancel()
            if flying:
                await asyncio.wait(flying)
            for task in flying:
                _ = task.cancelled() or task.exception()  # seen: it ended while being cancelled
            for number in sorted(done):
                self._commit(done[number])
        if asks and self.cut is None:
            raise asks[min(asks)]

    async def _one(self, number: int, item: Json, total: int, seen: History) -> Iteration:
        """Do one item and return its record; its error is part of it."""
        path = f"{self.path}/{number}"
        scope = Scope(self.each.name, self.value, self.ctx.scope, self.path)
        scope.number, scope.total, scope.current, scope.history = number, total, item, seen
        replay = self.state.replay
        account = Account(path, self.account, None, replay.spent(path) if replay else NOTHING)
        ctx = Context(self.state, path, self.gate, account, scope)
        self._admit(account)
        began = self.state.now()
        output: Json = None
        failure = None
        try:
            output = await ctx.call("execute", self.each.execute, item)
        except StepError as error:
            failure = Failure(
                "execute", error.kind, str(error), error.path, error.retryable, error.retry_after
            )
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.state.stopped_by(error)
            failure = Failure("execute", "interrupted", self.cut.stop.detail, path)
        seconds = self.state.now() - began
        interrupted = failure is not None and failure.kind == "interrupted"
        return Iteration(
            number, item, output, None, failure, account.settled, seconds, interrupted,
            steps=scope.parts,
        )  # fmt: skip

    def _admit(self, account: Account) -> None:
        """Ask whether an item may begin. Raises Stopped."""
        if self.state.cancelled is not None:
            raise Stopped("", self.state.cancelled)
        if self.gate is not None:
            self.gate.ask(self.state)
        account.admit()

    def _commit(self, record: Iteration) -> None:
        now = self.state.now()
        if not self.state.silent:
            entry = Entry("iteration", self.path, now, value=record, seconds=now - self.start)
            self.state.append(entry)
        self.history = self.history.appended(record, now - self.start, self.account.settled)

    def _verdict(self, total: int) -> Stop:
        failed = [item for item in self.history if item.error is not None]
        if failed and self.each.halts:
            return Stop(Reason.ERROR, f"item {failed[0].number}: {failed[0].feedback}")
        done = len(self.history) - len(failed)
        said = f"{done} of {total} items succeeded" if total else "there were no items"
        rate = self.each.min_success_rate
        if total and done / total < rate:
            return Stop(Reason.SUCCESS_RATE, f"{said}, and {rate:g} of them must")
        if total and not done:
            said = f"all {total} items failed, the last with: {failed[-1].feedback}"
            return Stop(Reason.ALL_FAILED, said)
        return Stop(Reason.COMPLETED, said)

    def _output(self) -> Json:
        outputs = [item.output for item in self.history if item.error is None]
        if self.each.keep == "all":
            return outputs
        return outputs[-1] if outputs else None

    def _end(self, stop: Stop) -> Result:
        """Record how it ended and return it."""
        output = self._output()
        ended = {"name": self.each.name, "stop": stop.to_json(), "output": output}
        self.state.append(Entry("ended", self.path, self.state.now(), value=ended))
        return self._show(stop, output)

    def _show(self, stop: Stop, output: Json) -> Result:
        name = self.each.name
        result = Result(
            stop.reason.status, stop.reason, stop.detail, output, self.history,
            self.account.settled, run_id=self.state.run_id, name=name, also=stop.also,
            seconds=self.history.elapsed,
        )  # fmt: skip
        self.state.loops.pop(name, None)
        self.state.loops[name] = result
        if self.ctx.scope is not None:
            self.ctx.scope.keep_loop(name, result)
        return result


def compile_each(compiler: Compiler, spec: EachSpec, name: str, path: Path_) -> Each | None:
    """Compile a walk over items; None if problems were found."""
    source = compiler.filled((*path, "items"), spec.items)
    root = compiler.project.root
    written = spec.items.strip() if isinstance(spec.items, str) else ""
    constant = written.startswith(FILE) and "{{" not in written
    if constant and inside(compiler.folder, written.removeprefix(FILE), root) is None:
        compiler.problem((*path, "items"), f"{written} leads out of the project folder")
    around = compiler.knowing(["loop", *(f"loop.{field}" for field in OF_ITEMS)])
    execute = around.action(spec.execute, "execute", (*path, "execute"))
    if execute is None:
        return None
    if spec.item_timeout is not None:
        execute = limited(execute, spec.item_timeout)
    if spec.on_failure == "retry":
        execute = retrying(execute, attempts=spec.max_retries + 1, delay=spec.retry_delay)
    return Each(
        name, Items(source, compiler.folder, root), execute, spec.at_once, spec.max_items,
        spec.min_success_rate, spec.on_failure != "continue", spec.timeout or math.inf, spec.keep,
    )  # fmt: skip
