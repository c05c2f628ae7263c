"""The variables around a loop node, and the entries of its past rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....engine.scope import Scope
from ....records import History, Iteration
from ....records.codec import Json

__all__ = ["CATEGORIES", "MOST", "NodeScope", "notes_of", "past_loops"]

CATEGORIES = ("insights", "improvements", "mistakes")
MOST = 20  # entries of past rounds that are shown, where nothing else is said


class NodeScope(Scope):
    """The variables around a loop node: what earlier runs left, and what score it wants."""

    __slots__ = ("most", "recalled", "threshold")

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str) -> None:
        super().__init__(name, initial, parent, path)
        self.recalled: list[Json] = []
        self.threshold = 0.0
        self.most = MOST


def notes_of(item: Iteration) -> Iterator[Mapping[str, Any]]:
    """Iterate over what the scoring of a round noted."""
    if item.evaluation is not None:
        yield from (vote for vote in item.evaluation.votes if isinstance(vote, Mapping))


def past_loops(history: History, recalled: list[Json], most: int) -> list[Json]:
    """Return the entries of the rounds so far, those of earlier runs first, the latest `most`."""
    entries = [
        note["past_loop"] for item in history for note in notes_of(item) if "past_loop" in note
    ]
    return [*recalled, *entries][-most:]
