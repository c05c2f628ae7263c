"""The four patterns: when they end, what they keep, and what a resumed run does not do again."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from loopwright import (
    Evaluation,
    Iteration,
    Loop,
    MemoryJournal,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    run,
    run_sync,
    step,
)
from loopwright.adapters import feedback, use_output
from loopwright.errors import ConfigurationError
from loopwright.evaluators.score import score
from loopwright.recipes import (
    _plan,
    checklist_loop,
    confidence_loop,
    improvement_loop,
    strategy_loop,
)


class Crash(BaseException):
    """Stands for the death of the process."""


def plus(amount: float) -> Any:
    """Return a step that adds."""
    return step(lambda number: number + amount, inline=True, name="plus")


share = step(lambda number: number / 10, inline=True, name="share")


# Confidence.


def test_a_confidence_loop_ends_at_its_threshold() -> None:
    """The first output whose score reaches the threshold is the result."""
    result = run_sync(confidence_loop(plus(3), share, use_output, threshold=0.8), 0)
    assert (result.status, result.output, result.iterations) == (Status.SATISFIED, 9, 3)


def test_a_confidence_loop_that_runs_out_has_its_best() -> None:
    """After max_iterations the best output is there, and the result is exhausted."""
    result = run_sync(confidence_loop(plus(0), share, max_iterations=3), 5)
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert (result.output, result.iterations) == (5, 3)


def test_the_options_of_a_recipe_are_those_of_a_loop() -> None:
    """Guards, names, hooks and further conditions go where they belong."""
    seen: list[int] = []
    loop = confidence_loop(
        plus(1), share, use_output, threshold=1.0, name="n", guards=Timeout(60),
        until=ScoreAtLeast(0.2), on_iteration=lambda item: seen.append(item.number),
    )  # fmt: skip
    result = run_sync(loop, 0)
    assert (result.name, result.output, result.satisfied, seen) == ("n", 2, True, [1, 2])
    assert isinstance(loop, Loop)


# Improvement.


def test_an_improvement_loop_returns_the_best_of_a_plateau() -> None:
    """It goes on while it gets better, and hands back the top and not the end."""
    peak = step(lambda number: 1 - abs(number - 3) / 10, inline=True)
    result = run_sync(improvement_loop(plus(1), peak, use_output), 0)
    assert (result.reason, result.output, result.iterations) == (Reason.NO_IMPROVEMENT, 3, 5)


@pytest.mark.parametrize(("patience", "rounds"), [(1, 2), (3, 4)])
def test_patience_is_the_number_of_rounds_without_a_better_score(
    patience: int, rounds: int
) -> None:
    """The first score is an improvement; then patience counts."""
    result = run_sync(improvement_loop(plus(0), share, patience=patience), 5)
    assert (result.iterations, result.reason) == (rounds, Reason.NO_IMPROVEMENT)


# Checklist.


class Kitchen:
    """Makes and checks dishes, counts who was asked, and can die before any of it."""

    def __init__(self, needs: dict[str, int], dies: int = 0) -> None:
        self.needs = needs
        self.asked: list[str] = []
        self.tasks: dict[str, list[Any]] = {name: [] for name in needs}
        self.left = dies

    def _work(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash
        self.asked.append(what)

    def maker(self, name: str) -> Any:
        """Return the step that makes a dish: a little better each time."""

        async def make(task: Any) -> int:
            self._work(f"make {name}")
            self.tasks[name].append(task)
            return int(task["previous"]) + 1 if isinstance(task, dict) else 1

        return step(make, name=name)

    def look(self, name: str) -> Any:
        """Return the check of a dish: good from so many tries on."""

        async def taste(dish: int) -> Evaluation:
            self._work(f"look {name}")
            good = dish >= self.needs[name]
            return Evaluation(float(good), good, "" if good else f"{name} is at {dish}")

        return step(taste, name=name)

    def loop(self, **options: Any) -> Loop:
        """Return the loop over all dishes."""
        makers = {name: self.maker(name) for name in self.needs}
        looks = {name: self.look(name) for name in self.needs}
        return checklist_loop(makers, looks, **options)


NEEDS = {"soup": 1, "roast": 3, "cake": 2}
UNDISTURBED = [
    "make soup", "make roast", "make cake", "look soup", "look roast", "look cake",
    "make roast", "make cake", "look roast", "look cake",
    "make roast", "look roast",
]  # fmt: skip


def test_only_what_fails_is_made_and_looked_at_again() -> None:
    """What passed stays; the rest is made again from what was said of it."""
    kitchen = Kitchen(NEEDS)
    result = run_sync(kitchen.loop(), "dinner")
    assert (result.status, result.output) == (
        Status.SATISFIED,
        {"soup": 1, "roast": 3, "cake": 2},
    )
    assert kitchen.asked == UNDISTURBED
    assert [item.score for item in result.history] == [
        pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0
    ]  # fmt: skip
    assert kitchen.tasks["roast"] == [
        "dinner",
        {
            "input": "dinner",
            "item": "roast",
            "previous": 1,
            "feedback": "roast is at 1",
            "improvements": ["not met"],
        },
        {
            "input": "dinner",
            "item": "roast",
            "previous": 2,
            "feedback": "roast is at 2",
            "improvements": ["not met"],
        },
    ]


async def crashed(kitchen: Kitchen, **options: Any) -> tuple[Result, list[str]]:
    """Run the kitchen's loop until it is through, however often it dies."""
    journal = MemoryJournal()
    value: Any = "dinner"
    while True:
        try:
            loop = kitchen.loop(**options)
            result = await run(loop, value, journal=journal, run_id="r")
        except Crash:
            journal.crash()
            value = None
        else:
            entries = await journal.entries("r")
            return result, [entry.path for entry in entries if entry.kind == "finished"]


