"""The variables of one loop or workflow while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..records import Evaluation, History, Result
from ..records.codec import Json
from ..records.typed import ValueType
from .snapshots import Snapshots

__all__ = ["Scope"]

_UNBEGUN = History()  # of a scope before its first iteration
_NOTHING_YET: Mapping[str, Json] = MappingProxyType({})

_UNTYPED: tuple[ValueType | None, ValueType | None] = (None, None)


class Scope:
    """The variables of one loop or workflow under its name. A child never changes those of its parent."""

    __slots__ = (
        "baseline",
        "chain",
        "current",
        "files",
        "history",
        "initial",
        "loops",
        "members",
        "name",
        "number",
        "outputs",
        "parent",
        "parts",
        "path",
        "prepared",
        "restarts",
        "results",
        "talks",
        "total",
        "types",
        "variables",
    )

    def __init__(self, name: str, initial: Json, parent: Scope | None, path: str = "") -> None:
        self.name = name
        self.path = path
        # Conversations that continue from one iteration to the next.
        self.talks: dict[str, Any] | None = None
        self.parent = parent
        self.initial = initial
        self.current = initial
        # The snapshots of the workspace that its steps run in; None without one.
        self.files: Snapshots | None = None if parent is None else parent.files
        self.number = 0
        self.baseline: Evaluation | None = None  # of the input, before the first iteration
        self.restarts = 0  # of a loop that stalled
        # What the preparations of the evaluator returned, by their fingerprints.
        self.prepared: Mapping[str, Json] = _NOTHING_YET
        self.chain = 0  # how often its files were put back to those of an earlier iteration
        self.total = 0  # items, if it runs over a list
        # Outputs of steps, for the record of the current iteration.
        self.parts: Mapping[str, Json] | None = None
        self.history = _UNBEGUN
        # Read-only until `keep` replaces them: most scopes are loops', which have neither.
        self.outputs: Mapping[str, Json] = _NOTHING_YET
        self.types = _UNTYPED  # of the input and the output of a loop's iterations
        self.members: Mapping[str, object] = _NOTHING_YET  # the steps of a workflow by name
        self.results: Mapping[str, Result] = _NOTHING_YET
        self.loops: Mapping[str, Result] = _NOTHING_YET  # in the order of their ends
        # Variables of a document, which has no access to those outside it.
        self.variables: dict[str, Json] | None = None

    def keep(self, name: str, result: Result) -> None:
        """Show the result of a step under its name."""
        # Replaced, not changed: steps that run at the same time may be reading them.
        self.results = {**self.results, name: result}
        self.outputs = {**self.outputs, name: result.output}

    def keep_loop(self, name: str, result: Result) -> None:
        """Show how a loop ended, under its name, after the loops that ended before it."""
        others = {key: other for key, other in self.loops.items() if key != name}
        self.loops = {**others, name: result}
