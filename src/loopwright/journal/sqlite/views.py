"""What a page shows of an SQLite journal: pages of the run list by key, and one run by its indexes.

Rules:

1. A page of the run list starts after the key of the last row shown, so that the hundred thousandth
   run costs what the first does.
2. A search for text looks at `listing.WINDOW` runs at a time, and says where it stopped.
3. Every statement goes by an index; a test asks SQLite.

Which runs a page of the list shows, as a statement that goes by an index.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...errors import ConfigurationError, nearest
from ...records import Iteration, Reason, StepOutcome, as_evaluation
from ...records.codec import Json
from .. import Entry, RunInfo, surviving
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
from .encoding import decode_entry, decode_row, unfold, value_of
from .errors import as_damage
from .leases import read_owners
from .reader import Reader, _damaged, _numbered
from .rows import RunRow, chain_start, chained, read_row
from .run_ownership import present

__all__ = ["FIRST", "PAGE_STATEMENTS", "WINDOW", "Pages", "SqliteView", "Wanted", "page_query"]


WINDOW = 10_000  # runs that one search for text looks at
FIRST = 1 << 62  # a key above all keys


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a list shows: those before or after a key, and what they have in common.

    `before` is the key that they are older than, `after` the one that they are newer than; 0 is no
    bound. Empty words ask for nothing.

    Raises:
        ConfigurationError: for a reason that there is not.
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
                f"reason: {self.reason!r} is no reason"
                f"{nearest(self.reason, [reason.value for reason in Reason])}"
            )


def page_query(
    wanted: Wanted,
    end: tuple[str, str] | None,
    live: str,
    *,
    live_only: bool,
    columns: str = "*",
) -> tuple[str, list[Any]]:
    """Return the statement for a page of runs, and its values.

    `end` is a status and a reason as they are written: with both, the index has the runs in the
    order of the page. `live` is a JSON list of the keys of live owners: a running run's owner must be
    one of them, or with `live_only` false must not.
    """
    newer = bool(wanted.after)
    low, high = wanted.after, wanted.before or FIRST
    if wanted.text:
        low, high = (low, min(high, low + WINDOW)) if newer else (max(low, high - WINDOW), high)
    terms: list[str] = ["id<?", "id>?"]
    values: list[Any] = [high, low]
    if end:
        terms += ["status=?", "reason=?"]
        values += end
    if wanted.name:
        terms.append("name=?")
        values.append(wanted.name)
    if end and end[0] == "running":
        terms.append(_LIVE if live_only else _DEAD)
        values.append(live)
    if wanted.text:
        like = "%" + wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        terms.append(f"({' OR '.join(f'{column} LIKE ? ESCAPE ?' for column in _TEXTS)})")
        values += [like, "\\"] * len(_TEXTS)
    order = "ASC" if newer else "DESC"
    select = ["SELECT ", columns, " FROM runs WHERE "]
    return "".join([*select, " AND ".join(terms), f" ORDER BY id {order} LIMIT ?"]), [
        *values,
        wanted.limit,
    ]


_LIVE = "owner IN (SELECT value FROM json_each(?))"
_DEAD = "owner IN (SELECT value FROM json_each(?)) IS NOT TRUE"
_INPUT = (  # long ones are contents
    "coalesce((SELECT body FROM contents WHERE id=coalesce(json_extract(runs.input,'$.\"$text\"'),"
    "json_extract(runs.input,'$.\"$json\"'))),runs.input)"
)
_TEXTS = ("run_id", "name", "detail", _INPUT)

KNOWN = 20_000  # iterations that are kept for the next look
ROWS_KNOWN = 300  # rows of runs that are kept for the next look

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


def _keep(kept: dict[int, T], key: int, value: T) -> None:
    if len(kept) >= ROWS_KNOWN:
        kept.clear()
    kept[key] = value


class Pages(Reader):
    """A reader that also answers what pages ask.

    `known` keeps iterations without their values by the keys of their run and entry: what is
    recorded under those never changes. Rows and what is whole of them are kept as they were read.
    """

    def __init__(self, db: sqlite3.Connection, files: Path) -> None:
        super().__init__(db, files)
        self.known: dict[tuple[int, int], Iteration] = {}
        self._rows_read: dict[int, tuple[tuple[Any, ...], RunRow]] = {}
        self._completed: dict[int, tuple[tuple[str, str], RunInfo]] = {}

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read all within it as it is at one moment, and ask for the file's locks once."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def complete(self, row: RunRow, info: RunInfo) -> RunInfo:
        written = row.input, row.source
        kept = self._completed.get(row.key)
        if kept is None or kept[0] != written:
            kept = written, super().complete(row, info)
            _keep(self._completed, row.key, kept)
        return replace(info, input=kept[1].input, source=kept[1].source)

    def _row_of(self, values: tuple[Any, ...]) -> RunRow:
        """Return a row that was read, checked unless it is as it was when it was checked."""
        kept = self._rows_read.get(values[0])
        if kept is None or kept[0] != values:
            kept = values, read_row(values)
            _keep(self._rows_read, values[0], kept)
        return kept[1]

    def newest(self) -> int:
        """Return the key of the newest run, which is how many there are unless some were removed."""
        [(key,)] = self._db.execute(PAGE_STATEMENTS["newest key"]).fetchall()
        return key or 0

    def names(self, limit: int = 100) -> list[str]:
        """Return the names that runs have, each once."""
        found: list[str] = []
        name = ""
        while len(found) < limit:
            [(raw,)] = self._db.execute(PAGE_STATEMENTS["names"], (name,)).fetchall()
            if raw is None:
                break
            name = raw.decode("utf-8", "replace")
            found.append(name)
        return found

    def listed(self, wanted: Wanted, now: float) -> list[tuple[int, SqliteView]]:
        """Return a page of runs with their keys, newest first, without input and source."""
        owners = read_owners(self._db)
        live = json.dumps([key for key, owner in owners.items() if owner.alive(now)])
        status = wanted.status or (Reason(wanted.reason).status.value if wanted.reason else "")
        if wanted.text and not wanted.after:
            wanted = replace(wanted, before=wanted.before or self.newest() + 1)
        ends = [*self.ends(status, wanted.reason)] if status else [None]
        asked = [page_query(wanted, end, live, live_only=True) for end in ends]
        if status == "interrupted":  # what a dead process was running is so too
            dead = self.ends("running", wanted.reason)
            asked += [page_query(wanted, end, live, live_only=False) for end in dead]
        found = []
        for query, values in asked:
            for values_of in self._db.execute(query, values).fetchall():
                row = self._row_of(values_of)
                info = present(row, owners, now)
                found.append((row.key, SqliteView(self, row, info)))
        found.sort(key=lambda item: item[0], reverse=not wanted.after)
        return sorted(found[: wanted.limit], key=lambda item: -item[0])

    def stopped_at(self, wanted: Wanted) -> int:
        """Return the key before which a search for text has not looked yet; 0 if it saw all."""
        if not wanted.text or wanted.after:
            return 0
        return max(0, min(wanted.before or FIRST, self.newest() + 1) - WINDOW)

    def view(self, run_id: str, now: float) -> SqliteView:
        """Return the view of a run. Raises RunNotFound."""
        row = self.row(run_id)
        info = present(row, read_owners(self._db), now)
        return SqliteView(self, row, self.complete(row, info))

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a page's statement."""
        return self._db.execute(PAGE_STATEMENTS[statement], values).fetchall()

    def light(self, row: RunRow, after: int, limit: int) -> list[Entry]:
        """Return the entries after a number, with long values left out."""
        [(first,)] = self._all("row of", row.key, after + 1)
        until = after + limit if limit >= 0 else sys.maxsize
        rows = self._rows(row, first or 1, limit + 1 if limit >= 0 else -1, until)
        nothing, intents = _Nothing(), _Unknown()
        return [
            decode_entry(raw, seq, nothing, intents)
            for seq, raw in _numbered(rows)
            if after < seq <= until
        ]

    def evaluations(self, row: RunRow, raws: list[tuple[int, Json]]) -> dict[int, str]:
        """Return the contents that the evaluations of iterations refer to."""
        wanted = {}
        for seq, raw in raws:
            value = value_of(raw)
            found = value.get("evaluation") if isinstance(value, dict) else None
            if isinstance(found, dict) and len(found) == 1 and "$json" in found:
                wanted[found["$json"]] = seq
        return self._contents(wanted, row.info.run_id)[0]


