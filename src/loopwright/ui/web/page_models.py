"""The loops of a run as sections of its page: curves, rows by chunks, loops inside.

What templates show of runs and iterations: figures as text, verdicts as words, bounds by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from ...conditions import UNITS
from ...journal import Entry, RunInfo
from ...journal.views import Mark, RunView, enclosing
from ...records import Iteration, Usage
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..progress import item_at
from . import charts
from .events import RunProgress
from .queries import in_order
from .render import cut, readable

__all__ = [
    "Effect",
    "Row",
    "RunHeader",
    "Section",
    "UsedPart",
    "bounds_of_loop",
    "chunks_of",
    "effects_of",
    "inner_of",
    "is_list",
    "items_of",
    "limits_told",
    "name_of",
    "points_of",
    "rows_of",
    "run_of",
    "section_of",
]


SHORT = 240  # characters of feedback in a row
ITEM = 120  # characters of an item


@dataclass(frozen=True, slots=True)
class UsedPart:
    """What was used of what was given: two texts, and the part of it from 0 to 1 if it is known."""

    label: str
    used: str
    given: str = ""
    part: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An iteration as a line of a table."""

    loop: str
    number: int
    item: str
    score: str
    part: float | None
    sign: str
    verdict: str
    best: bool
    told: str
    gaps: tuple[tuple[str, str], ...]
    error: str
    stage: str
    cost: str
    calls: int
    retries: int
    seconds: str


@dataclass(frozen=True, slots=True)
class RunHeader:
    """A run as its page begins."""

    info: RunInfo
    sentence: str
    facts: list[UsedPart]
    flying: list[tuple[str, float]]
    active: float
    model: str
    document: str
    last: int
    rewinds: int
    open: bool = field(default=False)


def name_of(loop: str, info: RunInfo) -> str:
    """Return the name of the loop at a path."""
    found = _told(loop, info)
    return str(found["name"]) if found else loop.rsplit("/", 1)[-1]


def _told(loop: str, info: RunInfo) -> Mapping[str, Any] | None:
    """Return what was recorded of the bounds of the loop at a path."""
    if is_list(loop, info):
        return None
    bounds = info.source.get("bounds") or {}
    loops: list[dict[str, Any]] = bounds.get("loops", [])
    last = loop.rsplit("/", 1)[-1]
    named = [told for told in loops if told["name"] == last]
    if named:
        return named[0]
    around = enclosing(loop)
    within = name_of(around[0], info) if around else ""
    inside = [told for told in loops if told.get("within", "") == within]
    return inside[0] if len(inside) == 1 else None


def bounds_of_loop(
    loop: str, info: RunInfo, raised: Mapping[str, Mapping[str, Json]]
) -> dict[str, Any]:
    """Return the tightest bounds of a loop: `threshold`, `limit`, `seconds`, `usd`, `calls`, `tokens`;
    `raised` are limits that were raised since, by path."""
    found: dict[str, Any] = {}
    told = _told(loop, info)
    for condition in told["until"] if told else ():
        for tag, fields in condition.items():
            _bound(found, tag, fields)
    told_since = raised.get(loop, {})
    for key, name in (("max_iterations", "limit"), *UNITS.items()):
        if key in told_since:
            found[name] = told_since[key]
    return found


def _bound(found: dict[str, Any], tag: str, fields: Any) -> None:
    if tag in ("any_of", "all_of"):
        for inner in fields:
            for inner_tag, inner_fields in inner.items():
                _bound(found, inner_tag, inner_fields)
        return
    keys = {
        "score_at_least": ("threshold",), "max_iterations": ("limit",), "phase_limit": ("limit",),
        "timeout": ("seconds",), "budget": ("usd", "calls", "tokens", "effects"),
    }.get(tag, ())  # fmt: skip
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int | float):
            found[key] = min(value, found.get(key, value))


def run_of(view: RunView, loop: str, fold: RunProgress) -> RunHeader:
    """Return what the beginning of a run's page shows; `loop` is the one that stands for it."""
    info = view.info
    progress = fold.progress
    used = progress.spent if info.status in _OPEN else info.usage
    active = max(info.active, progress.active)
    bounds = _bounds_of_run(loop, view, fold)
    budget = (info.source.get("bounds") or {}).get("budget") or {}
    bounds |= {key: value for key, value in budget.items() if value is not None}
    raised = fold.raised.get("", {})
    bounds |= {unit: raised[name] for name, unit in UNITS.items() if name in raised}
    marks = [item for _, item in view.outline(loop)] if loop else []
    flying = list(progress.flying.items())[-4:] if info.status == "running" else []
    return RunHeader(
        info=info,
        sentence=_sentence(info),
        facts=_facts(marks, view.total(), used, active, bounds),
        flying=flying,
        active=active,
        model=", ".join(list(fold.models)[:3]) or text_of(info.source.get("model")),
        document=_document(info),
        last=fold.last,
        rewinds=fold.rewinds,
        open=info.status in _OPEN,
    )


