"""`loopwright measure judge --recorded`: the report, the gates and one sentence for each wrong input."""

from __future__ import annotations

import json

import pytest

from .conftest import Project

DOCUMENT = """
schema: loopwright/1
name: note
model: openai:gpt-4o-mini
steps:
- name: write
  loop:
    execute: {prompt: "Write"}
    evaluate: {judge: "It names the topic."}
    until: [passed, {max_iterations: 3}]
"""


@pytest.fixture
def labelled(project: Project) -> Project:
    """A folder with a document and 120 cases, 6 of which the judge accepts by mistake."""
    rows = [
        {"id": f"g{i}", "output": "fine", "label": True, "votes": [True] * 3} for i in range(60)
    ]
    rows += [
        {"id": f"b{i}", "output": f"bad {i}", "label": False, "votes": [i < 6] * 3}
        for i in range(60)
    ]
    (project.folder / "note.yaml").write_text(DOCUMENT)
    (project.folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return project


def test_report_goes_to_the_terminal_and_to_a_file(labelled: Project) -> None:
    answer = labelled.call(
        "measure", "judge", "note.yaml#write", "cases.jsonl", "--recorded", "--out", "report.json"
    )
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "judge 'It names the topic.', 120 cases, 3 votes"
    assert [line.split() for line in lines[2:4]] == [
        ["judge", "yes", "60", "6"],
        ["judge", "no", "0", "54"],
    ]
    assert sum(line.startswith("always wrong: b") for line in lines) == 6
    # Each error persists, so further votes add nothing.
    assert next(line for line in lines if line.startswith("icc")).endswith("3 votes count as 1.0")
    report = json.loads((labelled.folder / "report.json").read_text())
    assert report["gate"] == {"ok": True, "failed": []}
    assert "unattainable" in report["advice"]


def test_a_judge_behind_a_check_is_measured(labelled: Project) -> None:
    text = DOCUMENT.replace(
        '{judge: "It names the topic."}',
        '[{check: {max_words: 9}}, {judge: "It names the topic."}]',
    )
    (labelled.folder / "gated.yaml").write_text(text)
    answer = labelled.call("measure", "judge", "gated.yaml", "cases.jsonl", "--recorded", "--json")
    assert answer.json["confusion"] == {"tp": 60, "fp": 6, "tn": 54, "fn": 0, "undecided": 0}


def test_a_gate_that_is_not_met_has_exit_code_3(labelled: Project) -> None:
    arguments = ("measure", "judge", "note.yaml", "cases.jsonl", "--recorded", "--json")
    assert labelled.call(*arguments, "--min-specificity", "0.85", "--max-flip", "0.1").code == 0
    answer = labelled.call(*arguments, "--min-specificity", "0.95")
    assert answer.code == 3
    assert answer.json["gate"] == {"ok": False, "failed": ["specificity 0.900 is below 0.95"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("judge", "note.yaml", "cases.jsonl", "--recorded", "--robust"), "Remove --recorded"),
        (("judge", "note.yaml", "cases.jsonl", "--recorded", "--votes", "3"), "Remove --recorded"),
        (("juge", "note.yaml", "cases.jsonl"), "did you mean 'judge'"),
        (("judge", "note.yaml#wrte", "cases.jsonl", "--recorded"), "did you mean 'write'"),
        (("judge", "note.yaml", "none.jsonl", "--recorded"), "none.jsonl: it cannot be read"),
        (("judge", "note.yaml", "wrong.jsonl", "--recorded"), "wrong.jsonl:1: label: missing"),
        (("judge", "note.yaml", "wrong.jsonl"), "wrong.jsonl:1: label: missing"),
        (("judge", "note.yaml", "binary.jsonl"), "binary.jsonl: this file is not UTF-8 text"),
        (("judge", "note.yaml", "nan.jsonl"), "nan.jsonl:1: score: nan is not finite"),
        (("judge", "note.yaml", "deep.jsonl"), "deep.jsonl:1: the JSON is nested too deeply"),
        (("judge", "note.yaml", "cases.jsonl", "--recorded", "--alpha", "nan"), "alpha"),
        (
            ("judge", "note.yaml", "cases.jsonl", "--recorded", "--min-kappa", "nan"),
            "--min-kappa: nan",
        ),
        (
            ("judge", "note.yaml", "cases.jsonl", "--recorded", "--max-flip", "inf"),
            "--max-flip: inf",
        ),
        # Before the judge is asked, because its votes cost money.
        (("judge", "note.yaml", "cases.jsonl", "--alpha", "2"), "alpha: 2 is not between 0 and 1"),
        (("judge", "note.yaml", "cases.jsonl", "--certify", "0"), "certify: 0 is not between"),
        (
            ("judge", "note.yaml", "cases.jsonl", "--min-kappa", "2"),
            "--min-kappa: 2 is not a number from -1 to 1",
        ),
        (("judge", "note.yaml", "cases.jsonl", "--max-flip", "-1"), "is not a number from 0 to 1"),
        (("judge", "note.yaml", "cases.jsonl", "--out", "none/f.json"), "there is no folder none"),
    ],
)
def test_wrong_input_is_one_sentence(
    labelled: Project, arguments: tuple[str, ...], expected: str
) -> None:
    (labelled.folder / "wrong.jsonl").write_text('{"output": "x", "votes": [true]}\n')
    (labelled.folder / "binary.jsonl").write_bytes(b"\xff\xfe{}")
    (labelled.folder / "nan.jsonl").write_text('\ufeff{"output": "x", "label": true, "score": NaN}')
    (labelled.folder / "deep.jsonl").write_text("[" * 100_000)
    answer = labelled.call("measure", *arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_a_report_of_one_case(labelled: Project) -> None:
    """One case is enough for a report, which says what is missing; counts agree with their nouns."""
    case = {"id": "a", "output": "x", "label": True, "votes": [True]}
    (labelled.folder / "one.jsonl").write_text(json.dumps(case))
    answer = labelled.call("measure", "judge", "note.yaml", "one.jsonl", "--recorded")
    assert answer.code == 0
    assert answer.out.splitlines()[0].endswith("', 1 case, 1 vote")
    assert "specificity  no case has the label false" in answer.out
