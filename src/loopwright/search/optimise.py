"""The parameters of a loop by an optimiser: what it declares, and the proposals of one run.

1. Proposals are recorded. An optimiser is told the record, in its order, so that it is the same after a kill.
2. All optimisers of a loop share the record: each is told what the others found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from .._extras import require
from ..engine.plan import Plan
from ..engine.step import FunctionStep, digest_of
from ..errors import ConfigurationError, ReplayMismatch, StepError, nearest
from ..records import Candidate, Iteration, codec
from ..records.codec import Json
from ..records.typed import Value
from .optimisers import OPTIMISERS, Evolution, Parameters, Study, Trial
from .space import Parameter, space_of

if TYPE_CHECKING:
    from ..engine.iteration import Attempt
    from ..engine.loop import LoopRun
    from ..engine.loop_options import LoopOptions

__all__ = ["Optimise", "Proposals"]

TRIES = 10  # at proposals that were not evaluated before


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
        reuse: whether another proposal takes the place of one that was evaluated before. The optimiser takes that
            evaluation from the record. Default: False.

    Raises:
        ConfigurationError: for an unknown word, or a range without values; names the parameter. Without the extra
            `optimise`, which brings the libraries.

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
        require("optimise", "optimise")
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
    def fingerprint(self) -> str:
        """A digest of the options. It is that of a note: limits on the number of effects do not count proposals."""
        options = codec.canonical([self.space, self.by, self.startup, self.reuse])
        return f"note.{digest_of('optimise', options)}"

    def strategies_of(self, loop: LoopOptions[Any, Any]) -> Mapping[str, Json] | None:
        """Return the strategies of a loop with this optimiser: its names, if there are several.

        Raises:
            ConfigurationError: for options that contradict it.
        """
        why = ""
        if loop.adapt is not None:
            why = "it takes the place of adapt; remove one of the two"
        elif len(self.by) > 1 and loop.strategies is not None:
            why = "its names are the strategies of the loop; remove strategies"
        elif len(self.by) > 1 and loop.on_stall is None:
            why = f"only a stall hands over from {self.by[0]} to {self.by[1]}; add on_stall"
        if why:
            raise ConfigurationError(f"loop {loop.name}: optimise: {why}", option="optimise")
        return {name: name for name in self.by} if len(self.by) > 1 else loop.strategies

    def begin(self, loop_run: LoopRun) -> Proposals:
        """Return the proposals of one run of a loop."""
        return Proposals(self, loop_run.run_state.log.info.seed, loop_run.path)


class Proposals:
    """The proposals of one run of a loop.

    Args:
        optimise: what the loop declares.
        seed: that of the run.
        path: that of the loop.
    """

    def __init__(self, optimise: Optimise, seed: int, path: str) -> None:
        self.optimise, self.seed, self.path = optimise, seed, path
        self.proposed: dict[int, Sequence[Parameters]] = {}  # by iteration
        self.chosen: dict[int, Parameters] = {}
        self.trials: list[Trial] = []
        self.known: dict[str, float] = {}  # values by parameters
        self.heard = 0  # iterations of the history that were told
        self.study: Study | None = None
        self.evolution: tuple[int, Evolution] | None = None  # with its chain
        self.asked = 0  # the latest iteration whose points the evolution has

    async def inputs(self, loop_run: LoopRun, attempt: Attempt, count: int) -> list[Json]:
        """Return the input of each candidate of the iteration that began: that of the loop with its parameters.

        Raises:
            StepError: if the input of the loop is not an object, or a proposal is outside of the space.
            ReplayMismatch: if the optimiser would have proposed other parameters before.
        """
        scope, replay = loop_run.scope, loop_run.run_state.replay
        given = scope.initial if scope.initial is not None else {}
        if not isinstance(given, Mapping):
            raise StepError(
                f"optimise: the input of the loop is {given!r:.40}; the parameters need an object, or nothing",
                path=attempt.ctx.path,
                kind="bad_input",
                retryable=False,
            )
        for item in loop_run.history[self.heard :]:
            proposed = self.proposed.get(item.number)
            if proposed is None and replay is not None:
                entry = replay.finished.get(f"{self.path}/{item.number}/propose")
                proposed = None if entry is None else entry.value
            if proposed:
                rows: Sequence[Candidate | Iteration] = item.candidates or (item,)
                told = [_trial(of, row, loop_run) for of, row in zip(proposed, rows, strict=False)]
                told += [Trial(of, None) for of in proposed[len(rows) :]]
                plan = Plan(item.continues_from, item.chain, item.strategy)
                self.tell(item.number, plan, told, item.candidate or 1)
        self.heard = len(loop_run.history)
        last = loop_run.history.last
        plan = Plan(0 if last is None else last.number) if scope.place is None else scope.place.plan
        step = FunctionStep(
            lambda size: self.propose(scope.number, plan, size),
            name="propose",
            inline=True,
            fingerprint=self.optimise.fingerprint,
        )
        found = await attempt.call(attempt.ctx, "propose", step, count)
        self.proposed[scope.number] = found
        return [{**given, **parameters} for parameters in found]

    def tell(self, number: int, plan: Plan, told: Sequence[Trial], chosen: int = 1) -> None:
        """Tell the results of a recorded iteration; the next one follows it.

        Args:
            number: the iteration.
            plan: its plan.
            told: its proposals with their results.
            chosen: the number of its chosen candidate.

        Raises:
            ReplayMismatch: if the optimiser would propose other parameters for it.
        """
        if self._by(plan) == "cma":
            # Its state is that of its own points, so that another process asks for them again.
            proposed = [trial.parameters for trial in told]
            path = f"{self.path}/{number}/propose"
            if (
                self.asked != number
                and (again := self.propose(number, plan, len(told))) != proposed
            ):
                raise ReplayMismatch(
                    f"{path}: cma proposes other parameters than it did; resume with the space and with the "
                    "versions of cma and numpy of then, or rewind to before it",
                    path=path,
                    recorded=codec.digest(proposed),
                    now=codec.digest(again),
                )
            assert self.evolution is not None
            self.evolution[1].tell([trial.value for trial in told])
        self.trials += told
        if self.optimise.reuse:
            for parameters, value, _ in told:
                if value is not None:
                    self.known[codec.canonical(parameters)] = value
        if chosen <= len(told):
            self.chosen[number] = told[chosen - 1].parameters

    def propose(self, number: int, plan: Plan, count: int) -> list[dict[str, Json]]:
        """Return the parameters for each candidate of the next iteration.

        Raises:
            StepError: of kind `bad_proposal` for one outside of the space.
        """
        by, space = self._by(plan), self.optimise.parameters
        random = Random(f"{self.seed} {self.path}/{number}/propose")
        optimiser: Study | Evolution
        if by == "cma":
            if self.evolution is None or self.evolution[0] != plan.chain:
                start = self.chosen.get(plan.parent)
                self.evolution = plan.chain, Evolution(space, start, self.trials, count, random)
            optimiser, self.asked = self.evolution[1], number
        else:
            self.study = optimiser = self.study or Study(space, self.optimise.startup)
            self.study.tell(self.trials)
        proposed: list[dict[str, Json]] = []
        for left in reversed(range(TRIES)):
            # A sampler that goes on with what it knows does not leave it.
            of = by if left >= TRIES // 2 else "random"
            for parameters in optimiser.ask(of, count - len(proposed), random):
                value = self.known.get(codec.canonical(parameters)) if left else None
                optimiser.take(value)
                if value is None:
                    proposed.append(parameters)
            if len(proposed) == count:
                break
        for parameters in proposed:
            for name, item in space.items():
                item.check(parameters[name])
        return proposed

    def _by(self, plan: Plan) -> str:
        return plan.strategy if len(self.optimise.by) > 1 else self.optimise.by[0]


def _trial(parameters: Parameters, row: Candidate | Iteration, loop_run: LoopRun) -> Trial:
    """Return what an optimiser is told of a candidate."""
    judged = row if isinstance(row, Candidate) else row.evaluation
    metrics, ended = loop_run.loop.measured, getattr(row, "state", "") not in ("stopped", "skipped")
    if judged is None or row.error is not None or not ended:
        return Trial(parameters, None)
    if metrics is not None and metrics.objective:
        rank = metrics.rank(judged.metrics)
        # A measurement without a value and without an error was stopped early, or its command failed.
        return Trial(parameters, None if rank is None else -rank, pruned=rank is None)
    score = judged.passed if judged.score is None else judged.score
    return Trial(parameters, None if score is None else -float(score))