def _bounds_of_run(loop: str, view: RunView, fold: RunProgress) -> dict[str, Any]:
    """Return what bounds the run as a whole, of the bounds of the loop that stands for it: all where
    the loop is the run, else its threshold, and its limit where no other loop has iterations."""
    if not loop:
        return {}
    bounds = bounds_of_loop(loop, view.info, fold.raised)
    if "/" not in loop:
        return bounds if view.total() == view.count(loop) else _without(bounds, "limit")
    loops = (view.info.source.get("bounds") or {}).get("loops") or ()
    alone = len(loops) == 1 and view.total() == view.count(loop)
    return {
        key: bounds[key] for key in ("threshold", *(["limit"] if alone else [])) if key in bounds
    }


def _without(bounds: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in bounds.items() if key != name}


def limits_told(bounds: Mapping[str, Any]) -> str:
    """Return what bounds a loop beside its iterations, in words."""
    told = [texts.money(bounds["usd"])] if "usd" in bounds else []
    told += [f"{bounds[unit]:,} {unit}" for unit in ("calls", "tokens") if unit in bounds]
    within = [f"within {texts.duration(bounds['seconds'])}"] if "seconds" in bounds else []
    return ", ".join([*within, *([f"for at most {' and '.join(told)}"] if told else [])])


_OPEN = ("running", "interrupted", "suspended")


def _sentence(info: RunInfo) -> str:
    """Return why a run ended, or that it has not, in one sentence."""
    if info.status == "running":
        return "It is running now."
    if info.status == "interrupted":
        return (
            "Its process was stopped or is gone; what it did is kept, and resume goes on with it."
        )
    return info.detail or info.reason.replace("_", " ").capitalize()


def _facts(
    marks: Iterable[Iteration], total: int, used: Usage, active: float, bounds: Mapping[str, Any]
) -> list[UsedPart]:
    items = list(marks)
    facts = []
    scores = [item.score for item in items if item.eligible and item.score is not None]
    if scores:
        wanted = bounds.get("threshold")
        told = f"{texts.score(wanted)} wanted" if wanted is not None else ""
        facts.append(UsedPart("Best score", texts.score(max(scores)), told, max(scores)))
    if items:
        facts.append(_used("Iterations", total, bounds.get("limit"), str))
    if used.usd or not used.unpriced:
        most = "at most " if used.estimated else ""
        shown = _used("Cost", used.usd, bounds.get("usd"), texts.money)
        facts.append(replace(shown, used=f"{most}{shown.used}"))
    else:
        facts.append(UsedPart("Cost", "unknown"))
    if used.calls or "calls" in bounds:
        facts.append(_used("Model calls", used.calls, bounds.get("calls"), str))
    if used.tokens or "tokens" in bounds:
        facts.append(_used("Tokens", used.tokens, bounds.get("tokens"), lambda n: f"{n:,}"))
    facts.append(_used("Time", active, bounds.get("seconds"), texts.duration))
    return facts


def _used(label: str, used: float, given: float | None, shown: Any) -> UsedPart:
    if given is None:
        return UsedPart(label, shown(used))
    part = min(1.0, used / given) if given else 1.0
    return UsedPart(label, shown(used), f"of {shown(given)}", part)


def _document(info: RunInfo) -> str:
    """Return what a run is of, a file as it is called from the folder that the page is of."""
    file = text_of(info.source.get("file"))
    if not file:
        return text_of(info.source.get("python"))
    path, folder = Path(file), Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else file


def points_of(marks: Iterable[Mark]) -> list[list[Json]]:
    """Return the points of a loop's curves: number, score, US dollars, seconds."""
    return [
        [item.number, item.score if item.eligible else None, item.usage.usd, round(item.seconds, 3)]
        for _, item in marks
    ]


def best_of(marks: Iterable[Mark]) -> int:
    """Return the number of the best iteration, the earliest on ties; 0 if none has a score."""
    best, top = 0, -1.0
    for _, item in marks:
        if item.eligible and item.score is not None and item.score > top:
            best, top = item.number, item.score
    return best


def is_list(loop: str, info: RunInfo) -> bool:
    """Return whether the loop at a path goes over a list."""
    lists = (info.source.get("bounds") or {}).get("lists") or ()
    return loop.rsplit("/", 1)[-1] in lists


