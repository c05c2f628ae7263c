"""In which order the steps and loops of a `workflow/v2.0` document run.

Document order, block by block, where each is moved later by what it needs: what `needs` lists, and
what its texts refer to. Nothing is left to chance.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...yaml.reader import Path, Source

__all__ = ["DependencyCycle", "TranslatedStep", "in_order", "written_order"]


class DependencyCycle(Exception):
    """Steps need each other; `names` go round, the first again at the end."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__("steps need each other: " + " -> ".join(names))
        self.names = tuple(names)


@dataclass
class TranslatedStep:
    """A step or loop on its way to the native document.

    `at` is where it is written, `native` what it becomes, `places` where the parts of that come
    from (native paths inside it to paths in the text), `needs` what comes first, in the order of
    mention, `exposed` steps of loops' children, `uses_last` whether it names the loop that ended
    last.
    """

    name: str
    at: Path
    loops: bool = False
    native: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Path] = field(default_factory=dict)
    needs: dict[str, None] = field(default_factory=dict)
    exposed: dict[tuple[str, str], Path] = field(default_factory=dict)
    uses_last: bool = False


def written_order(source: Source) -> Iterator[Path]:
    """Iterate over the places of steps and loops, block by block as they are written."""
    for stage in source.stages:
        for index in range(stage.start, stage.end):
            yield (stage.key, index)


def in_order(elements: Sequence[TranslatedStep]) -> list[TranslatedStep]:
    """Return elements in the order in which they run.

    Raises:
        DependencyCycle: if some need each other.
    """
    names = {element.name for element in elements}
    missing = [sum(name in names for name in element.needs) for element in elements]
    waiting: dict[str, list[int]] = {name: [] for name in names}
    for i, element in enumerate(elements):
        for name in element.needs:
            waiting.get(name, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]  # ascending, and so a heap
    order: list[int] = []
    while ready:
        chosen = heapq.heappop(ready)
        order.append(chosen)
        for i in waiting[elements[chosen].name]:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)
    if len(order) < len(elements):
        raise DependencyCycle(
            _circle([element for i, element in enumerate(elements) if missing[i]])
        )
    return [elements[i] for i in order]


def _circle(left: Sequence[TranslatedStep]) -> list[str]:
    needs = {element.name: element.needs for element in left}
    path = [left[0].name]
    while True:
        following = next(name for name in needs[path[-1]] if name in needs)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
