"""Metrics and scorers of evaluation libraries as evaluators of a loop."""

from __future__ import annotations

import os
from typing import Any

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"

import autoevals
import openai
import pytest
from deepeval.metrics import BaseMetric, ExactMatchMetric, GEval, PatternMatchMetric
from deepeval.models import DeepEvalBaseLLM
from deepeval.test_case import LLMTestCase, SingleTurnParams
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, exact, includes, match, mean, model_graded_qa, scorer
from inspect_ai.solver import TaskState
from pydantic_ai.models.test import TestModel
from pydantic_evals.evaluators import (
    Contains,
    EqualsExpected,
    EvaluationReason,
    Evaluator,
    EvaluatorContext,
    HasMatchingSpan,
    IsInstance,
    LLMJudge,
    MaxDuration,
)

from loopwright import Budget, Evaluation, Loop, MaxIterations, ScoreAtLeast, Usage, run_sync
from loopwright.errors import ConfigurationError
from loopwright.interop import as_evaluator, as_step
from models.mock_server import serving


def result_of(evaluate: Any, output: Any, initial: Any = "question", **options: Any) -> Any:
    """Return the result of one iteration with this output."""
    loop = Loop(lambda value: output, evaluate, until=ScoreAtLeast(1) | MaxIterations(1))
    return run_sync(loop, initial, **options)


def judged(evaluate: Any, output: Any, initial: Any = "question", **options: Any) -> Evaluation:
    """Return the evaluation of an output."""
    result = result_of(evaluate, output, initial, **options)
    assert result.error is None, result.error
    return result.history[0].evaluation


class TestPydanticEvals:
    """pydantic-evals: True or False, a number, a reason, or several of them."""

    def test_a_verdict(self) -> None:
        """True or False is the verdict; the reason is the feedback."""
        assert judged(Contains("cat"), "a cat").passed is True
        refused = judged(Contains("cat"), "a dog")
        assert refused.passed is False
        assert "cat" in refused.feedback
        assert judged(IsInstance("str"), 3).passed is False

    def test_the_expected_output(self) -> None:
        """The expected output is that of the loop's input, or of the option."""
        assert judged(EqualsExpected(), "Paris", {"input": "capital?", "expected": "Paris"}).passed
        assert judged(as_evaluator(EqualsExpected(), expected="Rome"), "Paris").passed is False

    def test_own_evaluators(self) -> None:
        """A number is a score, an object has criteria; the input is the loop's."""

        class Several(Evaluator):
            def evaluate(self, ctx: EvaluatorContext) -> Any:
                return {
                    "short": EvaluationReason(len(ctx.output) < 5, "has 5 characters"),
                    "asked": ctx.inputs == "question",
                    "share": 0.5,
                    "kind": "word",
                }

        class Share(Evaluator):
            async def evaluate(self, ctx: EvaluatorContext) -> float:
                return 0.25

        several = judged(Several(), "apple")
        assert (several.score, several.passed) == (0.5, False)
        assert {item.name: item.passed for item in several.criteria} == {
            "short": False,
            "asked": True,
        }
        assert several.details == {"share": 0.5, "kind": "word"}
        assert judged(Share(), "x").score == 0.25

    def test_the_usage_of_a_judge_is_counted(self) -> None:
        """The request of a model judge is in the ledger."""
        reply = TestModel(custom_output_args={"reason": "fine", "pass_": True, "score": 0.9})
        result = result_of(LLMJudge("It is polite.", model=reply), "please", budget=Budget(calls=5))
        assert result.error is None
        assert (result.history[0].evaluation.passed, result.usage.calls) == (True, 1)
        assert result.history[0].feedback == "fine"

    def test_measurements_that_a_loop_does_not_take_are_refused(self) -> None:
        """Spans are not measured, and durations only of the task on a case, so their evaluators would judge nothing."""
        with pytest.raises(ConfigurationError):
            as_evaluator(HasMatchingSpan({}))
        error = result_of(MaxDuration(1.0), "x").history[0].error
        assert (error.kind, "reads the duration of the task" in error.message) == (
            "evaluator_broken",
            True,
        )


