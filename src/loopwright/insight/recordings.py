"""Recorded runs of one loop, how they are selected, and which of their stops its conditions reproduce.

A stop is reproduced if the loop decides on each recorded prefix as the run did: to continue before the
recorded end, and to end there for the recorded reason. Other runs are left out: their ends did not follow
from the record, so the record cannot say what another policy would have done.

Selectors are a run ID, `name:DOC`, `since:7d` or `fp:FINGERPRINT`.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..conditions import Condition, raised, tuned, with_sigma
from ..engine.loop import Loop, loop_of_rules, origin_from, replayed
from ..engine.loop_options import explores
from ..engine.step import Step
from ..errors import ConfigurationError, LoopwrightWarning, nearest
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.protocol import DAMAGED
from ..journal.replay import RecordedRun
from ..records import (
    NOTHING,
    Evaluation,
    History,
    Iteration,
    Origin,
    Status,
    Stop,
    as_evaluation,
    begin_at,
)
from ..records.display import plural

__all__ = [
    "AUDIT",
    "LeftOut",
    "Recording",
    "Recordings",
    "loop_named",
    "recorded_loop",
    "recordings_of",
    "selected",
]

AUDIT = "audit"  # the metric of an evaluation whose vote takes no part in decisions


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run whose stop is not reproduced.

    Args:
        run_id: the run.
        why: the reason, as a sentence without a full stop.
    """

    run_id: str
    why: str


@dataclass(frozen=True)
class Recording:
    """One recorded execution of a loop.

    Args:
        run_id: the run.
        path: the path of the loop in the run.
        loop: the loop with the conditions of that time.
        prefixes: the history after each iteration, with the recorded time and usage.
        stop: the recorded end.
        explored: whether the run was to continue to its limits after the normal end. The ID of the run
            decides, so these runs are a random sample of all runs.
        stopped_at: the number of iterations at the normal end.
    """

    run_id: str
    path: str
    loop: Loop
    prefixes: Sequence[History]
    stop: Stop
    explored: bool = False
    stopped_at: int = 0

    def __len__(self) -> int:
        return len(self.prefixes)

    @property
    def full_length(self) -> bool:
        """Whether it used all iterations of its limit."""
        return len(self) >= self.loop.limit


@dataclass(frozen=True)
class Recordings:
    """The recordings of one loop.

    Args:
        loop: the name of the loop.
        items: the recordings whose stops are reproduced.
        left_out: the others.

    Example:
        >>> Recordings("refine").reproduced
        '0 of 0'
    """

    loop: str
    items: Sequence[Recording] = ()
    left_out: Sequence[LeftOut] = field(default=())

    @property
    def failed(self) -> int:
        """The recordings that a failure ended, such as an error of the model, and no condition."""
        return sum(item.stop.reason.status is Status.FAILED for item in self.items)

    @property
    def reproduced(self) -> str:
        """How many recorded stops are reproduced, such as `58 of 60`, and how many runs failed instead."""
        decided = len(self.items) - self.failed
        return f"{decided} of {decided + len(self.left_out)}" + (
            f", {plural(self.failed, 'failed run')}" if self.failed else ""
        )

    @property
    def quality(self) -> str:
        """The source of quality: `audit score` if every evaluation has one, else `selection score`; `none` without
        a score or verdict, as where only sentences are judged."""
        scored = [i for r in self.items for i in r.prefixes[-1] if i.evaluation is not None]
        audited = bool(scored) and all(_audit(item) is not None for item in scored)
        rated = any(item.score is not None or item.passed is not None for item in scored)
        return "audit score" if audited else "selection score" if rated or not scored else "none"


def _audit(item: Iteration) -> float | None:
    return None if item.evaluation is None else item.evaluation.metrics.get(AUDIT)


