"""Adapters: who makes a step of an object, and in which order they are asked."""

from __future__ import annotations

import functools
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from loopwright import Budget, Evaluation, Loop, MaxIterations, Passed, Usage, run_sync, step
from loopwright.engine import functions as external
from loopwright.engine.step import FunctionStep
from loopwright.errors import ConfigurationError, LoopwrightWarning
from loopwright.evaluators import check, gates
from loopwright.interop import (
    Adapter,
    EvaluatorStep,
    ObjectStep,
    as_evaluator,
    as_step,
    register,
)
from loopwright.testing import dry_run_sync

LIBRARIES = ["autoevals", "deepeval", "inspect", "langchain", "pydantic-ai", "pydantic-evals"]


class Metric:
    """A metric of a library: callable, but meant for its own runner."""

    def __init__(self, score: float | None, *, calls: str = "") -> None:
        self.score = score
        self.calls = calls

    def __call__(self, output: object) -> float:
        raise AssertionError("a metric is not called as a function")


class MetricStep(EvaluatorStep):
    async def call(self, value: Any, ctx: Any) -> Evaluation:
        return self.evaluation(self.target.score, details={"expected": self.expectation(ctx)})


class MetricAdapter:
    """Makes evaluators of `Metric`."""

    roots = (__name__.partition(".")[0],)

    def matches(self, target: object) -> bool:
        return isinstance(target, Metric)

    def step(self, target: Metric, purpose: str) -> ObjectStep:
        return MetricStep(target=target, name="metric", adapter="metric/1", unreported=target.calls)


@pytest.fixture(autouse=True)
def metric_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with an adapter of metrics."""
    adapters = (MetricAdapter(), *external._adapters())
    monkeypatch.setattr(external, "_adapters", lambda: adapters)


def measured(loop: Any, value: Any = "text", **options: Any) -> Evaluation:
    """Return the evaluation of the first iteration."""
    evaluation = run_sync(loop, value, **options).history[0].evaluation
    assert evaluation is not None
    return evaluation


def loop_with(evaluate: Any, **options: Any) -> Loop:
    return Loop(lambda value: value, evaluate, until=Passed() | MaxIterations(1), **options)


def test_the_built_in_adapters_are_entry_points() -> None:
    """The adapters of this package are registered like those of any other package."""
    points = sorted(entry_points(group="loopwright.adapters"), key=lambda point: point.name)
    ours = [point.name for point in points if point.module.startswith("loopwright.")]
    assert ours == sorted([*LIBRARIES, "sentence"])  # a sentence of `until` becomes a judge
    for point in points:
        assert isinstance(point.load()(), Adapter)


def test_no_library_is_imported_to_look() -> None:
    """Making a step of an object that no adapter knows imports none of the libraries."""
    program = (
        "import sys\n"
        "from loopwright import run_sync\n"
        "class Double:\n"
        "    def __call__(self, value):\n"
        "        return 2 * value\n"
        "assert run_sync(Double(), 2).output == 4\n"
        "names = {'autoevals', 'deepeval', 'inspect_ai', 'langchain_core', 'pydantic_ai', 'pydantic_evals'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_adapter_comes_before_callables() -> None:
    """A callable metric is measured by its adapter and not called as a function."""
    assert measured(loop_with(Metric(0.5))).score == 0.5


def test_an_adapter_is_asked_for_objects_of_its_library_only() -> None:
    """An adapter sees no object whose classes are from other modules."""

    class Greedy:
        roots = ("another_library",)

        def matches(self, target: object) -> bool:
            raise AssertionError("asked")

        def step(self, target: object, purpose: str) -> FunctionStep:
            raise AssertionError("asked")

    external_adapters = (Greedy(), *external._adapters())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external, "_adapters", lambda: external_adapters)
        assert measured(loop_with(Metric(0.5))).score == 0.5


def test_a_registered_type_comes_before_adapters() -> None:
    """A type that the process registered is made a step by its function, for subclasses too."""

    class Known(Metric):
        pass

    class More(Known):
        pass

    register(Known, lambda target, purpose: step(lambda value: 1.0, name=purpose))
    made = as_evaluator(More(0.2))
    assert made.name == "evaluate"
    assert measured(loop_with(More(0.2))).score == 1.0


def test_a_broken_adapter_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that cannot be loaded does not stop the others."""

    class Point:
        name, value, module = "broken", "missing_module:Adapter", "missing_module"

        def load(self) -> object:
            raise ModuleNotFoundError("missing_module")

    monkeypatch.undo()
    ours = list(entry_points(group="loopwright.adapters"))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [*ours, Point()])
    external._adapters.cache_clear()
    try:
        with pytest.warns(LoopwrightWarning) as caught:
            adapters = external._adapters()
    finally:
        external._adapters.cache_clear()
    assert [warning.message.code for warning in caught] == ["adapter_broken"]
    assert len(adapters) == len(LIBRARIES) + 1  # and that of sentences