class TestAutoevals:
    """autoevals: a score, and the rationale of a model."""

    def test_a_score(self) -> None:
        """A scorer gives a score and no verdict."""
        near = judged(autoevals.Levenshtein(), "abc", {"expected": "abd"})
        assert (near.score, near.passed) == (pytest.approx(2 / 3), None)
        assert judged(as_evaluator(autoevals.ExactMatch(), expected="abc"), "abc").score == 1

    def test_no_score_is_undecided(self) -> None:
        """A score of None says nothing."""

        class Silent(autoevals.Levenshtein):
            async def _run_eval_async(self, output: Any, expected: Any = None, **more: Any) -> Any:
                return autoevals.Score(name="silent", score=None)

        assert judged(Silent(), "abc").undecided

    def test_a_classifier_asks_its_model(self) -> None:
        """The choice of the model is the score, its reasons the feedback, and the run warns of the usage."""
        call = {
            "name": "select_choice",
            "arguments": '{"reasons": "it is the same", "choice": "Yes"}',
        }
        message = {"tool_calls": [{"id": "1", "type": "function", "function": call}]}
        with serving(lambda body, headers: (200, message)) as url:
            client = openai.AsyncOpenAI(base_url=url, api_key="none")
            result = result_of(self.classifier(client), "x", {"expected": "x"})
        assert (result.history[0].score, result.history[0].feedback) == (1, "it is the same")
        assert [text.partition(":")[0] for text in result.warnings] == ["unreported_usage"]

    def classifier(self, client: Any = None) -> Any:
        return autoevals.LLMClassifier(
            name="same",
            prompt_template="Is {{output}} like {{expected}}?",
            choice_scores={"Yes": 1, "No": 0},
            model="gpt-4o-mini",
            client=client,
        )

    def test_the_usage_of_its_model_cannot_be_seen(self) -> None:
        """A scorer that asks a model is refused under a budget, and never called."""
        result = result_of(self.classifier(), "x", budget=Budget(usd=1))
        assert result.error.kind == "unreported_usage"
        assert (
            result_of(
                autoevals.Levenshtein(), "x", {"expected": "x"}, budget=Budget(effects=9)
            ).error
            is None
        )

    def test_fingerprints(self) -> None:
        """Another prompt is another evaluator."""
        assert as_step(self.classifier()).fingerprint == as_step(self.classifier()).fingerprint
        other = autoevals.LLMClassifier(
            "same", "Other {{output}}?", {"Yes": 1, "No": 0}, model="gpt-4o-mini"
        )
        assert as_step(other).fingerprint != as_step(self.classifier()).fingerprint


class Counting(DeepEvalBaseLLM):
    """A model of one's own, whose cost DeepEval does not know."""

    def __init__(self) -> None:
        super().__init__("counting")

    def load_model(self, *_: Any, **__: Any) -> Any:
        return self

    def get_model_name(self, *_: Any, **__: Any) -> str:
        return "counting"

    def generate(self, prompt: str, *_: Any, **__: Any) -> str:
        return '{"score": 8, "reason": "it is polite", "steps": ["Check that it is polite."]}'

    async def a_generate(self, prompt: str, *_: Any, **__: Any) -> str:
        return self.generate(prompt)


