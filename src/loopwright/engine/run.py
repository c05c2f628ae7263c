"""The public functions that run and resume a step, and one run: from its opening to its recorded end.

The same run ID resumes a run. A finished run is returned from its journal. When a run opens:

- The processes that a killed run left running are ended; the token in their environment identifies them. The
  supervisors of such a run end its processes when their pipes close, which may still be in progress. On systems
  without a subreaper (macOS) they end process groups only, so processes that left their group are ended here too.
- The noise of a loop's scores in past runs, for `Degrading(sigma="past")`, is measured once, before the first step,
  and recorded as an entry; so is a learned order of strategies. A resume, a fork and a replay read that entry,
  because the journal has more runs by then.
- The place where the step of a Python program can be imported is recorded, so that the command line can resume the
  run. A step has such a place if it is an attribute of the main module, or of the module of a function in it. A
  script is imported under its name, so it needs a main guard: without one the import would run it again.

New limits reach a run while it is open:

1. A limit is recorded and changed in one step of the event loop, so that each decision is before or after
   the entry.
2. A lowered limit takes nothing back: the next decision ends the loop, and calls that do not fit are
   refused. Only a limit of time cuts a call in flight.
3. Budgets and deadlines around the loop apply as before.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import math
import os
import random as _random
import signal
import subprocess
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from ..conditions import DEFAULT_SIGMA, Budget, raised_budget, tuned_budget, uses_past
from ..errors import ConfigurationError, JournalError, OwnershipLost, StepError, Stopped, Suspended
from ..journal import Entry, Journal, RunInfo
from ..journal.protocol import Posted
from ..records import Iteration, Result, Status
from ..records.codec import Json
from ..records.result import ended_entry, explored_by, failed_part
from .budgets import CANNOT_BIND, cannot_bind
from .context import Context
from .functions import wait_for
from .loop import LoopRun
from .loop_options import LoopDeclaration, check_surroundings
from .run_record import (
    OnText,
    ResumeLimits,
    ResumeOptions,
    RunOptions,
    StepWithResources,
    chained,
    check_names,
    check_options,
    cut_result,
    failed_result,
    finished,
    journal_of,
    new_run_id,
    open_run,
    progress_listeners,
    raise_limit,
    row_of,
    show_ended_loops,
    with_models,
)
from .run_state import (
    Clock,
    Listener,
    Run,
    RunResources,
    opened_listeners,
    redactor_of,
    system_clock,
)
from .step import AsyncFunction, CompositeStep, In, Out, Step, StepLike, as_step

if TYPE_CHECKING:
    from pathlib import Path

    from ..models.registry import Models

__all__ = [
    "COMMAND",
    "TOKEN",
    "Inbox",
    "LiveLimits",
    "RunOptions",
    "StepWithResources",
    "end_leftovers",
    "new_run_id",
    "program_source",
    "refuse_past",
    "resume",
    "resume_sync",
    "run",
    "run_sync",
    "set_noise",
    "title_of",
]

TOKEN = "LOOPWRIGHT_RUN"  # the environment variable that names the run of a process  # noqa: S105
COMMAND = "LOOPWRIGHT_COMMAND"  # the one that names its command, of a run with several at a time
PATIENCE = 5.0  # seconds for supervisors to finish, and again for the processes that are killed
TICK = 0.02  # seconds between two searches


def title_of(token: str) -> str:
    """Return the title of the supervisors of a run in the list of processes."""
    return f"lw-{token[:12]}"  # a title has 15 bytes


async def end_leftovers(token: str, proc: Path | None = None, *, name: str = TOKEN) -> list[int]:
    """End all processes of a run whose own process is dead; return those that cannot be ended.

    With another name of a variable, end those of a command whose supervisor is dead.
    """
    from pathlib import Path  # a run of its own process needs none

    proc = Path("/proc") if proc is None else proc
    searches = int(PATIENCE / TICK)
    remaining: list[int] = []
    for search in range(2 * searches):
        supervisors, others = _of_run(token, proc, name)
        remaining = [*supervisors, *others]
        if not remaining:
            return []
        # Supervisors first: they also end processes that cleared their environment.
        kill = not supervisors or search >= searches
        for pid in supervisors:
            _send(pid, signal.SIGKILL if kill else signal.SIGTERM)
        # All are stopped before the first is killed, so that none can start another meanwhile.
        for pid in others if kill else ():
            _send(pid, signal.SIGSTOP)
        for pid in others if kill else ():
            _send(pid, signal.SIGKILL)
        await asyncio.sleep(TICK)
    return remaining


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        os.kill(pid, number)


def _of_run(token: str, proc: Path, name: str) -> tuple[list[int], list[int]]:
    """Return the supervisors of a run, and its other processes."""
    variable, title, own_pid = f"{name}={token}".encode(), title_of(token), os.getpid()
    if not (proc / "self/stat").exists():
        return [], [pid for pid in _listed(variable) if pid != own_pid]
    supervisors, others = [], []
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == own_pid:
            continue
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text(errors="replace").strip() == title:
                supervisors.append(int(folder.name))
            elif variable in (folder / "environ").read_bytes().split(b"\0"):
                others.append(int(folder.name))
    return supervisors, others


def _listed(variable: bytes) -> Iterator[int]:
    """Iterate over the processes whose environment, as `ps` prints it, contains a variable."""
    import shutil  # loads three compression libraries, and only systems without /proc need it

    ps = shutil.which("ps")
    if ps is None:
        return
    done = subprocess.run([ps, "axeww", "-o", "pid=,command="], capture_output=True, check=False)
    for line in done.stdout.splitlines():
        number, _, rest = line.strip().partition(b" ")
        if variable in rest.split(b" ") and number.isdigit():
            yield int(number)


MIN_RUNS = 20  # the median of fewer runs says little
MAX_RUNS = 100  # the newest ones; each is a query at the start of a run
_PAGE = 200
_UNENDED = ("queued", "running", "interrupted", "suspended")
_ALL = 1_000_000


def refuse_past(step: Step) -> None:
    """Refuse a sigma, or an order of strategies, of past runs in a run without a journal.

    Raises:
        ConfigurationError: names the loop.
    """
    for loop in _loops(step) if step.reads_past else ():
        what = "degrading: sigma: past" if uses_past(loop.members) else "strategy_order: learned"
        raise ConfigurationError(
            f"loop {loop.name}: {what} needs a journal with past runs, and this run has no journal; use one, such as "
            "journal='sqlite:runs.db', or write a number or an order"
        )


async def set_noise(run: Run, step: Step, store: Journal | None) -> None:
    """Measure and record the noise of a run, and the orders of strategies, if nothing has run yet.

    With fewer than 20 past runs, the default sigma is recorded.
    """
    # A run that began without the entry keeps the sigma that its decisions used.
    if (replay := run.replay) is not None and (
        replay.noise is not None or replay.records or replay.finished or replay.unsettled
    ):
        return
    loops = list(_loops(step))
    noisy = [loop for loop in loops if uses_past(loop.members)]
    learning = [loop for loop in loops if _learns(loop)]
    if store is not None and learning:
        run.ordered(await _orders(learning, run.log.info, store))
    if store is not None and noisy:
        run.measured(await _measured(noisy, run.log.info, store))


def _loops(step: Step) -> Iterator[LoopDeclaration]:
    """Iterate over the loops with a sigma or an order of past runs."""
    members = getattr(step, "members", ())
    if hasattr(step, "decide") and (uses_past(members) or _learns(step)):
        yield cast("LoopDeclaration", step)
    for part in step.parts():
        if part.reads_past:
            yield from _loops(part)


def _learns(loop: object) -> bool:
    return getattr(loop, "strategy_order", "") == "learned"


async def _orders(
    loops: Sequence[LoopDeclaration], info: RunInfo, store: Journal
) -> dict[str, list[str]]:
    """Return the names of the strategies of each loop, in the order that past runs suggest."""
    from ..memory.strategies import Tried, counted, order_of, tried_in

    runs: dict[str, list[list[Tried]]] = {loop.name: [] for loop in loops}
    async for past in _past_runs(info, store):
        found: dict[str, list[Iteration]] = {}
        for path, item in await store.iterations(past.run_id, limit=_ALL):
            found.setdefault(path, []).append(item)
        for path, items in found.items():
            if (name := path.rpartition("/")[2]) in runs:
                runs[name].append(tried_in(items))
    return {
        loop.name: order_of(loop.policies.strategies or (), counted(runs[loop.name]))
        for loop in loops
        if loop.policies is not None
    }


async def _measured(
    loops: Sequence[LoopDeclaration], info: RunInfo, store: Journal
) -> dict[str, Mapping[str, Json]]:
    """Return the sigma of each loop, and the number of runs that it is from."""
    series: dict[str, list[list[list[float]]]] = {loop.name: [] for loop in loops}
    async for past in _past_runs(info, store):
        scores: dict[str, list[float]] = {}
        for path, item in await store.iterations(past.run_id, limit=_ALL):
            if item.eligible and item.rank is not None:
                scores.setdefault(path, []).append(item.rank)
        for loop, runs in series.items():
            # The later half: most loops rise first, and a rise is not noise.
            flat = [s[len(s) // 2 :] for path, s in scores.items() if path.split("/")[-1] == loop]
            if any(len(part) > 1 for part in flat):
                runs.append(flat)
    return {
        loop: {"sigma": _sigma(runs) or DEFAULT_SIGMA, "runs": len(runs)}
        for loop, runs in series.items()
    }


def _sigma(runs: list[list[list[float]]]) -> float | None:
    """Return the sigma of the scores of enough runs; 0 or None has no meaning for a judge with noise."""
    if len(runs) < MIN_RUNS:
        return None
    from .._statistics import noise_of

    return noise_of([part for run in runs for part in run])


async def _past_runs(info: RunInfo, store: Journal) -> AsyncIterator[RunInfo]:
    """Iterate over ended runs with the same fingerprint, newest first."""
    count = offset = 0
    while rows := await store.runs(limit=_PAGE, offset=offset, name=info.name):
        offset += len(rows)
        for row in rows:
            # A fork repeats the scores of its origin.
            own = row.run_id == info.run_id or "forked" in row.source
            if not own and row.fingerprint == info.fingerprint and row.status not in _UNENDED:
                yield row
                count += 1
                if count == MAX_RUNS:
                    return


def program_source(given: object, step: Step) -> dict[str, Json]:
    """Return the source of a run of a step: `{"program": "module:attribute", "root": folder}`, or {}.

    Args:
        given: the step as the program passed it.
        step: the same as a step.
    """
    for module in _modules(step):
        found = (name for name, value in vars(module).items() if value is given)
        attribute = next((name for name in found if name.isidentifier()), "")
        if attribute and (place := _importable(module, attribute)) is not None:
            name, root = place
            return {"program": f"{name}:{attribute}", "root": str(root)}
    return {}


def _modules(step: Step) -> Iterator[ModuleType]:
    names = {"__main__": None}

    def collect(part: Any) -> None:
        names.setdefault(getattr(getattr(part, "function", part), "__module__", None) or "", None)
        for inner in part.parts():
            collect(inner)

    collect(step)
    for name in names:
        # Not the modules of this package: their steps are made anew for each run.
        if name.partition(".")[0] != "loopwright" and (module := sys.modules.get(name)):
            yield module


def _importable(module: ModuleType, attribute: str) -> tuple[str, Path] | None:
    """Return the name of a module and the folder from which it is imported; None if that is not known."""
    file, name = getattr(module, "__file__", None), module.__name__
    if not file or not file.endswith(".py") or "site-packages" in file:
        return None
    from pathlib import Path

    path = Path(file).absolute()
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = path.stem if spec is None else spec.name
        if not _guarded(path, attribute):
            return None
    parts = name.split(".") if path.name != "__init__.py" else [*name.split("."), "__init__"]
    if (
        not all(part.isidentifier() for part in parts)
        or [*path.with_suffix("").parts[-len(parts) :]] != parts
    ):
        return None
    return name, path.parents[len(parts) - 1]


def _guarded(path: Path, attribute: str) -> bool:
    """Return whether importing a script only defines things, and the attribute is one of them."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    guards = [one for one in body if isinstance(one, ast.If) and "__name__" in ast.dump(one.test)]
    defined = {
        getattr(node, "name", None) or getattr(node, "id", None)
        for one in body
        if one not in guards
        for node in ast.walk(one)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.alias)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    return bool(guards) and attribute in defined