def quality_of(item: Iteration | None, *, audited: bool) -> float:
    """Return the quality of an output from 0 to 1; 0 without an output that was judged."""
    if item is None or item.evaluation is None:
        return 0.0
    audit = _audit(item) if audited else None
    if audit is not None:
        return audit
    if item.score is not None:
        return item.score
    return float(item.evaluation.passed is True)


def loop_named(step: Step, name: str = "") -> Loop:
    """Return a loop inside a step by its name; by default, the outermost loop.

    Args:
        step: a loop, or a workflow with loops.
        name: the name or path of the loop. Default: the outermost one.

    Raises:
        ConfigurationError: if there is no such loop; names the nearest one.
    """
    loops = list(_loops(step))
    return loops[_place(step.name, [loop.name for loop in loops], name)]


def recorded_loop(info: RunInfo, name: str = "") -> Loop | LeftOut | None:
    """Return a loop of a recorded run with the conditions that it had, whatever became of its program.

    Args:
        info: the row of the run.
        name: the name or path of the loop. Default: the outermost one.

    Returns:
        The loop, whose steps do nothing; a `LeftOut` if a condition is a class that is not imported; None for a
        run of a document that is older than this record, but is kept with its document.

    Raises:
        ConfigurationError: if there is no such loop; names the nearest one.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync
        >>> journal = MemoryJournal()
        >>> _ = run_sync(Loop(str, name="l", until=MaxIterations(2)), 1, journal=journal, run_id="r")
        >>> recorded_loop(asyncio.run(journal.find("r"))).limit
        2
    """
    loops = (info.source.get("bounds") or {}).get("loops") or ()
    if "file" in info.source and not (loops and "rules" in loops[0]):
        return None
    loop = loops[_place(info.step, [loop["name"] for loop in loops], name)]
    try:
        # Before the rules, the conditions alone were recorded; what they do not reproduce is left out.
        return loop_of_rules(loop["name"], loop.get("rules") or {"until": loop["until"]})
    except (ConfigurationError, KeyError, TypeError) as error:  # the last two are of a damaged row
        return LeftOut(info.run_id, f"its conditions cannot be read: {error}")


def _place(owner: str, names: Sequence[str], name: str) -> int:
    """Return the place of a loop among the names of all; the first one by default."""
    if not names:
        raise ConfigurationError(f"{owner} has no loop. Select a run of a loop or workflow.")
    wanted = name.rsplit("/", 1)[-1] or names[0]
    if wanted in names:
        return names.index(wanted)
    hint = nearest(wanted, names) or f"; its loops are: {', '.join(names)}"
    raise ConfigurationError(f"{owner} has no loop {wanted!r}{hint}")


def _loops(step: Step) -> Iterator[Loop]:
    if isinstance(step, Loop):
        yield step
    parts = getattr(step, "parts", None)
    for part in parts() if callable(parts) else ():
        yield from _loops(part)


def recordings_of(
    info: RunInfo, entries: Sequence[Entry], loop: Loop
) -> Iterator[Recording | LeftOut]:
    """Iterate over the executions of a loop in a recorded run.

    Args:
        info: the row of the run.
        entries: all its entries.
        loop: the loop, with the conditions that the run had.

    Returns:
        A recording for each execution whose stop is reproduced, a `LeftOut` for each other one.
    """
    remaining = surviving(entries)
    replay = RecordedRun(remaining)
    # With the noise of past runs that the run recorded.
    sigma = (replay.noise or {}).get(loop.name)
    if sigma is not None:
        trees = (
            None if tree is None else with_sigma(tree, sigma) for tree in (loop.until, loop.guards)
        )
        until, guards = trees
        with warnings.catch_warnings():
            # The remarks are for loops that run.
            warnings.simplefilter("ignore", LoopwrightWarning)
            loop = replayed(loop, until=until, guards=guards)
    # Of limits, with questions and answers about them.
    changes = [
        entry
        for entry in remaining
        if entry.kind in ("tuned", "accepted", "answered")
        or (entry.kind == "asked" and entry.value["request"].get("kind") == "limit")
    ]
    paths = [path for path in replay.records if path.rsplit("/", 1)[-1] == loop.name]
    if not paths:
        yield LeftOut(info.run_id, f"it has no recorded iteration of {loop.name!r}")
    for path in paths:
        limits = _RecordedLimits(loop, path, changes, len(replay.records[path]))
        yield _recording(info, replay, path, limits)


