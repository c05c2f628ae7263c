"""The loops of a run's page: sections with curves and rows, and inner loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from markupsafe import Markup

from ...journal.views import Mark, RunView
from ...records import Iteration, Measure, number_text
from ...records import display as charts
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..progress import item_at, noise_text
from ..run_files import files_text
from .events import RunProgress
from .queries import in_order
from .run_header import Bounds, bounds_of_loop, is_list, limits_text, name_of

SHORT = 240  # characters of feedback in a row
ITEM = 120  # characters of an item


@dataclass(frozen=True, slots=True)
class Row:
    """An iteration as a line of a table."""

    loop: str
    number: int
    score: str
    part: float | None
    sign: str
    verdict: str
    feedback: str
    gaps: tuple[tuple[str, str], ...]
    error: str
    stage: str
    cost: str
    calls: int
    seconds: str
    item: str = ""
    best: bool = False
    retries: int = 0
    files: str = ""
    tampered: str = ""  # what the iteration did to its check
    explored: bool = False


def points_of(marks: Iterable[Mark]) -> list[list[Json]]:
    """Return the points of a loop's curves: number, score, US dollars, seconds; then the objective, if any."""
    return [
        [
            item.number,
            item.score if item.eligible and item.accepted is None else None,
            item.usage.usd,
            round(item.seconds, 3),
            *([_value(item)] if item.accepted is not None else []),
        ]
        for _, item in marks
    ]


def _value(item: Iteration) -> float | None:
    return item.objective.value if item.objective is not None and item.eligible else None


def best_of(marks: Iterable[Mark]) -> int:
    """Return the number of the best iteration, the earliest of equals; 0 without a score.

    Explored iterations have no effect on the result, so none of them is the best.
    """
    best, top = 0, -1.0
    for _, item in marks:
        if item.explored:
            continue
        if item.accepted is not None:
            best = item.number if item.accepted else best
        elif item.eligible and item.score is not None and item.score > top:
            best, top = item.number, item.score
    return best


def items_of(view: RunView, loop: str, marks: Sequence[Mark], offset: int = 0) -> dict[int, str]:
    """Return the items of a list as text, by the numbers of its rows; none for other loops."""
    if not marks or not is_list(loop, view.info):
        return {}
    inputs = view.inputs(loop, offset, len(marks))
    return {number: _short(texts.one_line(text_of(item)), ITEM) for number, item in inputs}


def _short(text: str, maximum: int) -> str:
    return text[:maximum] + ("…" if len(text) > maximum else "")


def rows_of(
    loop: str,
    marks: Iterable[Mark],
    best: int,
    retries: Mapping[int, int],
    items: Mapping[int, str] = MappingProxyType({}),
) -> list[Row]:
    """Return iterations as rows of a table; `retries` and `items` of a list are by number."""
    rows = [_row(loop, item) for _, item in marks]
    return [
        replace(
            row,
            best=row.number == best,
            retries=retries.get(row.number, 0),
            item=items.get(row.number, ""),
        )
        for row in rows
    ]


def _row(loop: str, item: Iteration) -> Row:
    sign, word, _ = texts.verdict(item)
    evaluation = item.evaluation
    tampered = evaluation.tampered if evaluation is not None else None
    gaps = [(c.name, c.gap) for c in evaluation.criteria if not c.passed] if evaluation else []
    return Row(
        loop=loop,
        number=item.number,
        score=texts.score(item.score) if item.accepted is None else texts.objective(item),
        part=item.score if item.accepted is None else None,
        sign=sign.strip(),
        verdict=word,
        feedback=_short(texts.one_line(evaluation.feedback) if evaluation else "", SHORT),
        gaps=tuple(gaps),
        error=texts.one_line(item.error.message)[:SHORT] if item.error else "",
        stage=item.error.stage if item.error else "",
        cost=texts.cost(item.usage),
        calls=item.usage.calls,
        seconds=texts.duration(item.seconds),
        files=files_text(item),
        tampered=texts.one_line(tampered.why) if tampered is not None else "",
        explored=item.explored,
    )


