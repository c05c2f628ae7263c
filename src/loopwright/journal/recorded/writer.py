"""The one thread that writes a durable journal: everything that waits for it becomes one transaction.

A transaction writes the batches first and then performs the operations (open, close, cancel,
rewind), each in the order of arrival. After the commit, one call into each waiting event loop
resolves the futures of its callers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from ...errors import ConfigurationError, JournalError, JournalUnavailable, LoopwrightError
from ..protocol import RunInfo
from .log import Batch, DurableLog

Connection = TypeVar("Connection")
Connection_co = TypeVar("Connection_co", covariant=True)
Connection_contra = TypeVar("Connection_contra", contravariant=True)
Outcome = TypeVar("Outcome")
BEAT = 0.5  # seconds between renewals of the leases
REST = 3.0  # seconds without a run or a job after which the connections of a store are closed
TRANSACTION_ROWS = 4096  # a slow disk makes for large transactions, a fast one for small ones


class CommitOperation(Protocol[Connection_contra]):
    """Work inside a transaction."""

    loop: asyncio.AbstractEventLoop | None
    opening: RunInfo | None
    """The run that it opens or creates; a store may insert the rows of several at once before `run`."""
    closing: tuple[DurableLog, RunInfo] | None
    """The run that it gives back; a store may write the rows of several at once before `run`."""
    owning: bool
    """Whether it makes this store the owner of a run."""

    def run(self, db: Connection_contra) -> None:
        """Do the work; a refusal is kept for the caller, and what shares the transaction is committed."""

    def committed(self) -> None:
        """Act on the commit, in the writer's thread."""

    def refuse(self, error: LoopwrightError) -> None:
        """Let the caller fail with an error."""

    def repeated(self) -> CommitOperation[Connection_contra] | None:
        """Return what to repeat until it is committed, although its caller has failed; None for nothing."""

    def resolve(self) -> None:
        """Resolve the caller's future; runs in the event loop."""


class Store(Protocol[Connection_co]):
    """A database as the writer uses it; all calls come from the writer's thread."""

    @property
    def name(self) -> str:
        """The path or URL that messages name."""

    @property
    def logs(self) -> Mapping[int, DurableLog]:
        """The open runs, whose leases `beat` renews."""

    def commit(
        self, batches: Sequence[Batch], operations: Sequence[CommitOperation[Connection_co]]
    ) -> None:
        """Write batches and perform operations in one durable transaction, or raise."""

    def journal_error(self, error: Exception) -> LoopwrightError:
        """Return the error of the journal for an error of the database."""

    def beat(self) -> None:
        """Renew the leases and find requests to cancel."""

    def rest(self) -> bool:
        """Close the connections that can be opened again; return False if another thread uses one."""

    def finish(self) -> None:
        """Give back the leases and close the database."""


class Transaction(Generic[Connection, Outcome]):
    """An operation with a result: `work` runs in a transaction, `after` once it is committed.

    Both run in the writer's thread. `releasing` is whether it gives a run back: it is repeated until it is committed,
    because nobody else can take the run before.
    """

    __slots__ = (
        "_result",
        "after",
        "closing",
        "error",
        "future",
        "loop",
        "opening",
        "owning",
        "releasing",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Connection], Outcome],
        after: Callable[[Outcome], None] | None = None,
        *,
        opening: RunInfo | None = None,
        closing: tuple[DurableLog, RunInfo] | None = None,
        owning: bool = False,
        releasing: bool = False,
    ) -> None:
        self.work = work
        self.owning = owning
        self.releasing = releasing
        self.after = after
        self.opening = opening
        self.closing = closing
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Outcome] | None = None
        self.error: LoopwrightError | None = None
        self._result: list[Outcome] = []  # one, once the work is done

    def wait(self) -> asyncio.Future[Outcome]:
        """Return a future for its result."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        return self.future

    def run(self, db: Connection) -> None:
        """Do the work; see CommitOperation."""
        self.error = None  # a store may repeat a transaction
        try:
            self._result = [self.work(db)]
        except (ConfigurationError, JournalError) as error:
            self.error = error

    def committed(self) -> None:
        """Act on the commit; see CommitOperation."""
        if self.after is not None and self.error is None:
            self.after(self._result[0])

    def refuse(self, error: LoopwrightError) -> None:
        """Let the caller fail with an error; see CommitOperation."""
        self.error = type(error)(str(error))

    def repeated(self) -> Transaction[Connection, Outcome] | None:
        """Return a release again; see CommitOperation."""
        if not self.releasing:
            return None
        # Another object: the event loop may not have read the error of this one yet.
        return Transaction(self.work, self.after, closing=self.closing, releasing=True)

    def resolve(self) -> None:
        """Resolve the caller's future; see CommitOperation."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result[0])


