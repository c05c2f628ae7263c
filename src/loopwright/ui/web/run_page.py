"""What the page of a run shows: header with limits, loops, steps, the trace, and the report in one file.

The report is a run as a self-contained HTML file, without scripts and links to other hosts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, TypeVar

from markupsafe import Markup

from ...conditions import UNITS
from ...errors import LoopwrightError
from ...insight.report import points_svg
from ...journal import Entry, RunInfo, surviving
from ...journal.replay import can_be_undone
from ...journal.views import ENDING, EntriesView, LiveCall, LiveLines, Mark, RunView, enclosing
from ...records import (
    Failure,
    History,
    Iteration,
    Measure,
    Status,
    Usage,
    number_text,
)
from ...records import (
    display as charts,
)
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..rows import (
    PAGE,
    SHORT,
    Row,
    counts_of,
    item_at,
    noise_text,
    scores_of,
    short,
    status_of,
    verdicts_of,
)
from ..run_files import run_files
from ..run_summary import origin_of
from ..trace import TraceNode, row_node, trace_of, walk
from .evaluation import CasesCache, EvaluationPage, WantedCases
from .events import RunProgress
from .page import in_order, main_loop
from .render import STATIC, PatchLine, cut, lines_of, readable, render

N = TypeVar("N", int, float)
Bounds = dict[str, float]  # limits by name: `threshold`, `limit`, `seconds` and units of a budget
_LIMITS_OF = {
    "score_at_least": ("threshold",), "max_iterations": ("limit",), "phase_limit": ("limit",),
    "timeout": ("seconds",), "budget": ("usd", "calls", "tokens", "effects"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UsedPart:
    """A figure with its limit as texts, and the used part of the limit from 0 to 1."""

    label: str
    used: str
    limit: str = ""
    part: float | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """An effect in progress, and the last lines of the agent that it runs."""

    path: str
    at: float
    call: LiveCall | None = None


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The header of a run's page."""

    info: RunInfo
    sentence: str
    facts: list[UsedPart]
    in_flight: list[InFlight]
    active: float
    model: str
    document: str
    last: int
    rewinds: int
    open: bool = field(default=False)
    undoable: bool = False  # whether its latest change is a rewind


def name_of(loop: str, info: RunInfo) -> str:
    """Return the name of the loop at a path."""
    recorded = _recorded_limits(loop, info)
    return str(recorded["name"]) if recorded else loop.rsplit("/", 1)[-1]


def _recorded_limits(loop: str, info: RunInfo) -> Mapping[str, Any] | None:
    """Return the recorded limits of the loop at a path."""
    if is_list(loop, info):
        return None
    bounds = info.source.get("bounds") or {}
    loops: list[dict[str, Any]] = bounds.get("loops", [])
    last = loop.rsplit("/", 1)[-1]
    named = [one for one in loops if one["name"] == last]
    if named:
        return named[0]
    # A loop that is called from several places has its limits recorded once, under the loop around it.
    around = enclosing(loop)
    within = name_of(around[0], info) if around else ""
    inside = [one for one in loops if one.get("within", "") == within]
    return inside[0] if len(inside) == 1 else None


def bounds_of_loop(loop: str, info: RunInfo, changed: Mapping[str, Json]) -> Bounds:
    """Return the strictest limits of a loop: `threshold`, `limit`, `seconds`, `usd`, `calls`, `tokens`.

    `changed` are its limits that people changed later; None is a removed one.
    """
    bounds: Bounds = {}
    recorded = _recorded_limits(loop, info)
    _tighten(bounds, recorded["until"] if recorded else ())
    _change(bounds, changed)
    return bounds


def _change(bounds: Bounds, changed: Mapping[str, Json]) -> None:
    """Apply limits that people raised, lowered or removed."""
    names = {"max_iterations": "limit", "timeout": "seconds", **UNITS}
    for key, name in names.items():
        if key in changed:
            bounds.pop(name, None)
            if changed[key] is not None:
                bounds[name] = changed[key]