def test_items_may_be_made_together() -> None:
    """With at_once, so many items are in the making at a time, and none when nothing is missing."""
    making: list[int] = [0, 0]

    async def make(task: Any) -> str:
        making[0] += 1
        making[1] = max(making)
        await asyncio.sleep(0)
        making[0] -= 1
        return "made"

    replies = iter([Evaluation(undecided=True), *[Evaluation(1.0, True)] * 5])
    names = "abcde"
    look = step(lambda text: next(replies), inline=True)
    loop = checklist_loop(dict.fromkeys(names, make), dict.fromkeys(names, look), at_once=2)
    result = run_sync(loop)
    assert (result.satisfied, result.iterations, making[1]) == (True, 2, 2)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("moment", range(1, len(UNDISTURBED) + 1))
def test_a_resumed_checklist_does_nothing_twice(moment: int, at_once: int) -> None:
    """Wherever the process dies, what was done stays done, and the result is the same."""
    expected, paths = asyncio.run(crashed(Kitchen(NEEDS), at_once=at_once))
    kitchen = Kitchen(NEEDS, dies=moment)
    result, found = asyncio.run(crashed(kitchen, at_once=at_once))
    assert sorted(kitchen.asked) == sorted(UNDISTURBED)
    assert sorted(found) == sorted(paths)
    assert result.output == expected.output
    # `seconds` is the only thing that another run may have otherwise.
    strip = lambda item: {k: v for k, v in item.to_json().items() if k != "seconds"}
    assert [strip(i) for i in result.history] == [strip(i) for i in expected.history]


def test_each_item_is_an_effect_under_its_name() -> None:
    """The journal has one effect for each item that was made, and one for each look."""
    _, paths = asyncio.run(crashed(Kitchen({"soup": 1, "roast": 2}), name="menu"))
    assert paths == [
        "menu/1/execute/soup",
        "menu/1/execute/roast",
        "menu/1/evaluate/soup",
        "menu/1/evaluate/roast",
        "menu/2/adapt",
        "menu/2/execute/roast",
        "menu/2/evaluate/roast",
    ]


def test_a_fix_makes_what_failed() -> None:
    """With a fix, one for all or one by name, the maker is asked once."""
    kitchen = Kitchen({"soup": 2, "roast": 2})
    fixed: list[str] = []

    def repair(task: dict[str, Any]) -> int:
        fixed.append(task["item"])
        return 9

    result = run_sync(kitchen.loop(fix=repair), "dinner")
    assert (result.output, fixed) == ({"soup": 9, "roast": 9}, ["soup", "roast"])
    result = run_sync(Kitchen({"soup": 2, "roast": 2}).loop(fix={"soup": repair}), "dinner")
    assert result.output == {"soup": 9, "roast": 2}