class _Stop(Transaction[Connection, None]):
    """The last job: the writer ends after it."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self._result = [None]


Job = Batch | CommitOperation[Connection]


class Writer(Generic[Connection]):
    """The one thread that writes a journal, started by its first job."""

    def __init__(self, store: Store[Connection], beat: float = BEAT) -> None:
        self._store = store
        self._beat = beat  # seconds between renewals of the leases
        self._jobs: SimpleQueue[Job[Connection]] = SimpleQueue()
        self._unreleased: list[Job[Connection]] = []  # releases that could not be committed
        self._next_beat = 0.0
        self._resting = False
        self._started = False
        self._ended = False

    def put(self, job: Job[Connection]) -> None:
        """Hand over a batch or an operation."""
        if not self._started:
            self._started = True
            name = f"journal {Path(self._store.name).name}"
            # A daemon: a program that never closes its journal must still end.
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)
        # Checked after the job is put: a writer that ends meanwhile may have seen its queue empty.
        if self._ended:
            self._refuse_late()

    def perform(self, transaction: Transaction[Connection, Outcome]) -> asyncio.Future[Outcome]:
        """Hand over a transaction, and return a future for its result once it is durable.

        The transaction continues if the caller is cancelled.
        """
        waiter = transaction.wait()
        self.put(transaction)
        return waiter

    def give_back(
        self,
        work: Callable[[DurableLog, RunInfo, Connection], DurableLog],
        after: Callable[[DurableLog], None],
        log: DurableLog,
        info: RunInfo,
    ) -> asyncio.Future[DurableLog]:
        """Release a run and write its row by `work`, once its entries are written."""
        return self.perform(
            Transaction(partial(work, log, info), after, closing=(log, info), releasing=True)
        )

    def stop(self) -> asyncio.Future[None]:
        """Finish the accepted jobs, release the leases and close the database; return a future."""
        stop: _Stop[Connection] = _Stop()
        waiter = stop.wait()
        if self._started:
            self._jobs.put(stop)
        else:
            waiter.set_result(None)
        return waiter

    def stop_soon(self) -> None:
        """Do the same as `stop` without waiting for it."""
        if self._started:
            self._jobs.put(_Stop())

    def _work(self) -> None:
        # The first transaction registers the store with a whole lease.
        self._next_beat = time.monotonic() + self._beat
        while self._step():
            pass

    def _step(self) -> bool:
        """Do the waiting jobs; return whether to continue. No job is referenced while waiting."""
        jobs = self._gather()
        stop = jobs.pop() if jobs and isinstance(jobs[-1], _Stop) else None
        if jobs:
            self._resting = False
            self._transact(jobs)
        elif stop is None and not self._store.logs:
            self._resting = self._store.rest()
        if stop is not None:
            self._store.finish()
            # Set before the queue is emptied; see `put`.
            self._ended = True
            self._refuse_late()
            _notify([stop])
            return False
        if self._store.logs and time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._beat
            self._store.beat()
            if releases := self._unreleased:
                self._unreleased = []
                self._transact(releases)
        return True

    def _gather(self) -> list[Job[Connection]]:
        """Wait for a job or the next beat; return the waiting jobs of one transaction."""
        jobs: list[Job[Connection]] = []
        rows = 0
        # Without open runs there is no lease to renew, so an idle journal wakes up only once, to rest.
        wait = None if self._resting else REST
        if self._store.logs:
            wait = max(0.0, self._next_beat - time.monotonic())
        with suppress(Empty):
            job = self._jobs.get(timeout=wait)
            while True:
                jobs.append(job)
                rows += len(job.owners) if isinstance(job, Batch) else 1
                # Nothing follows a stop: its callers have been refused.
                if rows >= TRANSACTION_ROWS or isinstance(job, _Stop):
                    break
                job = self._jobs.get_nowait()
        return jobs

    def _transact(self, jobs: Sequence[Job[Connection]]) -> None:
        batches = [job for job in jobs if isinstance(job, Batch)]
        operations = [job for job in jobs if not isinstance(job, Batch)]
        try:
            # Batches first: a run that closes must have its last entries in the same transaction.
            self._store.commit(batches, operations)
        except Exception as error:  # of any kind: the callers must receive it
            failure = self._store.journal_error(error)
            for job in jobs:
                job.refuse(failure)
            self._unreleased += filter(None, (operation.repeated() for operation in operations))
        else:
            for operation in operations:
                operation.committed()
        _notify(jobs)

    def _refuse_late(self) -> None:
        """Refuse the jobs that arrived after the end; later callers of `put` come here themselves."""
        late: list[Job[Connection]] = []
        with suppress(Empty):
            while True:
                late.append(self._jobs.get_nowait())
        for job in late:
            job.refuse(
                JournalUnavailable(f"{self._store.name}: the journal is closed; open it again")
            )
        _notify(late)


def _notify(jobs: Sequence[Job[Connection]]) -> None:
    # One call for each event loop: waking one up costs a system call.
    loops: dict[asyncio.AbstractEventLoop, list[Job[Connection]]] = {}
    for job in jobs:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
    for loop, mine in loops.items():
        with suppress(RuntimeError):  # the event loop is closed: no caller waits any more
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(jobs: Sequence[Job[Connection]]) -> None:
    for job in jobs:
        job.resolve()
