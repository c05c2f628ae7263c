"""The cases of an evaluation on the page of its run: by state, sorted, searched, and against a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, ClassVar
from urllib.parse import urlencode

from ...datasets import Case, Dataset
from ...datasets.results import ERRORED, FAILED, PASSED, UNDECIDED, EvalResult
from ...engine.change_limits import ENDED
from ...errors import ConfigurationError, LoopwrightError
from ...journal import RunInfo, surviving
from ...journal.views import RunView
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..evaluations import (
    CaseRow,
    Read,
    RecordedCases,
    case_json,
    dataset_of,
    evaluated,
    paired_text,
    score_text,
)
from ..run_summary import FIRST, is_evaluation
from ..trace import TraceNode, trace_of

PAGE = 100  # cases that are shown at once
BINS = 10  # of the histogram
MAX_ENTRIES = 4_000  # from the first entry of a case to its last that are read for its trace
MAX_RUNS = 8  # runs whose cases are cached
_STATES = (ERRORED, FAILED, UNDECIDED)  # in their order, before the others
SORTS = {
    "": "changed and not passed first", "file": "order of the file", "score": "lowest score first",
    "-score": "highest score first", "seconds": "longest first", "calls": "most calls first",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WantedCases:
    """The cases that a page shows: their state, order and place, a text in them, and the run to compare with."""

    state: str = ""
    sort: str = ""
    search: str = ""
    baseline: str = ""
    offset: int = 0

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise ConfigurationError(f"sort: use one of {', '.join(filter(None, SORTS))}")

    def query(self, **changes: Any) -> str:
        """Return it with changes, from the first page on, as the query of an address."""
        values = asdict(replace(self, **{"offset": 0, **changes}))
        return urlencode({name: value for name, value in values.items() if value})


@dataclass(frozen=True, slots=True)
class Scored:
    """The cases of an evaluation at one moment; `output` is the one of its run."""

    info: RunInfo
    output: Json
    cases: RecordedCases
    rows: Sequence[CaseRow]

    def result(self, before: Scored | None = None) -> EvalResult:
        """Return the result, with its comparison and its gate."""
        earlier = None if before is None else before.result()
        return evaluated(self.info, self.output, self.cases, self.rows, earlier)


class CasesCache:
    """The cases of the evaluations that were opened last."""

    def __init__(self) -> None:
        self._cached: dict[str, RecordedCases] = {}
        self._files: dict[str, Dataset | None] = {}

    def in_file(self, info: RunInfo, row: CaseRow) -> Case | None:
        """Return a case as its file has it; None if it was changed since, or cannot be read."""
        if info.run_id not in self._files:
            if len(self._files) >= MAX_RUNS:
                self._files.clear()
            self._files[info.run_id] = dataset_of(info)
        data = self._files[info.run_id]
        if data is None or (row.id, row.digest) not in zip(data.ids, data.digests, strict=True):
            return None
        with suppress(LoopwrightError):  # the file was changed since it was read first
            return data[data.ids.index(row.id)]
        return None

    def of(self, view: RunView) -> Scored | None:
        """Return the evaluation of a run; None for another run."""
        if not is_evaluation(view.since(0, FIRST)):
            return None
        read, name = reader(view), view.info.run_id
        cases = self._cached.pop(name, None) or RecordedCases()
        entries = view.since(cases.last)
        if any(entry.kind == "rewound" for entry in entries):
            cases, entries = RecordedCases(), surviving(view.since(0))
        cases.add(entries, read)
        self._cached[name] = cases
        while len(self._cached) > MAX_RUNS:
            del self._cached[next(iter(self._cached))]
        output = (view.ending() or {}).get("output")
        return Scored(view.info, output, cases, cases.listed(read))


def reader(view: RunView) -> Read:
    """Return what reads a complete entry of a run."""
    return lambda number: view.between(number - 1, 1)[0]


def traced(view: RunView, row: CaseRow) -> list[TraceNode]:
    """Return what the steps of a case did."""
    count = min(row.last - row.first + 1, MAX_ENTRIES)
    around = view.between(row.first - 1, count) if row.path else []
    # Those of other cases, which ran at the same time, are between.
    return trace_of([e for e in around if e.path.startswith(f"{row.path}/")], row.path)


Before = Mapping[tuple[str, int, str], CaseRow]


def by_case(scored: Scored | None) -> Before:
    """Return the rows of a baseline by ID, repetition and digest, because another content is another case."""
    rows = () if scored is None else scored.rows
    return {(row.id, row.repeat, row.digest): row for row in rows}


def change_of(row: CaseRow, before: Before) -> str:
    """Return how the verdict of a case changed: `worse`, `better` or ""."""
    earlier = before.get((row.id, row.repeat, row.digest))
    if earlier is None or (earlier.state == PASSED) == (row.state == PASSED):
        return ""
    return "better" if row.state == PASSED else "worse"


def chosen(
    rows: Sequence[CaseRow], wanted: WantedCases, before: Before, found: set[int] | None
) -> list[CaseRow]:
    """Return the wanted cases in their order; `found` are the places of those with the text that is searched."""
    states = {state: place for place, state in enumerate(_STATES)}
    keys: dict[str, Any] = {
        "": lambda row: (
            ("worse", "better", "").index(change_of(row, before)), states.get(row.state, len(states)),
        ),
        "file": lambda row: 0,
        "score": lambda row: (row.score is None, row.score or 0),
        "-score": lambda row: -1 if row.score is None else -row.score,
        "seconds": lambda row: -row.seconds,
        "calls": lambda row: -row.usage.calls,
    }  # fmt: skip
    kept = [
        row
        for place, row in enumerate(rows)
        if wanted.state in ("", row.state, change_of(row, before))
        and (found is None or place in found)
    ]
    return sorted(kept, key=keys[wanted.sort])


def places_of(view: RunView, rows: Sequence[CaseRow], text: str) -> set[int] | None:
    """Return the places of the cases with a text in their ID, output, feedback or error; None without a text."""
    if not text:
        return None
    needle, entries = text.lower(), {entry.seq: entry for entry in view.between(0, 0)}

    def mentions(row: CaseRow) -> bool:
        case = case_json(row, entries.__getitem__)
        parts = (case["id"], case["output"], case["feedback"], case.get("error", ""))
        return any(needle in text_of(one).lower() for one in parts)

    return {place for place, row in enumerate(rows) if mentions(row)}


def histogram(rows: Sequence[CaseRow]) -> list[int]:
    """Return the number of cases in each of ten equal parts of the scores from 0 to 1."""
    counts = Counter(
        min(BINS - 1, max(0, int(row.score * BINS))) for row in rows if row.score is not None
    )
    return [counts[part] for part in range(BINS)]


@dataclass(frozen=True, slots=True)
class ShownCase:
    """A row of the table: the case, its place in the file, and that of the baseline."""

    row: CaseRow
    place: int
    case: Mapping[str, Json]
    before: CaseRow | None
    change: str


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    """An evaluation with a page of its cases."""

    scored: Scored
    result: EvalResult
    wanted: WantedCases
    baselines: Sequence[RunInfo]
    bars: Sequence[tuple[str, int, int]]
    """The parts of the scores, each with the number of cases now and in the baseline."""
    counts: Mapping[str, int]
    rows: Sequence[ShownCase]
    total: int

    @classmethod
    def of(
        cls,
        view: RunView,
        scored: Scored,
        before: Scored | None,
        wanted: WantedCases,
        baselines: Sequence[RunInfo] = (),
        limit: int = PAGE,
    ) -> EvaluationPage:
        """Return at most `limit` of the wanted cases of an evaluation, whose view is that of its run."""
        earlier, rows = by_case(before), scored.rows
        found = chosen(rows, wanted, earlier, places_of(view, rows, wanted.search))
        places = {id(row): place for place, row in enumerate(rows)}
        shown = [
            ShownCase(
                row, places[id(row)], case_json(row, reader(view)),
                earlier.get((row.id, row.repeat, row.digest)), change_of(row, earlier),
            )
            for row in found[wanted.offset : wanted.offset + limit]
        ]  # fmt: skip
        now, then = histogram(rows), histogram(before.rows if before is not None else ())
        bars = [(f"{n / BINS:.1f} to {(n + 1) / BINS:.1f}", now[n], then[n]) for n in range(BINS)]
        counts = Counter(row.state for row in rows)
        counts.update(filter(None, (change_of(row, earlier) for row in rows)))
        return cls(
            scored, scored.result(before), wanted, baselines, bars, counts, shown, len(found)
        )

    sorts: ClassVar[Mapping[str, str]] = SORTS

    @property
    def tallest(self) -> int:
        """The number of cases of the highest bar, at least 1."""
        return max(1, *(max(now, then) for _, now, then in self.bars))

    @property
    def score(self) -> str:
        """The mean score with its interval, until the end that of the cases so far without one."""
        scores = [row.score for row in self.scored.rows if row.score is not None]
        if self.scored.info.status not in ENDED and scores:
            return f"{fmean(scores):.3f} so far, {texts.plural(len(scores), 'case')}"
        return score_text(self.result.score)

    @property
    def difference(self) -> str:
        """The comparison with the baseline, or ""."""
        return "" if self.result.baseline is None else paired_text(self.result.baseline)

    @property
    def end(self) -> int:
        """The number of the last case of the page."""
        return self.wanted.offset + len(self.rows)

    def to_json(self) -> dict[str, Json]:
        """Return the evaluation with its histogram and the cases of the page as a JSON object."""
        histogram = [
            {"scores": part, "cases": now, "before": then} for part, now, then in self.bars
        ]
        rows = [{**one.case, "change": one.change} for one in self.rows]
        return {**self.result.to_json(), "histogram": histogram, "total": self.total, "rows": rows}