def items_of(view: RunView, loop: str, marks: Sequence[Mark], offset: int = 0) -> dict[int, str]:
    """Return the items of a list by the numbers of its rows, as text; none for a loop."""
    if not marks or not is_list(loop, view.info):
        return {}
    found = view.inputs(loop, offset, len(marks))
    return {number: _short(texts.one_line(text_of(item)), ITEM) for number, item in found}


def _short(text: str, most: int) -> str:
    return text[:most] + ("…" if len(text) > most else "")


def rows_of(
    loop: str,
    marks: Iterable[Mark],
    best: int,
    retries: Mapping[int, int],
    items: Mapping[int, str] = MappingProxyType({}),
) -> list[Row]:
    """Return iterations as lines of a table; `retries` are what was tried again in them, `items` the
    items of a list by their numbers."""
    return [
        _row(loop, item, best, retries.get(item.number, 0), items.get(item.number, ""))
        for _, item in marks
    ]


def _row(loop: str, item: Iteration, best: int, retries: int, of: str) -> Row:
    sign, word, _ = texts.verdict(item)
    found = item.evaluation
    gaps = tuple((c.name, c.gap) for c in found.criteria if not c.passed) if found else ()
    told = texts.one_line(found.feedback) if found else ""
    return Row(
        loop=loop,
        number=item.number,
        item=of,
        score=texts.score(item.score),
        part=item.score,
        sign=sign.strip(),
        verdict=word,
        best=item.number == best,
        told=_short(told, SHORT),
        gaps=gaps,
        error=texts.one_line(item.error.message)[:SHORT] if item.error else "",
        stage=item.error.stage if item.error else "",
        cost=texts.cost(item.usage),
        calls=item.usage.calls,
        retries=retries,
        seconds=texts.duration(item.seconds),
    )


