"""What a page shows of an SQLite journal: pages of the run list, one run by its indexes, and changes.

Rules:

1. A page of the run list starts after the key of the last row shown, so that every page costs the
   same, however many runs precede it.
2. A search for text reads `WINDOW` runs at a time, and reports where it stopped.
3. Every statement uses an index; a test checks the query plans.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigurationError, nearest
from ...records import Iteration, Reason, StepOutcome, as_evaluation
from ...records.codec import Json
from ..entries import Entry, surviving
from ..protocol import RunInfo
from ..recorded.encoding import (
    RunRow,
    Value,
    as_damage,
    chain_start,
    chained,
    decode_entry,
    decode_row,
    read_row,
    unfold,
    value_of,
)
from ..recorded.reader import NullContents, damaged
from ..views import (
    ENDING,
    Mark,
    directly,
    enclosing,
    ending_of,
    no_iteration,
    retried,
    step_outcomes,
)
from .leases import read_owners
from .reader import STATEMENTS, End, Reader, run_terms
from .run_ownership import present
from .schema import connect_reader, expect_journal

WINDOW = 10_000  # runs that one search for text reads
FIRST = 1 << 62  # a key above all keys
MAX_ITERATIONS = 20_000  # iterations cached for the next request
MAX_ROWS = 300  # rows of runs cached for the next request
LIST_COLUMNS = "id, status, epoch"
WATCH_STATEMENT = (
    "SELECT status, updated, epoch, (SELECT max(first) FROM entries WHERE run=runs.id) "
    "FROM runs WHERE run_id=?"
)
_INPUT = (  # a long input is a content
    "coalesce((SELECT body FROM contents WHERE id=coalesce(json_extract(runs.input,'$.\"$text\"'),"
    "json_extract(runs.input,'$.\"$json\"'))),runs.input)"
)
_TEXTS = ("run_id", "name", "detail", _INPUT)
PAGE_STATEMENTS = {
    "newest key": "SELECT max(id) FROM runs",
    "names": "SELECT min(name) FROM runs WHERE name>?",
    "next loop": "SELECT min(loop) FROM entries WHERE run=? AND loop>?",
    "extent of a loop": "SELECT count(*) FROM entries WHERE run=? AND loop=?",
    "extent of a run": "SELECT count(*) FROM entries WHERE run=? AND loop>''",
    "mark": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT 1 OFFSET ?",
    "outline": "SELECT mark, first, body, sum, (SELECT p.sum FROM entries p WHERE p.run=e.run "
    "AND p.first<e.first ORDER BY p.first DESC LIMIT 1) FROM entries e "
    "WHERE run=? AND loop=? AND mark>=? ORDER BY mark LIMIT ?",
    "marks": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT ? OFFSET ?",
    "tried again": "SELECT first, body FROM entries WHERE run=? AND first>=? "
    "AND (body GLOB '*/attempt-[2-9]*' OR body GLOB '*/attempt-1[0-9]*' "
    "OR body GLOB '[[][[]\"r\",*') ORDER BY first",
    "latest row": "SELECT first, body FROM entries WHERE run=? ORDER BY first DESC LIMIT 1",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The runs that a page of the list shows.

    `before` and `after` are the keys that they are older and newer than; 0 is no bound. An empty
    `name`, `status`, `reason` or `text` selects all runs.

    Raises:
        ConfigurationError: for an unknown reason.
    """

    name: str = ""
    status: str = ""
    reason: str = ""
    text: str = ""
    before: int = 0
    after: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        if self.reason and self.reason not in list(Reason):
            raise ConfigurationError(
                f"reason: {self.reason!r} is not a reason"
                f"{nearest(self.reason, [reason.value for reason in Reason])}"
            )


def page_query(
    wanted: Wanted,
    end: End | None,
    live: str,
    *,
    live_only: bool,
    columns: str = "*",
) -> tuple[str, list[Value]]:
    """Return the statement for a page of runs, and its values.

    `end` is a stored status and reason: with both, the index returns the runs in the order of the
    page. See `run_terms` for `live` and `live_only`.
    """
    newer = bool(wanted.after)
    low, high = wanted.after, wanted.before or FIRST
    if wanted.text:
        # A text has no index: the window bounds the time of one request.
        low, high = (low, min(high, low + WINDOW)) if newer else (max(low, high - WINDOW), high)
    terms, values = run_terms(wanted.name, end, live, live_only=live_only)
    terms += ["id<?", "id>?"]
    values += [high, low]
    if wanted.text:
        # Characters with a meaning in patterns are escaped.
        like = "%" + wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(f"({' OR '.join(f'{column} LIKE ? ESCAPE ?' for column in _TEXTS)})")
        values += [like, "\\"] * len(_TEXTS)
    order = f" ORDER BY id {'ASC' if newer else 'DESC'} LIMIT ?"
    where = " AND ".join(terms)
    return "".join(["SELECT ", columns, " FROM runs WHERE ", where, order]), [*values, wanted.limit]