class _RecordedLimits:
    """The conditions of one execution of a loop, with the limits that people changed."""

    def __init__(self, loop: Loop, path: str, changes: Sequence[Entry], used: int) -> None:
        self.loop = loop
        self._used = used  # iterations that are recorded
        self._path = path
        self._changes = changes
        self._tuned = any(entry.kind == "tuned" for entry in changes)
        self.last = self._until(None)

    def before(self, entry: Entry) -> tuple[Condition, ...]:
        """Return the conditions in force at an entry."""
        # Raised limits alone change no earlier decision: the run continued under the lower ones.
        return self._until(entry.seq) if self._tuned else self.last

    def _until(self, seq: int | None) -> tuple[Condition, ...]:
        replay = RecordedRun(e for e in self._changes if seq is None or e.seq < seq)
        members = self.loop.members
        if limits := replay.raised.get(self._path):
            members = raised(members, limits, self._used)
        if limits := replay.tuned.of(self._path):
            members = tuned(members, limits)
        return members


def _recording(
    info: RunInfo, replay: RecordedRun, path: str, limits: _RecordedLimits
) -> Recording | LeftOut:
    loop = limits.loop
    end = replay.ended.get(path)
    if end is None:
        return LeftOut(info.run_id, f"{path} has not ended; the run is {info.status}")
    stop = Stop.from_json(end["stop"])
    records = replay.records[path]
    normal = replay.would_stop.get(path)
    # A limit may cut the last explored iteration; the run itself ended before.
    if normal is not None and records[-1].error is not None:
        records = records[:-1]
    if any(entry.error is not None for entry in records):
        return LeftOut(info.run_id, f"its last iteration was cut short: {stop.detail}")
    origin = origin_from(loop.measured, _baseline(replay, path, loop))
    prefixes = list(_prefixes(info, records, origin))
    stopped_at = len(prefixes) if normal is None else int(normal["iterations"])
    # What follows the normal end was explored, and no condition decided on it.
    decisions = zip(records[:stopped_at], prefixes[:stopped_at], strict=True)
    for number, (entry, history) in enumerate(decisions, start=1):
        decided = _decided(loop, history, limits.before(entry))
        # A limit may have been taken between the last record and the decision, as on a resume.
        if number == stopped_at and (decided is None or decided.reason is not stop.reason):
            decided = _decided(loop, history, limits.last)
        if number < stopped_at and decided is not None:
            why = f"{decided.reason.value} after iteration {number}, where the run continued"
            return LeftOut(info.run_id, why)
        if number == stopped_at and (decided is None or decided.reason is not stop.reason):
            here = "to continue" if decided is None else decided.reason.value
            return LeftOut(
                info.run_id, f"the run ended with {stop.reason.value}, its conditions say {here}"
            )
    # Also without a normal end before a limit: a sample of the others only would be biased.
    explored = explores(info.run_id, loop.explore)
    return Recording(
        info.run_id, path, loop, prefixes, stop, explored=explored, stopped_at=stopped_at
    )


def _decided(loop: Loop, history: History, members: tuple[Condition, ...]) -> Stop | None:
    stop = loop.decide(history, members)
    return None if stop is None else loop.ending(stop, history)


def _baseline(replay: RecordedRun, path: str, loop: Loop) -> Evaluation | None:
    """Return the recorded evaluation of the input of a loop, or None."""
    entry = replay.finished.get(f"{path}/0/evaluate")
    value = replay.plans.get(f"{path}/2/plan", {}).get("baseline")
    if entry is not None and entry.error is None:
        value = entry.value
    if value is None:
        return None
    evaluation = as_evaluation(value)
    return evaluation if loop.measured is None else loop.measured.scored(evaluation)