def test_a_checklist_that_runs_out_has_all_its_items() -> None:
    """What fails to the end is there too, beside what passed."""
    result = run_sync(Kitchen({"soup": 1, "roast": 99}).loop(max_iterations=3), "dinner")
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert result.output == {"soup": 1, "roast": 3}
    assert result.history[-1].feedback == "1 of 2 items are not met:\n- roast: roast is at 3"


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5])
def test_a_failed_round_loses_no_item_that_was_whole(failing: int) -> None:
    """Under continue, the rounds before a failed one keep what they made and judged."""
    kitchen = Kitchen({"soup": 1, "roast": 2})
    calls: list[str] = []

    def flaky(inner: Any) -> Any:
        async def work(value: Any) -> Any:
            calls.append(inner.name)
            if len(calls) == failing:
                raise OSError("gas is out")
            return await inner.act(value, None)

        return step(work, name=inner.name)

    loop = checklist_loop(
        {name: flaky(kitchen.maker(name)) for name in kitchen.needs},
        {name: flaky(kitchen.look(name)) for name in kitchen.needs},
        on_failure="continue",
    )
    result = run_sync(loop, "dinner")
    assert (result.status, result.output) == (Status.SATISFIED, {"soup": 1, "roast": 2})
    assert [item.error is not None for item in result.history].count(True) == 1
    looks = kitchen.asked.count("look soup")
    assert looks == (2 if failing == 4 else 1)  # a look that was on record when its round failed


def test_what_could_not_be_judged_is_looked_at_again_and_not_made_again() -> None:
    """An undecided item keeps its output; only the look is repeated."""
    replies = iter(["what?", "score: 1"])
    made: list[str] = []

    def title(task: Any) -> str:
        made.append("title")
        return "Loops"

    look = step(lambda text: next(replies), inline=True, name="judge")
    verdict = checklist_loop({"title": title}, {"title": _passing(look)})
    result = run_sync(verdict, "write")
    assert (result.status, result.output, made) == (
        Status.SATISFIED,
        {"title": "Loops"},
        ["title"],
    )
    assert [item.undecided for item in result.history] == [True, False]


def _passing(judge: Any) -> Any:
    read = score(label="score")

    async def look(value: Any, ctx: Any) -> Any:
        found = await read.act(await judge.act(value, ctx), ctx)
        return Evaluation(found.score, found.score == 1.0) if found.score is not None else found

    return step(look, name="look")


def test_a_retry_is_of_the_item_and_not_of_the_round() -> None:
    """With on_failure="retry" the step that failed is tried again, the others are not."""
    calls: list[str] = []

    def soup(task: Any) -> str:
        calls.append("soup")
        return "soup"

    def roast(task: Any) -> str:
        calls.append("roast")
        if calls.count("roast") == 1:
            raise OSError("gas is out")
        return "roast"

    fine = {"soup": {"min_chars": 1}, "roast": {"min_chars": 1}}
    loop = checklist_loop(
        {"soup": soup, "roast": roast}, fine, on_failure="retry", max_retries=1, retry_delay=0
    )
    result = run_sync(loop, "dinner")
    assert (result.satisfied, result.iterations) == (True, 1)
    assert calls == ["soup", "roast", "roast"]


@pytest.mark.parametrize(
    ("items", "checks", "options", "message"),
    [
        ({}, {}, {}, "menu: {} names no steps; give an object of steps"),
        (
            {"a/b": plus(1)},
            {"a/b": share},
            {},
            (
                "menu: 'a/b' cannot be a name, as names are parts of paths; "
                "give a text without a slash"
            ),
        ),
        ({"soup": plus(1)}, {}, {}, "menu: checks: 'soup' has none; give each item a check"),
        (
            {"soup": plus(1)},
            {"soop": share},
            {},
            "menu: checks: there is no item 'soop'; did you mean 'soup'?",
        ),
        (
            {"soup": plus(1)},
            {"soup": share},
            {"fix": {"cake": share}},
            "menu: fix: there is no item 'cake'",
        ),
        (
            {"soup": plus(1)},
            {"soup": share},
            {"at_once": 0},
            "menu: at_once: 0 is too small; give at least 1",
        ),
    ],
)
def test_items_and_checks_have_the_same_names(
    items: Any, checks: Any, options: Any, message: str
) -> None:
    """What does not fit together is refused when the loop is made."""
    with pytest.raises(ConfigurationError) as raised:
        checklist_loop(items, checks, name="menu", **options)
    assert str(raised.value) == message


def test_a_plan_is_the_same_from_a_record_that_was_stored() -> None:
    """The next plan follows from the JSON of the last record, so any journal can resume it."""
    kitchen = Kitchen(NEEDS)
    history = run_sync(kitchen.loop(), "dinner").history

    class Ctx:
        initial = "dinner"

    for item, following in itertools.pairwise(history):
        stored = Iteration.from_json(json.loads(json.dumps(item.to_json())))
        assert asyncio.run(_plan(stored, Ctx())) == following.input  # type: ignore[arg-type]


# Strategies.


