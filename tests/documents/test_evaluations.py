"""Documents with `eval:` in place of steps, and data sets as evaluators of loops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from documents.playing import loaded, play, written
from loopwright.documents import Settings, check, export_schema, load
from loopwright.documents.load import to_native_yaml

CASES = [{"id": f"c{n}", "question": f"{n} plus {n}", "answer": str(2 * n)} for n in range(8)]
EVAL = """\
schema: loopwright/1
name: answers
model: openai:gpt-4o
eval:
  dataset: {file: cases.jsonl, fields: {inputs: question, expected: answer}}
  task: {prompt: "Add {{ case.inputs }} of {{ case.id }} = {{ value }}"}
  evaluate: [{check: equals_expected}, {judge: "It agrees with {{ case.expected }}"}]
  errors: {retry: 1, most: 25%}
  gate: {mean_at_least: 0.8}
"""


def with_cases(*documents: tuple[str, str], cases: Any = CASES) -> dict[str, str]:
    """Return files: documents, and the cases beside them."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    return {**dict(documents), "cases.jsonl": lines}


def test_an_evaluation_runs_its_task_on_each_case(tmp_path: Path) -> None:
    """The task gets the inputs, checks run before the judge, and the output is the summary of the scores."""
    found = loaded(tmp_path, with_cases(("answers.yaml", EVAL)))
    replies = [
        {"prompt": "^Add 3 plus 3 of c3 = 3 plus 3$", "replies": ["7"]},
        *[{"prompt": f"^Add {n} plus {n} of", "replies": [f" {2 * n}\n"]} for n in range(8)],
        {
            "prompt": "agrees with [0-9]+",
            "replies": ['{"verdict": "yes", "score": 90, "reason": "It does."}'],
        },
    ]
    result = play(found, replies)
    assert result.output["counts"]["passed"] == 7
    assert result.output["worst"][0]["id"] == "c3"
    assert result.output["worst"][0]["feedback"] == "expected 6"
    assert result.usage.calls == 8 + 7


def test_the_plan_counts_the_cases(tmp_path: Path) -> None:
    """The worst case is the calls of one case, for each case, repetition and attempt."""
    text = EVAL.replace("  errors:", "  repeat: 3\n  errors:")
    plan = loaded(tmp_path, with_cases(("answers.yaml", text))).plan()
    assert plan["eval"] == {"dataset": "cases.jsonl", "cases": 8, "repeat": 3, "task": "prompt"}
    assert plan["worst_case_calls"] == 8 * 3 * 2 * (1 + 2)
    assert [Path(name).name for name in plan["files"]] == ["cases.jsonl"]


def test_a_workflow_is_a_task(tmp_path: Path) -> None:
    """A document of its own has `case`, and its input is that of the case."""
    text = EVAL.replace(
        '{prompt: "Add {{ case.inputs }} of {{ case.id }} = {{ value }}"}',
        "{workflow: task, with: {input: '{{ value }}'}}",
    ).replace(', {judge: "It agrees with {{ case.expected }}"}', "")
    task = (
        "schema: loopwright/1\nname: task\nsteps: [{name: a, set: '{{ case.id }} {{ input }}'}]\n"
    )
    cases = [
        {"id": "c1", "question": "x", "answer": "c1 x"},
        {"id": "c2", "question": "y", "answer": ""},
    ]
    found = loaded(tmp_path, with_cases(("answers.yaml", text), ("task.yaml", task), cases=cases))
    assert play(found).output["counts"]["passed"] == 1
    assert check(tmp_path / "task.yaml")[0].message.startswith("template: 'case' is not defined")


def test_a_task_that_names_what_is_expected_is_errored(tmp_path: Path) -> None:
    """The evaluation fails, and the sentence says what a task does not see."""
    text = EVAL.replace("{{ value }}", "{{ case.expected }}")
    result = play(loaded(tmp_path, with_cases(("answers.yaml", text))))
    assert result.status.value == "failed"
    assert "expected" in result.detail


def test_an_evaluation_is_printed_and_exported(tmp_path: Path) -> None:
    """The printed document loads as the same one, and the JSON Schema has both forms."""
    found = loaded(tmp_path, with_cases(("answers.yaml", EVAL)))
    printed = to_native_yaml(next(iter(found.documents.values())))
    again = loaded(tmp_path, {"again.yaml": printed})
    assert again.step.fingerprint == found.step.fingerprint
    assert export_schema()["anyOf"] == [{"required": ["steps"]}, {"required": ["eval"]}]


