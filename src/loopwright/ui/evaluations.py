"""A recorded evaluation of a data set: its cases in the order of the file, with their outputs and evaluations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..datasets import Case, Dataset
from ..datasets.results import ERRORED, FIGURES, EvalResult, Gate, recorded_rows
from ..engine.step import Step
from ..errors import LoopwrightError, RunNotFound
from ..evaluators.cases import OverCases, state_of
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.replay import recorded_result
from ..records import NOTHING, Evaluation, Usage, as_evaluation
from ..records.codec import Json
from . import formatting as texts
from .run_summary import on_record

RUNNING = "running"  # the state of a case that has not ended
_CASE = re.compile(r"[^/]+(?:/eval)?/cases/s([0-9]+)(?:/([^/]+)(?:/repeat-([0-9]+))?/(.+))?")
_PARTS = ("task", "evaluate", "outcome")
Read = Callable[[int], Entry]
"""Returns the complete entry of a number."""


@dataclass(slots=True)
class CaseRow:
    """A run of a case, without its texts: `parts` are the numbers of the entries with its output and its evaluation,
    and that of its last `error`."""

    id: str
    repeat: int
    shard: int
    began: float
    ended: float = 0.0
    first: int = 0  # the numbers of its first and its last entry
    last: int = 0
    place: float = math.inf  # in its shard, once that is complete
    state: str = RUNNING
    score: float | None = None
    digest: str = ""
    usage: Usage = NOTHING
    parts: dict[str, int] = field(default_factory=dict)
    path: str = ""

    @property
    def seconds(self) -> float:
        """The active seconds from its first step to its last."""
        return max(0.0, self.ended - self.began)


class RecordedCases:
    """The cases of an evaluation, from the entries of its run."""

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}  # by ID
        self.last = 0  # the number of the last entry
        self._rows: dict[tuple[int, str, int], CaseRow] = {}

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> tuple[RecordedCases, Read]:
        """Return the cases in all entries of a run, and what reads an entry."""
        cases, by_number = cls(), {entry.seq: entry for entry in entries}
        cases.add(surviving(entries), by_number.__getitem__)
        return cases, by_number.__getitem__

    def add(self, entries: Iterable[Entry], read: Read) -> None:
        """Add entries that no rewind discarded; `read` is used where they may lack long values."""
        for entry in entries:
            self.last = entry.seq
            found = _CASE.fullmatch(entry.path)
            if found is None or entry.kind not in ("started", "finished", "folded"):
                continue
            shard = int(found[1])
            if entry.kind == "folded" and not found[2]:
                self._complete(shard, read(entry.seq).value["value"])
            elif found[2]:
                case_id = found[2].replace("%2F", "/").replace("%25", "%")
                row = self._row(shard, case_id, int(found[3] or 1), entry.at)
                row.path = entry.path[: found.start(4) - 1]
                row.ended = max(row.ended, entry.at + entry.seconds)
                row.usage += entry.usage
                row.first, row.last = row.first or entry.seq, entry.seq
                if entry.error is not None:
                    row.parts["error"] = entry.seq
                elif entry.kind == "finished" and found[4] in _PARTS:
                    row.parts[found[4]] = entry.seq

    def _row(self, shard: int, case_id: str, repeat: int, at: float) -> CaseRow:
        return self._rows.setdefault(
            (shard, case_id, repeat), CaseRow(case_id, repeat, shard, began=at)
        )

    def _complete(self, shard: int, kept: Mapping[str, Json]) -> None:
        self.groups |= kept.get("groups", {})
        repeats: Counter[str] = Counter()
        for place, (case_id, score, state, usage, digest) in enumerate(kept["rows"]):
            repeats[case_id] += 1
            row = self._row(shard, case_id, repeats[case_id], 0.0)
            row.place, row.score, row.state, row.digest = place, score, state, digest
            row.usage = Usage(*usage) if usage else NOTHING

    def listed(self, read: Read) -> list[CaseRow]:
        """Return the cases in the order of the file, where a shard is not complete in that of their beginnings."""
        for row in self._rows.values():
            # One that errored may be tried again.
            if row.place < math.inf or row.state not in (RUNNING, ERRORED):
                continue
            if (evaluation := evaluation_of(row, read)) is not None:
                row.state, row.score = state_of(evaluation), evaluation.score
                if row.score is None and evaluation.passed is not None:
                    row.score = float(evaluation.passed)
            elif row.parts.get("error") == row.last:
                row.state = ERRORED
        return sorted(self._rows.values(), key=lambda row: (row.shard, row.place, row.began))


def evaluation_of(row: CaseRow, read: Read) -> Evaluation | None:
    """Return the evaluation of a case, or None."""
    if "outcome" in row.parts:
        return as_evaluation(read(row.parts["outcome"]).value["evaluation"])
    if "evaluate" in row.parts:
        return as_evaluation(read(row.parts["evaluate"]).value)
    return None


def case_json(row: CaseRow, read: Read) -> dict[str, Json]:
    """Return a case as a line of `--cases-out`."""
    evaluation, output = evaluation_of(row, read) or Evaluation(), None
    if "outcome" in row.parts:
        output = read(row.parts["outcome"]).value["output"]
    elif "task" in row.parts:
        output = read(row.parts["task"]).value
    data: dict[str, Json] = {
        "id": row.id, "repeat": row.repeat, "state": row.state, "score": row.score, "passed": evaluation.passed,
        "output": output, "feedback": evaluation.feedback, "metrics": dict(evaluation.metrics),
        "usage": row.usage.to_json(), "seconds": round(row.seconds, 6),
    }  # fmt: skip
    if row.state == ERRORED and "error" in row.parts:
        failure = read(row.parts["error"]).error
        data["error"] = "" if failure is None else failure.message
    return data


def step_of(step: Step) -> OverCases | None:
    """Return the step that runs the cases of an evaluation; None in another step."""
    if isinstance(step, OverCases):
        return step
    return next((found for part in step.parts() if (found := step_of(part)) is not None), None)


def dataset_of(info: RunInfo) -> Dataset | None:
    """Return the cases that an evaluation ran, as their file has them now; None if its document cannot be read."""
    from .sources import SourceSettings, load_again

    try:
        step = step_of(load_again(info, SourceSettings(), execute=False).step)
    except LoopwrightError:  # of a Python program, or the document is not there any more
        return None
    return None if step is None else step.dataset


def cases_of_file(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Case]:
    """Return the cases of an evaluation by ID, as their file has them; without those that were changed since."""
    recorded = {row[0]: row[4] for row in recorded_rows(entries)}
    found = dataset_of(info) or ()
    return {case.id: case for case in found if recorded.get(case.id) == case.digest}


def cases_in(entries: Sequence[Entry]) -> Iterator[dict[str, Json]]:
    """Iterate over the cases of a run from all its entries."""
    cases, read = RecordedCases.of(entries)
    for row in cases.listed(read):
        yield case_json(row, read)


async def with_baseline(
    store: Journal, name: str, wanted: Json = None
) -> tuple[RunInfo, list[Entry], EvalResult | None]:
    """Return a run with its entries, and the result of its baseline, if it has one and that is still recorded.

    `wanted` are the settings of its latest process, which may differ from those of the first.
    """
    info, entries = await on_record(store, name)
    if wanted is not None:
        info = replace(info, source={**info.source, "eval": wanted})
    before = None
    if named := (info.source.get("eval") or {}).get("baseline"):
        with suppress(RunNotFound):
            before = recorded_evaluation(*await on_record(store, named))
    return info, entries, before


def recorded_evaluation(
    info: RunInfo, entries: Sequence[Entry], before: EvalResult | None = None
) -> EvalResult:
    """Return the result of a recorded evaluation; see `evaluated`."""
    cases, read = RecordedCases.of(entries)
    output = recorded_result(info, entries).output
    return evaluated(info, output, cases, cases.listed(read), before)


def evaluated(
    info: RunInfo,
    output: Json,
    cases: RecordedCases,
    rows: Sequence[CaseRow],
    before: EvalResult | None,
) -> EvalResult:
    """Return the result of an evaluation, so far if it has not ended, with its comparison and its gate."""
    figures = output if isinstance(output, dict) else {}
    shown = EvalResult(
        info.run_id, info.status, info.detail,
        **{name: figures[name] for name in FIGURES if name in figures},
        usage=info.usage or sum((row.usage for row in rows), NOTHING),
        rows=[[row.id, row.score, row.state, 0, row.digest] for row in rows],
    )  # fmt: skip
    if not shown.counts:
        shown = replace(shown, counts=Counter(row.state for row in rows))
    if before is not None:
        shown = shown.compared(before, cases.groups)
    gate = Gate(**(info.source.get("eval") or {}).get("gate", {}))
    if before is None:
        gate = replace(gate, max_drop=None)
    return shown.gated(gate) if figures and gate != Gate() else shown


def score_text(score: Mapping[str, Json] | None) -> str:
    """Return a mean score with its interval, and how that was computed."""
    if score is None:
        return "none"
    count = texts.plural(score["n"], "case")
    if score["clusters"] < score["n"]:
        count = f"{score['n']:,} scores in {texts.plural(score['clusters'], 'group')}"
    if score["low"] is None:
        return f"{score['mean']:.3f}  no interval, {count}"
    return f"{score['mean']:.3f}  [{score['low']:.3f}, {score['high']:.3f}]  {score['method']}, {count}"


def paired_text(compared: Mapping[str, Json]) -> str:
    """Return the comparison of an evaluation with its baseline as a sentence."""
    if compared["difference"] is None:
        return f"unknown: no case pairs with {compared['run_id']}"
    text = f"{compared['difference']:+.3f}"
    if compared["low"] is not None:
        text += f" [{compared['low']:+.3f}, {compared['high']:+.3f}]"
    text += f" paired with {compared['run_id']}, {texts.plural(compared['paired'], 'case')}"
    if compared["unpaired"]:
        text += f" ({compared['unpaired']:,} not paired)"
    text += f": {compared['wins']} better, {compared['losses']} worse"
    return text if compared["p"] is None else f"{text}, p {compared['p']:.3g}"
