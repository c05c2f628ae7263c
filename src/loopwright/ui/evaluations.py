"""A recorded evaluation of a data set: its cases in the order of the file, with their outputs and evaluations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..journal import Entry, surviving
from ..records import NOTHING, Evaluation, Usage, as_evaluation
from ..records.codec import Json

RUNNING = "running"  # the state of a case that has not ended
_CASE = re.compile(r"[^/]+/cases/s([0-9]+)(?:/([^/]+)(?:/repeat-([0-9]+))?/(.+))?")
_PARTS = ("task", "evaluate", "outcome")
_FIRST = 20  # entries, among which is the first case of an evaluation
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
    place: float = math.inf  # in its shard, once that is complete
    state: str = RUNNING
    score: float | None = None
    digest: str = ""
    usage: Usage = NOTHING
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The active seconds from its first step to its last."""
        return max(0.0, self.ended - self.began)


class RecordedCases:
    """The cases of an evaluation, from the entries of its run."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str, int], CaseRow] = {}

    def add(self, entries: Iterable[Entry], read: Read) -> None:
        """Add entries that no rewind discarded; `read` is used where they may lack long values."""
        for entry in entries:
            found = _CASE.fullmatch(entry.path)
            if found is None or entry.kind not in ("started", "finished", "folded"):
                continue
            shard = int(found[1])
            if entry.kind == "folded" and not found[2]:
                self._complete(shard, read(entry.seq).value["value"]["rows"])
            elif found[2]:
                case_id = found[2].replace("%2F", "/").replace("%25", "%")
                row = self._row(shard, case_id, int(found[3] or 1), entry.at)
                row.ended = max(row.ended, entry.at + entry.seconds)
                row.usage += entry.usage
                if entry.error is not None:
                    row.parts["error"] = entry.seq
                elif entry.kind == "finished" and found[4] in _PARTS:
                    row.parts[found[4]] = entry.seq

    def _row(self, shard: int, case_id: str, repeat: int, at: float) -> CaseRow:
        return self._rows.setdefault(
            (shard, case_id, repeat), CaseRow(case_id, repeat, shard, began=at)
        )

    def _complete(self, shard: int, rows: Sequence[Json]) -> None:
        repeats: Counter[str] = Counter()
        for place, (case_id, score, state, usage, digest) in enumerate(rows):
            repeats[case_id] += 1
            row = self._row(shard, case_id, repeats[case_id], 0.0)
            row.place, row.score, row.state, row.digest = place, score, state, digest
            row.usage = Usage(*usage) if usage else NOTHING

    def listed(self, read: Read) -> list[CaseRow]:
        """Return the cases in the order of the file, where a shard is not complete in that of their beginnings."""
        for row in self._rows.values():
            if row.state == RUNNING:
                self._decide(row, read)
        return sorted(self._rows.values(), key=lambda row: (row.shard, row.place, row.began))

    def _decide(self, row: CaseRow, read: Read) -> None:
        """Give a case of an incomplete shard its state, if it has ended."""
        from ..evaluators.cases import state_of  # loads models, which few commands need

        evaluation = evaluation_of(row, read)
        if evaluation is not None:
            row.state = state_of(evaluation)
            row.score = evaluation.score


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
    if row.state == "errored" and "error" in row.parts:
        failure = read(row.parts["error"]).error
        data["error"] = "" if failure is None else failure.message
    return data


def is_evaluation(entries: Iterable[Entry]) -> bool:
    """Return whether these first entries of a run are of an evaluation of a data set."""
    return any(_CASE.fullmatch(entry.path) for entry in entries)


def cases_in(entries: Sequence[Entry]) -> Iterator[dict[str, Json]]:
    """Iterate over the cases of a run from all its entries."""
    by_number = {entry.seq: entry for entry in entries}
    cases = RecordedCases()
    cases.add(surviving(entries), by_number.__getitem__)
    for row in cases.listed(by_number.__getitem__):
        yield case_json(row, by_number.__getitem__)