class TestDeepEval:
    """DeepEval: score, verdict at the threshold, reason and cost."""

    def test_score_verdict_and_reason(self) -> None:
        """The threshold of the metric decides the verdict."""
        good = judged(ExactMatchMetric(), "Paris", {"input": "capital?", "expected": "Paris"})
        assert (good.score, good.passed) == (1.0, True)
        assert good.feedback
        assert judged(PatternMatchMetric("[a-z]+"), "ABC").passed is False

    def test_each_call_has_its_own_copy(self) -> None:
        """A metric keeps its last result, so runs at the same time must not share it."""
        metric = PatternMatchMetric("[a-z]+")
        assert judged(metric, "abc").passed is True
        assert metric.score is None

    def test_a_metric_of_ones_own_reports_its_cost(self) -> None:
        """`evaluation_cost` and tokens are in the ledger."""

        class Priced(BaseMetric):
            def __init__(self) -> None:
                self.threshold = 0.5

            def measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
                raise NotImplementedError

            async def a_measure(self, test_case: LLMTestCase) -> float:
                self.score, self.reason, self.evaluation_cost = 0.7, "priced", 0.02
                self.input_tokens, self.output_tokens = 10, 5
                return self.score

            @property
            def __name__(self) -> str:
                return "Priced"

        result = result_of(Priced(), "x", budget=Budget(usd=1))
        assert result.usage == Usage(calls=1, input_tokens=10, output_tokens=5, usd=0.02)
        assert result.history[0].evaluation.passed is True

    def geval(self) -> GEval:
        return GEval(
            name="Polite",
            criteria="The output is polite.",
            evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT],
            model=Counting(),
        )

    def test_the_cost_of_a_model_of_ones_own_cannot_be_seen(self) -> None:
        """Such a metric works with a warning, and is refused under a budget without a reserve."""
        result = result_of(self.geval(), "please")
        assert result.history[0].score == pytest.approx(0.8)
        # The metric passes by a threshold of its own, which the loop does not read.
        codes = [text.partition(":")[0] for text in result.warnings]
        assert codes == ["unreported_usage", "passed_unread"]
        refused = result_of(self.geval(), "please", budget=Budget(usd=1))
        assert refused.error.kind == "unreported_usage"
        reserved = as_evaluator(self.geval(), reserve=Usage(calls=3, usd=0.1))
        assert result_of(reserved, "please", budget=Budget(usd=1)).usage.usd == pytest.approx(0.1)


@scorer(metrics=[mean()])
def stars(value: Any) -> Any:
    """A scorer of one's own."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=value, explanation=f"{state.input_text} -> {state.output.completion}")

    return score


def graded(text: str) -> ModelOutput:
    """Return a reply of a mock model with its usage, as counting tokens needs a download."""
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return output


class TestInspect:
    """Inspect: grades and numbers, with the explanation as feedback."""

    def test_grades(self) -> None:
        """C and I are verdicts and scores."""
        good = judged(match(), "it is 42", {"input": "q", "target": "42"})
        assert (good.score, good.passed) == (1.0, True)
        bad = judged(as_evaluator(includes(), expected="43"), "it is 42")
        assert (bad.score, bad.passed) == (0.0, False)
        assert judged(as_evaluator(exact(), expected=["a", "b"]), "b").passed is True

    def test_own_scorers(self) -> None:
        """A scorer that the user's module decorates is one too; a scale converts its numbers."""
        seen = judged(stars(0.5), "output", "question")
        assert (seen.score, seen.feedback) == (0.5, "question -> output")
        assert judged(stars(4), "x").undecided
        assert judged(as_evaluator(stars(4), scale=(1, 5)), "x").score == 0.75

    def test_a_grader_is_refused_under_a_budget(self) -> None:
        """The usage of a grader model cannot be seen."""
        outputs = [graded("It is right. GRADE: C")] * 2
        grader = model_graded_qa(model=get_model("mockllm/model", custom_outputs=outputs))
        result = result_of(grader, "4", {"input": "2 + 2", "target": "4"})
        assert result.history[0].evaluation.passed is True
        assert result.warnings[0].startswith("unreported_usage")
        refused = result_of(grader, "4", {"input": "2 + 2", "target": "4"}, budget=Budget(calls=9))
        assert refused.error.kind == "unreported_usage"

    def test_fingerprints(self) -> None:
        """The parameters of a scorer belong to it."""
        assert as_step(stars(1)).fingerprint == as_step(stars(1)).fingerprint
        assert as_step(stars(1)).fingerprint != as_step(stars(2)).fingerprint
