"""What the page of a run shows: header with limits, loops, steps, effects, and the report in one file.

The report is a run as a self-contained HTML file, without scripts and links to other hosts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from markupsafe import Markup

from ...conditions import UNITS
from ...errors import LoopwrightError
from ...journal import Entry, RunInfo
from ...journal.views import EntriesView, LiveCall, LiveLines, Mark, RunView, enclosing
from ...records import (
    Failure,
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
from ..rows import Row, item_at, noise_text, scores_of, short, verdicts_of
from ..run_files import run_files
from ..run_summary import origin_of
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
    return RunHeader(
        info=info,
        sentence=_sentence(info),
        facts=[*_facts(marks, view.total(), used, active, bounds), *_held_out(view)],
        in_flight=[InFlight(place, at, live.read(info.run_id, place)) for place, at in latest],
        active=active,
        model=", ".join(list(run_progress.models)[:3]) or text_of(info.source.get("model")),
        document=str(path.relative_to(folder)) if path.is_relative_to(folder) else origin,
        last=run_progress.last,
        rewinds=run_progress.rewinds,
        open=info.status in _OPEN,
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


def _sentence(info: RunInfo) -> str:
    """Return the reason for the end of a run, or its state, as a sentence."""
    if info.status == "queued":
        return "The run waits for a worker."
    if info.status == "running":
        return "The run is in progress."
    if info.status == "interrupted":
        return "The process has ended. The recorded results are kept, and the run can be resumed."
    return info.detail or info.reason.replace("_", " ").capitalize()


def _facts(
    marks: Sequence[Iteration], total: int, used: Usage, active: float, bounds: Bounds
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
    if used.unpriced and not used.usd:
        facts.append(UsedPart("Cost", "unknown"))
    elif used.usd or used.calls or "usd" in bounds:  # a run without model calls has no cost
        prefix = "at most " if used.estimated else ""
        cost = _used("Cost", used.usd, bounds.get("usd"), texts.money)
        facts.append(replace(cost, used=f"{prefix}{cost.used}"))
    if used.calls or "calls" in bounds:
        facts.append(_used("Model calls", used.calls, bounds.get("calls"), str))
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
                gap, share = one.get("gap"), f"{one['passing']} of {one['total']} pass"
                label = "Held-out tests" if name == "tests" else f"Held-out {texts.one_line(name)}"
                limit = "" if gap is None else f"score gap {texts.score(gap)}"
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


def points_of(marks: Iterable[Mark]) -> list[list[Json]]:
    """Return the points of a loop's curves: number, score, US dollars, seconds; then the objective, if any."""
    points = []
    for _, item in marks:
        score = item.score if item.eligible and item.accepted is None else None
        points.append([item.number, score, item.usage.usd, round(item.seconds, 3)])
        if item.accepted is not None:
            objective = item.objective if item.eligible else None
            points[-1].append(None if objective is None else objective.value)
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
    objective = next((item.objective for _, item in marks if item.objective is not None), None)
    name = name_of(loop, view.info)
    noise = noise_text(run_progress.noise[name]) if name in run_progress.noise else ""
    return Section(
        path=loop,
        name=name,
        item=short(texts.one_line(item_at(loop, run_progress.progress.lists)), ITEM),
        count=len(marks),
        best=_score(marks, best),
        best_number=best,
        has_files=any(item.files for _, item in marks),
        bounds=bounds,
        chunks=_chunks(view, loop, marks, best, all_rows=all_rows),
        points=points,
        charts=_charts(points, bounds.get("threshold"), objective),
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


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect: start, duration, cost, the messages to a model, the result."""

    path: str
    at: float
    took: str
    cost: str
    kind: str
    start: float
    length: float
    messages: list[tuple[str, str]]
    result: str
    calls: list[str]
    error: str
    traceback: str = ""

    @property
    def failed(self) -> str:
        """The first line of its error."""
        return self.error.partition("\n")[0][:160]

    @property
    def outcome(self) -> str:
        """The beginning of its result."""
        return {"cut": "cut short", "doubt": "in flight"}.get(self.kind, self.result[:120])

    @property
    def facts(self) -> str:
        """Its duration and its cost."""
        return ", ".join(part for part in (self.took, self.cost) if part)


def effects_of(entries: list[Entry], active: float, under: str = "") -> list[Effect]:
    """Return the effects among entries, in the order of their starts, with paths relative to `under`."""
    started: dict[str, Entry] = {}
    ended: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "started":
            started[entry.path] = entry
        elif entry.kind in ("finished", "cut"):
            ended[entry.path] = entry
    # Not 0, because the positions in the timeline are shares of it.
    total = max(active, max((e.at + e.seconds for e in ended.values()), default=0.0), 0.001)
    paths = dict.fromkeys([*started, *ended])
    effects = [
        replace(
            _effect(path, started.get(path), ended.get(path), total), path=path.removeprefix(under)
        )
        for path in paths
    ]
    return sorted(effects, key=lambda effect: effect.at)


def _effect(path: str, start: Entry | None, end: Entry | None, total: float) -> Effect:
    first = start or end
    assert first is not None
    kind = "doubt" if end is None else end.kind
    length = end.seconds if end is not None else total - first.at
    usage = end.usage if end is not None else first.reserved
    if end is not None and end.error is not None:
        kind = "failed"
    result, calls = _result(end.value if end is not None else None)
    failure = end.error if end is not None else None
    return Effect(
        path=path,
        at=first.at,
        took=texts.duration(length) if end is not None else "",
        cost=texts.cost(usage),
        kind=kind,
        start=min(1.0, first.at / total),
        length=min(1.0, max(0.0, length) / total),
        messages=_messages(start.value if start is not None else None),
        result=result,
        calls=calls,
        error=failure.message if failure is not None else "",
        traceback=failure.traceback if failure is not None else "",
    )


def _messages(value: Json) -> list[tuple[str, str]]:
    """Return the messages of a model call: role and text."""
    if not isinstance(value, dict) or not isinstance(value.get("roles"), list):
        return []
    messages = [
        (str(role), cut(text_of(value.get(f"text-{number}")), SHOWN))
        for number, role in enumerate(value["roles"], start=1)
    ]
    return [
        (f"{role} to {value.get('model')}" if role == "user" else role, text)
        for role, text in messages
    ]


def _result(value: Json) -> tuple[str, list[str]]:
    """Return the result of an effect: a model's text or a value, and the tool calls in it."""
    if isinstance(value, dict) and "finish" in value and "text" in value:
        calls = value.get("tool_calls") or []
        return cut(text_of(value["text"]), SHOWN), [text_of(call) for call in calls]
    return cut(readable(value), SHOWN), []


_MAX_VALUE = 100_000  # characters of a value: a report is sent by mail


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
    return render(
        "report.html", run=run_of(view, main_loop(view), run_progress), sections=sections,
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
