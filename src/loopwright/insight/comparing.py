"""Recorded runs side by side: how they ended, how their settings differ, and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..conditions import UNITS
from ..engine.change_limits import ENDED, limits_in_force
from ..errors import ConfigurationError, nearest
from ..journal import Entry, Journal, RunInfo, is_note, surviving
from ..journal.open import using
from ..journal.replay import RecordedRun
from ..records import NOTHING, History, Iteration, Usage, codec
from ..records.codec import Json

__all__ = ["ComparedRun", "Comparison", "compare"]

MOST_RUNS = 16
# Fields of a source that name a place or are compared in another form.
_NOT_SETTINGS = ("root", "documents", "code", "bounds", "forked", "sets", *UNITS)


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison.

    Args:
        info: the row of the run.
        loop: the path of the compared loop; "" if the run has none.
        history: the iterations of that loop.
        usage: the usage of the run, with that of its origin if it is a fork.
        inherited: the usage that a fork took over from its origin.
        seconds: active seconds.
        iterations: the number of iterations of all loops.
        output: the best output of the loop, else that of the end of the run.
    """

    info: RunInfo
    loop: str
    history: History
    usage: Usage
    inherited: Usage
    seconds: float
    iterations: int
    output: Json = field(default=None, repr=False)

    @property
    def best(self) -> Iteration | None:
        """The best iteration of the compared loop."""
        return self.history.best

    @property
    def metrics(self) -> dict[str, Json]:
        """The metrics of the best iteration by name."""
        if self.best is None or self.best.evaluation is None:
            return {}
        metrics: dict[str, Json] = self.best.evaluation.to_json().get("metrics") or {}
        return metrics

    @property
    def scores(self) -> list[float | None]:
        """The scores of the compared loop by iteration."""
        return [item.score for item in self.history]

    def to_json(self, *, output: bool = False) -> dict[str, Json]:
        """Return the run as a JSON object, with its output on request."""
        best = self.best
        data: dict[str, Json] = {
            "run_id": self.info.run_id,
            "name": self.info.name,
            "status": self.info.status,
            "reason": self.info.reason,
            "detail": self.info.detail,
            "score": None if best is None else best.score,
            "metrics": self.metrics,
            "iterations": self.iterations,
            "calls": self.usage.calls,
            "usd": self.usage.usd,
            "inherited": self.inherited.to_json(),
            "seconds": round(self.seconds, 6),
            "loop": self.loop,
            "scores": self.scores,
            "forked": self.info.source.get("forked"),
        }
        if output:
            data["output"] = self.output
        return data


@dataclass(frozen=True)
class Comparison:
    """Recorded runs side by side.

    Args:
        runs: the runs, a column each.
        differs: what differs in input, document, settings and limits: a value for each run.
        part_at: the first path whose recorded result is not the same in all runs; None if all are. A result
            that a run without an end does not have yet is no difference.
        paired: the comparison of two evaluations of data sets by case, the second with the first as its baseline; see
            `EvalResult`. None for other runs.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n + 1, name="l", until=MaxIterations(2))
        >>> for number in (1, 2):
        ...     _ = asyncio.run(run(loop, number, journal=journal, run_id=f"r{number}"))
        >>> done = asyncio.run(compare("r1", "r2", journal=journal))
        >>> done.differs, done.part_at
        ({'input': [1, 2]}, 'l/1/execute')
    """

    runs: Sequence[ComparedRun]
    differs: Mapping[str, Sequence[Json]]
    part_at: str | None
    paired: Mapping[str, Json] | None = None

    @classmethod
    def of(
        cls, recorded: Sequence[tuple[RunInfo, Sequence[Entry]]], *, loop: str = ""
    ) -> Comparison:
        """Return the comparison of runs with their entries.

        Args:
            recorded: the rows of the runs, each with all its entries.
            loop: the name or path of the loop to compare. Default: the outermost loop of each run.

        Raises:
            ConfigurationError: for fewer than two runs or more than 16, or an unknown loop.
        """
        ids = [info.run_id for info, _ in recorded]
        if not 2 <= len(set(ids)) == len(ids) <= MOST_RUNS:
            raise ConfigurationError(
                f"compare: give 2 to {MOST_RUNS} different runs, not {', '.join(ids) or 'none'}"
            )
        remaining = [(info, surviving(entries)) for info, entries in recorded]
        runs = [_compared(info, entries, loop) for info, entries in remaining]
        values = [_settings(info, entries) for info, entries in remaining]
        keys = dict.fromkeys(key for one in values for key in one)
        columns = {key: [one.get(key) for one in values] for key in keys}
        differs = {key: column for key, column in columns.items() if _differ(column)}
        part_at = _part_at([entries for _, entries in remaining])
        return cls(runs, differs, part_at, _paired(remaining))

    @property
    def unfinished(self) -> bool:
        """Whether a run has not ended, so that it may still part from the others."""
        return any(run.info.status not in ENDED for run in self.runs)

    def to_json(self, *, outputs: bool = False) -> dict[str, Json]:
        """Return the comparison as a JSON object, as `loopwright compare --json` prints it."""
        return {
            "runs": [run.to_json(output=outputs) for run in self.runs],
            "differs": {key: list(values) for key, values in self.differs.items()},
            "part_at": self.part_at,
            "paired": self.paired,
        }