def _tighten(bounds: Bounds, conditions: Iterable[Mapping[str, Any]]) -> None:
    """Add the limits in recorded conditions, the lower of two."""
    for condition in conditions:
        for tag, fields in condition.items():
            if tag in ("any_of", "all_of"):
                _tighten(bounds, fields)
                continue
            for key in _LIMITS_OF.get(tag, ()):
                value = fields.get(key)
                if isinstance(value, int | float):
                    # The strictest of several limits ends the loop first.
                    bounds[key] = min(value, bounds.get(key, value))


def run_of(
    view: RunView, loop: str, run_progress: RunProgress, live: LiveLines | None = None
) -> RunHeader:
    """Return the header of a run's page; `loop` is its main loop."""
    info = view.info
    progress = run_progress.progress
    # The row has the final figures; until then they are computed from the entries.
    used = progress.spent if info.status in _OPEN else info.usage
    active = max(info.active, progress.active)
    bounds = _bounds_of_run(loop, view, run_progress)
    budget = (info.source.get("bounds") or {}).get("budget") or {}
    bounds |= {key: value for key, value in budget.items() if value is not None}
    _change(bounds, run_progress.changed(""))
    marks = [item for _, item in view.outline(loop)] if loop else []
    # A large `parallel` has hundreds of effects in flight, which would move the page at each update.
    latest = list(progress.in_flight.items())[-4:] if info.status == "running" else []
    live = live or LiveLines()
    origin = origin_of(info)  # a file is shown relative to the current folder
    path, folder = Path(origin), Path.cwd()
    ended = info.status != "running"
    undoable = ended and can_be_undone(view.between(max(0, view.last - ENDING), 0))
    return RunHeader(
        info=info,
        sentence=_sentence(info, rewound=undoable),
        facts=[
            *_facts(marks, view.total(), used, active, bounds, scripted=info.scripted),
            *_held_out(view),
        ],
        in_flight=[InFlight(place, at, live.read(info.run_id, place)) for place, at in latest],
        active=active,
        model=", ".join(list(run_progress.models)[:3]) or text_of(info.source.get("model")),
        document=str(path.relative_to(folder)) if path.is_relative_to(folder) else origin,
        last=run_progress.last,
        rewinds=run_progress.rewinds,
        open=info.status in _OPEN,
        undoable=undoable,
    )


def _bounds_of_run(loop: str, view: RunView, run_progress: RunProgress) -> Bounds:
    """Return the limits of the main loop that are limits of the run.

    If the loop is the run, these are all; else the threshold, and the iteration limit of a single loop.
    """
    if not loop:
        return {}
    bounds = bounds_of_loop(loop, view.info, run_progress.changed(loop))
    # A path of one part: the loop is the root step, and its limits are those of the run.
    if "/" not in loop:
        whole = view.total() == view.count(loop)
        return {key: value for key, value in bounds.items() if whole or key != "limit"}
    loops = (view.info.source.get("bounds") or {}).get("loops") or ()
    # The limit of one loop says nothing about a run that has several.
    alone = len(loops) == 1 and view.total() == view.count(loop)
    return {
        key: bounds[key] for key in ("threshold", *(["limit"] if alone else [])) if key in bounds
    }


def limits_text(bounds: Bounds) -> str:
    """Return the limits of a loop except its iterations, in words."""
    budget = [texts.money(bounds["usd"])] if "usd" in bounds else []
    budget += [f"{bounds[unit]:,} {unit}" for unit in ("calls", "tokens") if unit in bounds]
    time = [f"within {texts.duration(bounds['seconds'])}"] if "seconds" in bounds else []
    return ", ".join([*time, *([f"at most {' and '.join(budget)}"] if budget else [])])


_OPEN = ("queued", "running", "interrupted", "suspended")


def _sentence(info: RunInfo, *, rewound: bool) -> str:
    """Return the reason for the end of a run, or its state, as a sentence."""
    if info.status == "queued":
        return "The run waits for a worker."
    if info.status == "running":
        return "The run is in progress."
    if info.status == "interrupted" and rewound:
        return "The run was rewound. A resume continues it from there."
    if info.status == "interrupted":
        return "The process has ended. The recorded results are kept, and the run can be resumed."
    return info.detail or info.reason.replace("_", " ").capitalize()


