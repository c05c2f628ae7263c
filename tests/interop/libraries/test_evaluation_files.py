"""Files of evaluations: pydantic-evals and Inspect read ours, and we read theirs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.dataset import Sample, csv_dataset, json_dataset
from inspect_ai.log import read_eval_log
from pydantic_evals import Case as TheirCase
from pydantic_evals import Dataset as TheirDataset
from pydantic_evals.evaluators import (
    Contains,
    Equals,
    EqualsExpected,
    IsInstance,
    LLMJudge,
    MaxDuration,
)
from pydantic_evals.reporting import EvaluationReportAdapter

from loopwright import Case, Dataset, evaluate
from loopwright.datasets.exports import inspect_log, pydantic_evals_report
from loopwright.evaluators import check
from loopwright.interop import as_evaluator
from loopwright.testing import run_virtual
from loopwright.ui.conversion import converted

CASES = [
    Case({"question": "2 + 2"}, "4", id="sum", metadata={"kind": "easy"}),
    Case("Which?", ["A", "B"], id="list"),
    Case("Zeile\nzwei “ü” 🙂", id="text/long %"),
]
ROWS = [
    {"id": "sum", "repeat": 1, "state": "passed", "score": 1.0, "passed": True, "output": "4", "feedback": "",
     "metrics": {"size": 3.5}, "usage": {"calls": 1, "input_tokens": 10, "output_tokens": 2, "usd": 0.01}, "seconds": 0.5},
    {"id": "sum", "repeat": 2, "state": "failed", "score": 0.25, "passed": False, "output": {"answer": 5}, "feedback": "not 4",
     "metrics": {}, "usage": {"calls": 1, "input_tokens": 10, "output_tokens": 2, "usd": None}, "seconds": 1.0},
    {"id": "list", "repeat": 1, "state": "errored", "score": None, "passed": None, "output": None, "feedback": "no answer",
     "metrics": {}, "usage": None, "seconds": 0.0},
    {"id": "list", "repeat": 2, "state": "undecided", "score": None, "passed": None, "output": "A", "feedback": "",
     "metrics": {}, "usage": None, "seconds": 0.0},
    {"id": "gone", "repeat": 1, "state": "skipped", "score": None, "passed": None, "output": None, "feedback": "",
     "metrics": {}, "usage": None, "seconds": 0.0},
    {"id": "text/long %", "repeat": 1, "state": "passed", "score": 0.9, "passed": None, "output": "x\ny", "feedback": "",
     "metrics": {}, "usage": None, "seconds": 2.0},
]  # fmt: skip
BY_ID = {case.id: case for case in CASES}


def test_inspect_reads_our_log(tmp_path: Path) -> None:
    """Every run of a case is a sample with its epoch, score, verdict, error and metadata."""
    log = inspect_log(
        "answers",
        "run-1",
        1_795_867_200.0,
        "cases.jsonl",
        BY_ID,
        ROWS,
    )
    file = tmp_path / "log.json"
    file.write_text(json.dumps(log))
    read_back = read_eval_log(str(file))
    assert (read_back.status, read_back.eval.task, read_back.eval.dataset.name) == (
        "success",
        "answers",
        "cases.jsonl",
    )
    assert read_back.results is not None
    assert read_back.results.scores[0].metrics["mean"].value == pytest.approx((1 + 0.25 + 0.9) / 3)
    assert (read_back.results.total_samples, read_back.results.completed_samples) == (6, 4)
    samples = read_back.samples or []
    assert [(one.id, one.epoch) for one in samples] == [(row["id"], row["repeat"]) for row in ROWS]
    assert [one.scores["score"].value if one.scores else None for one in samples] == [
        row["score"] for row in ROWS
    ]
    assert samples[1].scores is not None
    assert (samples[1].scores["passed"].value, samples[1].scores["score"].explanation) == (
        "I",
        "not 4",
    )
    assert (samples[0].input, samples[0].target, samples[0].output.completion) == (
        '{"question": "2 + 2"}',
        "4",
        "4",
    )
    assert (samples[2].target, samples[2].error is not None and samples[2].error.message) == (
        ["A", "B"],
        "no answer",
    )
    assert samples[0].metadata["kind"] == "easy"


def test_pydantic_evals_reads_our_report() -> None:
    """Every run of a case is a case or a failure of the report, which it can also print."""
    report = pydantic_evals_report("answers", BY_ID, ROWS)
    read_back = EvaluationReportAdapter.validate_json(json.dumps(report))
    assert [one.name for one in read_back.cases] == [
        "sum [1/2]",
        "sum [2/2]",
        "list [2/2]",
        "text/long %",
    ]
    assert [(one.name, one.error_message) for one in read_back.failures] == [
        ("list [1/2]", "no answer"),
        ("gone", "the case was skipped"),
    ]
    first = read_back.cases[0]
    assert (first.inputs, first.expected_output, first.metadata) == (
        {"question": "2 + 2"},
        "4",
        {"kind": "easy"},
    )
    assert (
        first.scores["score"].value,
        first.assertions["passed"].value,
        first.metrics["usd"],
    ) == (1.0, True, 0.01)
    assert first.task_duration == 0.5
    groups = read_back.case_groups() or []
    assert {one.name: len(one.runs) for one in groups}["sum"] == 2
    assert "sum" in read_back.render(include_input=True)
    averages = read_back.averages()
    assert averages is not None
    assert averages.scores["score"] > 0


THEIRS = TheirDataset(
    name="sums",
    cases=[
        TheirCase(name="a", inputs="2 + 2", expected_output="4", metadata={"kind": "easy"}, evaluators=[Contains("4")]),
        TheirCase(name="b", inputs={"x": [1, "yes", "no", "1e3", None]}, expected_output={"x": True}),
        TheirCase(name="c", inputs="on: off\n- [x", expected_output="2026-11-28"),
    ],
    evaluators=[EqualsExpected(), IsInstance("str"), MaxDuration(5), Equals("4", evaluation_name="four")],
)  # fmt: skip


@pytest.mark.parametrize("name", ["cases.yaml", "cases.json"])
def test_we_read_files_of_pydantic_evals(name: str, tmp_path: Path) -> None:
    """A file that pydantic-evals writes gives the same cases, with texts that look like other values."""
    file = tmp_path / name
    THEIRS.to_file(file)
    data = Dataset.load(file)
    assert [(one.id, one.inputs, one.expected, one.metadata or None) for one in data] == [
        (one.name, one.inputs, one.expected_output, one.metadata) for one in THEIRS.cases
    ]
    assert len(data[0].evaluators) == 5
    result = run_virtual(evaluate(lambda inputs: "4", data, check(min_chars=0), most_errors=0))
    assert [row[2] for row in result.rows] == ["passed", "failed", "failed"]


def test_we_read_judges_of_pydantic_evals(tmp_path: Path) -> None:
    """A judge of a file becomes the judge of a document."""
    judge = LLMJudge("It is polite {{x}}.", model="openai:gpt-4o", include_expected_output=True)
    theirs = TheirDataset(name="x", cases=[TheirCase(name="a", inputs="q")], evaluators=[judge])
    file = tmp_path / "cases.yaml"
    theirs.to_file(file)
    found = converted(file)
    assert found is not None
    assert found.document.eval is not None
    written = found.document.eval.evaluate
    assert isinstance(written, list)
    judge_spec = written[0].judge_spec
    assert judge_spec is not None
    assert judge_spec.model == "openai:gpt-4o"
    literal = "{% raw %}It is polite {{x}}.{% endraw %}"
    assert judge_spec.criterion == f"{literal}\n\nThe expected output:\n{{{{ case.expected }}}}"


SAMPLES = [
    {"input": "2 + 2", "target": "4", "id": "a", "metadata": {"kind": "easy"}},
    {"input": "Which?", "target": ["A", "B"], "id": 7, "choices": ["x", "y"]},
]


def _same(ours: Case, theirs: Sample) -> None:
    expected = [ours.expected] if isinstance(ours.expected, str) else ours.expected
    target = [theirs.target] if isinstance(theirs.target, str) else theirs.target
    assert (ours.id, ours.inputs, expected) == (str(theirs.id), theirs.input, target)


@pytest.mark.parametrize("name", ["samples.json", "samples.jsonl"])
def test_we_read_samples_as_inspect_does(name: str, tmp_path: Path) -> None:
    """The same file gives the same inputs, targets and IDs."""
    file = tmp_path / name
    text = (
        json.dumps(SAMPLES)
        if name.endswith("json")
        else "".join(json.dumps(one) + "\n" for one in SAMPLES)
    )
    file.write_text(text)
    for ours, theirs in zip(Dataset.load(file), json_dataset(str(file)), strict=True):
        _same(ours, theirs)


def test_we_read_csv_as_inspect_does(tmp_path: Path) -> None:
    """Quoted cells of several lines too."""
    file = tmp_path / "samples.csv"
    file.write_text('id,input,target\na,"two\nlines, ""x""",4\nb,y,\n')
    ours, theirs = list(Dataset.load(file)), list(csv_dataset(str(file)))
    _same(ours[0], theirs[0])
    assert (ours[1].expected, theirs[1].target) == (None, "")


def test_inspect_reads_our_cases(tmp_path: Path) -> None:
    """Cases that are written with `input` and `target` are read by both tools."""
    file = tmp_path / "samples.jsonl"
    rows = [
        {"input": case.inputs, "target": case.expected or "", "id": case.id} for case in CASES[1:]
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [str(one.id) for one in json_dataset(str(file))] == [
        one.id for one in Dataset.load(file)
    ]


@pytest.mark.parametrize(("seconds", "state"), [(1.0, "passed"), (3.0, "failed")])
def test_durations_and_expectations_are_those_of_the_case(seconds: float, state: str) -> None:
    """Their evaluators see the expected output, the metadata and the duration of the task."""

    async def task(inputs: Any, ctx: Any) -> str:
        await ctx.sleep(seconds)
        return "4"

    judges = [as_evaluator(EqualsExpected()), as_evaluator(MaxDuration(2))]
    result = run_virtual(evaluate(task, [Case("2 + 2", "4")], judges, most_errors=0))
    assert [row[2] for row in result.rows] == [state]
    assert not math.isnan(result.mean or 0.0)
