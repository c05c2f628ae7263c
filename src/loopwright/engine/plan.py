"""From where the next iteration of a loop continues: its parent, its chain and its strategy.

The plan is a pure function of the recorded iterations, the policies of the loop and a seed. It is made when an
iteration begins, recorded, and taken from the record in a replay. `Place` is what the iteration sees because of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conditions import NoImprovement, OnStall, progress
from ..errors import ConfigurationError, nearest
from ..records import History, Iteration, latest_kept, undominated
from ..records.codec import Json, normalise, number
from ..records.typed import Value
from .step import Step, as_step

if TYPE_CHECKING:
    from .loop_options import LoopOptions

__all__ = [
    "Place",
    "Plan",
    "Policies",
    "RefineFrom",
    "next_plan",
    "policies_of",
]

RULES = ("last", "best", "sample", "pareto")
_DRAWN = ("sample", "pareto")
_SETTINGS = {"power": 1.0, "fresh_share": 0.15}  # of `sample`


@dataclass(frozen=True, eq=False, repr=False)
class RefineFrom(Value):
    """The rule for the parent of an iteration.

    Args:
        rule: `last` is the last iteration of the chain, `best` its best one, where it starts included. `sample`
            draws one of all eligible iterations, better ones and those with fewer children more often. `pareto`
            draws one of those that no other one is better than in every case or objective.
        power: Of `sample`, how much more often better ones are drawn: rank ** -power.
        fresh_share: Of `sample`, the share of iterations that start from the beginning.

    Raises:
        ConfigurationError: For an unknown word, or a number out of range.
    """

    rule: str = "last"
    power: float = _SETTINGS["power"]
    fresh_share: float = _SETTINGS["fresh_share"]

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ConfigurationError(
                f"refine_from: {self.rule!r} is none of {', '.join(RULES)}{nearest(str(self.rule), RULES)}",
                option="refine_from",
            )
        number("refine_from: power", self.power, minimum=0)
        number("refine_from: fresh_share", self.fresh_share, minimum=0, maximum=1)
        for name, default in _SETTINGS.items():
            if self.rule != "sample" and getattr(self, name) != default:
                raise ConfigurationError(
                    f"refine_from: {name} is of the rule sample, and the rule is {self.rule}; remove it",
                    option="refine_from",
                )

    @classmethod
    def of(cls, value: object) -> RefineFrom:
        """Return the rule that a loop declares: a word, or a mapping.

        Raises:
            ConfigurationError: for anything else.
        """
        if isinstance(value, RefineFrom):
            return value
        fields = value if isinstance(value, Mapping) else {"rule": value}
        if "rule" not in fields or not fields.keys() <= {"rule", *_SETTINGS}:
            raise ConfigurationError(
                f"refine_from: {value!r:.80} is no rule; use a word, or {{'rule': 'sample', 'power': 1.0}}"
            )
        return cls(**{str(key): item for key, item in fields.items()})  # type: ignore[arg-type]

    @property
    def draws(self) -> bool:
        """Whether it draws a parent from all chains."""
        return self.rule in _DRAWN


@dataclass(frozen=True, eq=False, repr=False)
class Policies(Value):
    """What a loop declares about stalls, parents and strategies.

    Args:
        on_stall: What happens after a stall, or None.
        refine_from: The rule for the parent.
        strategies: Values by name; each new chain takes the next one.
    """

    on_stall: OnStall | None = None
    refine_from: RefineFrom = RefineFrom()
    strategies: Mapping[str, Json] | None = None

    def ordered(self, names: Sequence[str] | None) -> Policies:
        """Return them with the strategies in another order."""
        if names is None or self.strategies is None:
            return self
        return replace(self, strategies={name: self.strategies[name] for name in names})

    def strategy(self, chain: int) -> str:
        """Return the name of the strategy of a chain, or ""."""
        names = list(self.strategies or ())
        return names[(chain - 1) % len(names)] if names else ""


def policies_of(loop: LoopOptions[Any, Any]) -> Policies:
    """Return what a loop declares, checked against its other options.

    Raises:
        ConfigurationError: for options that contradict each other.
    """
    stall, strategies = loop.on_stall, loop.strategies
    # With `confirm`, another rule is refused before.
    rule = RefineFrom.of(loop.refine_from or ("last" if loop.confirm is None else "best"))
    if strategies is None and loop.strategy_order == "learned":
        raise _wrong(loop, "strategy_order", "there are no strategies to order; add strategies")
    if strategies is not None:
        if not isinstance(strategies, Mapping) or not strategies:
            raise _wrong(
                loop, "strategies", f"{strategies!r:.60} is no mapping; use values by name"
            )
        if stall is None:
            raise _wrong(
                loop,
                "strategies",
                "each new chain takes the next one, and only a stall begins a chain; add on_stall",
            )
        strategies = normalise(dict(strategies), what="strategies")
    if rule.draws and stall is not None and stall.then not in ("ask", "stop"):
        raise _wrong(
            loop,
            "on_stall",
            f"refine_from: {rule.rule} draws from all chains, so then: {stall.then} cannot say where one begins; use ask or stop",
        )
    if rule.rule == "pareto" and not _compares(loop):
        raise _wrong(
            loop,
            "refine_from",
            "pareto needs several values of an iteration; use a data set as evaluator, or several objectives",
        )
    if stall is None:
        return Policies(None, rule, strategies)
    objective = loop.measured is not None and loop.measured.objective
    if stall.min_delta and objective:
        raise _wrong(
            loop, "on_stall", f"min_delta: the one of the metric {objective} counts; write it there"
        )
    for one in () if loop.replayed else loop.members:
        if isinstance(one, NoImprovement) and one.patience <= stall.patience:
            raise _wrong(
                loop,
                "until",
                f"no_improvement: a patience of {one.patience} ends the loop before on_stall has an effect, after "
                f"{stall.patience} iterations; use more than {stall.patience}",
            )
    return Policies(stall, rule, strategies)


def _wrong(loop: LoopOptions[Any, Any], option: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"loop {loop.name}: {option}: {why}", option=option)


def _compares(loop: LoopOptions[Any, Any]) -> bool:
    """Return whether the iterations of a loop have several values: cases, or several objectives."""
    if loop.measured is not None and len(loop.measured.objectives) > 1:
        return True
    return loop.evaluate is not None and _has_cases(as_step(loop.evaluate))


def _has_cases(step: Step) -> bool:
    return getattr(step, "has_cases", False) or any(map(_has_cases, step.parts()))


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Value):
    """The plan of one iteration.

    Args:
        parent: The number of the iteration that it continues from; 0 is the beginning.
        chain: The number of its chain.
        strategy: The name of its strategy, or "".
        why: Why it does not continue from the iteration before, in words, or "".
        drawn: What was drawn, or None.
    """

    parent: int = 0
    chain: int = 1
    strategy: str = ""
    why: str = ""
    drawn: Json = None

    def to_json(self) -> dict[str, Json]:
        """Return the plan as a JSON object."""
        data: dict[str, Json] = {"parent": self.parent, "chain": self.chain}
        return data | {k: v for k in ("strategy", "why", "drawn") if (v := getattr(self, k))}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Plan:
        """Return the plan that `to_json` wrote; the entry of the first one has the baseline too."""
        return cls(**{key: value for key, value in data.items() if key != "baseline"})

    def recorded(self, item: Iteration) -> Iteration:
        """Return the record of the planned iteration, with what the plan says."""
        parent = None if self.parent == item.number - 1 else self.parent
        return replace(item, parent=parent, chain=self.chain, strategy=self.strategy)


def next_plan(history: History, policies: Policies, seed: str, *, explored: bool = False) -> Plan:
    """Return the plan of the iteration that follows a history.

    Args:
        history: the recorded iterations.
        policies: what the loop declares.
        seed: the seed of what is drawn: that of the run, and the path of the plan.
        explored: whether the loop has ended and goes on to explore, in its present chain.

    Example:
        >>> from loopwright.records import Evaluation, Iteration
        >>> scores = enumerate((0.5, 0.4, 0.3), start=1)
        >>> history = History(Iteration(n, evaluation=Evaluation(score)) for n, score in scores)
        >>> plan = next_plan(history, Policies(OnStall("best")), "1 refine/4/plan")
        >>> plan.parent, plan.chain, plan.why
        (1, 2, '2 iterations without progress')
    """
    last = history.last
    if last is None:
        return Plan(strategy=policies.strategy(1))
    stall, rule = policies.on_stall, policies.refine_from
    limits = (1, 0.0) if stall is None else (stall.patience, stall.min_delta)
    found = progress(history, *limits)
    anew = 1 + max(item.chain for item in history)
    if stall is not None and not explored and found.stalled(history):
        start = {"last": latest_kept(history), "fresh": None}.get(stall.then, history.best)
        why = f"{stall.patience} iterations without progress"
        parent = 0 if start is None else start.number
        return Plan(parent, anew, policies.strategy(anew), why)
    if rule.draws and (eligible := [item for item in history if item.eligible]):
        return _drawn(history, eligible, policies, anew, Random(seed))
    own = [item for item in history if item.chain == last.chain]
    if rule.rule == "best":
        parent = found.references[last.chain]
    else:
        kept = latest_kept(own)
        parent = own[0].continues_from if kept is None else kept.number
    why = "" if parent == last.number else f"iteration {last.number} is not the best of its chain"
    if why and last.rejected:
        why = f"iteration {last.number} was rejected"
    return Plan(parent, last.chain, last.strategy or policies.strategy(last.chain), why)


def _drawn(
    history: History, eligible: Sequence[Iteration], policies: Policies, anew: int, random: Random
) -> Plan:
    """Return a plan with a parent that is drawn from the eligible iterations."""
    rule = policies.refine_from
    if rule.rule == "sample":
        if random.random() < rule.fresh_share:
            return Plan(
                0, anew, policies.strategy(anew), "a fresh start was drawn", {"fresh": True}
            )
        children: dict[int, int] = {}
        for item in history:
            children[item.continues_from] = children.get(item.continues_from, 0) + 1
        ordered = sorted(
            eligible,
            key=lambda item: (item.standing is None, -(item.standing or 0.0), item.number),
        )
        weights = [
            place**-rule.power / (1 + children.get(item.number, 0))
            for place, item in enumerate(ordered, start=1)
        ]
    else:
        ordered, weights = _front(eligible)
    chosen = random.choices(range(len(ordered)), weights)[0]
    parent = ordered[chosen]
    share = round(weights[chosen] / sum(weights), 6)
    drawn = {"place": chosen + 1, "of": len(ordered), "share": share}
    strategy = parent.strategy or policies.strategy(parent.chain)
    return Plan(parent.number, parent.chain, strategy, f"drawn by {rule.rule}", drawn)


def _front(items: Sequence[Iteration]) -> tuple[list[Iteration], list[float]]:
    """Return the items that no other one dominates, and on how many cases or objectives each is the best."""
    values = [values_of(item) for item in items]
    names = sorted({name for row in values for name in row})
    table = [[row.get(name, float("-inf")) for name in names] for row in values]
    front = undominated(table)
    best = [max(column) for column in zip(*(table[place] for place in front), strict=True)]
    wins = {place: sum(a == b for a, b in zip(table[place], best, strict=True)) for place in front}
    # Without any value, each is as good.
    kept = [place for place in front if wins[place]] or front
    return [items[place] for place in kept], [float(wins[place] or 1) for place in kept]


def values_of(item: Iteration) -> dict[str, float]:
    """Return the values in which an iteration is compared with others: of several objectives, else of its cases."""
    objectives = {one.name: one.rank for one in item.measures if one.objective}
    if len(objectives) > 1 or item.evaluation is None:
        return objectives
    cases: Json = item.evaluation.details.get("samples", {}).get("score")
    if isinstance(cases, Mapping):
        return dict(cases)
    return {one.name: float(one.passed) for one in item.evaluation.criteria}


class Place(NamedTuple):
    """What an iteration sees of the ones before, because of its plan.

    Args:
        plan: the plan.
        parent: the record that it continues from; None is the beginning.
        own: the iterations of its chain before it.
        line: the numbers of those whose conversation it continues.
        strategy: the value of its strategy.
    """

    plan: Plan
    parent: Iteration | None
    own: tuple[Iteration, ...]
    line: tuple[int, ...]
    strategy: Json

    @classmethod
    def of(cls, plan: Plan, history: History, policies: Policies) -> Place:
        """Return the place of the iteration that follows a history."""
        own = tuple(item for item in history if item.chain == plan.chain)
        line: list[int] = []
        for item in own:
            if not line or item.continues_from != line[-1]:
                line.clear()
            line.append(item.number)
        if not line or line[-1] != plan.parent:
            line.clear()
        parent = history[plan.parent - 1] if plan.parent else None
        strategy = (policies.strategies or {}).get(plan.strategy)
        return cls(plan, parent, own, tuple(line), strategy)

    @property
    def seen(self) -> tuple[Iteration, ...]:
        """The iterations whose outputs and feedback it sees: those of its chain, in its first one the parent."""
        return self.own or (() if self.parent is None else (self.parent,))

    @property
    def fresh(self) -> bool:
        """Whether it is the first iteration of a chain from the beginning."""
        return not self.own and self.parent is None
