"""The same action on each item of a list, in order or several at once.

Rules:

1. The list is an effect: a resumed run goes over the same items.
2. One record per item, failed or not, numbered from 1 and committed in the order of the items.
3. Items are alone: what one does, another at the same time does not see.
4. Outputs stand at the places of their items, null where there is none.
5. The share of satisfied items decides: an exhausted loop is an item with an output that is not
   satisfied. Running out of time is a result: it has the outputs of the items that were done.

The items that a step goes over: a list, or its text.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...engine.budget import Account
from ...engine.composites import attempt
from ...engine.concurrency import run_all
from ...engine.context import Context
from ...engine.deadlines import DeadlineScope
from ...engine.scope import Scope
from ...engine.step import CompositeStep, Leaf, Step, digest_of
from ...errors import StepError, Stopped, Suspended
from ...evaluators.parsing.text import clean_text, read_json, strip_fence
from ...journal import Entry
from ...records import (
    NOTHING,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    codec,
    failure_of,
    item_outcomes,
    item_stop,
)
from ...records.codec import Json
from ...templates.variables import TemplatedValue, rendered

__all__ = ["FILE", "MOST_ITEMS", "ForEach", "Items", "inside", "items_of"]


FILE = "file://"
MAX_BYTES = 5_000_000
MOST_ITEMS = 1000  # of a list that names no `max_items`


class Items(Leaf):
    """A leaf whose output is the list of items; what a file held is on record with it.

    Items beyond `most` are left out with a warning; without it more than MOST_ITEMS are an error.
    `folder` is where relative paths begin and `root` what they do not leave. Only a template that
    itself begins with `file://` names a file: a value never chooses one.
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
        written = source.source
        self.from_file = isinstance(written, str) and written.lstrip().startswith(FILE)
        self.fingerprint = digest_of("items", codec.canonical(written))

    async def act(self, value: Json, ctx: Context) -> Json:
        """Return the items."""
        found = rendered(self.source, ctx, value)
        if self.from_file:
            found = self._read(codec.text_of(found).strip().removeprefix(FILE), ctx)
        return self._bounded(items_of(found, ctx.path), ctx)

    def _bounded(self, items: list[Json], ctx: Context) -> list[Json]:
        if self.most is None and len(items) > MOST_ITEMS:
            raise _refused(
                f"{len(items)} items are more than {MOST_ITEMS}; give max_items to allow them",
                ctx.path,
            )
        if self.most is None or len(items) <= self.most:
            return items
        owner = ctx.path.rpartition("/")[0]
        ctx.run.warn(
            f"{owner}: only the first {self.most} of {len(items)} items are done: that is its limit"
        )
        return items[: self.most]

    def _read(self, name: str, ctx: Context) -> str:
        path = inside(self.folder, name, self.root)
        if path is None:
            raise _refused(f"{FILE}{name} leads out of the project folder", ctx.path)
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _refused(f"{FILE}{name} cannot be read: {why}", ctx.path) from error
        if len(raw) > MAX_BYTES:
            raise _refused(f"{FILE}{name} has more than {MAX_BYTES:,} bytes; split it", ctx.path)
        return clean_text(raw.decode("utf-8-sig", "replace"))


def inside(folder: Path, name: str, root: Path) -> Path | None:
    """Return the file that a name means from a folder, if it lies inside the root."""
    found = Path(os.path.realpath(folder / name))
    return found if found.is_relative_to(os.path.realpath(root)) else None


