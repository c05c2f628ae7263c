"""Remarks on documents as they are shown: the same one at many places once, with how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...errors import Problem

__all__ = ["once"]


def once(found: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each remark on a file at its first place, with the number of places where there are several."""
    places: dict[tuple[str, str], dict[Problem, None]] = {}
    for problem in found:
        places.setdefault((problem.file, problem.message), {})[problem] = None
    shown = []
    for same in places.values():
        first = next(iter(same))
        more = f" ({len(same)} times in this file)" if len(same) > 1 else ""
        shown.append(replace(first, message=first.message + more))
    return tuple(shown)
