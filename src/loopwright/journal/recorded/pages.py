"""Pages of the run list and views of single runs, from the indexes of a durable store.

Rules:

1. A page of the run list starts after the key of the last row shown, so that every page costs the
   same, however many runs precede it.
2. A search for text reads `WINDOW` runs at a time, and reports where it stopped.
3. Every statement uses an index; a test checks the query plans.

Besides those of RowReader, a store answers these statements: `newest key`, `names` (after),
`next loop` (run, after), `extent of a loop` (run, loop), `extent of a run` (run), `mark` (run, loop,
offset), `outline` (run, loop, mark, limit): mark, first, body, sum, sum of the row before;
`marks` (run, loop, limit, offset), `tried again` (run, first): first, body of the rows with a retry
or a rewind; `latest row` (run): first, body.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from ...records import Iteration, StepOutcome, as_evaluation
from ...records.codec import Json
from ..entries import Entry, surviving
from ..protocol import Posted, RunInfo
from ..views import (
    ENDING,
    Mark,
    RunPage,
    RunView,
    Wanted,
    directly,
    enclosing,
    ending_of,
    no_iteration,
    retried,
    step_outcomes,
)
from .encoding import (
    RunRow,
    as_damage,
    chain_start,
    chained,
    decode_entry,
    decode_row,
    read_row,
    unfold,
    value_of,
)
from .reader import NullContents, RowReader, damaged

WINDOW = 10_000  # runs that one search for text reads
FIRST = 1 << 62  # a key above all keys
MAX_ITERATIONS = 20_000  # iterations cached for the next request
MAX_ROWS = 300  # rows of runs cached for the next request

T = TypeVar("T")


def _cache(cached: dict[int, T], key: int, value: T) -> None:
    # Emptied at once: simpler than an order of use, and rows are cheap to read again.
    if len(cached) >= MAX_ROWS:
        cached.clear()
    cached[key] = value


class PageReader(RowReader):
    """A reader that also answers the queries of pages.

    `light_iterations` caches iterations without their values by the keys of their run and entry, which never
    change. Rows and completed runs are cached as they were read.
    """

    def __init__(self) -> None:
        self.light_iterations: dict[tuple[int, int], Iteration] = {}
        self._rows_read: dict[int, tuple[tuple[Json, ...], RunRow]] = {}
        self._completed: dict[int, tuple[tuple[str, str], RunInfo]] = {}

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def moment(self) -> AbstractContextManager[None]:
        """Read everything inside at one moment."""

    @abstractmethod
    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""

    @abstractmethod
    def row(self, run_id: str) -> RunRow:
        """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""

    @abstractmethod
    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""

    @abstractmethod
    def runs(self, wanted: Wanted, offset: int) -> list[RunInfo]:
        """Return a page of runs, newest first; see Journal.runs."""

    def find(self, run_id: str) -> RunInfo:
        """Return a run in its present state. Raises RunNotFound."""
        return self.complete(*self.shown(run_id))

    @abstractmethod
    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        """Return the rows and present states of a page of runs, in any order."""

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        texts = row.input, row.source
        cached = self._completed.get(row.key)
        if cached is None or cached[0] != texts:
            cached = texts, super().complete(row, info)
            _cache(self._completed, row.key, cached)
        return replace(info, input=cached[1].input, source=cached[1].source)

    def checked(self, values: tuple[Json, ...]) -> RunRow:
        """Return a row, checked unless it is the same as when it was last checked."""
        cached = self._rows_read.get(values[0])
        if cached is None or cached[0] != values:
            cached = values, read_row(values)
            _cache(self._rows_read, values[0], cached)
        return cached[1]

    def newest(self) -> int:
        """Return the key of the newest run: the number of runs, unless some were deleted."""
        [(key,)] = self.select("newest key")
        return key or 0

    def names(self, limit: int = 100) -> list[str]:
        """Return the names of runs, each once."""
        names: list[str] = []
        name = ""
        while len(names) < limit:
            [(raw,)] = self.select("names", name)
            if raw is None:
                break
            name = raw.decode("utf-8", "replace")
            names.append(name)
        return names

    def listed(self, wanted: Wanted) -> list[tuple[int, RunView]]:
        """Return a page of runs with their keys, newest first, without input and source."""
        if wanted.text and not wanted.after:
            wanted = replace(wanted, before=wanted.before or self.newest() + 1)
        views = [(row.key, RecordedView(self, row, info)) for row, info in self.page(wanted)]
        views.sort(key=lambda item: item[0], reverse=not wanted.after)
        return sorted(views[: wanted.limit], key=lambda item: -item[0])

    def stopped_at(self, wanted: Wanted) -> int:
        """Return the key before which a search for text has not read; 0 if it has read all runs."""
        if not wanted.text or wanted.after:
            return 0
        return max(0, min(wanted.before or FIRST, self.newest() + 1) - WINDOW)

    def listing(self, wanted: Wanted) -> RunPage:
        """Return a page of the run list."""
        rows = self.listed(wanted)
        searched = self.stopped_at(wanted) if len(rows) < wanted.limit else 0
        return RunPage(rows, self.names(), self.newest(), searched)

    def view(self, run_id: str) -> RunView:
        """Return the view of a run. Raises RunNotFound."""
        row, info = self.shown(run_id)
        return RecordedView(self, row, self.complete(row, info))

    def evaluations(self, row: RunRow, raws: Sequence[tuple[int, Json]]) -> dict[int, str]:
        """Return the contents that the evaluations of iterations refer to."""
        ids = {}
        for seq, raw in raws:
            value = value_of(raw)
            evaluation = value.get("evaluation") if isinstance(value, dict) else None
            if isinstance(evaluation, dict) and len(evaluation) == 1 and "$json" in evaluation:
                ids[evaluation["$json"]] = seq
        return self.contents(ids, row)[0]


