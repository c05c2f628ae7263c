"""Optuna and cma behind one interface: they are told trials, and asked for parameters.

1. A proposal is a function of the trials that were told, in their order, and of the seed: nothing is kept by a clock,
   a global generator or a storage of theirs. So an optimiser that is built again from the record goes on equally.
2. Smaller values are better.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from ..records.codec import Json
from .space import Parameter

__all__ = ["OPTIMISERS", "Evolution", "Parameters", "Study", "Trial"]

OPTIMISERS = ("random", "tpe", "nsga2", "cma")
POPULATION = 50  # of nsga2, as Optuna has it
# The first step of cma, as a share of each range: at an unknown point, and at one that others found.
WIDE, NARROW = 0.3, 0.01

Parameters = Mapping[str, Json]


class Trial(NamedTuple):
    """One evaluated set of parameters; `value` is None if it failed, or was `pruned`: stopped early."""

    parameters: Parameters
    value: float | None
    pruned: bool = False


class Study:
    """The samplers of Optuna, on one study in memory."""

    def __init__(self, space: Mapping[str, Parameter], startup: int) -> None:
        import optuna

        self.optuna = optuna
        self.space = space
        self.startup = startup
        self.told = self.complete = 0  # trials that it knows, and those of them with a value
        self.generations = 1  # whose parents the study knows; the first one has none
        kinds = optuna.distributions
        make: dict[str, Any] = {"float": kinds.FloatDistribution, "int": kinds.IntDistribution}
        # A choice is its number, because Optuna takes only some values as choices.
        self.distributions: dict[str, Any] = {
            name: kinds.CategoricalDistribution(range(len(item.choices)))
            if item.choices
            else make[item.kind](item.low, item.high, log=item.log)
            for name, item in space.items()
        }
        logger = logging.getLogger("optuna")
        level = logger.level
        logger.setLevel(logging.WARNING)  # it writes a line about each new study
        try:
            self.study = optuna.create_study(direction="minimize")
        finally:
            logger.setLevel(level)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add those of all evaluated trials that the study does not know."""
        states = self.optuna.trial.TrialState
        for trial in trials[self.told :]:
            attributes = {}
            state = states.PRUNED if trial.pruned else states.FAIL
            if trial.value is not None:
                state = states.COMPLETE
                # The generation is otherwise that of the moment of asking, which only the asking process knows.
                attributes["NSGAIISampler:generation"] = self.complete // POPULATION
                self.complete += 1
            self.study.add_trial(
                self.optuna.trial.create_trial(
                    state=state,
                    value=trial.value,
                    params={
                        name: item.choices.index(trial.parameters[name])
                        if item.choices
                        else trial.parameters[name]
                        for name, item in self.space.items()
                    },
                    distributions=self.distributions,
                    system_attrs=attributes,
                )
            )
        self.told = len(trials)

    def take(self, value: float | None) -> None:
        """Take the value of a proposal that was evaluated before: the study knows it."""

    def ask(self, by: str, count: int, random: Random) -> list[dict[str, Json]]:
        """Return sets of parameters from a sampler."""
        samplers, seed = self.optuna.samplers, random.getrandbits(32)
        # A new sampler each time, because its random state is otherwise that of all its calls.
        if by == "tpe":
            self.study.sampler = samplers.TPESampler(n_startup_trials=self.startup, seed=seed)
        elif by == "nsga2":
            self.study.sampler = samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
            # The parents have another order when they are chosen than later, so they are chosen before.
            while self.generations <= self.complete // POPULATION:
                self.study.sampler.get_parent_population(self.study, self.generations)
                self.generations += 1
        else:
            self.study.sampler = samplers.RandomSampler(seed=seed)
        asked = [self.study.ask(self.distributions) for _ in range(count)]
        # A trial that runs keeps the next ones of this call away from it. Later its result comes as a trial of its own,
        # as it does after a resume; a failed one has no effect.
        for trial in asked:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        return [
            {
                name: item.choices[trial.params[name]] if item.choices else trial.params[name]
                for name, item in self.space.items()
            }
            for trial in asked
        ]


class Evolution:
    """The CMA-ES of cma, for one chain. A generation is several asks, until there are enough results."""

    def __init__(
        self,
        space: Mapping[str, Parameter],
        start: Parameters | None,
        trials: Sequence[Trial],
        count: int,
        random: Random,
    ) -> None:
        with warnings.catch_warnings(action="ignore"):
            import cma
        from numpy.random import RandomState

        self.space = space
        self.generator = RandomState
        self.points: list[Any] = []
        self.values: list[float | None] = []
        self.open: list[int] = []  # places of values that are not known yet
        point = [
            random.random() if start is None else item.position(start[name])
            for name, item in space.items()
        ]
        step = WIDE
        if start is not None:
            # The spread of the best trials around the start: what the others found says how far to look.
            known = sorted((t.value, nth) for nth, t in enumerate(trials) if t.value is not None)
            best = [trials[nth] for _, nth in known[: max(4, len(known) // 10)]]
            far = [
                (item.position(trial.parameters[name]) - place) ** 2
                for trial in best
                for (name, item), place in zip(space.items(), point, strict=True)
            ]
            step = min(max(math.sqrt(sum(far) / max(len(far), 1)), NARROW), WIDE)
        # Whole asks in a generation of the usual size.
        self.popsize = count * math.ceil((4 + int(3 * math.log(len(point)))) / count)
        options = {
            "bounds": [0, 1],
            "popsize": self.popsize,
            # Numbers of its own: by default it sets the seed of the whole process.
            "randn": lambda *shape: self.normal(*shape),
            # It prints nothing, and neither writes files nor reads any.
            "verbose": -9,
            "verb_log": 0,
            "signals_filename": "",
        }
        with warnings.catch_warnings(action="ignore"):
            self.strategy = cma.CMAEvolutionStrategy(point, step, options)

    def ask(self, by: str, count: int, random: Random) -> list[dict[str, Json]]:
        """Return sets of parameters from the present distribution; take the value of each afterwards."""
        self.normal = self.generator(random.getrandbits(32)).randn
        with warnings.catch_warnings(action="ignore"):
            points = self.strategy.ask(count)
        self.points += points
        return [
            {
                name: item.at(float(place))
                for (name, item), place in zip(self.space.items(), point, strict=True)
            }
            for point in points
        ]

    def take(self, value: float | None) -> None:
        """Take the value of the next point, if it was evaluated before."""
        self.values.append(value)
        if value is None:
            self.open.append(len(self.values) - 1)

    def tell(self, values: Sequence[float | None]) -> None:
        """Tell the values of the points that were not evaluated before, in their order."""
        for place, value in zip(self.open, values, strict=True):
            self.values[place] = value
        self.open = []
        if len(self.values) < self.popsize:
            return
        # Only the order counts, so that one without a value is the worst.
        worst = max((value for value in self.values if value is not None), default=0.0)
        worst += max(1.0, abs(worst))
        with warnings.catch_warnings(action="ignore"):
            self.strategy.tell(
                self.points, [worst if value is None else value for value in self.values]
            )
        self.points, self.values = [], []