def trying(*scores: float, **options: Any) -> Result:
    """Run strategies a, b, c … with these scores; passing is a score of 1."""
    names = "abcdef"[: len(scores)]
    strategies = {n: step(lambda task, n=n: f"{task} by {n}", inline=True) for n in names}
    points = {f"t by {n}": s for n, s in zip(names, scores, strict=True)}
    judge = step(lambda out: Evaluation(points[out], points[out] == 1), inline=True, name="judge")
    return run_sync(strategy_loop(strategies, judge, name="s", **options), "t")


@pytest.mark.parametrize(
    ("scores", "output", "rounds", "reason"),
    [
        ((1.0, 0.0), "t by a", 1, Reason.CONDITION_MET),
        ((0.2, 0.9, 1.0), "t by c", 3, Reason.CONDITION_MET),
        ((0.2, 0.9, 0.3), "t by b", 3, Reason.MAX_ITERATIONS),
    ],
)
def test_strategies_are_tried_in_order_until_one_is_satisfied(
    scores: tuple[float, ...], output: str, rounds: int, reason: Reason
) -> None:
    """The first is index 0, none is skipped, and without success the best is kept."""
    result = trying(*scores)
    assert (result.output, result.iterations, result.reason) == (output, rounds, reason)


def test_the_record_names_every_strategy() -> None:
    """Each round's evaluation has its strategy as a vote, and its effects have it in their path."""
    result = trying(0.2, 0.9, 0.3)
    votes = [item.evaluation.votes for item in result.history if item.evaluation]
    assert votes == [({"strategy": name},) for name in "abc"]
    assert result.best is not None
    assert result.best.number == 2


def test_a_threshold_is_enough_for_scores() -> None:
    """With a threshold the score decides; more rounds begin again with the first strategy."""
    assert trying(0.2, 0.9, 1.0, threshold=0.8).output == "t by b"
    assert trying(0.2, 0.1, threshold=0.8, max_iterations=5).iterations == 5


def test_a_strategy_that_fails_is_followed_by_the_next() -> None:
    """An error is that round's record, and names its strategy by its path."""

    def broken(task: Any) -> Any:
        raise ValueError("cannot parse")

    strategies = {"exact": broken, "rough": lambda task: "found"}
    result = run_sync(strategy_loop(strategies, lambda output: True), "t")
    assert (result.satisfied, result.output) == (True, "found")
    failure = result.history[0].error
    assert failure is not None
    assert (failure.message, failure.path) == (
        "ValueError: cannot parse",
        "strategies/1/execute/exact",
    )


def test_strategies_that_all_fail_are_a_failure() -> None:
    """Nothing was produced, so nothing ran out: it failed."""

    def broken(task: Any) -> Any:
        raise ValueError("no")

    result = run_sync(strategy_loop({"a": broken, "b": broken}, lambda output: True), "t")
    assert (result.status, result.reason) == (Status.FAILED, Reason.ALL_FAILED)


def test_a_strategy_may_be_told_what_the_last_one_missed() -> None:
    """With an adapter each strategy after the first gets what it makes."""
    seen: list[Any] = []
    strategies = {name: step(lambda task: seen.append(task) or "out", inline=True) for name in "ab"}
    judge = step(lambda output: Evaluation(0.1, False, "too short"), inline=True)
    run_sync(strategy_loop(strategies, judge, feedback), "t")
    assert seen[0] == "t"
    assert seen[1]["feedback"] == "too short"


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ({}, "strategies: {} names no steps; give an object of steps"),
        (
            {"": plus(1)},
            (
                "strategies: '' cannot be a name, as names are parts of paths; "
                "give a text without a slash"
            ),
        ),
    ],
)
def test_strategies_need_names(strategies: Any, message: str) -> None:
    """The names of strategies are parts of paths."""
    with pytest.raises(ConfigurationError) as raised:
        strategy_loop(strategies, share)
    assert str(raised.value) == message


def test_a_fingerprint_follows_the_parts_of_a_recipe() -> None:
    """Another maker, check, strategy, judge or threshold is another loop."""
    one = {"a": plus(1)}
    made = [
        confidence_loop(plus(1), share), confidence_loop(plus(1), share, threshold=0.5),
        improvement_loop(plus(1), share), improvement_loop(plus(1), share, patience=3),
        checklist_loop(one, {"a": share}), checklist_loop(one, {"a": score()}),
        checklist_loop(one, {"a": share}, share), checklist_loop({"a": share}, {"a": share}),
        strategy_loop(one, share), strategy_loop({"b": plus(1)}, share),
        strategy_loop(one, plus(1)),
    ]  # fmt: skip
    assert len({loop.fingerprint for loop in made}) == len(made)