def _facts(
    marks: Sequence[Iteration],
    total: int,
    used: Usage,
    active: float,
    bounds: Bounds,
    *,
    scripted: bool,
) -> list[UsedPart]:
    items = [item for item in marks if not item.explored]
    explored = len(marks) - len(items)
    facts = []
    scores = scores_of(items)
    accepted = [item for item in items if item.accepted and item.objective is not None]
    if accepted:
        objective = accepted[-1].objective
        assert objective is not None
        facts.append(UsedPart(texts.one_line(objective.name), texts.one_line(objective.text)))
    elif scores:
        wanted = bounds.get("threshold")
        goal = f"of {texts.score(wanted)} required" if wanted is not None else ""
        facts.append(UsedPart("Best score", texts.score(max(scores)), goal, max(scores)))
    if items:
        facts.append(_used("Iterations", total - explored, bounds.get("limit"), str))
    if explored:
        facts.append(UsedPart("Explored iterations", str(explored)))
    # A run without model calls has no cost, and of scripted or unpriced ones no figure is known.
    if used.calls and not used.usd and (scripted or used.unpriced):
        facts.append(UsedPart("Cost", texts.cost(used, scripted=scripted)))
    elif used.usd or "usd" in bounds:
        prefix = "at most " if used.estimated else ""
        cost = _used("Cost", used.usd, bounds.get("usd"), texts.money)
        facts.append(replace(cost, used=f"{prefix}{cost.used}"))
    if used.calls or "calls" in bounds:
        facts.append(_used("Model calls", used.calls, bounds.get("calls"), str))
    if used.cached:
        facts.append(UsedPart("From the cache", *texts.from_cache(used)))
    if used.tokens or "tokens" in bounds:
        facts.append(_used("Tokens", used.tokens, bounds.get("tokens"), lambda n: f"{n:,}"))
    facts.append(_used("Time", active, bounds.get("seconds"), texts.duration))
    return facts


def _held_out(view: RunView) -> list[UsedPart]:
    """Return the figures of the held-out tests of a run that has ended, with the gap to the visible score."""
    if view.info.status in _OPEN:
        return []
    facts: dict[str, UsedPart] = {}
    waiting, end = set(view.loops()), view.last
    # From the end, where most loops end; the steps after a loop may have many entries.
    while waiting and end > max(0, view.last - HELD_OUT_ENTRIES):
        start = max(0, end - LAST_ENTRIES)
        entries = view.since(start, end - start)
        for entry in reversed([one for one in entries if one.kind == "ended" and one.path]):
            waiting.discard(entry.path)
            # The output of the loop may be long, and is then left out of the first reading.
            (complete,) = view.between(entry.seq - 1, 1)
            value = complete.value
            figures = value.get("held_out") if isinstance(value, Mapping) else None
            for name, one in (figures or {}).items():
                share, _, more = texts.held_out(one).partition(", ")
                gap = one.get("gap")
                label = "Held-out tests" if name == "tests" else f"Held-out {texts.one_line(name)}"
                limit = more or ("" if gap is None else f"score gap {texts.score(gap)}")
                # Those of a later loop with the same label stay.
                facts.setdefault(label, UsedPart(label, share, limit))
        end = start
    return list(facts.values())


def _used(label: str, used: N, limit: N | None, text: Callable[[N], str]) -> UsedPart:
    if limit is None:
        return UsedPart(label, text(used))
    part = min(1.0, used / limit) if limit else 1.0
    # A person may have lowered the limit below the used amount.
    shown = f"(limit {text(limit)})" if used > limit else f"of {text(limit)}"
    return UsedPart(label, text(used), shown, part)


def is_list(loop: str, info: RunInfo) -> bool:
    """Return whether the loop at a path iterates over a list."""
    # The entries of a list and of a loop are alike; only the recorded bounds tell them apart.
    lists = (info.source.get("bounds") or {}).get("lists") or ()
    return loop.rsplit("/", 1)[-1] in lists


LAST_ENTRIES = 200  # of a run, among which the ends of its last loops are
HELD_OUT_ENTRIES = (
    20_000  # before the end of a run, in which its figures of held-out tests are searched
)


