"""What templates show of runs and iterations: figures as text, verdicts as words, bounds by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cli import texts
from ..codec import Json, text_of
from ..journal import RunInfo
from ..records import Iteration, Usage
from ..stores.views import Mark, RunView, enclosing
from .folding import Fold

__all__ = ["Fact", "Row", "Run", "bounds_of_loop", "name_of", "points_of", "rows_of", "run_of"]

SHORT = 240  # characters of feedback in a row


@dataclass(frozen=True, slots=True)
class Fact:
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
class Run:
    """A run as its page begins."""

    info: RunInfo
    sentence: str
    facts: list[Fact]
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
    for key, name in (("max_iterations", "limit"), ("max_usd", "usd")):
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
        "timeout": ("seconds",), "budget": ("usd", "calls", "tokens"),
    }.get(tag, ())  # fmt: skip
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int | float):
            found[key] = min(value, found.get(key, value))


def run_of(view: RunView, loop: str, fold: Fold) -> Run:
    """Return what the beginning of a run's page shows; `loop` is the one that stands for it."""
    info = view.info
    progress = fold.progress
    used = progress.spent if info.status in _OPEN else info.usage
    active = max(info.active, progress.active)
    bounds = bounds_of_loop(loop, info, fold.raised) if loop else {}
    budget = (info.source.get("bounds") or {}).get("budget") or {}
    bounds |= {key: value for key, value in budget.items() if value is not None}
    if "max_usd" in fold.raised.get("", {}):
        bounds["usd"] = fold.raised[""]["max_usd"]
    marks = [item for _, item in view.outline(loop)] if loop else []
    flying = list(progress.flying.items())[-4:] if info.status == "running" else []
    return Run(
        info, _sentence(info), _facts(marks, used, active, bounds), flying, active,
        ", ".join(list(fold.models)[:3]) or text_of(info.source.get("model")), _document(info),
        fold.last, fold.rewinds, info.status in _OPEN,
    )  # fmt: skip


_OPEN = ("running", "interrupted", "suspended")


def _sentence(info: RunInfo) -> str:
    """Return why a run ended, or that it has not, in one sentence."""
    if info.status == "running":
        return "It is running now."
    if info.status == "interrupted":
        return (
            "Its process was stopped or is gone; what it did is kept, and resume goes on with it."
        )
    detail = info.detail or info.reason.replace("_", " ")
    return detail[:1].upper() + detail[1:]


def _facts(
    marks: Iterable[Iteration], used: Usage, active: float, bounds: Mapping[str, Any]
) -> list[Fact]:
    items = list(marks)
    facts = []
    scores = [item.score for item in items if item.eligible and item.score is not None]
    if scores:
        wanted = bounds.get("threshold")
        told = f"{texts.score(wanted)} wanted" if wanted is not None else ""
        facts.append(Fact("Best score", texts.score(max(scores)), told, max(scores)))
    if items:
        facts.append(_used("Iterations", len(items), bounds.get("limit"), str))
    if used.usd or not used.unpriced:
        facts.append(_used("Cost", used.usd, bounds.get("usd"), texts.money))
    else:
        facts.append(Fact("Cost", "unknown"))
    if used.calls or "calls" in bounds:
        facts.append(_used("Model calls", used.calls, bounds.get("calls"), str))
    if used.tokens or "tokens" in bounds:
        facts.append(_used("Tokens", used.tokens, bounds.get("tokens"), lambda n: f"{n:,}"))
    facts.append(_used("Time", active, bounds.get("seconds"), texts.duration))
    return facts


def _used(label: str, used: float, given: float | None, shown: Any) -> Fact:
    if given is None:
        return Fact(label, shown(used))
    part = min(1.0, used / given) if given else 1.0
    return Fact(label, shown(used), f"of {shown(given)}", part)


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


def rows_of(loop: str, marks: Iterable[Mark], best: int, retries: Mapping[int, int]) -> list[Row]:
    """Return iterations as lines of a table; `retries` are what was tried again in them."""
    return [_row(loop, item, best, retries.get(item.number, 0)) for _, item in marks]


def _row(loop: str, item: Iteration, best: int, retries: int) -> Row:
    sign, word, _ = texts.verdict(item)
    found = item.evaluation
    gaps = tuple((c.name, c.gap) for c in found.criteria if not c.passed) if found else ()
    told = texts.one_line(found.feedback) if found else ""
    return Row(
        loop, item.number, texts.score(item.score), item.score, sign.strip(), word,
        item.number == best, told[:SHORT] + ("…" if len(told) > SHORT else ""), gaps,
        texts.one_line(item.error.message)[:SHORT] if item.error else "",
        item.error.stage if item.error else "", texts.cost(item.usage), item.usage.calls,
        retries, texts.duration(item.seconds),
    )  # fmt: skip
