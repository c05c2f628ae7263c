"""Tasks on the cases of data sets: states, scores, errors, repetitions, and what a resume does not do again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Case,
    Context,
    Dataset,
    EvalResult,
    Gate,
    Loop,
    MaxIterations,
    MemoryJournal,
    Usage,
    evaluate,
    prompt,
)
from loopwright.errors import ConfigurationError, ReplayMismatch
from loopwright.evaluators import recorded_evaluation
from loopwright.journal import open_journal
from loopwright.journal.rewinding import discard_failed
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual


def is_right(output: Any, ctx: Context) -> bool:
    """Return whether an output is the expected one."""
    assert ctx.case is not None
    return bool(output == ctx.case.expected)


def squares(count: int, wrong: int = 0) -> list[Case]:
    """Return cases whose answer is a square, the last `wrong` of them with another expectation."""
    return [Case(n, n * n + (n >= count - wrong), id=f"c{n}") for n in range(count)]


def scored(task: Any, cases: Any, evaluators: Any = is_right, **options: Any) -> EvalResult:
    """Evaluate a task in virtual time."""
    return run_virtual(evaluate(task, cases, evaluators, **options))


def square(number: int) -> int:
    return number * number


def test_the_score_does_not_depend_on_the_number_of_cases_at_a_time() -> None:
    """Cases that end in any order give the same mean, metrics and worst cases, to the last digit."""

    async def slow(number: int, ctx: Context) -> int:
        await ctx.sleep((number * 7919 % 13) / 10)
        return number * number

    async def graded(output: int, ctx: Context) -> dict[str, Any]:
        return {"score": (output % 11) / 11, "metrics": {"size": output / 7}}

    results = [
        scored(slow, squares(300), graded, at_once=at_once).to_json() for at_once in (1, 7, 64)
    ]
    for result in results:
        del result["run_id"]
    assert results[0] == results[1] == results[2]
    assert results[0]["metrics"]["size"] > 0


def test_each_state_is_counted_and_only_scores_are_averaged() -> None:
    """An error and an undecided evaluation are neither 0 nor silent."""

    def task(number: int) -> int:
        if number == 3:
            raise ValueError("no such number")
        return number

    def judged(output: int) -> dict[str, Any]:
        return {"undecided": True} if output == 4 else {"score": 0.25 if output == 5 else 0.75}

    result = scored(task, squares(10), judged, most_errors=0.1)
    assert result.counts == {"passed": 7, "failed": 1, "errored": 1, "undecided": 1, "skipped": 0}
    assert result.mean == (7 * 0.75 + 0.25) / 8
    assert result.detail == "8 of 10 scored, 1 errored"
    assert [(row["id"], row["error"]) for row in result.errors] == [
        ("c3", "ValueError: no such number")
    ]
    assert result.worst[0]["id"] == "c5"


def test_too_many_errors_end_the_evaluation_without_a_score() -> None:
    """Above the share of errors the run fails as `cases_failed`, names the first, and runs no further case."""
    begun: list[int] = []

    async def task(number: int) -> int:
        begun.append(number)
        raise ValueError("no key")

    step_result = scored(task, Dataset(squares(400), name="sums"), at_once=4)
    assert step_result.status == "failed"
    assert "cases errored, and at most 5 % may; the first: c0: ValueError: no key" in (
        step_result.detail
    )
    assert step_result.score is None
    assert step_result.counts["skipped"] + step_result.counts["errored"] == 400
    assert len(begun) <= 21 + 4


def test_a_bad_metric_is_an_error_of_its_case() -> None:
    """NaN in a metric is an error with the place of the case, and the others are scored."""

    def measured(output: int) -> dict[str, Any]:
        return {"score": 1.0, "metrics": {"loss": float("nan") if output == 4 else 1.0}}

    result = scored(square, squares(10), measured, most_errors=0.2)
    assert (result.counts["errored"], result.metrics) == (1, {"loss": 1.0})
    assert "loss" in result.errors[0]["error"]


def test_a_task_that_fails_is_tried_again_first() -> None:
    """With `retry`, a case is errored only after the further attempts."""
    calls: Counter[int] = Counter()

    def task(number: int) -> int:
        calls[number] += 1
        if calls[number] <= number:
            raise OSError("busy")
        return number * number

    result = scored(task, squares(4), retry=2, most_errors=0.5)
    assert (result.counts["passed"], result.counts["errored"]) == (3, 1)
    assert calls[3] == 3


def test_a_task_does_not_see_what_is_expected() -> None:
    """`ctx.case` and the variable `case` have the expected value and the evaluators in an evaluator only."""

    def peek(inputs: Any, ctx: Context) -> Any:
        assert ctx.case is not None
        with pytest.raises(AttributeError, match="a task does not see it"):
            _ = ctx.case.expected
        assert ctx.case.evaluators == ()
        return [ctx.case.id, ctx.case.inputs, ctx.case.metadata["level"]]

    case = Case(
        {"n": 1}, "secret", id="c", metadata={"level": 3}, evaluators=[{"check": {"contains": "c"}}]
    )
    result = scored(peek, [case], lambda output: output == ["c", {"n": 1}, 3])
    assert (result.errors, result.counts["passed"]) == ((), 1)

    models = Models(ScriptedModel([{"replies": ["yes"]}]))
    template = prompt("{{ case.inputs.n }}: {{ case.expected }}", name="asks")
    refused = scored(template, [case], is_right, most_errors=1, resources={"models": models})
    assert "expected" in refused.errors[0]["error"]


def test_the_evaluators_of_a_case_are_gates_after_the_others() -> None:
    """A case may have checks of its own; one with a program, or of another kind, is an error of that case."""
    own: list[Any] = [
        {"check": {"contains": "x"}},
        {"check": {"command": "true"}},
        {"judge": "good"},
    ]
    cases = [Case("x", id="a", evaluators=own[:1]), Case("y", id="b", evaluators=own[:1])]
    cases += [Case("x", id=f"bad{n}", evaluators=[one]) for n, one in enumerate(own[1:])]
    result = scored(str, cases, lambda text: True, most_errors=1)
    assert (result.counts["passed"], result.counts["failed"]) == (1, 1)
    assert [row["id"] for row in result.errors] == ["bad0", "bad1"]


def test_weights_groups_and_repetitions_shape_the_interval() -> None:
    """Weights weigh the mean; groups and repetitions are clusters, without an interval below 10 of them."""
    cases = [Case(n, id=f"c{n}", weight=3 if n == 0 else 1, group=f"g{n % 12}") for n in range(24)]
    result = scored(square, cases, lambda output: 1.0 if output == 0 else 0.5)
    assert result.score is not None
    assert result.mean == pytest.approx((3 + 23 * 0.5) / 26)
    assert (result.score["method"], result.score["clusters"]) == ("clustered t", 12)
    few = scored(square, squares(6), lambda output: output / 25, repeat=3)
    assert few.score is not None
    assert (few.score["n"], few.score["clusters"], few.score["low"]) == (18, 6, None)


def test_an_id_is_one_part_of_a_path() -> None:
    """IDs with slashes and percent signs have paths of their own, and repetitions stand below them."""
    journal = MemoryJournal()
    cases = [Case(1, id="a/b"), Case(2, id="a%2Fb"), Case(3, id="a")]
    scored(square, cases, lambda _: True, repeat=2, journal=journal, run_id="r")
    entries = run_virtual(journal.entries("r"))
    tasks = {entry.path for entry in entries if entry.path.endswith("task")}
    assert "evaluation/cases/s0000/a%2Fb/task" in tasks
    assert "evaluation/cases/s0000/a%252Fb/repeat-2/task" in tasks
    assert len(tasks) == 6


def interrupted(cases: Any, at: int, journal: MemoryJournal) -> Counter[Any]:
    """Evaluate until a case cancels the run; return how often each case ran."""
    ran: Counter[Any] = Counter()

    async def task(number: int, ctx: Context) -> int:
        ran[number] += 1
        ctx.spend(Usage(calls=1))
        if ran.total() == at:
            raise asyncio.CancelledError
        return number * number

    async def until_it_ends() -> None:
        running = asyncio.current_task()
        assert running is not None
        await evaluate(task, cases, is_right, journal=journal, run_id="r", most_errors=1)

    run_virtual(until_it_ends())
    return ran


def counting(ran: Counter[Any]) -> Callable[[int, Context], int]:
    """Return a task that spends a call and counts its runs."""

    def task(number: int, ctx: Context) -> int:
        ran[number] += 1
        ctx.spend(Usage(calls=1))
        return number * number

    return task


def test_a_resume_scores_nothing_again_and_loads_no_complete_shard() -> None:
    """Complete shards are entries; a rewind runs what follows it, and the result is that of an undisturbed run."""
    journal, ran = MemoryJournal(), Counter[Any]()
    task, cases = counting(ran), squares(600, wrong=100)
    whole = scored(task, cases, journal=journal, run_id="r")
    entries = run_virtual(journal.entries("r"))
    folds = [entry.path for entry in entries if entry.kind == "folded"]
    assert folds == [f"evaluation/cases/s000{n}" for n in range(3)]
    run_virtual(journal.rewind("r", only=["evaluation/cases/s0002/c599", "ended"]))
    again = scored(task, cases, journal=journal, run_id="r")
    assert (ran.total(), ran[599]) == (601, 2)
    assert again.rows == whole.rows
    assert again.usage.calls == 600
    # Of a run that has ended, the rows come from the journal.
    assert scored(task, cases, journal=journal, run_id="r").rows == whole.rows
    assert run_virtual(recorded_evaluation(journal, "r")).to_json() == again.to_json()


def test_a_changed_case_is_named(tmp_path: Path) -> None:
    """A resume with another file is refused and names the first case that differs."""
    journal, cases = MemoryJournal(), squares(300)
    scored(square, cases, journal=journal, run_id="r")
    run_virtual(journal.rewind("r", only=["evaluation/cases/s0001/c299", "ended"]))
    other = [*cases[:7], Case(7, 50, id="c7"), *cases[8:]]
    with pytest.raises(ReplayMismatch, match="the case 'c7' was changed"):
        scored(square, other, journal=journal, run_id="r")


def test_errored_cases_are_done_again_by_a_retry() -> None:
    """`retry` runs exactly the cases that errored, also those of complete shards."""
    journal, ran, broken = MemoryJournal(), Counter[Any](), [True]

    def task(number: int) -> int:
        ran[number] += 1
        if broken[0] and number % 100 == 5:
            raise OSError("busy")
        return number * number

    cases = squares(300)
    first = scored(task, cases, journal=journal, run_id="r", most_errors=0.005)
    assert first.status == "failed"
    broken.clear()
    broken.append(False)
    run_virtual(discard_failed(journal, "r"))
    second = scored(task, cases, journal=journal, run_id="r", most_errors=0.005)
    assert (second.status, second.counts["passed"]) == ("satisfied", 300)
    assert ran.total() - len(ran) <= 3
    assert {number for number, count in ran.items() if count > 1} <= {5, 105, 205}


def test_loops_of_cases_stay_out_of_the_result() -> None:
    """A task may be a loop; its iterations and results are those of its case, live and after a resume."""
    journal = MemoryJournal()
    loop = Loop(
        lambda n: n + 1, adapt=lambda last: last.output, until=MaxIterations(3), name="loop"
    )
    evaluated = scored(loop, [Case(1, 4, id="a"), Case(2, 5, id="b")], journal=journal, run_id="r")
    assert evaluated.counts["passed"] == 2
    result = run_virtual(journal.result("r"))
    assert (result.loops, result.total) == ({}, 0)
    assert run_virtual(journal.find("r")).iterations == 0


def test_a_case_that_waits_for_a_person_holds_up_no_other() -> None:
    """The other cases end, then the run is suspended with the question."""
    journal, ran = MemoryJournal(), Counter[Any]()

    def task(number: int, ctx: Context) -> int:
        ran[number] += 1
        if number == 1:
            return int(str(ctx.ask("which", {"kind": "free"}, "which number?")))
        return number * number

    result = scored(task, squares(5), journal=journal, run_id="r", at_once=2)
    assert (result.status, len(ran)) == ("suspended", 5)


def test_a_result_is_compared_with_a_baseline_and_gated() -> None:
    """Cases are paired by ID and digest; a gate names each limit that is missed."""
    better = scored(square, squares(30, wrong=3))
    worse = scored(lambda n: n * n + (n < 6), squares(30, wrong=3))
    changed = [*squares(29, wrong=2), Case(29, 1, id="c29")]
    compared = scored(square, changed, baseline=worse).baseline
    assert compared is not None
    assert (compared["paired"], compared["wins"], compared["losses"]) == (29, 6, 0)
    back = worse.compared(better)
    assert back.baseline is not None
    assert back.baseline["difference"] == pytest.approx(-0.2)
    assert back.baseline["p"] == pytest.approx(2 / 2**6)
    gate = Gate(mean_at_least=0.8, lower_at_least=0.5, max_drop=0.1)
    assert back.gated(gate).gate == {
        "ok": False,
        "failed": [
            "the mean is 0.700, and at least 0.800 is needed",
            "the difference is -0.200, and at least -0.100 is needed",
        ],
    }
    assert better.gated(Gate(mean_at_least=0.9)).gate == {"ok": True, "failed": []}
    with pytest.raises(ConfigurationError, match="max_drop needs a baseline"):
        better.gated(gate)


def test_looks_at_held_out_cases_are_counted_over_runs() -> None:
    """Each run that uses the split `test` is one look in its journal, and a resume is not another."""
    journal = MemoryJournal()
    data = Dataset(squares(200), split={"train": 50, "test": 50})
    unused = scored(square, data, journal=journal)
    assert "looks" not in unused.dataset
    looks = [scored(square, data, use=["test"], journal=journal).dataset["looks"] for _ in range(3)]
    assert looks == [1, 2, 3]
    run_id = run_virtual(journal.runs())[0].run_id
    run_virtual(journal.rewind(run_id, "ended"))
    again = scored(square, data, use=["test"], journal=journal, run_id=run_id)
    assert again.dataset["looks"] == 3


def test_a_sample_is_drawn_by_the_seed_of_the_run() -> None:
    """The same seed draws the same cases."""
    data = Dataset(squares(100))
    drawn = [
        [row[0] for row in scored(square, data, sample=10, seed=seed).rows] for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 10


def test_an_evaluation_goes_on_in_a_database(postgres_url: str) -> None:
    """In PostgreSQL, complete shards are entries, rows come from them, and looks are counted over runs."""
    ran = Counter[Any]()
    data = Dataset(squares(600), split={"train": 40, "test": 60})

    async def evaluated(run_id: str) -> EvalResult:
        async with open_journal(postgres_url) as journal:
            options: Any = {"use": ["test"], "journal": journal, "run_id": run_id, "at_once": 64}
            return await evaluate(counting(ran), data, is_right, **options)

    async def rewound(run_id: str) -> None:
        async with open_journal(postgres_url) as journal:
            part = max(e.path for e in await journal.entries(run_id) if e.kind == "folded")
            await journal.rewind(run_id, only=[f"{part}/{first.rows[-1][0]}", "ended"])

    first = asyncio.run(evaluated("first"))
    asyncio.run(rewound("first"))
    again = asyncio.run(evaluated("first"))
    assert ran.total() == len(first.rows) + 1
    assert (again.rows, again.dataset["looks"]) == (first.rows, 1)
    assert asyncio.run(evaluated("second")).dataset["looks"] == 2