ITEM = 120  # characters of an item
METRICS = 5  # the place of the first metric in a point


def measures_of(marks: Sequence[Mark]) -> dict[str, Measure]:
    """Return a measure of each declared metric, the objective first."""
    found = {one.name: one for _, item in marks for one in item.measures}
    # The first iteration may have no value of the objective.
    return dict(sorted(found.items(), key=lambda pair: not pair[1].objective))


def points_of(marks: Iterable[Mark], metrics: Iterable[str]) -> list[list[Json]]:
    """Return the points of a loop's curves: number, score, US dollars, seconds, whether it was accepted, metrics."""
    points = []
    for _, item in marks:
        score = item.score if item.eligible and item.accepted is None else None
        values = {one.name: one.value for one in item.measures} if item.eligible else {}
        points.append(
            [
                item.number, score, item.usage.usd, round(item.seconds, 3), item.accepted,
                *(values.get(name) for name in metrics),
            ]
        )  # fmt: skip
    return points


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
    return {number: short(texts.one_line(text_of(item)), ITEM) for number, item in inputs}


def rows_of(
    loop: str,
    marks: Iterable[Mark],
    best: int,
    retries: Mapping[int, int],
    items: Mapping[int, str] = MappingProxyType({}),
) -> list[Row]:
    """Return iterations as rows of a table; `retries` and `items` of a list are by number."""
    return [
        Row(
            loop,
            item,
            items.get(item.number, ""),
            retries=retries.get(item.number, 0),
            best=item.number == best,
        )
        for _, item in marks
    ]


@dataclass(frozen=True, slots=True)
class RowsPage:
    """Some rows of the table of a loop.

    Args:
        rows: the rows.
        offset: the number of rows before them.
        total: the number of rows with the status.
        status: the status of the rows; "" for all.
        counts: the numbers of rows by status.
        failure: the first iteration that failed, 0 for none; with its reason.
        hidden: the columns without a value in any row of the loop.
    """

    rows: list[Row]
    offset: int = 0
    total: int = 0
    status: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: tuple[int, str] = (0, "")
    hidden: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """The number of the last row."""
        return self.offset + len(self.rows)


@dataclass(frozen=True, slots=True)
class Chart:
    """The curves of a loop: their kinds with titles, the first of them as a drawing with its description."""

    kinds: list[tuple[str, str]]
    label: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Branch:
    """An iteration in the picture of parents: its place, and that of its parent."""

    item: Iteration
    x: float
    y: float
    from_x: float | None
    from_y: float | None
    best: bool


_LANE, _STEP = 24, 26  # height of a chain and width of an iteration, in pixels
_BRANCHES = 500  # iterations in the picture of parents: the first ones


def _branches(marks: Sequence[Mark], best: int) -> list[Branch]:
    """Return the iterations of a loop as a tree by parent, with chains as lanes; none for a single line."""
    items = [item for _, item in marks[:_BRANCHES]]
    if all(item.parent is None and item.chain == 1 for item in items):
        return []
    chains = {item.number: item.chain for item in items}
    # In the width of the page, as long as the iterations can be told apart.
    across = max(6, min(_STEP, 640 / max(1, len(items))))
    made = []
    for item in items:
        parent = item.continues_from
        lane = chains.get(parent)
        made.append(
            Branch(
                item, item.number * across, item.chain * _LANE,
                None if lane is None else parent * across, None if lane is None else lane * _LANE,
                item.number == best,
            )
        )  # fmt: skip
    return made


