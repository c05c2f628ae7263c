"""The noise of a loop's scores in past runs, for `Degrading(sigma="past")`.

It is measured once, before the first step, and recorded as an entry of the run. A resume, a fork and a replay
read that entry, because the journal has more runs by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import cast

from .._statistics import noise_of
from ..conditions import DEFAULT_SIGMA, uses_past
from ..errors import ConfigurationError
from ..journal import Entry, Journal, RunInfo
from ..records.codec import Json
from .loop_declaration import LoopDeclaration
from .run_state import Run
from .step import Step

__all__ = ["refuse_past", "set_noise"]

MIN_RUNS = 20  # the median of fewer runs says little
MAX_RUNS = 100  # the newest ones; each is a query at the start of a run
_PAGE = 200
_UNENDED = ("queued", "running", "interrupted", "suspended")
_ALL = 1_000_000


def refuse_past(step: Step) -> None:
    """Refuse a sigma of past runs in a run without a journal.

    Raises:
        ConfigurationError: names the loop.
    """
    for loop in _loops(step) if step.reads_past else ():
        raise ConfigurationError(
            f"loop {loop.name}: degrading: sigma: past needs a journal with past runs, and this run has no "
            "journal; use one, such as journal='sqlite:runs.db', or write a number"
        )


async def set_noise(run: Run, step: Step, store: Journal | None) -> None:
    """Set the recorded noise of a run, or measure and record it if nothing has run yet.

    With fewer than 20 past runs, the default sigma is recorded.
    """
    replay = run.replay
    if replay is not None:
        run.noise = replay.noise
        # A run that began without the entry keeps the sigma that its decisions used.
        if replay.noise is not None or replay.records or replay.finished or replay.unsettled:
            return
    if store is None:
        return
    measured = await _measured(step, run.log.info, store)
    run.append(Entry("noise", "", run.now(), value=measured))
    run.noise = {loop: values["sigma"] for loop, values in measured.items()}


def _loops(step: Step) -> Iterator[LoopDeclaration]:
    """Iterate over the loops with a sigma of past runs."""
    members = getattr(step, "members", ())
    if hasattr(step, "decide") and uses_past(members):
        yield cast("LoopDeclaration", step)
    for part in step.parts():
        if part.reads_past:
            yield from _loops(part)


async def _measured(step: Step, info: RunInfo, store: Journal) -> dict[str, Mapping[str, Json]]:
    """Return the sigma of each loop, and the number of runs that it is from."""
    series: dict[str, list[list[list[float]]]] = {loop.name: [] for loop in _loops(step)}
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
