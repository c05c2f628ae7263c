"""The header of a run's page: its state, its figures and the limits of the run and of its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ...conditions import UNITS
from ...journal import RunInfo
from ...journal.views import LiveCall, LiveLines, RunView, enclosing
from ...records import Iteration, Usage
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..run_summary import origin_of
from .events import RunProgress

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
    return RunHeader(
        info=info,
        sentence=_sentence(info),
        facts=[*_facts(marks, view.total(), used, active, bounds), *_held_out(view)],
        in_flight=[InFlight(path, at, live.read(info.run_id, path)) for path, at in latest],
        active=active,
        model=", ".join(list(run_progress.models)[:3]) or text_of(info.source.get("model")),
        document=_document(info),
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
        return bounds if view.total() == view.count(loop) else _without(bounds, "limit")
    loops = (view.info.source.get("bounds") or {}).get("loops") or ()
    # The limit of one loop says nothing about a run that has several.
    alone = len(loops) == 1 and view.total() == view.count(loop)
    return {
        key: bounds[key] for key in ("threshold", *(["limit"] if alone else [])) if key in bounds
    }


def _without(bounds: Bounds, name: str) -> Bounds:
    return {key: value for key, value in bounds.items() if key != name}


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
    scores = [item.score for item in items if item.eligible and item.score is not None]
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
            _add_held_out(complete.value, facts)
        end = start
    return list(facts.values())


def _add_held_out(value: Json, facts: dict[str, UsedPart]) -> None:
    """Add the figures of an ended loop, unless those of a later one have the same label."""
    figures = value.get("held_out") if isinstance(value, Mapping) else None
    for name, one in (figures or {}).items():
        gap = one.get("gap")
        label = "Held-out tests" if name == "tests" else f"Held-out {texts.one_line(name)}"
        limit = "" if gap is None else f"score gap {texts.score(gap)}"
        facts.setdefault(label, UsedPart(label, f"{one['passing']} of {one['total']} pass", limit))


def _used(label: str, used: N, limit: N | None, text: Callable[[N], str]) -> UsedPart:
    if limit is None:
        return UsedPart(label, text(used))
    part = min(1.0, used / limit) if limit else 1.0
    # A person may have lowered the limit below the used amount.
    shown = f"(limit {text(limit)})" if used > limit else f"of {text(limit)}"
    return UsedPart(label, text(used), shown, part)


def _document(info: RunInfo) -> str:
    """Return the document or Python step of a run; a file is relative to the current folder."""
    origin = origin_of(info)
    path, folder = Path(origin), Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else origin


def is_list(loop: str, info: RunInfo) -> bool:
    """Return whether the loop at a path iterates over a list."""
    # The entries of a list and of a loop are alike; only the recorded bounds tell them apart.
    lists = (info.source.get("bounds") or {}).get("lists") or ()
    return loop.rsplit("/", 1)[-1] in lists


LAST_ENTRIES = 200  # of a run, among which the ends of its last loops are
HELD_OUT_ENTRIES = (
    20_000  # before the end of a run, in which its figures of held-out tests are searched
)