class SqliteView:
    """A run of an SQLite journal, read by index."""

    def __init__(self, pages: Pages, row: RunRow, info: RunInfo) -> None:
        self.info = info
        self._pages = pages
        self._row = row
        self._whole: dict[str, list[Mark]] = {}  # outlines that were asked for already

    @property
    def last(self) -> int:
        """The number of the last entry."""
        found = self._pages.ask("latest row", self._row.key)
        return found[0][0] + len(json.loads(found[0][1])) - 1 if found else 0

    def loops(self, under: str = "") -> list[str]:
        found: list[str] = []
        at = f"{under}/" if under else ""
        while len(found) < 200:
            [(raw,)] = self._pages.ask("next loop", self._row.key, at)
            path = raw.decode() if raw is not None else ""
            if not path or (under and not path.startswith(f"{under}/")):
                break
            found.append(path)
            at = f"{path}0"  # "0" follows "/": everything below the path lies between
        return found

    def count(self, loop: str) -> int:
        return int(self._pages.ask("extent of a loop", self._row.key, loop)[0][0])

    def total(self) -> int:
        return int(self._pages.ask("extent of a run", self._row.key)[0][0])

    def steps(self) -> list[StepOutcome]:
        return step_outcomes(self.info, self.between(0, 0))

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        found = self._pages.iterations(self._row, loop, offset, limit)
        return [(item.number, item.input) for _, item in found]

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        if offset == 0 and limit < 0:
            if loop not in self._whole:
                self._whole[loop] = self._outline(loop, 0, -1)
            return self._whole[loop]
        if offset < 0:
            offset = max(0, self.count(loop) + offset)
        return self._outline(loop, offset, limit)

    def _outline(self, loop: str, offset: int, limit: int) -> list[Mark]:
        key, known = self._row.key, self._pages.known
        marks = [mark for (mark,) in self._pages.ask("marks", key, loop, limit, offset)]
        missing = [place for place, mark in enumerate(marks) if (key, mark) not in known]
        if missing:
            if len(known) > KNOWN:
                known.clear()
                missing = [0]
            raws = self._outlined(loop, marks[missing[0]], len(marks) - missing[0])
            bodies = _Nothing(self._pages.evaluations(self._row, raws))
            known.update(((key, mark), _light(raw, bodies)) for mark, raw in raws)
        return [(mark, known[key, mark]) for mark in marks]

    def _outlined(self, loop: str, start: int, limit: int) -> list[tuple[int, Json]]:
        row, found = self._row, []
        with as_damage(f"{row.info.run_id}: {loop}"):
            for mark, first, body, total, before in self._pages.ask(
                "outline", row.key, loop, start, limit
            ):
                head = chain_start(row.info.run_id) if before is None else before
                if chained(head, first, body) != total:
                    raise _damaged(row.info.run_id, first, "does not match its checksum")
                found.append((mark, decode_row(body)[mark - first]))
        return found

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
        """Return the number of an entry before which nothing of an iteration can be."""
        if number > 1:
            return self._mark(loop, number - 1)
        around = enclosing(loop)
        return self._begin(*around) if around is not None else 0

    def _mark(self, loop: str, number: int) -> int:
        found = self._pages.ask("mark", self._row.key, loop, number - 1)
        return int(found[0][0]) if found else 0

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        rows = self._pages.ask("tried again", self._row.key, after + 1)
        raws = [raw for _, body in rows for raw in decode_row(body)]
        if not any(raw[0] == "r" for raw in raws):
            return retried((raw[1] for raw in raws if raw[0] == "s"), loop)
        kept = surviving(self.since(0))  # what a rewind set aside, only all entries tell
        return retried((e.path for e in kept if e.kind == "started" and e.seq > after), loop)

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        return self._pages.light(self._row, seq, limit)

    def between(self, seq: int, limit: int) -> list[Entry]:
        return self._pages.entries(self._row, seq, limit)

    def ending(self) -> dict[str, Json] | None:
        return ending_of(self.between(max(0, self.last - ENDING), 0))


class _Nothing(dict[int, str]):
    """Contents that nobody asked for, but for those that are here."""

    def __missing__(self, key: int) -> str:
        return "null"


class _Unknown(dict[str, str]):
    """Fingerprints that nobody asked for."""

    def __missing__(self, key: str) -> str:
        return ""


def _light(raw: Json, bodies: dict[int, str]) -> Iteration:
    """Return an iteration of an element of a row, without its input and output."""
    data = value_of(raw)
    light: Iteration = decode_entry(
        [*raw[:5], {k: v for k, v in data.items() if k not in ("input", "output", "evaluation")}],
        0, {}, {},
    ).value  # fmt: skip
    found = data.get("evaluation")
    if found is None:
        return light
    return replace(light, evaluation=as_evaluation(unfold(found, bodies)))