Inbox = Callable[[], Awaitable[Sequence[Posted]]]
_TIMES = ("timeout", "deadline")
_EARLY = 0.001  # seconds by which a timer of the event loop may be early


class LiveLimits:
    """Reads the inbox of an open run when it is notified, and applies the new limits.

    Args:
        run: the run.
        inbox: reads the inbox of the run.
    """

    def __init__(self, run: Run, inbox: Inbox) -> None:
        self._run = run
        self._inbox = inbox
        self._recorded = [e for e in run.log.recorded if e.kind == "tuned"]
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def read(self) -> None:
        """Read the inbox in a task; a notification that arrives meanwhile repeats it."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read())

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
        for timer in self._timers.values():
            timer.cancel()

    async def _read(self) -> None:
        from ..journal.replay import tuned_entries

        while self._again:
            self._again = False
            try:
                posted = await self._inbox()
            except JournalError:
                return  # the next commit of the run reports it
            self._run.steer(posted)
            for entry in tuned_entries(self._recorded, posted, self._run.now()):
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        from ..journal.replay import applies

        run, change = self._run, entry.value
        loop, limits = change["loop"], {change["key"]: change["new"]}
        run.retune(entry)
        self._recorded.append(entry)
        if not loop:
            run.account.set_cap(tuned_budget(run.account.cap, limits))
        # By path: an account above is read before those below.
        for path in sorted(run.open_loops):
            open_loop = run.open_loops[path]
            # The number of jobs of a step has a slash at the end of its key.
            if loop and applies(loop, path.removesuffix("/")):
                open_loop.tune(limits)
                if change["key"] in _TIMES and isinstance(open_loop, LoopRun):
                    self._watch(open_loop)
            else:
                open_loop.refresh()

    def _watch(self, loop: LoopRun) -> None:
        """Set the timer that cuts the call in flight when the loop's time is over."""
        if (timer := self._timers.pop(loop.path, None)) is not None:
            timer.cancel()
        gate, run = loop.ctx.gate, self._run
        if gate is None or gate.owner != loop.path:
            return
        seconds = gate.due(run) - run.now()
        if seconds < math.inf:
            later = asyncio.get_running_loop().call_later
            self._timers[loop.path] = later(max(0.0, seconds), self._expire, loop)

    def _expire(self, loop: LoopRun) -> None:
        run, gate = self._run, loop.ctx.gate
        self._timers.pop(loop.path, None)
        if run.open_loops.get(loop.path) is not loop or gate is None:
            return
        if run.timed is not None:  # two loops that end at once are cut one after the other
            later = asyncio.get_running_loop().call_later
            self._timers[loop.path] = later(_EARLY, self._expire, loop)
        elif gate.due(run) - run.now() > _EARLY:
            self._watch(loop)
        # Between two iterations, the next one is not admitted. A cancellation that is under way by the caller
        # or of the run has priority, and must not be counted as this limit.
        elif loop.task is not None and not loop.task.cancelling():
            run.cut(loop.task, gate.late())


