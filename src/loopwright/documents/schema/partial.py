"""A document that is wrong in places, as far as it can be read: so that all its problems are found at once.

Rules:

1. A step with a wrong field is left out: an empty loop of its name stands at its place, so that the
   others keep their places, and what they name of it is known.
2. What is left out never makes another problem: `Gaps` says what may have been supplied by it.
3. What has no steps that can be read, or is of another version, is not looked into.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import regex
from pydantic import BaseModel

from ...errors import Problem
from ..yaml.reader import Path, Source
from .validate import Hint, checked, no_hint

__all__ = ["NOTHING_LEFT_OUT", "Gaps", "Kind", "placeholder", "readable"]

_NAME = regex.compile(r"[\p{L}_][\p{L}\p{M}\p{N}_. -]{0,63}")  # as `fields.Identifier` has it
_NAMED = ("tools", "servers", "prices")  # whose entries are left out one by one


@dataclass(frozen=True)
class Gaps:
    """What is left out of a document: `steps` by their paths, and what they and the head may have supplied.

    `names` says that a step has no name that can be read, `head` that a key of the document itself
    is wrong, which may have named the model or the tools; `tools` are those that are left out.
    """

    steps: frozenset[Path] = frozenset()
    names: bool = False
    head: bool = False
    tools: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.steps or self.names or self.head or self.tools)


NOTHING_LEFT_OUT = Gaps()


@dataclass(frozen=True)
class Kind:
    """A kind of document: the lists of its steps, what must be in its head, and what stands for a step."""

    model: type[BaseModel]
    lists: frozenset[str]
    head: Mapping[str, Any]
    stand_in: Callable[[str, str, Any], Any]
    version: str
    hint: Hint = field(default=no_hint)


def placeholder(name: str) -> dict[str, Any]:
    """Return a step that supplies whatever a step of that name could."""
    return {"name": name, "loop": {"execute": {"set": None}, "max_iterations": 1}}


def readable(kind: Kind, value: Any, source: Source) -> tuple[Any, list[Problem], Gaps]:
    """Return a document, what is wrong in it, and what is left out of it; None if nothing can be read."""
    made, wrong = checked(kind.model, value, source, (), kind.hint)
    if not wrong:
        return made, [], NOTHING_LEFT_OUT
    problems = list(wrong.values())
    paths = list(dict.fromkeys(path for path, _ in wrong))
    whole = not any(path[:1] == (kind.version,) for path in paths)
    rest = {**copy.deepcopy(value)} if whole else {}
    gaps = NOTHING_LEFT_OUT
    for path in paths if whole else ():
        gaps = _leave_out(kind, rest, path, gaps)
    rest = {**kind.head, **rest}
    made, more = checked(kind.model, rest, source, (), kind.hint) if whole else (None, {})
    return (None if more else made), problems, gaps


def _leave_out(kind: Kind, value: dict[str, Any], path: Path, gaps: Gaps) -> Gaps:
    """Take what is wrong out of a document: the step around it, or a part of its head."""
    end = _end_of_step(kind, path)
    if end:
        return _leave_step_out(kind, value, path[:end], gaps)
    if not path:
        return replace(gaps, head=True)
    key = str(path[0])
    inner = value.get(key)
    if key in _NAMED and len(path) > 1 and isinstance(inner, dict):
        inner.pop(path[1], None)
        return replace(gaps, tools=gaps.tools | {str(path[1])})
    value.pop(key, None)
    return replace(gaps, head=True)


def _end_of_step(kind: Kind, path: Path) -> int:
    """Return where the path of the innermost step on a path ends; 0 if there is none."""
    ends = (n for n in range(len(path), 1, -1) if isinstance(path[n - 1], int))
    return next((n for n in ends if path[n - 2] in kind.lists), 0)


def _leave_step_out(kind: Kind, value: dict[str, Any], at: Path, gaps: Gaps) -> Gaps:
    around: Any = value
    for part in at[:-1]:
        try:
            around = around[part]
        except (KeyError, IndexError, TypeError):
            return gaps  # the step around it is left out already
    index = int(at[-1])
    if not isinstance(around, list) or index >= len(around):
        return gaps
    raw = around[index]
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        name = f"step {index + 1}"
        gaps = replace(gaps, names=True)
    around[index] = kind.stand_in(str(at[-2]), name, raw)
    return replace(gaps, steps=gaps.steps | {at})