def items_of(value: Any, path: str = "") -> list[Json]:
    """Return the items that a value holds.

    A list is itself. A text is a JSON array, in a code fence or not; else lines of JSON objects or
    arrays; else its lines of text, trimmed, without the empty ones.

    Raises:
        StepError: of kind `items`, for any other value.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        shown = type(value).__name__
        raise _refused(f"items: a {shown} is no list; give a list, a JSON array or lines", path)
    text = strip_fence(value)
    if text.startswith("["):
        whole = read_json(text)
        if whole.problem is None and isinstance(whole.value, list):
            return whole.value
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and all(line[0] in "{[" for line in lines):
        read = [read_json(line) for line in lines]
        if all(reading.problem is None for reading in read):
            return [reading.value for reading in read]
    return list(lines)


def _refused(message: str, path: str) -> StepError:
    return StepError(message, path=path, kind="items", retryable=False)


@dataclass(frozen=True)
class ForEach(CompositeStep):
    """The same step on each item; `seconds` for all, `keep` says whether its output is a list.

    `unmet` says what an unreached share of satisfied items means: `by_items` that it failed if an
    item failed and else is exhausted, `failed` that it failed.
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

    def parts(self) -> Iterable[Step]:
        return [self.execute]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of what is done to which items."""
        limits = f"{self.items.most} {self.min_success_rate} {self.halts} {self.keep} {self.unmet}"
        return digest_of(
            "each", self.name, self.items.fingerprint, self.execute.fingerprint, limits
        )

    async def run(self, value: Json, ctx: Context) -> Result:
        """Go over the items, from where the journal stands."""
        return await _Walk(self, value, ctx).run()


class _Walk:
    """One list while it is gone over."""

    def __init__(self, each: ForEach, value: Json, ctx: Context) -> None:
        self.each, self.value, self.ctx = each, value, ctx
        self.state = state = ctx.run
        own = ctx.path.rsplit("/", 1)[-1] == each.name
        self.path = path = ctx.path if own else ctx.below(each.name)
        self.history = History()
        self.items: list[Json] = []
        self.start = state.now()
        self.cut: Stopped | None = None
        self.spent = NOTHING
        if state.replay is not None:
            self._restore()
        self.account = Account(path, ctx.account, None, self.spent)
        stop = Stop(Reason.TIMEOUT, f"{each.name} took longer than its {each.seconds:g} s")
        self.gate = ctx.gate
        if each.seconds < math.inf:
            self.gate = DeadlineScope(path, ctx.gate, deadline=self.start + each.seconds, stop=stop)

    def _restore(self) -> None:
        """Take up the items that the journal holds."""
        replay = self.state.replay
        assert replay is not None
        began = replay.began(self.path)
        self.start = self.start if began is None else began
        self.spent = replay.spent(self.path)
        usage = NOTHING
        self.items = replay.items(self.path)
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
            self.items = items = await inner.call("items", self.each.items, self.value)
            self.state.loops.lists.add(self.path)
            await (self._in_turn(items) if self.each.at_once == 1 else self._together(items))
            if self.cut is not None:
                raise self.cut
        except StepError as error:  # what to go over cannot be read
            return self._end(Stop(Reason.ERROR, f"its items cannot be read: {error}"))
        except (Stopped, asyncio.CancelledError) as error:
            cut = self.state.stopped_by(error)
            if cut.owner != self.path:
                self._show(cut.stop, self._output())
                raise cut from None
            return self._end(cut.stop)
        return self._end(self._verdict(len(items)))

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
        total, numbers = len(items), [number for number, _ in left]
        done: dict[int, Iteration] = {}

        def keep(place: int, record: Iteration) -> None:
            done[left[place][0]] = record
            while numbers and numbers[0] in done:
                self._commit(done.pop(numbers.pop(0)))

        jobs = [functools.partial(self._one, *pair, total, History()) for pair in left]
        try:
            await run_all(jobs, self.each.at_once, done=keep, over=self._over)
        except Suspended:
            if self.cut is None:
                raise
        finally:
            for number in sorted(done):
                self._commit(done[number])

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
        failure = evaluation = None
        try:
            result = await attempt(ctx, "execute", self.each.execute, item)
            output, evaluation = result.output, _ended(result)
        except StepError as error:
            failure = self.state.clean(Failure.of("execute", error, redact=self.state.redact))
        except (Stopped, asyncio.CancelledError) as error:
            self.cut = self.state.stopped_by(error)
            failure = Failure("execute", "interrupted", self.cut.stop.detail, path)
        seconds = self.state.now() - began
        interrupted = failure is not None and failure.kind == "interrupted"
        return Iteration(
            number, item, output, evaluation, failure, account.settled, seconds, interrupted,
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
        self.state.note(record)
        self.history = self.history.appended(record, now - self.start, self.account.settled)

    def _verdict(self, total: int) -> Stop:
        if not total:
            return Stop(Reason.COMPLETED, "there were no items")
        errors = [item for item in self.history if item.error is not None]
        if errors and self.each.halts:
            return Stop(Reason.ERROR, f"item {errors[0].number}: {errors[0].feedback}")
        if len(errors) == total:
            said = f"all {total} items failed, the last with: {errors[-1].feedback}"
            return Stop(Reason.ITEMS_FAILED if self._strict else Reason.ALL_FAILED, said)
        ends = [(item.number, item_stop(item)) for item in self.history]
        done = sum(stop.satisfied for _, stop in ends)
        said = f"{done} of {total} items succeeded"
        least = math.ceil(total * self.each.min_success_rate - 1e-9)
        if done >= least:
            return Stop(Reason.COMPLETED, said)
        short = [(number, stop) for number, stop in ends if not stop.satisfied]
        failed = [one for one in short if one[1].reason.status is Status.FAILED]
        number, stop = (failed or short)[0]
        told = f"{said}, and at least {least} must; item {number}: {stop.detail}"
        if self.each.unmet == "failed":
            return Stop(Reason.SUCCESS_RATE, told)
        return Stop(Reason.ITEMS_FAILED if failed else Reason.ITEMS_EXHAUSTED, told)

    @property
    def _strict(self) -> bool:
        """Whether some item has to be satisfied."""
        return self.each.min_success_rate > 0 and self.each.unmet != "failed"

    def _output(self) -> Json:
        done = {item.number: item.output for item in self.history if item.error is None}
        if self.each.keep == "all":
            return [done.get(number) for number in range(1, len(self.items) + 1)]
        return done[max(done)] if done else None

    def _end(self, stop: Stop) -> Result:
        """Record how it ended and return it."""
        stop, output = self.state.cleaned_stop(stop), self._output()
        ended = {"name": self.each.name, "stop": stop.to_json(), "output": output}
        self.state.append(Entry("ended", self.path, self.state.now(), value=ended))
        return self._show(stop, output)

    def _show(self, stop: Stop, output: Json) -> Result:
        name = self.each.name
        result = Result(
            stop.reason.status, stop.reason, stop.detail, output, self.history,
            self.account.settled, run_id=self.state.run_id, name=name, also=stop.also,
            seconds=self.history.elapsed, items=item_outcomes(self.items, self.history),
            error=failure_of(stop, self.history),
        )  # fmt: skip
        self.state.loops.lists.add(self.path)
        self.state.loops.keep(self.path, result)
        if self.ctx.scope is not None:
            self.ctx.scope.keep_loop(name, result)
        return result


def _ended(result: Result) -> Evaluation | None:
    """Return what the record of an item says of how a loop in it ended; None if none did."""
    if result.reason is Reason.COMPLETED:
        return None
    stop = Stop(result.reason, result.detail, result.also)
    feedback = "" if result.satisfied else result.detail
    return Evaluation(None, result.satisfied, feedback, votes=({"ended": stop.to_json()},))