class Watch:
    """Detects commits of any process at the cost of microseconds; for one thread.

    All methods may raise sqlite3.Error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def version(self) -> int:
        """Return a number that changes with each commit of another connection."""
        db = self._connected()
        return int(db.execute("PRAGMA data_version").fetchone()[0]) if db is not None else 0

    def state(self, run_id: str) -> object:
        """Return a value that changes when a part of a run is committed."""
        db = self._connected()
        return db.execute(WATCH_STATEMENT, (run_id,)).fetchone() if db is not None else None

    def list_state(self, wanted: Wanted) -> object:
        """Return a value that changes when a run enters or leaves a page of the list, or ends.

        For a list by status or reason it is that of the page without these two, for a search by text
        only new runs change it.
        """
        db = self._connected()
        if db is None:
            return None
        if wanted.text:
            return db.execute(PAGE_STATEMENTS["newest key"]).fetchone()
        every = replace(wanted, status="", reason="")
        query, values = page_query(every, None, "[]", live_only=False, columns=LIST_COLUMNS)
        return tuple(db.execute(query, values).fetchall())

    def _connected(self) -> sqlite3.Connection | None:
        if self._db is None and expect_journal(self._path):
            self._db = connect_reader(self._path)[0]
        return self._db

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _cache(cached: dict[int, T], key: int, value: T) -> None:
    # Emptied at once: simpler than an order of use, and rows are cheap to read again.
    if len(cached) >= MAX_ROWS:
        cached.clear()
    cached[key] = value


class Pages(Reader):
    """A reader that also answers the queries of pages.

    `light_iterations` caches iterations without their values by the keys of their run and entry, which never
    change. Rows and completed runs are cached as they were read.
    """

    def __init__(self, db: sqlite3.Connection, files: Path) -> None:
        super().__init__(db, files)
        self.light_iterations: dict[tuple[int, int], Iteration] = {}
        self._rows_read: dict[int, tuple[tuple[Json, ...], RunRow]] = {}
        self._completed: dict[int, tuple[tuple[str, str], RunInfo]] = {}

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside at one moment, and take the file's locks once."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        texts = row.input, row.source
        cached = self._completed.get(row.key)
        if cached is None or cached[0] != texts:
            cached = texts, super().complete(row, info)
            _cache(self._completed, row.key, cached)
        return replace(info, input=cached[1].input, source=cached[1].source)

    def _row_of(self, values: tuple[Json, ...]) -> RunRow:
        """Return a row, checked unless it is the same as when it was last checked."""
        cached = self._rows_read.get(values[0])
        if cached is None or cached[0] != values:
            cached = values, read_row(values)
            _cache(self._rows_read, values[0], cached)
        return cached[1]

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        text = STATEMENTS.get(statement) or PAGE_STATEMENTS[statement]
        return self._db.execute(text, values).fetchall()

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

    def listed(self, wanted: Wanted, now: float) -> list[tuple[int, SqliteView]]:
        """Return a page of runs with their keys, newest first, without input and source."""
        owners = read_owners(self._db)
        live = json.dumps([key for key, owner in owners.items() if owner.alive(now)])
        status = wanted.status or (Reason(wanted.reason).status.value if wanted.reason else "")
        if wanted.text and not wanted.after:
            wanted = replace(wanted, before=wanted.before or self.newest() + 1)
        views: list[tuple[int, SqliteView]] = []
        for end, live_only in self.ends(status, wanted.reason):
            query, values = page_query(wanted, end, live, live_only=live_only)
            rows = map(self._row_of, self._db.execute(query, values).fetchall())
            views += [(r.key, SqliteView(self, r, present(r, owners, now))) for r in rows]
        views.sort(key=lambda item: item[0], reverse=not wanted.after)
        return sorted(views[: wanted.limit], key=lambda item: -item[0])

    def stopped_at(self, wanted: Wanted) -> int:
        """Return the key before which a search for text has not read; 0 if it has read all runs."""
        if not wanted.text or wanted.after:
            return 0
        return max(0, min(wanted.before or FIRST, self.newest() + 1) - WINDOW)

    def view(self, run_id: str, now: float) -> SqliteView:
        """Return the view of a run. Raises RunNotFound."""
        row = self.row(run_id)
        info = present(row, read_owners(self._db), now)
        return SqliteView(self, row, self.complete(row, info))

    def evaluations(self, row: RunRow, raws: Sequence[tuple[int, Json]]) -> dict[int, str]:
        """Return the contents that the evaluations of iterations refer to."""
        ids = {}
        for seq, raw in raws:
            value = value_of(raw)
            evaluation = value.get("evaluation") if isinstance(value, dict) else None
            if isinstance(evaluation, dict) and len(evaluation) == 1 and "$json" in evaluation:
                ids[evaluation["$json"]] = seq
        return self.contents(ids, row.info.run_id)[0]


class SqliteView:
    """A run of an SQLite journal, read by index; see RunView."""

    def __init__(self, pages: Pages, row: RunRow, info: RunInfo) -> None:
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
        rows = self._pages.select("mark", self._row.key, loop, number - 1)
        return int(rows[0][0]) if rows else 0

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        # The pattern preselects rows in SQLite, so that a long run is not decoded for a few
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
