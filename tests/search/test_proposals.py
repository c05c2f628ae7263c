"""Proposals of Optuna and cma: a function of the record and the seed, inside of the space."""

from __future__ import annotations

import random as random_module
import subprocess
import sys
from collections.abc import Collection
from typing import Any

import pytest

from loopwright._extras import EXTRAS
from loopwright.engine.plan import Plan
from loopwright.errors import ConfigurationError, ReplayMismatch, StepError
from loopwright.search.optimise import Optimise, Proposals
from loopwright.search.optimisers import Trial
from loopwright.search.space import space_of

SPACE = {"x": {"float": [1e-4, 1.0], "log": True}, "n": {"int": [1, 9]}}
MIXED = {**SPACE, "act": {"choice": ["relu", None, {"gelu": 2}]}}


def loss(parameters: dict[str, Any]) -> float:
    act = parameters.get("act")
    return (parameters["x"] - 0.3) ** 2 + abs(parameters["n"] - 5) / 5 + (0 if act else 1)


def searched(
    optimise: Optimise, count: int, *, killed_at: Collection[int] = (), size: int = 4
) -> list[Any]:
    """Run a small search, with a new optimiser that is told the record at some iterations."""
    proposals, record = Proposals(optimise, 7, "search"), []
    best, parent, chain, waited = float("inf"), 0, 1, 0
    for number in range(1, count + 1):
        if number in killed_at:
            proposals = Proposals(optimise, 7, "search")
            for item in record:
                proposals.tell(*item)
        plan = Plan(parent, chain, optimise.by[(chain - 1) % len(optimise.by)])
        told = [Trial(item, loss(item)) for item in proposals.propose(number, plan, size)]
        if number % 5 == 0:
            told[0] = Trial(told[0].parameters, None)  # it failed
        if number % 7 == 0:
            told[1] = Trial(told[1].parameters, None, pruned=True)
        values = [9e9 if trial.value is None else trial.value for trial in told]
        record.append((number, plan, told, values.index(min(values)) + 1))
        proposals.tell(*record[-1])
        waited += 1
        if min(values) < best:
            best, waited, found = min(values), 0, number
        if waited == 4:
            chain, waited, parent = chain + 1, 0, found if chain % 3 else 0
    return record


@pytest.mark.parametrize(
    ("by", "space", "count"),
    [
        ("random", MIXED, 20),
        ("tpe", MIXED, 20),
        ("nsga2", MIXED, 60),
        ("cma", SPACE, 40),
        (["tpe", "cma", "nsga2"], SPACE, 60),
    ],
)
def test_an_optimiser_that_is_told_the_record_goes_on_as_the_one_that_asked(
    by: Any, space: Any, count: int
) -> None:
    """What an optimiser proposes follows from the record and the seed, whatever was killed, and lies in the space."""
    optimise = Optimise(space, by=by)
    whole = searched(optimise, count)
    assert searched(optimise, count, killed_at=range(2, count, 7)) == whole
    assert len({plan.strategy for _, plan, _, _ in whole}) == len(optimise.by)
    for _, _, told, _ in whole:
        for trial in told:
            for name, item in optimise.parameters.items():
                item.check(trial.parameters[name])


def test_tpe_and_cma_find_better_parameters_than_chance() -> None:
    """The optimisers learn from what they are told."""

    def best(by: Any) -> float:
        record = searched(Optimise(SPACE, by=by), 40)
        return min(t.value for _, _, told, _ in record for t in told if t.value is not None)

    chance = best("random")
    assert best("tpe") < chance
    assert best(["tpe", "cma"]) < chance


def test_cma_starts_at_the_parent_of_its_chain_and_knows_what_tpe_found() -> None:
    """After a hand-over, cma looks near the best point as far as the best ones spread; after a fresh start anywhere."""
    space = {"a": {"float": [0.0, 1.0]}, "b": {"float": [0.0, 1.0]}}
    proposals = Proposals(Optimise(space, by=["tpe", "cma"]), 7, "search")
    told = [Trial({"a": 0.2, "b": 0.2}, 9.0)]
    told += [Trial({"a": 0.9 - nth / 50, "b": 0.1 + nth / 50}, float(nth)) for nth in range(4)]
    proposals.tell(1, Plan(0, 1, "tpe"), told, 2)
    near = proposals.propose(2, Plan(1, 2, "cma"), 16)
    assert all(abs(item["a"] - 0.9) < 0.2 > abs(item["b"] - 0.1) for item in near)
    fresh = [
        Proposals(Optimise(space, by="cma"), 7, "search").propose(number, Plan(0), 16)
        for number in range(1, 9)
    ]
    means = [sum(item["a"] for item in points) / 16 for points in fresh]
    assert max(means) - min(means) > 0.3


@pytest.mark.parametrize("by", ["random", "tpe", "nsga2", "cma"])
def test_with_reuse_nothing_is_evaluated_twice_while_there_is_anything_else(by: str) -> None:
    """Another proposal takes the place of one that was evaluated before, also after kills."""
    space = {"a": {"int": [1, 6]}, "b": {"int": [1, 6]}}
    record = []
    for reuse in (False, True):
        optimise, proposals, tried = Optimise(space, by=by, reuse=reuse), None, []
        for number in range(1, 11):
            if number in (1, 4, 7):
                proposals = Proposals(optimise, 7, "search")
                for item in tried:
                    proposals.tell(*item)
            found = proposals.propose(number, Plan(number - 1), 2)
            tried.append((number, Plan(number - 1), [Trial(p, p["a"] - p["b"]) for p in found]))
            proposals.tell(*tried[-1])
        earlier, twice = [], 0
        for _, _, told in tried:
            twice += sum(trial.parameters in earlier for trial in told)
            earlier += [trial.parameters for trial in told]
        record.append(twice)
    assert record[0] > record[1] == 0