async def compare(*run_ids: str, journal: Journal | str, loop: str = "") -> Comparison:
    """Compare recorded runs: how they ended, how their settings differ, and where they part.

    Args:
        run_ids: 2 to 16 runs, each by its ID or a unique prefix.
        journal: the Journal or the URL in which they are recorded.
        loop: the name or path of the loop whose scores are compared. Default: the outermost one.

    Returns:
        The comparison. Runs of different documents are compared too; `differs` names the documents.

    Raises:
        RunNotFound: for an unknown run.
        ConfigurationError: for fewer than two runs or more than 16, or an unknown loop.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> for number in (1, 2):
        ...     _ = asyncio.run(run(loop, 5, journal=journal, run_id=f"r{number}"))
        >>> asyncio.run(compare("r1", "r2", journal=journal)).part_at is None
        True
    """
    async with using(journal) as store:
        rows = [await store.find(run_id) for run_id in run_ids]
        recorded = [(info, await store.entries(info.run_id)) for info in rows]
    return Comparison.of(recorded, loop=loop)


def _compared(info: RunInfo, entries: Sequence[Entry], loop: str) -> ComparedRun:
    replay = RecordedRun(entries)
    path = _loop_of(info, replay, loop)
    history, usage = History(), NOTHING
    for entry in replay.records.get(path, ()):
        usage += entry.value.usage
        history = history.with_iteration(entry.value, entry.seconds, usage, 0.0)
    forked = next((entry.value for entry in entries if entry.kind == "forked"), None)
    end = replay.ended.get("")
    shown = history.best or (None if end else history.last)
    return ComparedRun(
        info=info,
        loop=path,
        history=history,
        usage=replay.spent(""),
        inherited=Usage.from_json(forked["inherited"]) if forked else NOTHING,
        seconds=max(info.active, replay.active),
        iterations=replay.iterations,
        output=shown.output if shown is not None else end["output"] if end else None,
    )


def _paired(runs: Sequence[tuple[RunInfo, Sequence[Entry]]]) -> Mapping[str, Json] | None:
    """Return the comparison of two evaluations by case; None if these are not two."""
    if len(runs) != 2 or not all(any(e.kind == "folded" for e in own) for _, own in runs):
        return None
    from ..datasets.results import paired, recorded_groups, recorded_rows  # few runs need them

    (first, earlier), (_, later) = runs
    before, now = recorded_rows(earlier), recorded_rows(later)
    if not before or not now:
        return None
    return {"run_id": first.run_id, **paired(before, now, recorded_groups(later))}


def _loop_of(info: RunInfo, replay: RecordedRun, name: str) -> str:
    """Return the path of the loop to compare, by its name or path; "" in a run without loops."""
    paths = list(replay.records)
    if not name:
        return min(paths, key=lambda path: path.count("/"), default="")
    for path in paths:
        if name in (path, path.rsplit("/", 1)[-1]):
            return path
    names = list(dict.fromkeys(path.rsplit("/", 1)[-1] for path in paths))
    hint = nearest(name, names) or f"; its loops are: {', '.join(names) or 'none'}"
    raise ConfigurationError(f"{info.run_id} has no loop {name!r}{hint}")


def _settings(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json]:
    """Return what a person can set for a run, by key."""
    source = info.source
    settings: dict[str, Json] = {"name": info.name, "input": info.input}
    settings |= {key: value for key, value in source.items() if key not in _NOT_SETTINGS}
    settings |= {f"set {key}": value for key, value in (source.get("sets") or {}).items()}
    if source.get("documents"):
        settings["document"] = codec.digest(source["documents"])
    settings["code"] = info.fingerprint
    for limit in limits_in_force(info, entries):
        settings[f"{limit.loop or 'run'} {limit.key}"] = limit.limit
    return settings


def _differ(values: Sequence[Json]) -> bool:
    # As text, because values may be lists and objects.
    return len({codec.encode(value) for value in values}) > 1


def _part_at(runs: Sequence[Sequence[Entry]]) -> str | None:
    """Return the first path whose result is not the same in all runs."""
    results = [dict(_results(entries)) for entries in runs]
    ended = [any(e.kind == "ended" and not e.path for e in entries) for entries in runs]
    # In the order of each run: where all earlier results are equal, an extra one is where they part.
    for path in dict.fromkeys(path for one in results for path in one):
        present = [
            one.get(path, {"missing": True})
            for one, done in zip(results, ended, strict=True)
            if done or path in one
        ]
        if _differ(present):
            return path
    return None


def _results(entries: Iterable[Entry]) -> Iterator[tuple[str, Json]]:
    """Iterate over the recorded results of a run: paths and values, without times and costs."""
    for entry in entries:
        if entry.kind == "finished" and not is_note(entry.fingerprint):
            failed = None if entry.error is None else entry.error.message
            yield entry.path, [entry.value, failed]
        elif entry.kind == "ended" and entry.path:
            yield f"{entry.path}/ended", entry.value["stop"]["reason"]
