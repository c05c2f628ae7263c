"""Job matching in three functions: search the catalogue, judge the matches, change the filters.

A request is an object of `person` (what they want and how far they would go; it never changes),
`filters` (what the next search asks for) and `pause` (seconds that a search takes at least).
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Any

from catalogue import open_catalogue

from loopwright import Evaluation, Iteration
from loopwright.adapters import merge

ENOUGH = 5  # matches
GOOD = 0.7  # average relevance of them
SHOWN = 12

Request = dict[str, Any]
Clauses = dict[str, tuple[str, list[Any]]]


def search(request: Request) -> dict[str, Any]:
    """Search with the present filters.

    The relevance of a posting is its BM25 score as a share of the best score that any posting of
    the whole catalogue gets for these skills: 1 is as good as it gets, whatever the filters.
    `shut_out` says how many more postings would match without each of the person's filters.
    """
    time.sleep(request.get("pause", 0))
    filters = request["filters"]
    with closing(open_catalogue()) as database:
        _rank(database, request["person"])
        clauses = _clauses(filters)
        matches = _select(database, clauses)
        shut_out = {
            name: len(_select(database, {k: v for k, v in clauses.items() if k != name}))
            - len(matches)
            for name in ("locations", "levels", "salary_from")
        }
    scores = [match["relevance"] for match in matches]
    return {
        "filters": filters,
        "found": len(matches),
        "average": round(sum(scores) / len(scores), 3) if scores else 0.0,
        "shut_out": shut_out,
        "matches": matches[:SHOWN],
    }


def _rank(database: sqlite3.Connection, person: dict[str, Any]) -> None:
    """Make the view `candidate`: every posting that names a wanted skill, with its relevance."""
    terms = " OR ".join('"' + word.replace('"', '""') + '"' for word in person["skills"])
    database.execute("CREATE TEMP TABLE hit (id INTEGER PRIMARY KEY, score REAL)")
    # BM25 is better the more negative it is; the columns are title, skills and description.
    database.execute(
        "INSERT INTO hit SELECT rowid, -bm25(posting_text, 2.0, 4.0, 1.0) FROM posting_text "
        "WHERE posting_text MATCH ?",
        [terms],
    )
    database.execute(
        "CREATE TEMP VIEW candidate AS SELECT posting.*, round(score / top, 3) AS relevance "
        "FROM hit JOIN posting USING (id), (SELECT max(score) AS top FROM hit)"
    )


def _clauses(filters: dict[str, Any]) -> Clauses:
    """Return each filter as a condition in SQL with its values."""
    return {
        "locations": _one_of("location", filters["locations"]),
        "levels": _one_of("seniority", filters["levels"]),
        "salary_from": ("salary >= ?", [filters["salary_from"]]),
        "relevance_from": ("relevance >= ?", [filters["relevance_from"]]),
    }


def _one_of(column: str, values: list[str]) -> tuple[str, list[Any]]:
    return f"{column} IN ({', '.join('?' * len(values))})", values


def _select(database: sqlite3.Connection, clauses: Clauses) -> list[dict[str, Any]]:
    where = " AND ".join(sql for sql, _ in clauses.values())
    values = [value for _, given in clauses.values() for value in given]
    columns = ("title", "company", "location", "salary", "skills", "relevance")
    rows = database.execute(
        f"SELECT {', '.join(columns)} FROM candidate WHERE {where} ORDER BY relevance DESC, id",
        values,
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def judge(output: dict[str, Any]) -> Evaluation:
    """Judge the matches: half of the score is for how many, half for how relevant on average."""
    found, average = output["found"], output["average"]
    many, good = min(1.0, found / ENOUGH), min(1.0, average / GOOD)
    return Evaluation(
        round((many + good) / 2, 3),
        found >= ENOUGH and average >= GOOD,
        _finding(output),
    )


def _finding(output: dict[str, Any]) -> str:
    found, average, shut_out = output["found"], output["average"], output["shut_out"]
    if found < ENOUGH:
        name = max(shut_out, key=shut_out.get)
        return f"{found} matches, {shut_out[name]} more without the filter {name}"
    return f"{found} matches, relevance {average:.2f} of at least {GOOD}"


@merge
def adapt(last: Iteration) -> Request:
    """Change one more filter; all else stays as it was in the input that the loop was given.

    With too few matches the filter that alone shuts out most is loosened, as far as the person
    goes; else more relevance is asked for.
    """
    filters = last.input["filters"]
    change = _change(last.input["person"], filters, last.output) if last.error is None else {}
    return {"filters": {**filters, **change}}


def _change(
    person: dict[str, Any], filters: dict[str, Any], output: dict[str, Any]
) -> dict[str, Any]:
    if output["found"] >= ENOUGH:
        return {"relevance_from": round(filters["relevance_from"] + 0.1, 2)}
    looser = _looser(person, filters)
    name = max(looser, key=output["shut_out"].get, default=None)
    return {name: looser[name]} if name else {}


def _looser(person: dict[str, Any], filters: dict[str, Any]) -> dict[str, Any]:
    """Return the filters that the person would loosen, each with its next value."""
    looser: dict[str, Any] = {}
    for name in ("locations", "levels"):
        further = [item for item in person[name] if item not in filters[name]]
        if further:
            looser[name] = [*filters[name], further[0]]
    if filters["salary_from"] > person["salary_floor"]:
        looser["salary_from"] = max(person["salary_floor"], filters["salary_from"] - 5_000)
    return looser
