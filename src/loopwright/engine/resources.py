"""What a run is lent: its resources, and with them the memory of its journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..journal import Journal
from ..journal.open import open_memory

__all__ = ["RunResources", "redactor_of"]


class RunResources(Mapping[str, Any]):
    """The resources of a run; `memory` is the one that is given, by itself or by its URL, else the journal's.

    Nothing is loaded or opened before a step asks for it.
    """

    __slots__ = ("_given", "_memory", "_store", "opened")

    def __init__(self, given: Mapping[str, Any] | None, store: Journal | None) -> None:
        self._given = given or {}
        self._store = store
        self._memory: Any = None
        self.opened: Any = None  # the memory that was opened for this run, which closes it

    def __getitem__(self, name: str) -> Any:
        if name != "memory":
            return self._given[name]
        if self._memory is None:
            self._memory = self._found()
        if self._memory is None:
            raise KeyError(name)
        return self._memory

    def _found(self) -> Any:
        given = self._given.get("memory")
        if given is None:
            return getattr(self._store, "memory", None)
        if not isinstance(given, str):
            return given
        self.opened = open_memory(given)
        return self.opened

    def __iter__(self) -> Iterator[str]:
        own = ["memory"] if hasattr(self._store, "memory") else []
        return iter(dict.fromkeys([*self._given, *own]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True  # whether there are any is not worth loading them for


def redactor_of(resources: Mapping[str, Any]) -> Any:
    """Return what takes secrets out of all that a run records: its `redactor`, else that of its models.

    None where neither knows a secret: then nothing is looked for.
    """
    found = resources.get("redactor")
    if found is None:
        found = getattr(resources.get("models"), "redactor", None)
    return found or None
