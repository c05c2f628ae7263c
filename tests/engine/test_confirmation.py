"""Confirmation of better values: the rule, its error over a loop, and the measurements of a running loop."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest

from loopwright import (
    Case,
    Confirm,
    Context,
    Early,
    Evaluation,
    Loop,
    Metric,
    OnStall,
    Result,
    Workspace,
    judge,
    metric,
    resume_sync,
    run_sync,
    shell,
    tool,
)
from loopwright._statistics import pooled_sd, t_cdf, t_quantile
from loopwright.conditions import tuned
from loopwright.engine.confirmation import Sample, Standing, compared
from loopwright.errors import ConfigurationError
from loopwright.evaluators.dataset import on_cases
from loopwright.journal import MemoryJournal
from loopwright.records.display import confirmed, measured
from loopwright.records.history import table_text

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "search" / "confirm.py"


def program(path: Path = PROGRAM) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def verdict(
    base: Sequence[Sample], candidate: Sequence[Sample], *groups: Sequence[float], **more: Any
) -> tuple[bool | None, float | None, int]:
    options: dict[str, Any] = {"sign": 1, "min_delta": 0.0, "level": 0.001, **more}
    return compared(base, candidate, groups, **options)


def test_a_gain_is_accepted_above_the_quantile_of_student() -> None:
    """Accepted if d > t(1 - level, df) · s · √(2/m), with the noise of all groups; refused below half of its error."""
    chance, seen = random.Random(5), set()
    for _ in range(300):
        groups = [[chance.gauss(5, 1) for _ in range(count)] for count in (5, 3, 3)]
        base = [chance.gauss(0, 1) for _ in range(3)]
        ours = [chance.gauss(2.5, 1) for _ in range(3)]
        s, df = pooled_sd([*groups, base, ours])
        assert df == 4 + 2 + 2 + 2 + 2
        d, error = fmean(ours) - fmean(base), s * (2 / 3) ** 0.5
        found = verdict(base, ours, *groups)
        expected = True if d > t_quantile(0.999, df) * error else None
        expected = False if d < error / 2 else expected
        assert (found[0], found[2]) == (expected, df)
        assert verdict([-x for x in base], [-x for x in ours], *groups, sign=-1) == found
        seen.add(expected)
    assert seen == {True, None, False}


def test_a_gain_must_exceed_min_delta() -> None:
    """A certain gain that is too small stays open."""
    small = [0.11, 0.1, 0.12]
    assert verdict([0.0, 0.01, 0.0], small)[0] is True
    assert verdict([0.0, 0.01, 0.0], small, min_delta=0.2)[0] is None


def test_the_differences_by_case_are_the_sample_of_a_data_set() -> None:
    """Cases of one side do not count; repetitions of a case are one value; equal gains are no certainty."""
    base = [{f"c{n}": n / 10 for n in range(20)}, {f"c{n}": n / 10 for n in range(20)}]
    ours = [{f"c{n}": n / 10 + 0.1 + n % 3 / 50 for n in range(19)} | {"new": 9.0}] * 2
    better, p, df = verdict(base, ours)
    gains = [0.1 + n % 3 / 50 for n in range(19)]
    s, _ = pooled_sd([gains])
    assert p == pytest.approx(t_cdf(-fmean(gains) / (s / 19**0.5), 18))
    assert (better, df) == (True, 18)
    few = verdict([{"a": 0.0, "b": 0.0}], [{"a": 1.0, "b": 1.0}])
    assert few == (None, 0.25, 1)
    assert verdict([{"a": 0.0}], [{"a": 1.0}]) == (None, None, 0)


def test_all_tests_of_a_loop_share_alpha() -> None:
    """I: an iteration has alpha / T; after each change of the limit, what no test has used is divided anew."""
    chance = random.Random(1)
    for _ in range(200):
        standing, limit, used, changed = Standing(0.05, 30), 30, 0.0, False
        for item in range(1, 61):
            if chance.random() < 0.2:
                limit, changed = chance.randint(max(item, 2), 60), True
            if item > limit:
                break
            share = standing.share_at(item, limit)
            if limit == standing.limit == 30 and not changed:
                assert share == pytest.approx(0.05 / 30)
            tests = chance.randint(0, 3)
            used += share / 3 * tests
            standing.add(
                item,
                {
                    "accepted": False,
                    "limit": limit,
                    "stages": 3,
                    "level": share / 3,
                    "tests": tests,
                },
            )
            assert standing.used == pytest.approx(used)
        assert used <= 0.05 + 1e-12


def test_changes_without_effect_are_rarely_accepted() -> None:
    """Sampled from `benchmarks.search.confirm`: at most 5 % of runs, also where the limit changes; real ones are kept."""
    confirm = program()
    noise = confirm.Noise("t, 5 degrees", 7, pool=1 << 16)
    for cases, limits in ((0, {}), (0, confirm.CHANGED), (20, {})):
        counts = confirm.simulate(noise, confirm.nothing, runs=60, cases=cases, limits=limits)
        # Of 60 runs with 3 %, more than 7 have a probability below 1 %.
        assert counts.false_runs <= 7
        assert counts.measurements / counts.iterations <= 6.5
    counts = confirm.simulate(noise, confirm.every_fifth(3.0), runs=20, sign=-1)
    assert counts.kept[3.0] / counts.offered[3.0] >= 0.95


# Loops.


def noisy(
    true: Sequence[float],
    *,
    noise: float = 1.0,
    seed: int = 3,
    asked: list[str] | None = None,
    **options: Any,
) -> Loop:
    """Return a loop whose iterations have these true losses; each measurement has noise of its own."""

    def evaluate(loss: float, ctx: Context) -> Any:
        if asked is not None:
            asked.append(ctx.path)
        value = loss + random.Random(f"{seed} {ctx.path}").gauss(0, noise)
        return {"metrics": {"loss": value, "size": 10 * value}}

    metrics = {"loss": Metric("minimise"), "size": Metric()}
    options = {"confirm": Confirm(), "max_iterations": len(true), "metrics": metrics, **options}
    return Loop(
        lambda _, ctx: true[ctx.iteration - 1], evaluate, lambda last: 0, name="fit", **options
    )


def records(result: Result) -> list[Any]:
    return [item.evaluation.details["confirm"] for item in result.history]


def test_only_a_confirmed_iteration_is_accepted() -> None:
    """The base is the last accepted iteration; a worse first value is not measured again; the mean is on record."""
    asked: list[str] = []
    result = run_sync(noisy([20.0, 20.0, 12.0, 16.0, 12.0, 5.0], asked=asked, seed=4), 0)
    assert [item.number for item in result.history if item.accepted] == [1, 3, 6]
    found = records(result)
    # The first iteration is the first base: measured five times, once of these to evaluate it.
    assert asked[:5] == ["fit/1/evaluate", *(f"fit/1/confirm/base-{n}" for n in range(1, 5))]
    assert len(found[0]["candidate"]) == 5
    # Iteration 4 is worse at once.
    assert "base" not in found[3]
    assert [path for path in asked if path.startswith("fit/4/")] == ["fit/4/evaluate"]
    for item in (result.history[2], result.history[5]):
        record = item.evaluation.details["confirm"]
        value = fmean(record["candidate"])
        assert item.evaluation.metrics["loss"] == pytest.approx(value)
        # Other metrics are measured anew too.
        assert item.evaluation.metrics["size"] == pytest.approx(10 * value)
        assert item.objective is not None
        assert item.objective.change == pytest.approx(value - fmean(record["base"]))
        assert record["screening"] not in record["candidate"]
    assert asked[-6:] == [
        f"fit/6/confirm/{side}-{n}" for n in (1, 2, 3) for side in ("base", "candidate")
    ]
    # The base of iteration 6 is iteration 3, with its true loss 12.
    assert fmean(found[5]["base"]) == pytest.approx(12, abs=2)


def test_a_confirmed_value_is_shown_with_its_test() -> None:
    """`loss 5.1 ↓ -6.7 (confirmed, p .0011, 12 + 12 measurements)`; the table says why."""
    result = run_sync(noisy([20.0, 20.0, 12.0]), 0)
    last, before = result.history[2], result.history[1]
    assert confirmed(last) == "confirmed, p < .0001, 3 + 3 measurements"
    assert measured(last).startswith("loss ")
    assert "↓ -" in measured(last)
    assert ("not confirmed" in confirmed(before)) is ("tests" in records(result)[1])
    assert "confirmed, p < .0001, 3 + 3 measurements" in table_text(result.history)
    shown = Evaluation(details={"confirm": {"tests": 3, "p": 0.00114, "candidate": [1.0] * 12}})
    assert confirmed(type(last)(1, evaluation=shown, accepted=True)) == (
        "confirmed, p .0011, 12 + 12 measurements"
    )
    assert confirmed(type(last)(1, evaluation=shown)) == ""


def test_the_baseline_is_the_first_base() -> None:
    """With `baseline` the first iteration is confirmed too, and the value of the input is the mean of several."""
    asked: list[str] = []
    loop = noisy([20.0, 5.0], asked=asked, baseline=True, confirm=Confirm(baseline=3))
    result = run_sync(loop, 20.0)
    assert asked[:3] == ["fit/0/evaluate", "fit/0/confirm/base-1", "fit/0/confirm/base-2"]
    assert [item.accepted for item in result.history] == [False, True]


def test_values_without_noise_are_compared_directly() -> None:
    """If measurements of one output never differ, one is enough; a warning says so once."""
    asked: list[str] = []
    metrics = {"loss": Metric("minimise", min_delta=0.5), "size": Metric()}
    loop = noisy([5.0, 4.0, 3.8, 3.0, 3.5], noise=0.0, asked=asked, metrics=metrics)
    result = run_sync(loop, 0)
    assert [item.accepted for item in result.history] == [True, True, False, True, False]
    assert len(asked) == 5 + 4
    assert sum("do not differ" in text for text in result.warnings) == 1


def test_a_measurement_without_a_value_confirms_nothing() -> None:
    """A new measurement that fails refuses the iteration; its measurements so far are on record."""

    def evaluate(loss: float, ctx: Context) -> Any:
        if ctx.path == "fit/2/confirm/candidate-2":
            return Evaluation(passed=False, feedback="it failed")
        value = loss + random.Random(ctx.path).gauss(0, 0.1)
        return {"metrics": {"loss": value}}

    loop = Loop(
        lambda _, ctx: 10.0 - ctx.iteration, evaluate, lambda last: 0, name="fit",
        metrics={"loss": "minimise"}, confirm=Confirm(), max_iterations=2,
    )  # fmt: skip
    result = run_sync(loop, 0)
    assert [item.accepted for item in result.history] == [True, False]
    record = records(result)[1]
    assert record["missing"] == "candidate"
    assert (len(record["base"]), len(record["candidate"])) == (2, 1)


def test_a_data_set_is_compared_by_case() -> None:
    """With the score as the objective, cases that do not pass refuse nothing; the differences by case are tested."""

    def answer(gain: float, ctx: Context) -> Any:
        return gain + random.Random(ctx.path).gauss(0, 0.1)

    def score(value: float) -> float:
        return min(1.0, max(0.0, value))

    gains = (0.3, 0.3, 0.7, 0.6)
    loop = Loop(
        lambda _, ctx: gains[ctx.iteration - 1],
        on_cases(answer, [Case(id=f"c{n}", inputs=n) for n in range(20)], score),
        lambda last: 0, name="fit", metrics={"score": "maximise"}, confirm=Confirm(), max_iterations=4,
    )  # fmt: skip
    result = run_sync(loop, 0)
    assert [item.accepted for item in result.history] == [True, False, True, False]
    record = records(result)[2]
    assert (len(record["candidate"]), record["df"], record["stages"]) == (1, 19, 3)
    third = result.history[2]
    assert third.passed is None
    assert third.score == pytest.approx(record["candidate"][0])
    assert third.score != record["screening"]


def test_a_metric_of_cases_is_compared_by_case() -> None:
    """A metric that the cases have is tested by their differences too, also with repetitions and several shards."""

    def cost(gain: float, ctx: Context) -> Any:
        number = 10 * ctx.case.inputs
        return {"metrics": {"cost": number - gain + random.Random(ctx.path).gauss(0, 0.1)}}

    gains = (0.3, 0.3, 0.7)
    loop = Loop(
        lambda _, ctx: gains[ctx.iteration - 1],
        on_cases(lambda gain: gain, [Case(n, id=f"c{n}") for n in range(300)], cost, repeat=2),
        lambda last: 0, name="fit", metrics={"cost": "minimise"}, confirm=Confirm(), max_iterations=3,
    )  # fmt: skip
    result = run_sync(loop, 0)
    assert [item.accepted for item in result.history] == [True, False, True]
    record = records(result)[2]
    # The cases differ by far more than the gain, so only their differences show it.
    assert (len(record["candidate"]), record["df"]) == (1, 299)
    samples = result.history[2].evaluation.details["samples"]["cost"]
    assert len(samples) == 300 and samples["c7"] == pytest.approx(69.3, abs=0.5)


def test_a_changed_limit_divides_what_is_left() -> None:
    """The limit of the moment is on record, and the level of the next test follows from what is left of alpha."""
    journal, asked = MemoryJournal(), list[str]()
    loop = noisy([9.0, 8.9, 8.8, 2.0, 1.9, 0.5], asked=asked, max_iterations=4)
    run_sync(loop, 0, journal=journal, run_id="r")
    result = resume_sync(loop, "r", journal=journal, max_iterations=6)
    found = [record for record in records(result) if record.get("tests")]
    assert {record["limit"] for record in found[:-1]} <= {4, 6}
    last = found[-1]
    assert last["limit"] == 6
    used = sum(record["level"] * record["tests"] for record in found if record["limit"] == 4)
    assert last["level"] <= (0.05 - used) / 2 / 3 + 1e-12
    assert sum(record["level"] * record["tests"] for record in found) <= 0.05


def test_measurements_run_on_the_files_of_their_iteration(tmp_path: Path) -> None:
    """The base is measured on its files, which an iteration that is not accepted does not change."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "loss.txt").write_text("20")
    seen: list[tuple[str, float]] = []

    def change(_: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        file = ctx.folder / "loss.txt"
        file.write_text(str(float(file.read_text()) + (0.0, 0.01, -8.0, 9.0)[ctx.iteration]))
        return "changed"

    def measure(_: Any, ctx: Context) -> Any:
        assert ctx.folder is not None
        loss = float((ctx.folder / "loss.txt").read_text())
        (ctx.folder / "junk.txt").write_text(ctx.path)
        seen.append((ctx.path.removeprefix("fit/"), loss))
        return {"metrics": {"loss": loss + random.Random(ctx.path).gauss(0, 0.1)}}

    workspace = Workspace(project, home=tmp_path / "home", merge="none")
    loop = Loop(
        change, measure, name="fit", metrics={"loss": "minimise"}, confirm=Confirm(baseline=2),
        baseline=True, max_iterations=3, workspace=workspace,
    )  # fmt: skip
    result = run_sync(loop, None)
    files = dict(seen)
    assert [item.accepted for item in result.history] == [False, True, False]
    assert files["0/confirm/base-1"] == 20
    assert {value for path, value in seen if path.startswith("2/confirm/base")} == {20}
    assert {value for path, value in seen if path.startswith("2/confirm/candidate")} == {12}
    assert files["3/evaluate"] == 21
    assert result.workspace is not None
    folder = Path(result.workspace["folder"])
    assert float((folder / "loss.txt").read_text()) == 12
    assert not (folder / "junk.txt").exists()


def test_a_measurement_of_a_confirmation_is_never_ended_early() -> None:
    """Values that would end an evaluation end no measurement of `confirm` and none of the baseline."""

    def evaluate(loss: float, ctx: Context) -> Any:
        # In a confirmation the way is bad, and the end is good.
        ctx.interim(
            100.0 if "/confirm/" in ctx.path or "/0/" in ctx.path else loss, 1, Early(earlier=1)
        )
        return {"metrics": {"loss": loss + random.Random(ctx.path).gauss(0, 0.1)}}

    loop = Loop(
        lambda _, ctx: 10.0 - ctx.iteration, evaluate, lambda last: 0, name="fit", baseline=True,
        metrics={"loss": "minimise"}, confirm=Confirm(), max_iterations=3,
    )  # fmt: skip
    result = run_sync(loop, 20.0)
    assert [item.accepted for item in result.history] == [True, True, True]


@tool(approve=True, idempotent=True)
def look(name: str) -> str:
    """Look something up."""
    return name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confirm": True}, "is not a Confirm"),
        ({"metrics": {"loss": Metric()}}, "an objective"),
        ({"refine_from": "last"}, "remove refine_from: last"),
        ({"on_stall": OnStall("last")}, "on_stall: last does not, use best"),
        ({"on_stall": OnStall("fresh")}, "on_stall: fresh does not, use best"),
        ({"evaluate": shell("echo 1")}, "must not run twice"),
        (
            {"evaluate": judge("It is good", model="x/y", tools=[look])},
            "look must not run twice, or asks a person",
        ),
    ],
)
def test_what_cannot_be_confirmed_is_refused(options: dict[str, Any], message: str) -> None:
    """The error names what stands against it."""
    options = {"metrics": {"loss": "minimise"}, "confirm": Confirm(), **options}
    evaluate = options.pop("evaluate", metric("loss"))
    with pytest.raises(ConfigurationError, match=message):
        Loop(str, evaluate, max_iterations=2, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "give a number above 0"),
        ({"alpha": 1.0}, "is not below 1"),
        ({"stages": [3, 3]}, "does not rise"),
        ({"stages": "3"}, "is not a list"),
        ({"stages": [0]}, "stages: 0 is too small"),
        ({"baseline": 0}, "baseline: 0 is too small"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    """The error names the key and the value."""
    with pytest.raises(ConfigurationError, match=message):
        Confirm(**options)


def test_confirm_changes_the_fingerprint_and_nothing_else() -> None:
    """A loop without it has the fingerprint that it had, and the rules of one with it are JSON that is read back."""
    from loopwright.engine.loop import loop_of_rules

    with_it, without = noisy([1.0]), noisy([1.0], confirm=None)
    assert with_it.fingerprint != without.fingerprint
    assert "confirm" not in without.rules
    rules = json.loads(json.dumps(with_it.rules, default=lambda value: value.to_json()))
    again = loop_of_rules("fit", rules)
    assert again.confirm == Confirm()
    assert tuned(again.members, {}) == again.members
