"""`export --format inspect` and `pydantic-evals`; `tests/interop` reads them with these tools."""

from __future__ import annotations

import json

from .conftest import Project

DOCUMENT = """\
schema: loopwright/1
name: answers
model: openai:gpt-4o
eval:
  dataset: {file: cases.jsonl}
  task: {prompt: "Add {{ case.inputs }}"}
  evaluate: {check: equals_expected}
  repeat: 2
"""
CASES = [
    {"id": "a", "inputs": "2 + 2", "expected": "4", "metadata": {"kind": "easy"}},
    {"id": "b", "inputs": "2 + 3", "expected": "5"},
]
REPLIES = [{"prompt": "2 . 2", "replies": ["4", "4"]}, {"replies": ["6", "5"]}]


def lines(cases: list[dict[str, object]]) -> str:
    return "".join(json.dumps(case) + "\n" for case in cases)


def test_results_are_written_for_inspect_and_pydantic_evals(project: Project) -> None:
    """Each run of a case has its inputs, expectation, output, score and verdict; a case that was changed since has no inputs."""
    (project.folder / "answers.yaml").write_text(DOCUMENT)
    (project.folder / "cases.jsonl").write_text(lines(CASES))
    (project.folder / "replies.yaml").write_text(json.dumps(REPLIES))
    done = project.call(
        "eval", "answers.yaml", "--replies", "replies.yaml", "--yes", "--at-once", "1"
    )
    assert done.code == 0, done.err
    log = json.loads(project.call("export", "last", "--format", "inspect").out)
    samples = [
        (s["id"], s["epoch"], s["input"], s["target"], s["scores"]["score"]["value"])
        for s in log["samples"]
    ]
    assert samples == [
        ("a", 1, "2 + 2", "4", 1),
        ("a", 2, "2 + 2", "4", 1),
        ("b", 1, "2 + 3", "5", 0),
        ("b", 2, "2 + 3", "5", 1),
    ]
    assert (
        log["eval"]["task"],
        log["eval"]["dataset"]["name"],
        log["eval"]["config"]["epochs"],
    ) == ("answers", "cases.jsonl", 2)
    assert log["results"]["scores"][0]["metrics"]["mean"]["value"] == 0.75

    (project.folder / "cases.jsonl").write_text(lines([{**CASES[0], "expected": "5"}, CASES[1]]))
    report = json.loads(project.call("export", "last", "--format", "pydantic-evals").out)
    cases = [
        (c["name"], c["source_case_name"], c["inputs"], c["expected_output"], c["output"])
        for c in report["cases"]
    ]
    assert cases == [
        ("a [1/2]", "a", None, None, "4"), ("a [2/2]", "a", None, None, "4"),
        ("b [1/2]", "b", "2 + 3", "5", "6"), ("b [2/2]", "b", "2 + 3", "5", "5"),
    ]  # fmt: skip
    assert [c["assertions"]["passed"]["value"] for c in report["cases"]] == [
        True,
        True,
        False,
        True,
    ]


def test_other_runs_have_no_cases(project: Project) -> None:
    """A run of a loop is refused with a sentence."""
    (project.folder / "main.yaml").write_text(
        "schema: loopwright/1\nname: main\nsteps: [{name: a, set: 1}]\n"
    )
    project.call("run", "main.yaml")
    refused = project.call("export", "last", "--format", "inspect")
    assert (refused.code, refused.out) == (2, "")
    assert "is not an evaluation of a data set" in refused.err