@dataclass(frozen=True, slots=True)
class Points:
    """Points in a picture, which has a table of them."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[Json]]
    drawing: Markup


def confirmation_of(item: Iteration) -> Points | None:
    """Return the measurements of an iteration and of its base, then their means; None without several."""
    record = (item.evaluation.details.get("confirm") if item.evaluation else None) or {}
    names = {"this iteration": "candidate", "its base": "base"}
    sides = {name: record[side] for name, side in names.items() if record.get(side)}
    if item.objective is None or sum(map(len, sides.values())) < 2:
        return None
    points = [
        (n, value, f"{name}, measurement {n}: {value:g}", name)
        for name, values in sides.items()
        for n, value in enumerate(values, start=1)
    ]
    verdict = "" if item.accepted else "not "
    count = texts.plural(len(record["candidate"]), "measurement")
    title = charts.confirmed(item) or f"{verdict}accepted, {count}"
    rows = [[n, *row] for n, row in enumerate(zip_longest(*sides.values()), start=1)]
    objective = item.objective.name
    # Safe markup: `points_svg` escapes its texts.
    drawing = Markup(points_svg(f"Measurements of {objective}", points, ("measurement", objective)))  # noqa: S704
    means = ["mean", *map(fmean, sides.values())]
    return Points(title.capitalize(), ["Measurement", *sides], [*rows, means], drawing)


def _front(marks: Sequence[Mark]) -> Points | None:
    """Return the iterations of a loop with several objectives, the front first; None for another loop."""
    items = [item for _, item in marks if not item.explored]
    front = History(items).front
    if not front:
        return None
    best = {item.number for item in front}
    names = [one.name for one in front[0].measures if one.objective]
    rows: list[list[Any]] = [
        [item.number, "yes" if item.number in best else "no", *values]
        for item in items
        if item.sound
        and len(values := [one.value for one in item.measures if one.objective]) == len(names)
    ]
    rows = sorted(rows, key=lambda row: row[1], reverse=True)[:_BRANCHES]
    points = [
        (x, y, f"iteration {n}: {names[0]} {x:g}, {names[1]} {y:g}", "front" if own == "yes" else "others")
        for n, own, x, y, *_ in rows
    ]  # fmt: skip
    together = f"{', '.join(names[:-1])} and {names[-1]}"
    title = f"Front: {len(best)} of {len(items)} iterations, which no other one beats in {together} together"
    # Safe markup: `points_svg` escapes its texts.
    drawing = Markup(points_svg(f"{names[0]} and {names[1]}", points, (names[0], names[1])))  # noqa: S704
    return Points(texts.one_line(title), ["Iteration", "Front", *names], rows, drawing)


@dataclass(frozen=True, slots=True)
class Section:
    """A loop on the page of its run."""

    path: str
    name: str
    count: int
    best: str
    bounds: Bounds
    page: RowsPage
    points: list[list[Json]] = field(default_factory=list)
    chart: Chart | None = None
    branches: Sequence[Branch] = ()
    front: Points | None = None
    inside: list[Section] = field(default_factory=list)
    limits: str = ""
    over_list: bool = False
    open: bool = False
    item: str = ""  # the item of a list that it runs for
    best_number: int = 0
    has_files: bool = False

    counts: Mapping[str, int] = field(default_factory=dict)  # of a list, with the items left
    latest: Row | None = None  # the accepted or best row, else the last one
    metric: str = ""  # the objective in words, with the iterations that were accepted

    @property
    def unit(self) -> str:
        """The name of a row."""
        return "item" if self.over_list else "iteration"


def section_of(
    view: RunView, loop: str, run_progress: RunProgress, *, all_rows: bool = False
) -> Section:
    """Return a loop with all its points, and with all rows or those of a new page."""
    marks = view.outline(loop)
    best = best_of(marks)
    bounds = bounds_of_loop(loop, view.info, run_progress.changed(loop))
    live = view.info.status == "running"
    inside = inner_of(view, f"{loop}/{len(marks) + 1}", opened=True) if live else []
    measures = measures_of(marks)
    points = points_of(marks, measures)
    name = name_of(loop, view.info)
    noise = noise_text(run_progress.noise[name]) if name in run_progress.noise else ""
    chosen = [mark for mark in marks if mark[1].number == best] or marks[-1:]
    # New rows are appended to the last page.
    offset = (len(marks) - 1) // PAGE * PAGE if live and marks else 0
    return Section(
        path=loop,
        name=name,
        item=short(texts.one_line(item_at(loop, run_progress.progress.lists)), ITEM),
        count=len(marks),
        best=_score(marks, best),
        best_number=best,
        has_files=any(item.files for _, item in marks),
        bounds=bounds,
        page=page_of(view, loop, marks, offset=offset, limit=len(marks) if all_rows else PAGE),
        points=points,
        chart=_chart(points, bounds.get("threshold"), list(measures.values())),
        front=_front(marks),
        branches=_branches(marks, best),
        inside=inside,
        limits=", ".join(filter(None, [limits_text(bounds), noise])),
        over_list=is_list(loop, view.info),
        latest=next(iter(rows_of(loop, chosen, best, {})), None),
        metric=_metric(marks),
        counts=counts_of((item for _, item in marks), _left(view, loop, marks)),
    )


def _left(view: RunView, loop: str, marks: Sequence[Mark]) -> int:
    """Return how many items a list that has ended did not run; 0 for another loop."""
    end = marks[0][0] if marks and is_list(loop, view.info) and view.info.status not in _OPEN else 0
    while end > 0:
        start = max(0, end - LAST_ENTRIES)
        # The items were read before the first of them was recorded.
        for entry in reversed(view.between(start, end - start)):
            if entry.kind == "finished" and entry.path == f"{loop}/items":
                return len(entry.value) - len(marks)
        end = start
    return 0


def _metric(marks: Sequence[Mark]) -> str:
    """Return what a loop with a metric reached; "" for other loops."""
    kept = [item for _, item in marks if item.accepted and item.objective is not None]
    if not kept or kept[0].objective is None or kept[-1].objective is None:
        return ""
    first, last = kept[0].objective, kept[-1].objective
    came = f" (first {first.text})" if len(kept) > 1 else ""
    return f"{last.name} {last.text}{came}, accepted {len(kept)} of {texts.plural(len(marks), 'iteration')}"


def inner_of(view: RunView, under: str, *, opened: bool = False) -> list[Section]:
    """Return the outermost loops below a path, closed or with their rows."""
    sections = []
    for loop in in_order(view, view.loops(under)):
        marks = view.outline(loop)
        sections.append(
            Section(
                path=loop,
                name=name_of(loop, view.info),
                count=len(marks),
                best=_score(marks, best_of(marks)),
                bounds={},
                page=page_of(view, loop, marks) if opened else RowsPage([]),
                over_list=is_list(loop, view.info),
                open=opened,
            )
        )
    return sections


def _score(marks: list[Mark], best: int) -> str:
    return next((texts.rated(item) for _, item in marks if item.number == best), "")


def page_of(
    view: RunView,
    loop: str,
    marks: Sequence[Mark],
    *,
    offset: int = 0,
    at: int = 0,
    status: str = "",
    limit: int = PAGE,
) -> RowsPage:
    """Return rows of a loop: from an offset, or those around iteration `at`; of a list the failed ones first.

    Args:
        view: the run.
        loop: the path of the loop.
        marks: all its iterations.
        offset: the number of rows before them.
        at: the number of an iteration; its page is returned.
        status: only rows of this status; "" is all.
        limit: the number of rows.
    """
    over_list = is_list(loop, view.info)
    counts = counts_of(item for _, item in marks)
    words = [status_of(item) for _, item in marks]
    places = [i for i, word in enumerate(words) if not status or word == status]
    if over_list and view.info.status != "running":
        places.sort(key=lambda i: (words[i] != "failed", marks[i][1].number))
    if at:
        place = next((n for n, i in enumerate(places) if marks[i][1].number == at), 0)
        offset = place // limit * limit
    shown = places[offset : offset + limit]
    items: dict[int, str] = {}
    if over_list and shown:
        # Failures are scattered, so a page may be read in several parts.
        starts = [i for i in shown if i - 1 not in shown]
        for start in starts:
            end = next(i for i in range(start + 1, len(marks) + 1) if i not in shown)
            items |= items_of(view, loop, marks[start:end], start)
    failed = marks[words.index("failed")][1] if "failed" in words else None
    reason = "" if failed is None else short(texts.one_line(failed.feedback), SHORT)
    return RowsPage(
        rows_of(loop, [marks[i] for i in shown], best_of(marks), view.retries(loop), items),
        offset, len(places), status, counts, (failed.number if failed else 0, reason), _hidden(marks),
    )  # fmt: skip


def _hidden(marks: Iterable[Mark]) -> tuple[str, ...]:
    """Return the columns in which no iteration has a value."""
    items = [item for _, item in marks]
    filled = {
        "score": any(item.score is not None or item.objective is not None for item in items),
        "verdict": any(status_of(item) != "done" or item.files for item in items),
        "feedback": any(item.feedback for item in items),
        "calls": any(item.usage.calls for item in items),
        "cost": any(item.usage.usd or item.usage.unpriced for item in items),
    }
    return tuple(name for name, known in filled.items() if not known)


def _chart(
    points: list[list[Json]], threshold: float | None, metrics: Sequence[Measure]
) -> Chart | None:
    """Return the curves of a loop; none without two different values of what it optimises or costs."""
    kinds = (
        ("score", "Score", 1, texts.score, 1.0),  # none with an objective
        *(
            (
                f"metric-{n}",
                texts.one_line(f"{one.name}, {one.unit}".rstrip(", ")),
                METRICS + n,
                number_text,
                0.0,
            )
            for n, one in enumerate(metrics)
        ),
        ("cost", "Cost, US dollars", 2, texts.money, 0.0),
        ("time", "Time", 3, texts.duration, 0.0),
    )
    drawn: list[tuple[str, str]] = []
    label, drawing = "", ""
    for kind, title, place, shown, top in kinds:
        values = [(p[0], p[place]) for p in points if p[place] is not None]
        # A constant is no curve, and times alone say nothing of what a loop reached.
        if len({value for _, value in values}) < 2 or (kind == "time" and not drawn):
            continue
        if not drawn:
            highest = max(values, key=lambda pair: float(pair[1]))
            label = (
                f"{title} of {len(values)} iterations: first {shown(values[0][1])}, highest "
                f"{shown(highest[1])} in iteration {highest[0]}, last {shown(values[-1][1])}"
            )
            line = threshold if kind == "score" else None
            if line is not None:
                label += f"; {texts.score(line)} is required"
            tested = any(p[4] is not None for p in points)
            accepted = {p[0] for p in points if p[4]} if tested else None
            drawing = charts.curve(
                values, label, top=top, line_at=line, shown=shown, marked=accepted
            )
        drawn.append((kind, title))
    # Safe markup: `charts.curve` escapes the label and writes only numbers besides.
    return Chart(drawn, label, Markup(drawing)) if drawn else None  # noqa: S704


SHOWN = 20_000  # characters of a value; the export has all
MAX_ENTRIES = 4_000  # of a run with loops whose steps are shown; reading more is slow


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as a row: name, status, reason, duration, output."""

    name: str
    status: str
    detail: str
    seconds: str
    output: str