def _prefixes(info: RunInfo, records: Iterable[Entry], origin: Origin) -> Iterator[History]:
    history, usage = History(), NOTHING
    begin_at(history, origin)
    for entry in records:
        usage += entry.value.usage
        # The wall clock of an iteration is not recorded; a run that never waited has this one.
        wall = info.created + entry.at
        history = history.with_iteration(entry.value, entry.seconds, usage, wall)
        yield history


KINDS = ("name", "since", "fp")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(\d+)([mhdw])")
_ALL = 1_000_000
_SHOWN = 8  # fingerprints in a message


async def selected(
    store: Journal, selectors: Sequence[str], *, now: float, mix: bool = False
) -> list[RunInfo]:
    """Return the runs that selectors name, oldest first.

    Filters (`name:`, `since:`, `fp:`) apply together; runs named by their ID are added.

    Args:
        store: the journal.
        selectors: at least one.
        now: the wall clock, in seconds since the epoch.
        mix: whether runs of several fingerprints may be mixed. Default: false.

    Raises:
        ConfigurationError: for an unknown selector, no run, several documents, or several fingerprints
            without `mix`.
        RunNotFound: for a run ID that does not exist.
    """
    filters: dict[str, str] = {}
    runs: dict[str, RunInfo] = {}
    for position, text in enumerate(selectors, start=1):
        kind, colon, value = text.partition(":")
        if not colon:
            info = await store.find(text)
            runs[info.run_id] = info
        elif kind not in KINDS or not value:
            hint = nearest(kind, KINDS) or "; use a run ID, name:DOC, since:7d or fp:FINGERPRINT"
            raise ConfigurationError(f"selector {position}: {text!r} is not a selector{hint}")
        elif kind in filters:
            raise ConfigurationError(
                f"selector {position}: {text!r}: filters apply together, so use {kind}: once"
            )
        else:
            filters[kind] = value
    if filters:
        age = None
        if "since" in filters:
            match = _AGE.fullmatch(filters["since"])
            if match is None:
                raise ConfigurationError(
                    f"since:{filters['since']}: not an age. Write a number with m, h, d or w, such as since:7d."
                )
            age = int(match[1]) * _SECONDS[match[2]]
        for info in await store.runs(limit=_ALL, name=filters.get("name", "")):
            fits = info.fingerprint.startswith(filters.get("fp", ""))
            if info.status != DAMAGED and fits and (age is None or info.created >= now - age):
                runs[info.run_id] = info
    return _of_one_document(list(runs.values()), selectors, mix=mix)


def _of_one_document(runs: list[RunInfo], selectors: Sequence[str], *, mix: bool) -> list[RunInfo]:
    shown = " ".join(selectors)
    if not runs:
        raise ConfigurationError(f"{shown}: no run is selected", advice="list_runs")
    if len(names := sorted({info.name for info in runs})) > 1:
        raise ConfigurationError(
            f"{shown}: these are runs of {len(names)} documents: {', '.join(names[:5])}. "
            f"Select one with name:{names[0]}."
        )
    prints = Counter(info.fingerprint for info in runs)
    if len(prints) > 1 and not mix:
        listed = [
            f"fp:{value[:8]} ({plural(count, 'run')})"
            for value, count in prints.most_common(_SHOWN)
        ]
        more = f" and {len(prints) - _SHOWN} more" if len(prints) > _SHOWN else ""
        raise ConfigurationError(
            f"{shown}: these runs have {len(prints)} fingerprints: {', '.join(listed)}{more}. "
            "Select one, or mix them",
            advice="mix_versions",
        )
    return sorted(runs, key=lambda info: (info.created, info.run_id))