@overload
async def run(
    step: AsyncFunction[In, Out],
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
@overload
async def run(
    step: StepLike[In, Out] | StepWithResources,
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
async def run(
    step: StepLike[In, Out] | StepWithResources,
    value: In = None,  # type: ignore[assignment]
    *,
    journal: Journal | str | None = None,
    run_id: str = "",
    tags: Mapping[str, str] | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    clock: Clock | None = None,
    random: Callable[[], float] | None = None,
    listeners: Sequence[Listener] = (),
    models: Models | None = None,
    model: str = "",
    on_text: OnText | None = None,
    progress: bool | Listener = False,
    resources: Mapping[str, Any] | None = None,
    source: Mapping[str, Json] | None = None,
    accept_changes: bool = False,
    in_doubt: str = "suspend",
    on_wait: str = "stay",
    takeover: bool = False,
) -> Result[Out]:
    """Run a loop, a workflow, any other step or a function to its end.

    Args:
        step: the step or function. Or a document of `loopwright.documents.load`, with its resources,
            source, default input and budget, of which the arguments below replace some.
        value: its input, any JSON value.
        journal: where the run is recorded: a Journal, a URL such as `sqlite:runs.db`, or None (nothing).
        run_id: the run to create or resume, 1 to 64 letters, digits, - and _. Default: a new ID.
        tags: names and values by which lists find the run, such as `{"team": "search"}`. Default: none.
        seed: the seed of what the run draws, at least 0: `ctx.random`, parents, samples. It is recorded. Default: one
            from its ID.
        budget: the most that the run may spend. Default: no limit.
        clock: the source of time. Default: the clock of the event loop.
        random: returns a number from 0 to 1, for delays between attempts. Default: `random.random`.
        listeners: called with each journal entry once it is durable; a RunObserver may be one too.
        models: the models that prompts call. Default: those of all providers, with the keys in the
            environment; see `loopwright.models.Models`.
        model: the model of prompts that name none, such as `openai:gpt-4o-mini`. Default: that of
            `models`, which is the environment variable LOOPWRIGHT_MODEL unless you set another.
        on_text: receives the text of models as it arrives, `f(text)` or `f(text, call)` with `call.path`
            and `call.attempt`; thinking is left out. Its failure is a warning.
        progress: True shows the iterations while they end: rows on a terminal, a display in a notebook,
            lines on a pipe. Or a listener of `loopwright.progress`. Default: False.
        resources: models, tools and other objects that steps need, by name. `memory` is a Memory or its
            URL (default: that of the journal), `redactor` removes secrets (default: that of the models).
        source: how to load a document again; it is recorded with the run.
        accept_changes: resume although the code or the input changed since the run was recorded.
        in_doubt: `suspend` or `rerun` a step that is not idempotent and was in flight at a crash.
        on_wait: `stay` in this process while the run waits, or `leave`: the run is suspended, and a resume continues it.
        takeover: take the run from the process that owns it, even if that is alive.

    Returns:
        The result: status, reason, output, history, usage and warnings.

    Raises:
        JournalError: if the journal is locked, damaged or unavailable, or holds another run.
        ConfigurationError: for an invalid option or input, or an input that contains a secret.

    Example:
        >>> import asyncio
        >>> from loopwright import run
        >>> asyncio.run(run(lambda name: f"Hello {name}", "Ann")).output
        'Hello Ann'
    """
    check_options(budget, in_doubt, on_wait, listeners, resources, seed)
    resources = with_models(resources, models, model=model, on_text=on_text)
    has_input = value is not None
    if isinstance(step, Step):
        root: Step = step
    elif isinstance(step, StepWithResources):
        resources = chained(resources or {}, step.resources)
        budget = step.budget if budget is None else budget
        source = source or step.source
        value = value if has_input else cast("In", step.default_input)
        root = step.step
    else:
        root = as_step(step)
    check_names(root, resources)
    if root.explores:
        check_surroundings(root)
    shown = (*listeners, *progress_listeners(progress))
    store, opened = journal_of(journal)
    if store is None:
        refuse_past(root)
    # What a program passes beside its step cannot be found again.
    elif not source and resources is None and budget is None:
        source = program_source(step, root)
    if seed is not None:
        source = {**(source or {}), "seed": seed}
    run_resources = RunResources(resources, store)
    redactor = redactor_of(run_resources)
    # No context manager around it, and no list as a local variable: the garbage collector visits them
    # in each of 10,000 running loops (the row "loops at once" of `benchmarks.engine`).
    try:
        info, log = await open_run(
            root, value, store, resources=run_resources, redactor=redactor, budget=budget,
            source=source or {}, accept_changes=accept_changes, run_id=run_id, takeover=takeover,
            observed=bool(shown), has_input=has_input, tags=tags,
        )  # fmt: skip
        started, failed = opened_listeners(shown, log)
        state = Run(
            info.run_id, log, clock or system_clock(), random or _random.random,
            listeners=started, resources=run_resources, accept_changes=accept_changes,
            in_doubt=in_doubt, redactor=redactor, warnings=failed, store=store, leaves=on_wait == "leave",
        )  # fmt: skip
        try:
            return (await _drive(state, root, info, budget, store)).view()
        finally:
            if state.owned:
                await state.release()
    finally:
        # Before the journal, which they may use.
        if run_resources.opened is not None:
            await run_resources.opened.close()
        # A journal that the caller passed stays open: it may be used for other runs.
        if store is not None and opened:
            await store.close()


@overload
def run_sync(
    step: AsyncFunction[In, Out],
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
@overload
def run_sync(
    step: StepLike[In, Out] | StepWithResources,
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
def run_sync(
    step: StepLike[In, Out] | StepWithResources,
    value: In = None,  # type: ignore[assignment]
    **options: Unpack[RunOptions],
) -> Result[Out]:
    """Run a step from synchronous code.

    Args:
        step: the step, function or loaded document.
        value: its input, any JSON value.
        options: the options of `run`.

    Returns:
        The result, as `run` returns it.

    Raises:
        JournalError, ConfigurationError: as `run` does.

    Inside a running event loop, as in a notebook, the run gets a thread with another event loop. It blocks the
    caller's event loop, so outside IPython the result has the warning `blocking_event_loop`.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> loop = Loop(lambda number: number + 1, until=MaxIterations(3))
        >>> run_sync(loop, 1).iterations
        3
    """
    return wait_for(lambda: run(step, value, **options))


async def resume(
    step: StepLike[Any, Out] | StepWithResources,
    run_id: str,
    *,
    journal: Journal | str,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    max_calls: int | None = None,
    max_total_tokens: int | None = None,
    max_effects: int | None = None,
    retry: bool = False,
    **options: Unpack[ResumeOptions],
) -> Result[Out]:
    """Continue a recorded run, and raise the limit that ended it if you pass a new one.

    Args:
        step: the step or loaded document that was run, unchanged.
        run_id: the run.
        journal: the Journal or the URL in which it is recorded.
        max_iterations: the new limit of the loop that used up its iterations.
        max_usd: the new limit in US dollars of the budget that was used up.
        max_calls: the same in model calls.
        max_total_tokens: the same in input and output tokens together.
        max_effects: the same in effects.
        retry: do again what failed in a run that has failed, and keep what succeeded.
        options: other options of `run`.

    Returns:
        The result, as `run` returns it.

    Raises:
        RunNotFound: if the journal has no such run.
        ConfigurationError: for a limit that did not end it, or that is not above the used amount; for a retry of a
            run in which nothing failed.
        ReplayMismatch: for another step. A refused resume records nothing, the new limit neither.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, resume, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).iterations
        2
        >>> asyncio.run(resume(loop, "r", journal=journal, max_iterations=3)).iterations
        3
    """
    store, opened = journal_of(journal)
    if store is None:
        raise ConfigurationError("resume: journal: use the journal in which the run is recorded")
    try:
        # Also for a prefix of an ID, which `run` would take as a new ID.
        info = await store.find(run_id)
        limits = (max_iterations, max_usd, max_calls, max_total_tokens, max_effects)
        if any(limit is not None for limit in limits):
            loaded = step.step if isinstance(step, StepWithResources) else as_step(step)
            same = not options.get("accept_changes")
            await raise_limit(
                store,
                info.run_id,
                max_iterations=max_iterations,
                max_usd=max_usd,
                max_calls=max_calls,
                max_total_tokens=max_total_tokens,
                max_effects=max_effects,
                step=loaded if same else None,
                source=getattr(step, "source", None),
            )
        if retry:
            from ..journal.rewinding import discard_failed  # for the few runs that are retried

            await discard_failed(store, info.run_id)
        try:
            return await run(step, journal=store, run_id=info.run_id, **options)
        except (ConfigurationError, JournalError):
            # Refused before it began: the failure and its traceback are back. A run that went on keeps its retry.
            with contextlib.suppress(JournalError):
                if retry:
                    await store.rewind(info.run_id, undo=True)
            raise
    finally:
        if opened:
            await store.close()


def resume_sync(
    step: StepLike | StepWithResources,
    run_id: str,
    *,
    journal: Journal | str,
    **options: Unpack[ResumeLimits],
) -> Result:
    """Continue a recorded run from synchronous code; see `resume` and `run_sync`.

    Args:
        step: the step or loaded document that was run, unchanged.
        run_id: the run.
        journal: the Journal or the URL in which it is recorded.
        options: the limits and options of `resume`.

    Returns:
        The result, as `run` returns it.

    Raises:
        RunNotFound, ConfigurationError: as `resume` does.

    Example:
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, resume_sync, run_sync
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> run_sync(loop, 1, journal=journal, run_id="r").iterations
        2
        >>> resume_sync(loop, "r", journal=journal, max_iterations=3).iterations
        3
    """
    return wait_for(lambda: resume(step, run_id, journal=journal, **options))


def _drive(
    state: Run, step: Step, info: RunInfo, budget: Budget | None, store: Journal | None
) -> Coroutine[object, object, Result]:
    """Return the coroutine that runs the step to its end."""
    replay = state.replay
    # Recorded, so that the changed code is accepted once and not at each resume.
    if state.accept_changes and replay is not None and "" not in replay.ended:
        accepted = replay.accepted.get("", info.fingerprint)
        if accepted and accepted != step.fingerprint:
            state.append(Entry("accepted", "", state.now(), fingerprint=step.fingerprint))
    if budget is not None or state.tuned is not None:
        # The caps that a person changed.
        if budget is not None and replay is not None and (limits := replay.raised.get("")):
            budget = raised_budget(budget, limits)
        if state.tuned is not None and (limits := state.tuned.of("")):
            budget = tuned_budget(budget, limits)
        state.cap(budget)
    if budget is not None and (unbound := cannot_bind(step, budget, "run")):
        state.warn(unbound, code=CANNOT_BIND)
    if state.silent:  # it has no record, so only its result matters
        return _outcome(state, step, info.input)
    return _recorded(state, step, info, store)


async def _recorded(state: Run, step: Step, info: RunInfo, store: Journal | None) -> Result:
    """Run the root step, record how the run ended, and release the run."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""], step)
        await state.log.close(row_of(info, result, replay.active))
        return result
    # Before anything is repeated: two processes must not work on the same files.
    ends_leftovers = replay is not None and replay.unsettled and state.log.keeps_values
    if ends_leftovers and (pids := await end_leftovers(state.token)):
        numbers = ", ".join(map(str, pids))
        sentence = f"processes of an earlier attempt of this run cannot be ended: {numbers}"
        state.warn(sentence, code="processes_left")
    # Loops inside an ended loop do not run again, but the result shows them.
    if replay is not None:
        show_ended_loops(state, replay, step)
    _listen(state, store)
    try:
        if store is not None and state.log.posted:
            state.steer(await store.inbox(state.run_id))
        if step.reads_past:
            await set_noise(state, step, store)
        value, declared = info.input, step.input_type
        if declared is not None and value is not None:
            value = declared.attach(value)
        result = await _outcome(state, step, value)
        kind = "suspended" if result.status is Status.SUSPENDED else "ended"
        waited = state.waited and kind == "ended"
        if waited and store is not None and (left := await store.end_wait(state.run_id)):
            state.warn(f"{left} of the events for this run were not taken", code="events_left")
            result = replace(result, warnings=state.warnings)
        entry = Entry(kind, "", result.seconds, value=ended_entry(result))
        # A look that found nothing new leaves the journal as it was.
        if state.log.grown or not _same_wait(state.log.recorded, entry):
            state.append(entry)
        # Listeners receive the end before the run is released. Without them, one commit does both.
        if state.listeners:
            await state.settle()
        committed = state.sync()
    except BaseException as error:  # of any kind: the lease must be released
        state.stop_reading()
        await _interrupted(state, info, error)
        if state.lost and isinstance(error, asyncio.CancelledError):
            await _uncancel(asyncio.current_task())
            raise OwnershipLost(f"{state.run_id}: another owner took this run over") from None
        raise
    if not state.log.silent:
        try:
            await state.log.close(row_of(info, result, state.now()))
        finally:
            # `close` is silent if another owner has the run, but its end is not recorded then.
            if committed is not None:
                await committed
    return result


def _same_wait(recorded: Sequence[Entry], entry: Entry) -> bool:
    """Return whether the last recorded entry says that the run waits as this one does."""
    if not recorded or recorded[-1].kind != "suspended" or entry.kind != "suspended":
        return False
    told, tells = recorded[-1].value, entry.value
    return all(told.get(name) == tells[name] for name in tells if name != "seconds")


def _listen(state: Run, store: Journal | None) -> None:
    """Let the journal notify the run of a cancellation, another owner and new limits."""
    if state.log.silent:
        return
    state.log.on_cancel = state.cancel
    state.log.on_lost = state.lose
    if store is not None:
        reader = partial(LiveLimits, state, partial(store.inbox, state.run_id))
        state.log.on_posted = partial(state.read_limits, reader)


async def _interrupted(state: Run, info: RunInfo, error: BaseException) -> None:
    """Release a run that was interrupted, with its active time."""
    if state.log.silent:
        return
    if not isinstance(error, JournalError | OwnershipLost):
        state.append(Entry("interrupted", "", state.now()))
    row = replace(
        info,
        status="interrupted",
        active=state.now(),
        updated=state.clock.wall(),
        iterations=state.iterations,
        score=state.score,
        usage=state.account.settled,
    )
    # Shielded: a second cancellation must not leave the run locked by a live process.
    await asyncio.shield(state.log.close(row))


async def _uncancel(task: asyncio.Task[object] | None) -> None:
    """Take back the cancellation of the task by which a run is cancelled, delivered or pending."""
    assert task is not None
    # A pending cancellation is delivered at the next await.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if task.uncancel():  # the task is cancelled too, not only the run
        raise asyncio.CancelledError


async def _outcome(state: Run, step: Step, value: Json) -> Result:
    """Run the root step and return how it ended; until then a cancel reaches the current task."""
    request = None
    task = state.enter()
    try:
        if isinstance(step, CompositeStep):
            result = await step.run(value, Context(state, step.name, None, state.account, None))
        else:
            ctx = Context(state, "", None, state.account, None)
            result = await ctx.outcome(step.name, step, value)
    except StepError as error:
        result = failed_result(error, state, step)
    except (Stopped, asyncio.CancelledError) as error:
        result = cut_result(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = state.clean({"path": suspended.path, **suspended.request})
        if state.log.silent:
            state.warn(
                "a run without a journal cannot receive answers; use one: journal='sqlite:…'",
                code="no_journal",
            )
        result = cut_result(state.cleaned_stop(suspended.stop), state, step)
    finally:
        state.leave()
    if state.cancelled is not None:
        await _uncancel(task)
    state.stop_reading()
    account, seconds = state.account, state.now()
    failed = failed_part(result, state.loops)
    return Result(
        result.status,
        result.reason,
        result.detail,
        result.output,
        result.history,
        usage=account.settled,
        run_id=state.run_id,
        name=step.name,
        also=result.also,
        loops=state.loops,
        steps=state.steps,
        agents=state.agents,
        warnings=state.warnings,
        seconds=seconds,
        request=request,
        judging=account.judging,
        reported_score=result.reported_score,
        explored_iterations=explored_by(result, state.loops),
        items=result.items,
        outcomes=state.outcomes,
        total=state.iterations,
        error=failed.error,
        cause=failed.cause,
        workspace=result.workspace,
        held_out=result.held_out,
        members=getattr(step, "named_steps", {}),
    )
