"""The variables of one loop or workflow while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..records import History, Result
from ..records.codec import Json

__all__ = ["Scope"]

_UNBEGUN = History()  # of a scope before its first round; what has rounds replaces it
_NOTHING_YET: Mapping[str, Json] = MappingProxyType({})


class Scope:
    """The variables of one loop or workflow, under its own name; a child never changes its
    parent's."""

    __slots__ = (
        "current",
        "history",
        "initial",
        "loops",
        "name",
        "number",
        "outputs",
        "parent",
        "parts",
        "path",
        "results",
        "talks",
        "total",
        "variables",
    )

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str = "") -> None:
        self.name = name
        self.path = path
        self.talks: dict[str, Any] | None = None  # conversations carried from round to round
        self.parent = parent
        self.initial = initial
        self.current = initial
        self.number = 0
        self.total = 0  # of the items, where it goes over a list
        self.parts: Mapping[str, Json] | None = None  # of the present round, for its record
        self.history = _UNBEGUN
        # Most scopes are loops', which have neither; see `keep`.
        self.outputs: Mapping[str, Json] = _NOTHING_YET
        self.results: Mapping[str, Result] = _NOTHING_YET
        self.loops: Mapping[str, Result] = _NOTHING_YET  # in the order in which they ended
        self.variables: dict[str, Json] | None = None  # of a document: nothing beyond is seen

    def keep(self, name: str, result: Result) -> None:
        """Show the result of a step under its name."""
        self.results = {**self.results, name: result}
        self.outputs = {**self.outputs, name: result.output}

    def keep_loop(self, name: str, result: Result) -> None:
        """Show how a loop ended, under its name, after those that ended before it."""
        others = {key: found for key, found in self.loops.items() if key != name}
        self.loops = {**others, name: result}
