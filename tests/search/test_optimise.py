"""A loop whose input an optimiser proposes, in place of adapt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.support import DyingJournal, entries_of
from loopwright import Evaluation, Loop, MemoryJournal, OnStall, Result, run, step
from loopwright.errors import ConfigurationError, OwnershipLost, ReplayMismatch
from loopwright.search import Optimise

SPACE = {"x": {"float": [1e-3, 1.0], "log": True}, "n": {"int": [1, 9]}}


def loss_of(value: Any) -> float:
    return (value["x"] - 0.3) ** 2 + abs(value["n"] - 5) / 5


class World:
    """A training of numbers that counts what was really trained."""

    def __init__(self) -> None:
        self.trained: list[Any] = []

    def loop(self, by: Any = ("tpe", "cma", "random"), **options: Any) -> Loop:
        """Return a loop that minimises a loss, and hands over after three iterations without progress."""

        @step(fingerprint="train/1", inline=True)
        def train(value: Any) -> Any:
            self.trained.append(value)
            if value["n"] == 9:
                raise ValueError("nine")
            return loss_of(value)

        @step(fingerprint="loss/1", inline=True)
        def measured(loss: float) -> Evaluation:
            return Evaluation(metrics={"loss": loss})

        optimise = options.pop("optimise", None) or Optimise(SPACE, by=by)
        settled = {
            "on_stall": OnStall("best", patience=3, restarts=100), "metrics": {"loss": "minimise"},
            "on_failure": "continue", "max_failures": None, "max_iterations": 30, "name": "search",
        }  # fmt: skip
        return Loop(train, measured, optimise=optimise, **{**settled, **options})


def play(made: Any, value: Any = None, **options: Any) -> Result:
    return asyncio.run(run(made, value, run_id="r", seed=5, **options))


def rows(result: Result) -> list[Any]:
    return [
        (
            item.input, item.output, item.chain, item.strategy, item.parent, item.candidate,
            [(row.state, row.metrics) for row in item.candidates],
        )
        for item in result.history
    ]  # fmt: skip


def test_the_parameters_are_recorded_and_merged_into_the_input_of_the_loop() -> None:
    """Each iteration has the input of the loop with one set of parameters, which LOOP/N/propose records."""
    journal = MemoryJournal()
    result = play(World().loop(), {"data": "d", "n": 0}, journal=journal)
    entries = entries_of(journal, "r")
    proposed = {e.path: e.value for e in entries if e.kind == "finished" and "propose" in e.path}
    assert len(proposed) == len(result.history) == 30
    for item in result.history:
        (parameters,) = proposed[f"search/{item.number}/propose"]
        assert item.input == {"data": "d", **parameters}
    assert result.history.best is not None
    assert result.output == min(o for _, o, *_ in rows(result) if o is not None)


def test_a_stall_hands_over_to_the_next_optimiser_on_one_record() -> None:
    """The names of `by` are the strategies of the loop, and each chain takes the next one."""
    result = play(World().loop())
    order = dict.fromkeys((item.chain, item.strategy) for item in result.history)
    names = ["tpe", "cma", "random"]
    assert list(order) == [(n, names[(n - 1) % 3]) for n in range(1, len(order) + 1)]
    assert len(order) >= 4


@pytest.mark.parametrize(
    ("at", "before", "several"),
    [(9, True, None), (9, False, None), (43, True, 4), (44, False, 4)],
)
def test_a_killed_search_proposes_what_it_would_have_proposed(
    at: int, before: bool, several: int | None
) -> None:
    """Killed again and again, the loop has the same iterations, and trains nothing again that was finished."""
    options = {"candidates": several, "max_iterations": 18}
    expected = play(World().loop(**options))
    assert {item.strategy for item in expected.history} >= {"tpe", "cma"}
    world, journal, result, kills = World(), DyingJournal(at, before=before), None, 0
    while result is None:
        try:
            result = play(world.loop(**options), journal=journal)
        except (asyncio.CancelledError, OwnershipLost):
            kills += 1
    assert kills > 3
    assert rows(result) == rows(expected)
    assert len(world.trained) <= (18 + kills) * (several or 1)


def test_each_candidate_has_parameters_of_its_own_and_all_of_them_are_told() -> None:
    """The optimiser learns from losers too: it models after ten evaluations, which are three iterations of four."""
    first, second = (
        play(World().loop(by, candidates=4, max_iterations=5, on_stall=None)).history
        for by in ("tpe", "random")
    )
    for item in first:
        assert len({row.metrics.get("loss") for row in item.candidates}) > 1
    losses = [
        [[row.metrics.get("loss") for row in item.candidates] for item in history]
        for history in (first, second)
    ]
    assert losses[0][:3] == losses[1][:3]
    assert losses[0][3] != losses[1][3]


def test_a_changed_space_is_a_mismatch() -> None:
    """A resume with another space, optimiser or startup is refused before anything is proposed."""
    for changed in (
        {"optimise": Optimise({**SPACE, "n": {"int": [1, 8]}}, by=["tpe", "cma", "random"])},
        {"by": ["cma", "tpe", "random"]},
    ):
        journal = DyingJournal(40)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            play(World().loop(), journal=journal)
        journal.at = 0
        world = World()
        with pytest.raises(ReplayMismatch):
            play(world.loop(**changed), journal=journal)
        assert world.trained == []


def test_scores_and_verdicts_are_followed_without_an_objective() -> None:
    """An optimiser sees the score, else the verdict, and higher is better."""

    def play_by(evaluate: Any) -> float:
        loop = Loop(
            lambda value: value["x"], evaluate, optimise=Optimise({"x": {"float": [0.0, 1.0]}}),
            max_iterations=40, until=None, min_score=2.0 if False else None,
        )  # fmt: skip
        outputs = [item.output for item in play(loop).history][-15:]
        return sum(outputs) / 15

    assert play_by(lambda x: Evaluation(x * 0.9)) > 0.8
    assert play_by(lambda x: Evaluation(1 - x, passed=False)) < 0.2


def test_an_input_that_is_no_object_fails_with_its_place() -> None:
    """The parameters are merged into an object; another input is an error of the iteration."""
    result = play(World().loop(on_failure="halt"), "text")
    assert result.status.value == "failed"
    assert (
        "optimise: the input of the loop is 'text'; the parameters need an object" in result.detail
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adapt": lambda last: last.output}, "it takes the place of adapt"),
        ({"strategies": {"a": 1}}, "its names are the strategies of the loop"),
        ({"on_stall": None}, "only a stall hands over from tpe to cma; add on_stall"),
        ({"optimise": {"space": SPACE}}, "is not an Optimise; use one"),
    ],
)
def test_options_that_contradict_an_optimiser_are_refused(options: Any, said: str) -> None:
    """Each contradiction is named before anything runs."""
    with pytest.raises(ConfigurationError, match=f"optimise: .*{said}"):
        World().loop(**options)


def test_with_one_optimiser_the_loop_keeps_its_own_strategies() -> None:
    """A loop may have strategies of its own beside one optimiser."""
    loop = World().loop("tpe", strategies={"careful": 1, "bold": 2}, max_iterations=12)
    assert {item.strategy for item in play(loop).history} >= {"careful", "bold"}


def test_a_value_that_is_no_number_fails_its_candidate_alone_and_loses_nothing() -> None:
    """NaN is an error of its candidate with its place; the others go on, and the optimiser is told a failure."""

    def measured(value: Any) -> Evaluation:
        x = value["x"]
        return Evaluation(metrics={"loss": float("nan") if x < 0.3 else x})

    loop = Loop(
        lambda value: value, measured, optimise=Optimise({"x": {"float": [0.0, 1.0]}}), name="search",
        metrics={"loss": "minimise"}, candidates=4, max_iterations=8,
        on_failure="continue", max_failures=None,
    )  # fmt: skip
    history = play(loop).history
    failed = [row for item in history for row in item.candidates if row.error is not None]
    assert len(history) == 8
    assert 0 < len(failed) < 32
    assert {row.error.kind for row in failed} == {"bad_metric"}
    assert all(row.state == "failed" and "nan" in row.error.message.lower() for row in failed)