CHUNK = 40  # rows of one request: more than a screen, and rendered in milliseconds
MAX_ROWS = 100  # rows that a page contains from the start; a loop may have a million


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table; None for rows that are loaded when they become visible."""

    offset: int
    limit: int
    rows: list[Row] | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve of a loop: its kind, its title, its description and its drawing."""

    kind: str
    title: str
    label: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Section:
    """A loop on the page of its run."""

    path: str
    name: str
    count: int
    best: str
    bounds: Bounds
    chunks: list[Chunk]
    points: list[list[Json]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    inside: list[Section] = field(default_factory=list)
    limits: str = ""
    over_list: bool = False
    open: bool = False
    item: str = ""  # the item of a list that it runs for
    best_number: int = 0
    has_files: bool = False

    @property
    def unit(self) -> str:
        """The name of a row."""
        return "item" if self.over_list else "iteration"


def section_of(
    view: RunView, loop: str, run_progress: RunProgress, *, all_rows: bool = False
) -> Section:
    """Return a loop with all its points, and with all rows (`whole`) or those of a new page."""
    marks = view.outline(loop)
    best = best_of(marks)
    bounds = bounds_of_loop(loop, view.info, run_progress.changed(loop))
    live = view.info.status == "running"
    inside = inner_of(view, f"{loop}/{len(marks) + 1}", opened=True) if live else []
    points = points_of(marks)
    name = name_of(loop, view.info)
    noise = noise_text(run_progress.noise[name]) if name in run_progress.noise else ""
    return Section(
        path=loop,
        name=name,
        item=_short(texts.one_line(item_at(loop, run_progress.progress.lists)), ITEM),
        count=len(marks),
        best=_score(marks, best),
        best_number=best,
        has_files=any(item.files for _, item in marks),
        bounds=bounds,
        chunks=_chunks(view, loop, marks, best, all_rows=all_rows),
        points=points,
        charts=_charts(points, bounds.get("threshold"), _objective(marks)),
        inside=inside,
        limits=", ".join(filter(None, [limits_text(bounds), noise])),
        over_list=is_list(loop, view.info),
    )


def inner_of(view: RunView, under: str, *, opened: bool = False) -> list[Section]:
    """Return the outermost loops below a path, closed or with their rows."""
    sections = []
    for loop in in_order(view, view.loops(under)):
        marks = view.outline(loop)
        best = best_of(marks)
        chunks = _chunks(view, loop, marks, best, all_rows=len(marks) < MAX_ROWS) if opened else []
        sections.append(
            Section(
                path=loop,
                name=name_of(loop, view.info),
                count=len(marks),
                best=_score(marks, best),
                bounds={},
                chunks=chunks,
                over_list=is_list(loop, view.info),
                open=opened,
            )
        )
    return sections


def _score(marks: list[Mark], best: int) -> str:
    return next((texts.rated(item) for _, item in marks if item.number == best), "")


def chunks_of(view: RunView, loop: str, offset: int, limit: int) -> list[Row]:
    """Return rows of a loop from an offset onward, with the best of the loop marked."""
    best = best_of(view.outline(loop))
    marks = view.outline(loop, offset=offset, limit=limit)
    return rows_of(loop, marks, best, view.retries(loop), items_of(view, loop, marks, offset))


def _chunks(
    view: RunView, loop: str, marks: list[Mark], best: int, *, all_rows: bool = False
) -> list[Chunk]:
    retries = view.retries(loop)
    if all_rows or len(marks) <= MAX_ROWS:
        items = items_of(view, loop, marks)
        return [Chunk(0, len(marks), rows_of(loop, marks, best, retries, items))]
    starts = range(0, len(marks), CHUNK)
    chunks = []
    for start in starts:
        part = marks[start : start + CHUNK]
        rows = None
        # The first rows are visible at once, and new rows are appended to the last ones.
        if start in (0, starts[-1]):
            rows = rows_of(loop, part, best, retries, items_of(view, loop, part, start))
        chunks.append(Chunk(start, len(part), rows))
    return chunks


def _objective(marks: list[Mark]) -> Measure | None:
    return next((item.objective for _, item in marks if item.objective is not None), None)


def _charts(
    points: list[list[Json]], threshold: float | None, objective: Measure | None = None
) -> list[Chart]:
    metric = texts.one_line(f"{objective.name}, {objective.unit}".rstrip(", ")) if objective else ""
    kinds = (
        *([("metric", metric, 4, number_text, 0.0)] if metric else []),
        ("score", "Score", 1, texts.score, 1.0),
        ("cost", "Cost, US dollars", 2, texts.money, 0.0),
        ("time", "Time", 3, texts.duration, 0.0),
    )
    drawn = []
    for kind, title, place, shown, top in kinds:
        values = [(p[0], p[place]) for p in points if len(p) > place and p[place] is not None]
        # One point is no curve, and a loop without model calls has no cost.
        if len(values) < 2 or not any(value for _, value in values):
            continue
        highest = max(values, key=lambda pair: float(pair[1]))
        label = (
            f"{title} of {len(values)} iterations: first {shown(values[0][1])}, highest "
            f"{shown(highest[1])} in iteration {highest[0]}, last {shown(values[-1][1])}"
        )
        line = threshold if kind == "score" else None
        if line is not None:
            label += f"; {texts.score(line)} is required"
        drawing = charts.curve(values, label, top=top, line_at=line, shown=shown)
        # Safe markup: `charts.curve` escapes the label and writes only numbers besides.
        drawn.append(Chart(kind, title, label, Markup(drawing)))  # noqa: S704
    return drawn
