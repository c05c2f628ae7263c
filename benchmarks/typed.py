"""Typed values: an iteration with 1 KB dataclasses against the same with objects of JSON."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loopwright import Loop, MaxIterations, MemoryJournal, run

from .measuring import Row, cpu

ITERATIONS = 500
TURNS = 15
ADDED = 20.0  # microseconds that an iteration with typed values may cost more


@dataclass
class Item:
    name: str
    size: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Draft:
    title: str
    score: float
    items: list[Item]


TYPED = Draft("d" * 100, 0.5, [Item(f"item {n}" * 3, n, ["red", "green"]) for n in range(13)])
UNTYPED: dict[str, Any] = {
    "title": TYPED.title,
    "score": TYPED.score,
    "items": [{"name": i.name, "size": i.size, "tags": list(i.tags)} for i in TYPED.items],
}  # about 1 KB of JSON text


async def write(value: Draft) -> Draft:
    return value


async def score(output: Draft) -> float:
    return 0.5


async def again(last: Any) -> Draft:
    return last.output


async def write_json(value: Any) -> Any:
    return value


async def score_json(output: Any) -> float:
    return 0.5


async def again_json(last: Any) -> Any:
    return last.output


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    until = MaxIterations(ITERATIONS)
    typed = Loop(write, score, again, until, name="typed")
    untyped = Loop(write_json, score_json, again_json, until, name="untyped")

    def of_classes() -> None:
        asyncio.run(run(typed, TYPED, journal=MemoryJournal()))

    def of_json() -> None:
        asyncio.run(run(untyped, UNTYPED, journal=MemoryJournal()))

    of_classes()
    of_json()
    pairs = [(cpu(of_classes), cpu(of_json)) for _ in range(TURNS)]
    added = [(one - other) / ITERATIONS * 1e6 for one, other in pairs]
    json = statistics.median(other for _, other in pairs) / ITERATIONS * 1e6
    quarters = statistics.quantiles(added, n=4)
    yield Row(
        "CPU that an iteration with typed values of 1 KB costs more than one with JSON",
        statistics.median(added),
        ADDED,
        unit="us",
        note=f"JSON {json:.0f} us an iteration; half of the turns {quarters[0]:.1f} to {quarters[2]:.1f}",
    )