def test_functions_stay_functions() -> None:
    """Plain, partial and bound functions and callable objects are called."""

    class Adder:
        def __call__(self, value: int) -> int:
            return value + 1

        def add(self, value: int) -> int:
            return value + 1

    def add(value: int, amount: int = 1) -> int:
        return value + amount

    for function in (add, functools.partial(add, amount=1), Adder(), Adder().add):
        assert run_sync(function, 1).output == 2


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda metric: gates(metric),
        lambda metric: gates(check(min_words=1), metric),
        lambda metric: check(metric, at_least=0.4),
    ],
)
def test_evaluators_that_combine_others_accept_objects(wrapped: Any) -> None:
    """Gates and checks take a metric as they take a function."""
    assert measured(loop_with(wrapped(Metric(0.5)))).score in (0.5, 1.0)


def test_the_expected_output_comes_from_the_input_or_the_option() -> None:
    """`expected` or `target` of the loop's input is compared with, unless an option says otherwise."""
    for value in ({"expected": "x"}, {"target": "x"}):
        assert measured(loop_with(Metric(0.5)), value).details == {"expected": "x"}
    stated = loop_with(as_evaluator(Metric(0.5), expected="y"))
    assert measured(stated, {"expected": "x"}).details == {"expected": "y"}
    assert measured(loop_with(Metric(0.5)), "text").details == {"expected": None}


@pytest.mark.parametrize(
    ("score", "scale", "read"),
    [(7, (0, 10), 0.7), (1, (1, 5), 0.0), (5, (1, 5), 1.0), (1.0000000001, (0, 1), 1.0)],
)
def test_a_score_is_converted_from_its_scale(score: float, scale: Any, read: float) -> None:
    """A score on another scale becomes one from 0 to 1."""
    evaluation = measured(loop_with(as_evaluator(Metric(score), scale=scale)))
    assert evaluation.score == pytest.approx(read)


@pytest.mark.parametrize("score", [7, -0.1, float("nan"), None])
def test_a_score_outside_of_its_scale_is_undecided(score: float | None) -> None:
    """Such a score says nothing, so the evaluation is undecided and explains itself."""
    evaluation = measured(loop_with(Metric(score)))
    assert evaluation.undecided
    assert evaluation.score is None
    assert evaluation.feedback


UNSEEN = "the library does not report the usage of its model"


def test_unseen_usage_is_a_warning() -> None:
    """Without a budget, a call whose usage cannot be seen warns once."""
    loop = Loop(lambda value: value, Metric(0.5, calls=UNSEEN), until=MaxIterations(3))
    warned = run_sync(loop, "text").warnings
    assert len([text for text in warned if text.startswith("unreported_usage")]) == 1


@pytest.mark.parametrize("budget", [Budget(usd=1), Budget(calls=5), Budget(tokens=9)])
def test_unseen_usage_is_refused_under_a_budget(budget: Budget) -> None:
    """A budget of calls, tokens or dollars could not be kept, so the call is not made."""
    result = run_sync(loop_with(Metric(0.5, calls=UNSEEN)), "text", budget=budget)
    assert result.error is not None
    assert result.error.kind == "unreported_usage"


def test_a_reserve_makes_unseen_usage_bounded() -> None:
    """With a reserve, each call counts as the reserve, as an estimate."""
    metric = as_evaluator(Metric(0.5, calls=UNSEEN), reserve=Usage(calls=1, usd=0.4))
    loop = Loop(lambda value: value, metric, until=MaxIterations(9))
    result = run_sync(loop, "text", budget=Budget(usd=1))
    assert result.reason == "budget"
    assert result.usage == Usage(calls=2, usd=0.8, estimated=2)


def test_effects_limit_what_usage_cannot() -> None:
    """A limit of effects needs no usage."""
    result = run_sync(loop_with(Metric(0.5, calls=UNSEEN)), "text", budget=Budget(effects=9))
    assert result.error is None


def test_a_fingerprint_has_the_object_and_its_options() -> None:
    """Another expected output or scale is another evaluator; another process is not."""
    same = {as_evaluator(Metric(score)).fingerprint for score in (0.1, 0.2)}
    others = [
        as_evaluator(Metric(0.1), expected="x").fingerprint,
        as_evaluator(Metric(0.1), scale=(0, 10)).fingerprint,
        as_evaluator(Metric(0.1), name="other").fingerprint,
    ]
    assert len(same) == 1
    assert len({*same, *others}) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: as_evaluator(lambda value: 1.0, expected="x"),
        lambda: as_evaluator(Metric(1), scale=(1, 0)),
        lambda: as_evaluator(Metric(1), scale=1),
        lambda: as_evaluator(check(min_words=1), name="other"),
        lambda: as_step("text"),
    ],
)
def test_options_that_cannot_hold_are_refused(wrong: Any) -> None:
    """An option that the object does not take is a ConfigurationError."""
    with pytest.raises(ConfigurationError):
        wrong()


def test_a_dry_run_calls_no_object() -> None:
    """A rule gives the result of an object; an object without a rule is an error."""
    rules = [
        {"step": "*/evaluate", "output": {"passed": True}},
        {"step": "*/execute", "output": "x"},
    ]
    loop = Loop(lambda value: value, Metric(0.5), until=Passed() | MaxIterations(1))
    assert dry_run_sync(loop, "text", replies=rules).satisfied
    refused = dry_run_sync(loop, "text", replies=rules[1:])
    assert refused.error is not None
    assert refused.error.kind == "no_stub"
