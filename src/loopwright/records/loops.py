"""The results of the loops of a run, by name."""

from __future__ import annotations

import re

from .result import Result

__all__ = ["Loops"]

_ROUND = re.compile(r"/(?:attempt-)?[0-9]+(?=/|$)")  # of a loop, and of `retrying`


class Loops(dict[str, Result]):
    """Results by the names of their loops, the latest of each, in the order in which they ended.

    Another loop of the same name, in another place of the workflow, goes by its place: its path
    without the numbers of rounds and attempts.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def keep(self, path: str, result: Result) -> None:
        """Keep the result of the loop at a path."""
        place = _ROUND.sub("", path) if "/" in path else path
        first = self._places.setdefault(result.name, place)
        key = result.name if first == place else place
        self.pop(key, None)
        self[key] = result