def steps_of(view: RunView) -> list[StepRow]:
    """Return the steps of the workflow of a run, in the order of their ends.

    A single step that is a loop is shown as a loop, not here.
    """
    loops = view.loops()
    # The steps of such a run are read one by one from all its entries; the loops show the same facts.
    if loops and view.last > MAX_ENTRIES:
        return []
    steps = []
    for one in view.steps():
        detail = "" if one.status in (None, Status.SATISFIED) else one.detail
        took = texts.duration(one.seconds) if one.status is not None or one.seconds else ""
        output = cut(readable(one.output), SHOWN)
        steps.append(StepRow(one.name, texts.status_of_step(one), detail, took, output))
    return steps if len(steps) > 1 or not loops else []


def branch_of(view: RunView, at: str, offset: int = 0) -> list[TraceNode]:
    """Return the part of the trace below a path; loops and iterations in it have no children.

    Args:
        view: the run.
        at: the path of a loop or of an iteration; "" is the run.
        offset: of a loop, the number of iterations before the first one.
    """
    if view.count(at):
        marks = view.outline(at, offset=offset, limit=PAGE)
        items = items_of(view, at, marks, offset)
        nodes = [row_node(row) for row in rows_of(at, marks, 0, {}, items)]
        if not offset and view.effects(at, 0):
            nodes.insert(0, TraceNode(f"{at}/0", "step", "start", "before the first iteration"))
        following = view.count(at) + 1
        if offset + len(marks) == view.count(at) and view.effects(at, following):
            nodes.append(
                TraceNode(f"{at}/{following}", "iteration", str(following), status="in flight")
            )
        return nodes
    around = enclosing(f"{at}/.") if at else None
    entries: list[Entry] = []
    if view.last <= MAX_ENTRIES:  # reading more is slow; the loops of such a run are shown below
        entries = surviving(view.between(0, MAX_ENTRIES))
    elif around is not None:
        loop, number = around
        entries = view.effects(loop, number)
        if 0 < number <= view.count(loop):
            entries = [*entries, Entry("iteration", loop, 0.0, view.iteration(loop, number))]
    under = "/".join(map(str, around)) if around is not None else ""
    nodes = trace_of(entries, under, agent=text_of(view.info.source.get("agent") or ""))
    loops = {one: view.count(one) for one in in_order(view, view.loops(at))}
    known = {node.path: node for _, node in walk(nodes)}
    for path, count in loops.items():
        node = known.get(path) or TraceNode(path, "loop", path.rsplit("/", 1)[-1])
        node.children = []
        node.name = name_of(path, view.info)
        node.text = f"{texts.plural(count, 'item' if is_list(path, view.info) else 'iteration')}: {node.text}".rstrip(
            ": "
        )
        if path not in known:
            nodes.append(node)
    return nodes


