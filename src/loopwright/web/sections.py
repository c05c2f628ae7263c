"""The loops of a run as sections of its page: curves, rows by chunks, loops inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from ..cli import texts
from ..codec import Json, text_of
from ..journal import Entry
from ..stores.views import Mark, RunView
from . import charts
from .rendering import cut, readable
from .shapes import Row, best_of, bounds_of_loop, name_of, points_of, rows_of

__all__ = ["Effect", "Section", "chunks_of", "effects_of", "inner_of", "section_of"]

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
    ended: str = ""
    open: bool = False


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


def section_of(
    view: RunView, loop: str, raised: Mapping[str, Mapping[str, Json]], *, whole: bool = False
) -> Section:
    """Return a loop with all its points, and its rows: all of them, or as far as a page begins
    with them."""
    marks = view.outline(loop)
    best = best_of(marks)
    bounds = bounds_of_loop(loop, view.info, raised)
    live = view.info.status == "running"
    inside = inner_of(view, f"{loop}/{len(marks) + 1}", opened=True) if live else []
    points = points_of(marks)
    return Section(
        loop, name_of(loop, view.info), len(marks), _score(marks, best), bounds,
        _chunks(view, loop, marks, best, whole=whole), points, _charts(points, bounds.get("threshold")), inside,
    )  # fmt: skip


def inner_of(view: RunView, under: str, *, opened: bool = False) -> list[Section]:
    """Return the outermost loops below a path, folded or with their rows."""
    found = []
    for loop in view.loops(under):
        marks = view.outline(loop)
        best = best_of(marks)
        chunks = _chunks(view, loop, marks, best, whole=len(marks) < WHOLE) if opened else []
        found.append(
            Section(
                loop, name_of(loop, view.info), len(marks), _score(marks, best), {}, chunks,
                open=opened,
            )
        )  # fmt: skip
    return found


def _score(marks: list[Mark], best: int) -> str:
    return next((texts.score(item.score) for _, item in marks if item.number == best), "")


def chunks_of(view: RunView, loop: str, offset: int, limit: int) -> list[Row]:
    """Return rows of a loop from a place on, the best of the whole loop marked."""
    best = best_of(view.outline(loop))
    return rows_of(loop, view.outline(loop, offset=offset, limit=limit), best, view.retries(loop))


def _chunks(
    view: RunView, loop: str, marks: list[Mark], best: int, *, whole: bool = False
) -> list[Chunk]:
    retries = view.retries(loop)
    if whole or len(marks) <= WHOLE:
        return [Chunk(0, len(marks), rows_of(loop, marks, best, retries))]
    starts = range(0, len(marks), CHUNK)
    chunks = []
    for start in starts:
        part = marks[start : start + CHUNK]
        shown = start == 0 or start == starts[-1]
        chunks.append(
            Chunk(start, len(part), rows_of(loop, part, best, retries) if shown else None)
        )
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
        drawing = charts.curve(values, said, top=top, line_at=line)
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
    error = end.error.message if end is not None and end.error is not None else ""
    return Effect(
        path, first.at, texts.duration(length) if end is not None else "", texts.cost(usage), kind,
        min(1.0, first.at / whole), min(1.0, max(0.0, length) / whole),
        _asked(start.value if start is not None else None), gave, calls, error,
    )  # fmt: skip


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