LOOP = """\
schema: loopwright/1
name: improve
model: openai:gpt-4o
input: Answer.
steps:
  - name: write
    loop:
      execute: {prompt: "A better prompt than {{ loop.last.output or input }}. {{ loop.feedback }}"}
      evaluate:
        dataset:
          file: cases.jsonl
          split: {train: 50, validation: 25, test: 25}
          fields: {inputs: question, expected: answer}
          run: {prompt: "{{ value }} {{ case.inputs }}", temperature: 0}
          evaluate: {check: equals_expected}
          minibatch: {size: 8}
      max_iterations: 2
"""


def test_a_loop_is_evaluated_on_a_data_set(tmp_path: Path) -> None:
    """`value` is the output of the loop; the held-out cases are scored at the end."""
    cases = [{"question": f"{n} plus {n}", "answer": str(2 * n)} for n in range(40)]
    found = loaded(tmp_path, with_cases(("improve.yaml", LOOP), cases=cases))
    sums = [{"prompt": f"^Add: {n} plus ", "replies": [str(2 * n)]} for n in range(40)]
    replies = [
        {"prompt": "^A better prompt than Answer", "replies": ["Guess:"]},
        {"prompt": "^A better prompt than Guess:", "replies": ["Add:"]},
        *sums,
        {"prompt": "^Guess:", "replies": ["none"]},
    ]
    result = play(found, replies, "Answer.")
    (loop,) = result.loops.values()
    assert [item.score for item in loop.history] == [0.0, 1.0]
    assert result.output == "Add:"
    assert loop.held_out is not None
    assert loop.held_out["dataset"]["difference"]["difference"] == 1.0


WRONG: Mapping[str, tuple[str, list[str]]] = {
    "both": (
        EVAL + "steps: [{name: a, set: 1}]\n",
        [
            "has both steps and eval; put the steps into a document of their own, and name it as the task"
        ],
    ),
    "unknown key": (
        EVAL.replace("  gate:", "  gates:"),
        ["eval.gates: unknown key 'gates'; did you mean 'gate'?"],
    ),
    "share": (
        EVAL.replace("25%", "'25 of 100'"),
        ["eval.errors.most: a share is a number from 0 to 1, or a percentage such as 5%"],
    ),
    "outside": (
        EVAL.replace("cases.jsonl", "../cases.jsonl"),
        ["eval.dataset.file: '../cases.jsonl' is outside the project folder"],
    ),
    "no file": (EVAL.replace("cases.jsonl", "none.jsonl"), ["eval.dataset.file: "]),
    "split": (
        EVAL.replace("  task:", "  use: train\n  task:"),
        ["eval.use: cases.jsonl: there is no split 'train'"],
    ),
    "no case": (
        "schema: loopwright/1\nname: x\nsteps:\n  - name: a\n    loop:\n      execute: {set: 1}\n"
        "      evaluate: {check: equals_expected}\n",
        ["steps[0].loop.evaluate.check: equals_expected needs a case of a data set"],
    ),
    "held out": (
        LOOP.replace("          minibatch: {size: 8}\n", "          use: test\n"),
        ["steps[0].loop.evaluate.dataset: dataset: use: 'test' is held out"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_evaluation_is_one_sentence_with_its_place(tmp_path: Path, name: str) -> None:
    """Each problem has its key and what to do."""
    text, sentences = WRONG[name]
    file = written(tmp_path, with_cases(("main.yaml", text), cases=CASES * 1))
    problems = [str(problem) for problem in check(file)]
    assert len(problems) == len(sentences), problems
    for problem, sentence in zip(problems, sentences, strict=True):
        assert sentence in problem


def test_each_broken_line_of_a_data_set_is_a_problem(tmp_path: Path) -> None:
    """The file and the line of each are named."""
    files = with_cases(("main.yaml", EVAL))
    files["cases.jsonl"] += '{"question": \n{"questions": "1 + 1"}\n'
    problems = [problem.message for problem in check(written(tmp_path, files))]
    assert [message[:14] for message in problems] == ["cases.jsonl:9:", "cases.jsonl:10"]


def test_few_held_out_cases_are_noted(tmp_path: Path) -> None:
    """A note of `check` says how many there are."""
    found = load(written(tmp_path, with_cases(("main.yaml", LOOP))), Settings(execute=False))
    assert any("few_held_out" in str(note) for note in found.notes)
    # Of eight cases, the hash may hold out none.
    few = EVAL.replace("{file: cases.jsonl,", "{file: cases.jsonl, split: {train: 99, test: 1},")
    found = load(written(tmp_path, with_cases(("main.yaml", few))), Settings(execute=False))
    assert [note for note in map(str, found.notes) if "no cases are held out" in note]