_MAX_VALUE = 100_000  # characters of a value: a report is sent by mail
_MAX_CASES = 1_000  # of an evaluation


def report(info: RunInfo, entries: Sequence[Entry], journal: Path | None = None) -> str:
    """Return a run as an HTML document: header, input, output, curves, iterations."""
    view, run_progress = EntriesView(info, entries), RunProgress()
    run_progress.update(view)
    style = (STATIC / "page.css").read_text("utf-8")
    # The policy of the file allows this style sheet and nothing else.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    sections = [
        section_of(view, loop, run_progress, all_rows=True) for loop in in_order(view, view.loops())
    ]
    end = view.ending() or {}
    evaluation, scored = None, CasesCache().of(view)
    if scored is not None:
        wanted = WantedCases(baseline=(info.source.get("eval") or {}).get("baseline", ""))
        evaluation = EvaluationPage.of(view, scored, None, wanted, limit=_MAX_CASES)
    return render(
        "report.html", evaluation=evaluation, run=run_of(view, main_loop(view), run_progress), sections=sections,
        style=Markup(style), digest=digest,  # noqa: S704
        steps=steps_of(view), failure=Failure.from_json(end.get("error")), input=_shown(info.input), output=_shown(end.get("output")),
        detail=lambda row: _detail(view, row), patch=lambda row: _patch(entries, view, row, journal),
        inside=lambda row: inner_of(view, f"{row.path}/{row.iteration.number}", opened=True),
    )  # fmt: skip