CHUNK = 40  # rows that are sent at once
WHOLE = 100  # rows that a page begins with, all of them, if there are no more
SHOWN = 20_000  # characters of a value; the export has all


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table: what they are, or None if they are sent when they come into sight."""

    offset: int
    limit: int
    rows: list[Row] | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve of a loop: its kind, its title, what it says in a sentence, its drawing."""

    kind: str
    title: str
    said: str
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Section:
    """A loop on the page of its run."""

    path: str
    name: str
    count: int
    best: str
    bounds: dict[str, Any]
    chunks: list[Chunk]
    points: list[list[Json]] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    inside: list[Section] = field(default_factory=list)
    limits: str = ""
    over_list: bool = False
    open: bool = False
    item: str = ""  # what it runs for, in a list

    @property
    def unit(self) -> str:
        """What its rows are."""
        return "item" if self.over_list else "iteration"


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect as people read it: when, how long, at what cost, what was asked and what came."""

    path: str
    at: float
    took: str
    cost: str
    kind: str
    start: float
    length: float
    asked: list[tuple[str, str]]
    gave: str
    calls: list[str]
    error: str
    traceback: str = ""

    @property
    def failed(self) -> str:
        """The first line of its error."""
        return self.error.partition("\n")[0][:160]

    @property
    def outcome(self) -> str:
        """The first words of what it gave."""
        return {"cut": "cut short", "doubt": "in flight"}.get(self.kind, self.gave[:120])

    @property
    def facts(self) -> str:
        """How long it took and what it cost."""
        return ", ".join(part for part in (self.took, self.cost) if part)


def section_of(view: RunView, loop: str, fold: RunProgress, *, whole: bool = False) -> Section:
    """Return a loop with all its points, and its rows: all of them, or as far as a page begins
    with them."""
    marks = view.outline(loop)
    best = best_of(marks)
    bounds = bounds_of_loop(loop, view.info, fold.raised)
    live = view.info.status == "running"
    inside = inner_of(view, f"{loop}/{len(marks) + 1}", opened=True) if live else []
    points = points_of(marks)
    return Section(
        path=loop,
        name=name_of(loop, view.info),
        item=_short(texts.one_line(item_at(loop, fold.progress.lists)), ITEM),
        count=len(marks),
        best=_score(marks, best),
        bounds=bounds,
        chunks=_chunks(view, loop, marks, best, whole=whole),
        points=points,
        charts=_charts(points, bounds.get("threshold")),
        inside=inside,
        limits=limits_told(bounds),
        over_list=is_list(loop, view.info),
    )


def inner_of(view: RunView, under: str, *, opened: bool = False) -> list[Section]:
    """Return the outermost loops below a path, folded or with their rows."""
    found = []
    for loop in in_order(view, view.loops(under)):
        marks = view.outline(loop)
        best = best_of(marks)
        chunks = _chunks(view, loop, marks, best, whole=len(marks) < WHOLE) if opened else []
        found.append(
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
    return found


def _score(marks: list[Mark], best: int) -> str:
    return next((texts.score(item.score) for _, item in marks if item.number == best), "")


def chunks_of(view: RunView, loop: str, offset: int, limit: int) -> list[Row]:
    """Return rows of a loop from a place on, the best of the whole loop marked."""
    best = best_of(view.outline(loop))
    marks = view.outline(loop, offset=offset, limit=limit)
    return rows_of(loop, marks, best, view.retries(loop), items_of(view, loop, marks, offset))


def _chunks(
    view: RunView, loop: str, marks: list[Mark], best: int, *, whole: bool = False
) -> list[Chunk]:
    retries = view.retries(loop)
    if whole or len(marks) <= WHOLE:
        items = items_of(view, loop, marks)
        return [Chunk(0, len(marks), rows_of(loop, marks, best, retries, items))]
    starts = range(0, len(marks), CHUNK)
    chunks = []
    for start in starts:
        part = marks[start : start + CHUNK]
        rows = None
        if start in (0, starts[-1]):
            rows = rows_of(loop, part, best, retries, items_of(view, loop, part, start))
        chunks.append(Chunk(start, len(part), rows))
    return chunks


def _charts(points: list[list[Json]], threshold: float | None) -> list[Chart]:
    kinds = (
        ("score", "Score", 1, texts.score, 1.0),
        ("cost", "Cost, US dollars", 2, texts.money, 0.0),
        ("time", "Time, seconds", 3, texts.duration, 0.0),
    )
    found = []
    for kind, title, place, shown, top in kinds:
        values = [(point[0], point[place]) for point in points if point[place] is not None]
        if len(values) < 2 or not any(value for _, value in values):
            continue
        highest = max(values, key=lambda pair: float(pair[1]))
        said = (
            f"{title} of {len(values)} iterations: first {shown(values[0][1])}, highest "
            f"{shown(highest[1])} in iteration {highest[0]}, last {shown(values[-1][1])}"
        )
        line = threshold if kind == "score" else None
        if line is not None:
            said += f"; {texts.score(line)} is wanted"
        drawing = charts.curve(values, said, top=top, line_at=line, shown=shown)
        found.append(Chart(kind, title, said, Markup(drawing)))  # noqa: S704
    return found


def effects_of(entries: list[Entry], active: float, under: str = "") -> list[Effect]:
    """Return the effects among entries, in the order they began; paths are told from `under` on."""
    begun: dict[str, Entry] = {}
    ended: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "started":
            begun[entry.path] = entry
        elif entry.kind in ("finished", "cut"):
            ended[entry.path] = entry
    whole = max(active, max((e.at + e.seconds for e in ended.values()), default=0.0), 0.001)
    paths = dict.fromkeys([*begun, *ended])
    found = [
        replace(
            _effect(path, begun.get(path), ended.get(path), whole), path=path.removeprefix(under)
        )
        for path in paths
    ]
    return sorted(found, key=lambda effect: effect.at)


def _effect(path: str, start: Entry | None, end: Entry | None, whole: float) -> Effect:
    first = start or end
    assert first is not None
    kind = "doubt" if end is None else end.kind
    length = end.seconds if end is not None else whole - first.at
    usage = end.usage if end is not None else first.reserved
    if end is not None and end.error is not None:
        kind = "failed"
    gave, calls = _given(end.value if end is not None else None)
    failure = end.error if end is not None else None
    return Effect(
        path=path,
        at=first.at,
        took=texts.duration(length) if end is not None else "",
        cost=texts.cost(usage),
        kind=kind,
        start=min(1.0, first.at / whole),
        length=min(1.0, max(0.0, length) / whole),
        asked=_asked(start.value if start is not None else None),
        gave=gave,
        calls=calls,
        error=failure.message if failure is not None else "",
        traceback=failure.traceback if failure is not None else "",
    )


def _asked(value: Json) -> list[tuple[str, str]]:
    """Return the messages of a question to a model: role and text."""
    if not isinstance(value, dict) or not isinstance(value.get("roles"), list):
        return []
    told = [
        (str(role), cut(text_of(value.get(f"text-{number}")), SHOWN))
        for number, role in enumerate(value["roles"], start=1)
    ]
    return [
        (f"{role} to {value.get('model')}" if role == "user" else role, text) for role, text in told
    ]


def _given(value: Json) -> tuple[str, list[str]]:
    """Return what an effect gave: a model's text, or the value; and the tools that it called for."""
    if isinstance(value, dict) and "finish" in value and "text" in value:
        calls = value.get("tool_calls") or []
        return cut(text_of(value["text"]), SHOWN), [text_of(call) for call in calls]
    return cut(readable(value), SHOWN), []