def test_another_proposal_of_cma_than_the_recorded_one_is_a_mismatch() -> None:
    """A record that the optimiser would not have made is refused, as by another version of it."""
    proposals = Proposals(Optimise(SPACE, by="cma"), 7, "search")
    with pytest.raises(ReplayMismatch, match="search/1/propose: cma proposes other parameters"):
        proposals.tell(1, Plan(0), [Trial({"x": 0.5, "n": 2}, 1.0)])


def test_optimisers_leave_generators_loggers_and_outputs_of_the_process_alone(capfd: Any) -> None:
    """A search changes no global random state, prints nothing and warns of nothing."""
    import numpy as np

    random_module.seed(3)
    np.random.seed(3)
    before = random_module.getstate(), np.random.get_state()[1].tolist()
    searched(Optimise(SPACE, by=["tpe", "cma"]), 20)
    assert (random_module.getstate(), np.random.get_state()[1].tolist()) == before
    assert capfd.readouterr() == ("", "")


def test_the_package_is_declared_without_the_libraries() -> None:
    """Optuna, cma and GEPA are imported by the first proposal, not by a declaration."""
    program = (
        "import sys, loopwright.search.optimise as o; o.Optimise({'x': {'float': [0, 1]}});"
        "print([n for n in ('optuna', 'cma', 'gepa', 'numpy') if n in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "[]\n", ended.stderr


def test_without_the_extra_the_declaration_says_what_to_install(monkeypatch: Any) -> None:
    """A missing library is a sentence before anything runs."""
    monkeypatch.setitem(EXTRAS, "optimise", EXTRAS["optimise"]._replace(packages=("no_such",)))
    with pytest.raises(ConfigurationError, match=r"pip install 'loopwright\[optimise\]'"):
        Optimise(SPACE)


@pytest.mark.parametrize("kind", ["float", "int"])
@pytest.mark.parametrize("log", [True, False])
def test_positions_and_values_of_a_range_fit_each_other(kind: str, log: bool) -> None:
    """The value at the position of a value is that value, and the ends are reached."""
    item = space_of({"x": {kind: [1, 50], "log": log}})["x"]
    for value in range(1, 51):
        assert item.at(item.position(value)) == pytest.approx(value)
    assert (item.at(0.0), item.at(1.0)) == (1, pytest.approx(50))


@pytest.mark.parametrize(
    ("value", "space"),
    [
        (0.2, {"float": [0.0, 0.1]}),
        (float("nan"), {"float": [0.0, 0.1]}),
        (True, {"int": [0, 3]}),
        (1.5, {"int": [0, 3]}),
        ("1", {"int": [0, 3]}),
        ("tanh", {"choice": ["relu", "gelu"]}),
    ],
)
def test_a_proposal_outside_of_the_space_names_its_parameter(value: Any, space: Any) -> None:
    """A value that the space does not have is refused by the name of its parameter."""
    with pytest.raises(
        StepError, match=r"the proposal for lr, .*, is outside of (float|int|choice) "
    ) as error:
        space_of({"lr": space})["lr"].check(value)
    assert error.value.kind == "bad_proposal"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"space": {}}, "space: it has no parameter"),
        ({"space": []}, "space: it has no parameter"),
        ({"space": {"lr": 3}}, "space: lr: 3; write {float"),
        ({"space": {"lr": {"flaot": [0, 1]}}}, "lr: {'flaot': .*; did you mean 'float'"),
        ({"space": {"lr": {"float": [0, 1], "int": [0, 1]}}}, "space: lr: .*; write {float"),
        ({"space": {"lr": {"float": "ab"}}}, "lr: {'float': 'ab'}; write"),
        ({"space": {"lr": {"int": [0, 2], "log": "yes"}}}, "lr: .*'yes'}; write"),
        ({"space": {"a": {"choice": [1, 2], "log": True}}}, "a: .*True}; write"),
        (
            {"space": {"lr": {"float": [1, 0]}}},
            r"lr: float: \[1, 0\]; write two numbers, the lower",
        ),
        ({"space": {"lr": {"float": [0, 1, 2]}}}, r"lr: float: \[0, 1, 2\]; write two numbers"),
        ({"space": {"lr": {"float": [0, float("nan")]}}}, "lr: float: nan"),
        ({"space": {"lr": {"float": [0, 1], "log": True}}}, "lr: float: 0"),
        ({"space": {"lr": {"int": [0, 1.5]}}}, r"lr: int: \[0, 1.5\]; write two integers"),
        ({"space": {"a": {"choice": [1, True]}}}, "a: choice: .*; use two different values"),
        ({"space": {"a": {"choice": ["one"]}}}, "a: choice: .*; use two different values"),
        ({"space": SPACE, "by": "tpa"}, "by: 'tpa' is none of .*; did you mean 'tpe'"),
        ({"space": SPACE, "by": []}, "name at least one"),
        ({"space": SPACE, "by": ["tpe", "tpe"]}, "each once"),
        ({"space": MIXED, "by": "cma"}, "cma needs two numbers or more, and act is a choice"),
        ({"space": {"x": {"float": [0, 1]}}, "by": "cma"}, "and there is one"),
        ({"space": SPACE, "startup": 0}, "startup: 0 is too small"),
        ({"space": SPACE, "reuse": "yes"}, "reuse: 'yes'"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence_with_its_place(options: Any, said: str) -> None:
    """Each wrong option of `optimise` is named before anything runs."""
    with pytest.raises(ConfigurationError, match=f"^optimise: .*{said}"):
        Optimise(**options)