def _detail(view: EntriesView, row: Row) -> list[tuple[str, str]]:
    """Return the titles and texts of an open iteration."""
    item = view.iteration(row.path, row.iteration.number)
    parts = [("Input", _shown(item.input)), ("Output", _shown(item.output))]
    if item.error is not None:
        parts.append(("Error", item.error.message))
        parts.append(("Traceback", item.error.traceback))
    if item.evaluation is not None:
        parts.append(("Feedback", item.evaluation.feedback))
        words = {True: "yes", False: "no", None: "undecided"}
        answers = [f"{words[passed]}: {text}" for text, passed in verdicts_of(item.evaluation)]
        parts.append(("Sentences", "\n".join(answers)))
    return [(title, text) for title, text in parts if text]


def _patch(
    entries: Sequence[Entry], view: EntriesView, row: Row, journal: Path | None
) -> list[PatchLine]:
    """Return the lines that an iteration changed, if its files are on this machine."""
    try:
        files = run_files(view.info.run_id, entries, row.path, journal)
        item = view.iteration(row.path, row.iteration.number)
        return [] if files is None else lines_of(files.diff_from_parent(item))
    except LoopwrightError as error:
        return [PatchLine("file", str(error))]


def _shown(value: Json) -> str:
    return cut(readable(value), _MAX_VALUE)
