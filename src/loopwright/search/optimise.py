"""The parameters of a loop by an optimiser: what it declares, and the proposals of one run.

1. Proposals are recorded. An optimiser is told the record, in its order, so that it is the same after a kill.
2. All optimisers of a loop share the record: each is told what the others found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ..errors import ConfigurationError, ReplayMismatch, nearest
from ..records import codec
from ..records.codec import Json
from ..records.typed import Value
from .optimisers import OPTIMISERS, Evolution, Study, Trial
from .space import Parameter, space_of

__all__ = ["Optimise", "Proposals", "Start"]


@dataclass(frozen=True, eq=False, repr=False)
class Optimise(Value):
    """An optimiser that proposes the parameters of each candidate of a loop, in place of `adapt`.

    A proposal is merged into the input of the loop, which is an object or None. The optimiser sees the objective of
    the loop, else the score, else the verdict.

    Args:
        space: the parameters by name: `{"float": [low, high]}`, `{"int": [low, high]}`, each with `"log": True` for a
            logarithmic scale, or `{"choice": [value, …]}`.
        by: `random`, `tpe` or `nsga2` of Optuna, or `cma`, which needs two numbers or more and knows no choice. Several
            are the strategies of the loop: a stall hands over to the next one. Default: `tpe`.
        startup: the evaluated proposals before `tpe` models them, at least 1. Until then it draws. Default: 10.
        reuse: whether a proposal that was evaluated before takes its output and evaluation from the record. Default:
            False.

    Raises:
        ConfigurationError: for an unknown word, or a range without values; names the parameter.

    Example:
        >>> Optimise({"x": {"float": [0.0, 1.0]}, "act": {"choice": ["relu", "gelu"]}}).by
        ('tpe',)
    """

    space: Mapping[str, Json]
    by: str | Sequence[str] = ("tpe",)
    startup: int = 10
    reuse: bool = False
    parameters: Mapping[str, Parameter] = field(init=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "parameters", space_of(self.space))
        set_(self, "by", (self.by,) if isinstance(self.by, str) else tuple(self.by))
        codec.integer("optimise: startup", self.startup, minimum=1)
        if not isinstance(self.reuse, bool):
            raise ConfigurationError(f"optimise: reuse: {self.reuse!r} is not true or false")
        for name in self.by:
            if name not in OPTIMISERS:
                raise ConfigurationError(
                    f"optimise: by: {name!r} is none of {', '.join(OPTIMISERS)}{nearest(str(name), OPTIMISERS)}"
                )
        if not self.by or len(set(self.by)) < len(self.by):
            raise ConfigurationError("optimise: by: name at least one optimiser, and each once")
        choices = [name for name, item in self.parameters.items() if item.choices]
        if "cma" in self.by and (choices or len(self.parameters) < 2):
            why = f"{choices[0]} is a choice" if choices else "there is one"
            raise ConfigurationError(
                f"optimise: by: cma needs two numbers or more, and {why}; use tpe for this space"
            )

    @property
    def written(self) -> str:
        """The options as text, for the fingerprint."""
        return codec.canonical([self.space, self.by, self.startup, self.reuse])


@dataclass(frozen=True)
class Start:
    """What the plan of an iteration says to its optimiser.

    Args:
        number: the number of the iteration.
        chain: that of its chain.
        strategy: the name of its optimiser; "" for the only one.
        parent: the iteration that it continues from, with its chosen candidate; None from the beginning.
    """

    number: int
    chain: int = 1
    strategy: str = ""
    parent: tuple[int, int] | None = None


class Proposals:
    """The proposals of one run of a loop.

    Args:
        optimise: what the loop declares.
        draw: returns the random numbers of an iteration, the same in each process.
    """

    def __init__(self, optimise: Optimise, draw: Callable[[int], Random]) -> None:
        self.optimise = optimise
        self.draw = draw
        self.proposed: dict[int, Sequence[Mapping[str, Json]]] = {}
        self.trials: list[Trial] = []
        self.study: Study | None = None
        self.told = 0  # trials that the study knows
        self.evolution: tuple[int, Evolution] | None = None  # with its chain
        self.asked = 0  # the latest iteration whose points the evolution has

    def tell(
        self,
        start: Start,
        proposed: Sequence[Mapping[str, Json]],
        results: Sequence[tuple[float | None, Mapping[int, float] | None]],
    ) -> None:
        """Tell the results of a recorded iteration; the next one follows it.

        Args:
            start: its plan.
            proposed: its recorded proposals.
            results: for each of them its value, smaller is better, or None if it has none; and the curve of one that
                was stopped early.

        Raises:
            ReplayMismatch: if the optimiser would propose other parameters for it.
        """
        self.proposed[start.number] = proposed
        self.trials += [Trial(of, *result) for of, result in zip(proposed, results, strict=True)]
        if self._by(start) != "cma":
            return
        # Its state is that of its own points, so that another process asks for them again.
        if self.asked != start.number:
            again, path = self._evolve(start, len(proposed)), f"{start.number}/propose"
            if again != list(proposed):
                raise ReplayMismatch(
                    f"{path}: cma proposes other parameters than it did; resume with the versions of cma and numpy "
                    "of then, or rewind to before it",
                    path=path,
                    recorded=codec.digest(list(proposed)),
                    now=codec.digest(again),
                )
        assert self.evolution is not None
        self.evolution[1].tell([value for value, _ in results])

    def propose(self, start: Start, count: int) -> list[dict[str, Json]]:
        """Return the parameters for each candidate of the next iteration.

        Raises:
            StepError: of kind `bad_proposal` for one outside of the space.
        """
        by, space = self._by(start), self.optimise.parameters
        if by == "cma":
            proposed = self._evolve(start, count)
        else:
            self.study = self.study or Study(space, self.optimise.startup)
            for trial in self.trials[self.told :]:
                self.study.tell(trial)
            self.told = len(self.trials)
            proposed = self.study.ask(by, count, self.draw(start.number))
        for parameters in proposed:
            for name, item in space.items():
                item.check(parameters[name])
        return proposed

    def _by(self, start: Start) -> str:
        return start.strategy or self.optimise.by[0]

    def _evolve(self, start: Start, count: int) -> list[dict[str, Json]]:
        random = self.draw(start.number)
        if self.evolution is None or self.evolution[0] != start.chain:
            point = None
            if start.parent is not None:
                number, candidate = start.parent
                point = self.proposed[number][candidate - 1]
            made = Evolution(self.optimise.parameters, point, count, random)
            self.evolution = start.chain, made
        self.asked = start.number
        return self.evolution[1].ask(count, random)
