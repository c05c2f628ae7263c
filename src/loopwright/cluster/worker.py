"""A worker: runs what an engine delivers, brings back what an engine lost, and keeps budgets over workers.

1. A run is a task of the worker, not of the engine: if the engine's connection fails, the runs in progress continue,
   and a repeated delivery joins them.
2. A run that this worker cannot run goes back to its queue with a delay and a reason, for a worker that can. A run
   with a workspace continues only on the machine that has the folders.
3. A run that is delivered five times without a new result is suspended; a person decides.

A budget over workers limits what all runs of a queue, or of an id, may spend together:

1. A run reports its total after each call, and at its end. The total replaces the one before, so a report that is
   repeated, or lost with its worker, changes nothing: the next one has it.
2. A call that costs something is refused once the account has spent its budget. Calls in progress then, and those that
   other workers begin within a second, may exceed it.
3. A run that has not begun waits in its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from ..conditions import Budget, amount, tuned_budget
from ..engine.budgets import Limit, Limits, SharedLimits, Spending, limits_of, strictest
from ..engine.run import run
from ..engine.run_state import Listener
from ..engine.step import Step, StepLike, as_step
from ..errors import (
    ConfigurationError,
    DocumentError,
    JournalError,
    JournalUnavailable,
    OwnershipLost,
    ReplayMismatch,
    RunLocked,
    RunNotFound,
    Stopped,
)
from ..journal import Journal, RunInfo, open_journal
from ..records import NOTHING, Reason, Result, Status, Stop, Usage
from ..telemetry import Telemetry
from .delivery import DEFAULT_QUEUE, Deliverer, open_deliverer, queue_name, sentence_of
from .shared_runs import CARRIED, SUBMITTED_AS, Beat, SharedRuns, is_over, open_runs
from .sweeper import RunOpening, Sweeper, SweepMetrics, TakeoverCounter, is_poison, may_continue
from .trust import RootModules, TrustedDigests

__all__ = [
    "AccountStore",
    "RunSpending",
    "SharedBudgets",
    "Worker",
    "accounts_of",
    "uses_workspace",
]

_FRESH = 1.0  # seconds for which the total of an account is not read again
Report = tuple[str, str, Usage]  # an account, a run, and what the run has spent


class AccountStore(Protocol):
    """Where the spending of all workers is counted."""

    async def spend(self, reports: Sequence[Report]) -> None:
        """Record what runs have spent; a lower amount than before is left out."""

    async def spent(self) -> dict[str, Usage]:
        """Return what the runs of each account have spent."""


def accounts_of(row: RunInfo) -> list[str]:
    """Return the accounts of a run: its queue, its id, and the part of the id before each slash.

    Example:
        >>> accounts_of(RunInfo("r", "r", queue="slow", source={"submitted_as": "batch/7"}))
        ['queue:slow', 'id:batch/7', 'id:batch']
    """
    accounts = [f"queue:{row.queue}"]
    given = str(row.source.get(SUBMITTED_AS) or "")
    while given:
        accounts.append(f"id:{given}")
        given = given.rpartition("/")[0]
    return accounts


def checked_budgets(budgets: Mapping[str, Budget]) -> dict[str, Budget]:
    """Return the budgets of a worker. Raises ConfigurationError for another name or limit."""
    for name, budget in budgets.items():
        kind, _, rest = name.partition(":")
        if kind not in ("queue", "id") or not rest:
            raise ConfigurationError(
                f"budgets: {name!r} is not an account; use queue:NAME or id:ID"
            )
        if budget.effects is not None or not budget.spending:
            raise ConfigurationError(f"budgets: {name}: use calls, tokens or usd")
    return dict(budgets)


class SharedBudgets:
    """The budgets of a worker.

    Args:
        store: where spending is counted.
        budgets: what may be spent, by account.
    """

    def __init__(self, store: AccountStore, budgets: Mapping[str, Budget]) -> None:
        self._store = store
        self._budgets = budgets
        self._totals: dict[str, Usage] = {}
        self._read = -_FRESH  # when the totals were read
        self._waiting: dict[tuple[str, str], Usage] = {}  # reports by account and run
        self._reporting = asyncio.Lock()

    def of(self, row: RunInfo) -> RunSpending | None:
        """Return the budgets that apply to a run; None without one."""
        names = [name for name in accounts_of(row) if name in self._budgets]
        return RunSpending(self, row.run_id, names) if names else None

    async def used_up(self, names: Sequence[str]) -> str:
        """Return a sentence on the first of these accounts that has spent its budget, or ""."""
        if time.monotonic() - self._read > _FRESH:
            await self._refresh()
        for name in names:
            budget, total = self._budgets[name], self._totals.get(name, NOTHING)
            for unit in ("calls", "tokens", "usd"):
                cap, used = getattr(budget, unit), getattr(total, unit)
                if cap is not None and used >= cap:
                    return f"{amount(used)} of {amount(cap)} {unit} of the budget {name} spent"
        return ""

    async def report(self, names: Sequence[str], run_id: str, usage: Usage) -> None:
        """Record what a run has spent; reports of several runs share a statement."""
        for name in names:
            self._waiting[name, run_id] = usage
        async with self._reporting:
            reports, self._waiting = self._waiting, {}
            if not reports:  # another report had it
                return
            try:
                await self._store.spend(
                    [(name, run, spent) for (name, run), spent in sorted(reports.items())]
                )
            except BaseException:
                self._waiting = {**reports, **self._waiting}
                raise
            await self._refresh()

    async def _refresh(self) -> None:
        self._totals = await self._store.spent()
        self._read = time.monotonic()


class RunSpending(Spending):
    """The budgets over workers that apply to a run; see Spending."""

    def __init__(self, budgets: SharedBudgets, run_id: str, names: Sequence[str]) -> None:
        self._budgets = budgets
        self._run_id = run_id
        self._names = names
        self._reported = NOTHING

    async def used_up(self) -> str:
        """Return a sentence on an account that has spent its budget, or ""."""
        return await self._budgets.used_up(self._names)

    async def admit(self) -> None:
        """Raise Stopped for the run if one of its accounts has spent its budget."""
        if detail := await self.used_up():
            raise Stopped("", Stop(Reason.BUDGET, detail))

    async def report(self, usage: Usage) -> None:
        """Record what the run has spent until now."""
        if usage != self._reported:
            await self._budgets.report(self._names, self._run_id, usage)
            self._reported = usage


def uses_workspace(step: Step) -> bool:
    """Return whether a step, or a step inside it, keeps files in a workspace."""
    if getattr(step, "workspace", None) is not None:
        return True
    return any(uses_workspace(part) for part in step.parts())


DEFAULT_SLOTS = 50
_LOG = logging.getLogger("loopwright.cluster")
_EARLY = 1.0  # seconds by which a delivery may come before the time of its run
_PATIENCE = 15.0  # seconds to wait for a run that another worker owns
_ELSEWHERE = 1.0  # seconds before a run is delivered again that another host can continue
_KEPT = 10_000  # runs whose reasons are remembered
# Seconds for which an engine that ends may speak with its server, which may be silent.
_LAST_WORD = 5.0
_QUIET = 5  # seconds without a beat after which a worker takes no more deliveries
_STEADY = 15.0  # seconds of service after which the end of an engine is a new event
_LONGEST_DELAY = 300.0  # seconds before a run is tried again that its budget or its journal stopped
# Seconds before a run is tried again that this worker cannot run: a newly trusted run waits at most half a minute.
_UNABLE, _LONGEST_UNABLE = 2.0, 24.0


class _Unable(Exception):
    """This worker cannot run a run; the text is the reason."""


class _Elsewhere(_Unable):
    """The files of a run are on another host."""


class _Runnable(NamedTuple):
    """What a run needs."""

    step: Step
    budget: Budget | None = None
    resources: Mapping[str, Any] = {}
    limits: Mapping[str, Limits] = {}


class Worker:
    """Runs submitted runs, on any number of machines.

    Use it as an async context manager, and call `serve`.

    Args:
        journal: the URL of the journal, such as `postgres://HOST/DATABASE`, or a Journal.
        queues: how many runs at a time, by the name of the queue. Default: 50 of the queue `default`.
        steps: the Python steps that this worker can run, by their names and fingerprints.
        root: the folder, or several, of Python modules for steps that were submitted as `module:attribute`, as
            they are when the worker starts. Only a Loop, a Workflow or another Step in a source file of these
            folders is run. A module in several folders is that of the first.
        deliverer: a Deliverer, or `NAME` or `NAME:ADDRESS` of one. Default: `pgqueuer`.
        limits: limits on calls over all workers, by provider, model, tool, step or `queue:NAME`, such as
            `{"openai": Cap(40) & Rate(500, per=60)}`. Of these and those of a document the stricter ones apply.
        budgets: what all runs of a queue or of an id may spend together, over all workers, as `queue:NAME` or
            `id:ID`, such as `{"queue:nightly": Budget(usd=20)}`. Give all workers the same budgets.
        trust: the digests of documents whose commands and Python code may run here, and of files in `root` that
            changed, or their beginnings of 16 characters or more; `all`; or a function that returns whether a
            digest is trusted.
        drain: how many seconds runs may continue after `stop`. Default: 30.
        in_doubt: `suspend` or `rerun` a step that is not idempotent and was in flight at a crash.
        retain: after how many seconds ended runs are deleted, by one of the workers. Default: 0, they are kept.
        telemetry: receives the traces and metrics of the runs, and metrics of the queues while this worker sweeps.
            Default: none.
        resources: models and other objects that steps need, by name.

    Raises:
        ConfigurationError: for an invalid argument.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations
        >>> from loopwright.cluster import InMemoryDeliverer, Worker, submit
        >>> from loopwright.journal import MemoryJournal
        >>> count = Loop(lambda n: n + 1, until=MaxIterations(3), name="count")
        >>> async def example() -> None:
        ...     journal, deliverer = MemoryJournal(), InMemoryDeliverer()
        ...     run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
        ...     async with Worker(journal=journal, steps=[count], deliverer=deliverer) as worker:
        ...         serving = asyncio.create_task(worker.serve())
        ...         while (row := await journal.find(run_id)).status in ("queued", "running"):
        ...             await asyncio.sleep(0.01)
        ...         worker.stop()
        ...         await serving
        ...     print(row.status, row.iterations)
        >>> asyncio.run(example())
        exhausted 3
    """

    def __init__(
        self,
        *,
        journal: Journal | str,
        queues: Mapping[str, int] | None = None,
        steps: Sequence[StepLike] = (),
        root: str | Path | Sequence[str | Path] = (),
        deliverer: Deliverer | str = "",
        limits: Mapping[str, Limit] | None = None,
        budgets: Mapping[str, Budget] | None = None,
        trust: Collection[str] | str | Callable[[str], bool] = (),
        drain: float = 30.0,
        in_doubt: str = "suspend",
        retain: float = 0.0,
        telemetry: Telemetry | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self._queues = dict({DEFAULT_QUEUE: DEFAULT_SLOTS} if queues is None else queues)
        for queue, slots in self._queues.items():
            queue_name(queue)
            if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
                raise ConfigurationError(
                    f"queues: {queue}: {slots!r} is not a number of runs; use 1 or more"
                )
        if not self._queues:
            raise ConfigurationError("queues: name one queue or more, such as {'default': 50}")
        self._steps = {(step.name, step.fingerprint): step for step in map(as_step, steps)}
        roots = [root] if isinstance(root, str | Path) else root
        self._roots = [folder for folder in roots if str(folder)]
        self._modules: RootModules | None = None
        self._owns_journal = isinstance(journal, str)
        self._journal = open_journal(journal) if isinstance(journal, str) else journal
        self._owns_deliverer = isinstance(deliverer, str)
        url = journal if isinstance(journal, str) else getattr(journal, "url", "")
        self._deliverer = (
            open_deliverer(deliverer, url) if isinstance(deliverer, str) else deliverer
        )
        self._limits = {name: limits_of(limit) for name, limit in (limits or {}).items()}
        self._budgets = checked_budgets(budgets or {})
        self._shared_budgets: SharedBudgets | None = None
        self._trusts = trust if callable(trust) else TrustedDigests(trust)
        self._drain = drain
        self._in_doubt = in_doubt
        self._retain = retain
        self._telemetry = telemetry
        self._prune = getattr(self._journal, "prune", None) if retain else None
        if retain and self._prune is None:
            raise ConfigurationError(
                "retain: the runs of this journal cannot be deleted. Use postgres://HOST/DATABASE."
            )
        self._resources = dict(resources or {})
        self.runs: SharedRuns | None = None
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._waiting: set[str] = set()  # of these, the runs that wait for a slot of their queue
        self._free = {name: asyncio.Semaphore(slots) for name, slots in self._queues.items()}
        self._stopping = asyncio.Event()
        self._stopping_now = asyncio.Event()
        self._paused: frozenset[str] = frozenset()
        self._repaused = asyncio.Event()  # whether other queues are paused than before
        self._beats = 0  # the number of those that the store answered
        self._finished = 0
        self._returned: dict[str, str] = {}  # the latest reason by run

    @property
    def held(self) -> list[str]:
        """The runs in progress, oldest first."""
        return [run_id for run_id in self._running if run_id not in self._waiting]

    @property
    def paused(self) -> frozenset[str]:
        """The queues of which it takes no runs, as operators said; among them those that it does not serve."""
        return self._paused

    @property
    def finished(self) -> int:
        """The number of runs that ended here."""
        return self._finished

    async def __aenter__(self) -> Self:
        self.runs = open_runs(self._journal)
        if self._roots:
            self._modules = RootModules(self._roots, self._trusts)
            self._modules.open()
        try:
            # Creates the tables, and reports a database that is away.
            await self._journal.runs(limit=1)
            await self._deliverer.prepare()
            await self.runs.enter(self._queues)
            self._heard(await self.runs.beat(0))
        except BaseException:
            await self.__aexit__()
            raise
        self._shared_budgets = SharedBudgets(self.runs, self._budgets)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._modules is not None:
            self._modules.close()
        if self.runs is not None:
            await self.runs.close()
        if self._owns_deliverer:
            await self._deliverer.close()
        if self._owns_journal:
            await self._journal.close()

    @property
    def served(self) -> str:
        """Its queues with their slots, such as `default=50`."""
        return " ".join(f"{name}={slots}" for name, slots in self._queues.items())

    def stop(self, *, now: bool = False) -> None:
        """Take no new runs; `serve` returns once the runs in progress ended or were given back.

        Args:
            now: give them back at once. Default: after the seconds of `drain`.
        """
        self._stopping.set()
        if now:
            self._stopping_now.set()

    async def serve(self) -> None:
        """Run what is delivered until `stop` is called; runs that are left are given back then.

        Raises:
            ConfigurationError: if the worker was not opened.
        """
        if self.runs is None:
            raise ConfigurationError("worker: open it first: async with Worker(…) as worker")
        telemetry = self._telemetry
        engine = asyncio.create_task(self._serve_engine())
        sweeper = asyncio.create_task(
            Sweeper(
                self._journal,
                self.runs,
                self._deliverer,
                prune=self._prune,
                retain=self._retain,
                metrics=None if telemetry is None else SweepMetrics(self.runs, telemetry),
            ).serve(lambda: self._finished, self._heard)
        )
        try:
            await self._stopping.wait()
            await self._leave(engine)
        finally:
            for task in (sweeper, engine, *self._running.values()):
                task.cancel()
            await asyncio.gather(sweeper, engine, *self._running.values(), return_exceptions=True)

    def _heard(self, beat: Beat) -> None:
        """Follow what operators said: a queue is paused or continues, or this worker is to end."""
        self._beats += 1
        if beat.paused != self._paused:
            self._paused = beat.paused
            self._repaused.set()
        if beat.drains:
            self.stop()

    async def _serve_engine(self) -> None:
        """Serve deliveries; an engine's worker that ends is started again, and one whose queues changed."""
        pause, failures = 0.5, 0
        while not self._stopping.is_set():
            await self._wait_for_journal()
            began = asyncio.get_running_loop().time()
            self._repaused.clear()
            queues = {q: slots for q, slots in self._queues.items() if q not in self._paused}
            repaused = asyncio.create_task(self._repaused.wait())
            serving = (
                asyncio.create_task(self._deliverer.serve(self._handle, queues=queues))
                if queues
                else repaused
            )
            try:
                if not await self._has_ended(serving, repaused):
                    reason = "the journal does not answer"
                elif repaused.done():
                    continue
                else:
                    serving.result()
                    reason = "it ended"
            except Exception as error:  # of an engine or its server, which may come back
                reason = sentence_of(error)
            finally:
                # The runs in progress are tasks of the worker, and go on.
                for task in (serving, repaused):
                    task.cancel()
                await asyncio.wait({serving, repaused}, timeout=_LAST_WORD)
            served = asyncio.get_running_loop().time() - began
            pause = 0.5 if served > 60 else pause
            failures = 0 if served > _STEADY else failures
            # Once for a loss: its server may be away for minutes.
            failures += 1
            level = logging.WARNING if failures == 1 else logging.INFO
            _LOG.log(level, "the deliverer stopped (%s) and is started again", reason)
            await asyncio.sleep(pause)
            pause = min(10.0, 2 * pause)

    async def _has_ended(self, *tasks: asyncio.Task[Any]) -> bool:
        """Wait for one of these tasks; return False if the journal does not answer, without which no run can start."""
        quiet = 0
        while quiet < _QUIET:
            beats = self._beats
            # Counted, not timed: a step that blocks the event loop delays this and the beats.
            ended, _ = await asyncio.wait(tasks, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if ended:
                return True
            quiet = quiet + 1 if self._beats == beats else 0
        return False

    async def _wait_for_journal(self) -> None:
        """Wait until the journal answers: what is delivered before would wait here, and no other worker would have it."""
        assert self.runs is not None
        while True:
            with contextlib.suppress(JournalError):  # the sweeper says so
                self._heard(await self.runs.beat(self._finished))
                await self._journal.create([])  # by the connection that opens runs
                return
            await asyncio.sleep(1.0)

    async def _leave(self, engine: asyncio.Task[None]) -> None:
        """Wait for the runs in progress, then give the others back."""
        for run_id in self._waiting:
            self._running[run_id].cancel()
        if self._running:
            now = asyncio.create_task(self._stopping_now.wait())
            ended = asyncio.create_task(asyncio.wait(self._running.values()))
            await asyncio.wait(
                {now, ended}, timeout=self._drain, return_when=asyncio.FIRST_COMPLETED
            )
            now.cancel()
            ended.cancel()
        # A task removes itself from `_running` when it ends.
        left = dict(self._running)
        for task in left.values():
            task.cancel()
        if left:
            await asyncio.wait(left.values())
        engine.cancel()
        await asyncio.wait({engine}, timeout=_LAST_WORD)

    async def _handle(self, run_id: str) -> bool:
        """Run a delivered run, or join the run in progress; see Handle."""
        task = self._running.get(run_id)
        if task is None:
            if self._stopping.is_set():
                return False  # the sweeper of another worker brings it back
            # The entry is made before the first await, so a second delivery joins this task.
            task = self._running[run_id] = asyncio.create_task(self._run(run_id))
            task.add_done_callback(lambda _: self._forget(run_id))
        try:
            # The engine may cancel its handler when its connection fails; the run goes on.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the worker gave it back; the engine only waited
                return False
            if run_id in self._waiting:
                task.cancel()
            raise

    def _forget(self, run_id: str) -> None:
        self._running.pop(run_id, None)
        self._waiting.discard(run_id)

    async def _run(self, run_id: str) -> bool:
        """Run a run until it ends or pauses, and return whether it ended; only a cancel is raised."""
        try:
            row = await self._journal.find(run_id)
            # The engine counts what it delivered since it was started, and the worker what runs.
            free = self._free.get(row.queue) or asyncio.Semaphore()
            if free.locked():
                self._waiting.add(run_id)
            async with free:
                if run_id in self._waiting:
                    self._waiting.remove(run_id)
                    row = await self._journal.find(run_id)
                return await self._attempted(row)
        except RunNotFound:
            return True  # it was deleted
        except OwnershipLost as error:
            _LOG.warning("%s", error)
        except (RunLocked, JournalUnavailable) as error:
            _LOG.warning("%s: %s", run_id, error)  # the sweeper brings it back
        except JournalError as error:
            await self._put_back(run_id, str(error), _LONGEST_DELAY)
        return False

    async def _attempted(self, row: RunInfo) -> bool:
        assert self.runs is not None
        run_id = row.run_id
        if is_over(row.status):
            return True
        # A suspended run continues when its time has come, or when it has an answer.
        timed = (Reason.THROTTLED, Reason.QUOTA, Reason.NEEDS_ATTENTION, Reason.WAITING)
        waits = row.status == "suspended" and row.reason not in timed
        if waits and not await may_continue(self._journal, row.run_id):
            return False
        # An engine may deliver early, by its own clock.
        if row.wake_at:
            if row.wake_at > self.runs.now() + _EARLY:
                return False  # it comes again when its time has come
            if row.status != "suspended":
                await self.runs.handed_over([run_id])
        assert self._shared_budgets is not None
        spending = self._shared_budgets.of(row)
        # A run that has begun continues: its next call that costs something ends it with its best output.
        if not row.epoch and spending is not None and (reason := await spending.used_up()):
            await self._put_back(run_id, reason, _LONGEST_DELAY)
            return False
        # Before the step is loaded, because loading its code may kill the worker as well. The steps of this worker
        # are loaded already, so a run of theirs that never started cannot have killed one.
        loaded = (row.name, row.fingerprint) in self._steps
        loads = CARRIED in row.source or ("python" in row.source and self._modules is not None)
        counted = bool(row.epoch) or (loads and not loaded)
        if counted and await is_poison(row, self.runs, self._journal):
            return False
        try:
            step, budget, resources, limits = self._loaded(row)
            await self._stay(row, step)
        except _Elsewhere as error:
            await self._put_back(run_id, str(error), _ELSEWHERE, counted=counted)
            return False
        except _Unable as error:
            # Another worker may have the step, so the first attempts follow quickly.
            await self._put_back(
                run_id, str(error), _UNABLE, counted=counted, longest=_LONGEST_UNABLE
            )
            return False
        # Also without a limit: pauses that a provider asked for are shared.
        permits = SharedLimits(
            self.runs.permits, strictest(self._limits, limits), row.queue, spending=spending
        )
        ended = await self._driven(
            row, step, budget, {**resources, **self._resources, "permits": permits}
        )
        # Again: a worker that died may have left its last report out.
        if ended and spending is not None:
            await spending.report((await self._journal.find(row.run_id)).usage)
        return ended

    async def _stay(self, row: RunInfo, step: Step) -> None:
        """Pin a run with a workspace to this host.

        Raises:
            _Elsewhere: if its files are on another host.
        """
        if self.runs is None or not uses_workspace(step):
            return
        host = socket.gethostname()
        pinned = await self.runs.pin(row.run_id, host)
        if pinned != host:
            raise _Elsewhere(
                f"its workspace is on {pinned}, and a worker on that machine continues it"
            )

    async def _put_back(
        self,
        run_id: str,
        reason: str,
        delay: float,
        *,
        counted: bool = False,
        longest: float = 0.0,
    ) -> None:
        """Let a run go back to its queue; `counted` is whether its delivery was, which is not a suspect then."""
        assert self.runs is not None
        # Once per run and reason: a run that no worker can run is tried again until one can.
        known = self._returned.get(run_id) == reason
        _LOG.log(
            logging.INFO if known else logging.WARNING,
            "%s goes back to its queue: %s", run_id, reason,
        )  # fmt: skip
        if len(self._returned) > _KEPT:  # runs that another worker took long ago
            self._returned.clear()
        self._returned[run_id] = reason
        # A random part keeps workers from trying at the same moment.
        spread = 0.75 + random.random() / 2
        await self.runs.put_back(
            run_id, delay=delay * spread, reason=reason, counted=counted, longest=longest * spread
        )

    async def _driven(
        self, row: RunInfo, step: Step, budget: Budget | None, resources: Mapping[str, Any]
    ) -> bool:
        assert self.runs is not None
        timed = row.status == "suspended" and row.wake_at > 0
        progress = RunOpening(self.runs, row.run_id, timed=timed)
        listeners: list[Listener] = [progress.note] if row.epoch else []
        if self._telemetry is not None:
            listeners += [self._telemetry, TakeoverCounter(self._telemetry)]
        until, pause = asyncio.get_running_loop().time() + _PATIENCE, 0.1
        while True:
            try:
                result = await run(
                    step,
                    journal=self._journal,
                    run_id=row.run_id,
                    budget=budget,
                    resources=resources,
                    listeners=listeners,
                    source=row.source,
                    in_doubt=self._in_doubt,
                    on_wait="leave",
                )
            except RunLocked:
                # Not acknowledged yet: if its owner dies, this delivery is the quickest way back.
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(pause)
                pause = min(2.0, 2 * pause)
                continue
            except ReplayMismatch as error:
                await self._put_back(row.run_id, str(error), _LONGEST_DELAY)
                return False
            except ConfigurationError as error:
                await self._put_back(row.run_id, str(error), _LONGEST_DELAY)
                return False
            finally:
                await progress.close()
            if result.status is not Status.SUSPENDED and uses_workspace(step):
                await self.runs.unpin(row.run_id)
            return await self._over(row, result)

    async def _over(self, row: RunInfo, result: Result) -> bool:
        """Note the end or the pause of a run, and return whether it ended."""
        assert self.runs is not None
        if result.status is not Status.SUSPENDED:
            self._finished += 1
            return True
        while True:
            try:
                await self._pause(row.run_id, result)
                return False
            except JournalUnavailable:  # without a time, nothing would wake the run
                await asyncio.sleep(_ELSEWHERE)

    async def _pause(self, run_id: str, result: Result) -> None:
        """Set the time at which a suspended run starts again; one that waits for a person has none."""
        assert self.runs is not None
        until = result.request.get("until") if isinstance(result.request, dict) else None
        if result.reason in (Reason.THROTTLED, Reason.QUOTA) and isinstance(until, int | float):
            # By the clock that recorded the pause; that of the database counts what is left of it.
            delay = max(0.0, until - time.time())
            await self.runs.put_back(run_id, delay=delay, reason=result.detail)
        if result.reason is not Reason.WAITING:
            return
        await self.runs.progressed(run_id)  # it left by itself, so its delivery harmed no worker
        due = min((one.due for one in await self._journal.waits(run_id)), default=math.inf)
        if due < math.inf:
            delay = max(0.0, due - self.runs.now())
            await self.runs.put_back(run_id, delay=delay, reason=result.detail)
        # A signal that came before the time was set has set an earlier one, which is replaced now.
        if await self._journal.waits(run_id, due=self.runs.now()):
            await self.runs.wake(run_id)

    def _loaded(self, row: RunInfo) -> _Runnable:
        """Return the step of a run with its budget, resources and limits.

        Raises:
            _Unable: if this worker does not have it.
        """
        source = row.source
        # Of the command that submitted it; of a document, they are in what it carries.
        own = tuned_budget(None, source), {"cache": source.get("cache")}
        if (step := self._steps.get((row.name, row.fingerprint))) is not None:
            return _Runnable(step, *own)
        try:
            if CARRIED in source:
                # Documents take a second to load, and this package also serves those who only submit.
                from .carried import unpacked

                loaded = unpacked(source, trust=self._trusts, environ=os.environ)
                return _Runnable(
                    _same(row, loaded.step), loaded.budget, loaded.resources, loaded.limits
                )
            if "python" in source and self._modules is not None:
                return _Runnable(_same(row, self._modules.step(str(source["python"]))), *own)
        except (ConfigurationError, DocumentError, _Unable) as error:
            raise _Unable(str(error)) from None
        except Exception as error:  # the row may say anything
            raise _Unable(f"it cannot be loaded here: {type(error).__name__}: {error}") from error
        raise _Unable(self._lacks(row))

    def _lacks(self, row: RunInfo) -> str:
        """Return what this worker has in place of the step of a run, and how a worker gets the step."""
        others = any(name == row.name for name, _ in self._steps)
        has = f"this worker has {'another version of it' if others else 'no such step'}"
        lacks = f"{has}: {row.name} ({row.fingerprint})"
        if "python" not in row.source:
            return lacks
        module = str(row.source["python"]).partition(":")[0]
        return f"{lacks}. Start a worker with --root FOLDER, the folder of the module {module}"


def _same(row: RunInfo, step: Step) -> Step:
    """Return the step, if it is the version that was submitted."""
    # Checked before the run is taken, because a replay with another version ends in a mismatch.
    if row.fingerprint and not step.recorded_as(row.fingerprint):
        raise _Unable(
            f"this worker loads another version of {row.name} ({row.fingerprint} was submitted, "
            f"{step.fingerprint} is here)"
        )
    return step