class RecordedView:
    """A run of a durable journal, read by index; see RunView."""

    def __init__(self, pages: PageReader, row: RunRow, info: RunInfo) -> None:
        self.info = info
        self._pages = pages
        self._row = row
        self._outlines: dict[str, list[Mark]] = {}  # complete outlines, by loop

    @property
    def last(self) -> int:
        """The number of the last entry."""
        rows = self._pages.select("latest row", self._row.key)
        return int(rows[0][0]) + len(json.loads(rows[0][1])) - 1 if rows else 0

    def loops(self, under: str = "") -> list[str]:
        paths: list[str] = []
        at = f"{under}/" if under else ""
        while len(paths) < 200:
            [(raw,)] = self._pages.select("next loop", self._row.key, at)
            path = raw.decode() if raw is not None else ""
            if not path or (under and not path.startswith(f"{under}/")):
                break
            paths.append(path)
            at = f"{path}0"  # "0" follows "/": every path below this one lies between
        return paths

    def count(self, loop: str) -> int:
        return int(self._pages.select("extent of a loop", self._row.key, loop)[0][0])

    def total(self) -> int:
        return int(self._pages.select("extent of a run", self._row.key)[0][0])

    def steps(self) -> list[StepOutcome]:
        return step_outcomes(self.info, self.between(0, 0))

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        page = self._pages.iterations(self._row, loop, offset, limit)
        return [(item.number, item.input) for _, item in page]

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        if offset == 0 and limit < 0:
            if loop not in self._outlines:
                self._outlines[loop] = self._outline(loop, 0, -1)
            return self._outlines[loop]
        if offset < 0:
            offset = max(0, self.count(loop) + offset)
        return self._outline(loop, offset, limit)

    def _outline(self, loop: str, offset: int, limit: int) -> list[Mark]:
        key, light_iterations = self._row.key, self._pages.light_iterations
        marks = [mark for (mark,) in self._pages.select("marks", key, loop, limit, offset)]
        missing = [place for place, mark in enumerate(marks) if (key, mark) not in light_iterations]
        if missing:
            if len(light_iterations) > MAX_ITERATIONS:
                light_iterations.clear()
                missing = [0]
            raws = self._outlined(loop, marks[missing[0]], len(marks) - missing[0])
            bodies = NullContents(self._pages.evaluations(self._row, raws))
            light_iterations.update(((key, mark), _light(raw, bodies)) for mark, raw in raws)
        return [(mark, light_iterations[key, mark]) for mark in marks]

    def _outlined(self, loop: str, start: int, limit: int) -> list[tuple[int, Json]]:
        run_id, raws = self._row.info.run_id, []
        with as_damage(f"{run_id}: {loop}"):
            for mark, first, body, total, before in self._pages.select(
                "outline", self._row.key, loop, start, limit
            ):
                head = chain_start(run_id) if before is None else before
                if chained(head, first, body) != total:
                    raise damaged(run_id, first, "does not match its checksum")
                raws.append((mark, decode_row(body)[mark - first]))
        return raws

    def iteration(self, loop: str, number: int) -> Iteration:
        if number > 0:
            for _, item in self._pages.iterations(self._row, loop, number - 1, 1):
                return item
        raise no_iteration(self.info.run_id, loop, number)

    def effects(self, loop: str, number: int) -> list[Entry]:
        begin, end = self._begin(loop, number), self._mark(loop, number)
        entries = self._pages.entries(self._row, begin, end - begin if end else 0)
        return directly(entries, loop, number)

    def _begin(self, loop: str, number: int) -> int:
        """Return the number of an entry that precedes every entry of an iteration."""
        if number > 1:
            return self._mark(loop, number - 1)
        around = enclosing(loop)
        return self._begin(*around) if around is not None else 0

    def _mark(self, loop: str, number: int) -> int:
        # The entries of iteration 0, a baseline, precede the mark of the first one.
        rows = self._pages.select("mark", self._row.key, loop, max(number, 1) - 1)
        return int(rows[0][0]) if rows else 0

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        # The pattern preselects rows in the database, so that a long run is not decoded for a few
        # retries.
        rows = self._pages.select("tried again", self._row.key, after + 1)
        raws = [raw for _, body in rows for raw in decode_row(body)]
        if not any(raw[0] == "r" for raw in raws):
            return retried((raw[1] for raw in raws if raw[0] == "s"), loop)
        entries = surviving(self.since(0))  # only all entries together show what a rewind discarded
        return retried((e.path for e in entries if e.kind == "started" and e.seq > after), loop)

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        return self._pages.light_entries(self._row, seq, limit)

    def between(self, seq: int, limit: int) -> list[Entry]:
        return self._pages.entries(self._row, seq, limit)

    def ending(self) -> dict[str, Json] | None:
        return ending_of(self.between(max(0, self.last - ENDING), 0))


def _light(raw: Json, bodies: dict[int, str]) -> Iteration:
    """Return the iteration of an element without its input and output."""
    value = dict(value_of(raw))
    evaluation = value.pop("evaluation", None)
    value.pop("input", None)
    value.pop("output", None)
    light: Iteration = decode_entry([*raw[:5], value], 0, bodies, {}).value
    if evaluation is None:
        return light
    return replace(light, evaluation=as_evaluation(unfold(evaluation, bodies)))
