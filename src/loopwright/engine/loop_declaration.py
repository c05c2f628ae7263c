"""The interface of a declared loop to its run: its stages, its limits and its decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from ..conditions import Budget, Condition
from ..records import Evaluation, History, Iteration, Result, Stop
from ..records.typed import ValueType
from .loop_stalls import OnStall
from .loop_verdicts import Undecided
from .objectives import LoopMetrics
from .step import Step

__all__ = ["LoopDeclaration"]


class LoopDeclaration(Protocol):
    """The members of a loop that its run uses; `Loop` explains them."""

    # A protocol, so that `loop_run` does not import `loop`, and lists of documents can be loops too.

    @property
    def name(self) -> str: ...

    @property
    def execute(self) -> Step: ...

    @property
    def evaluate(self) -> Step | None: ...

    @property
    def sentences(self) -> Mapping[str, Step]: ...

    @property
    def adapt(self) -> Step | None: ...

    @property
    def keep(self) -> str: ...

    @property
    def rejudge(self) -> int: ...

    @property
    def baseline(self) -> bool: ...

    @property
    def on_stall(self) -> OnStall | None: ...

    @property
    def measured(self) -> LoopMetrics | None: ...

    @property
    def undecided(self) -> Undecided: ...

    @property
    def explore(self) -> float: ...

    @property
    def approve(self) -> str | Sequence[str]: ...

    @property
    def on_iteration(self) -> Callable[[Iteration], object] | None: ...

    @property
    def on_terminate(self) -> Callable[[Result], object] | None: ...

    @property
    def input_type(self) -> ValueType | None: ...

    @property
    def output_type(self) -> ValueType | None: ...

    @property
    def iteration_types(self) -> tuple[ValueType | None, ValueType | None]: ...

    @property
    def limit(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def wall(self) -> float: ...

    @property
    def budget(self) -> Budget | None: ...

    @property
    def unbound(self) -> str: ...

    @property
    def plain(self) -> bool: ...

    @property
    def members(self) -> tuple[Condition, ...]: ...

    @property
    def watched(self) -> tuple[Condition, ...]: ...

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop ends after the latest record, or None."""

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return the limit or the failure that ends a loop that explores, or None."""

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether the evaluation before the first iteration satisfies the loop."""

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return how the loop ends."""

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over the remarks on an ended loop, as `Loop.remarks` does."""
