"""`loopwright measure judge --pairs`: both orders of each pair, gates, one sentence for each wrong input, resume."""

from __future__ import annotations

import json
import signal

import pytest

from .conftest import Answer, Project

FIRST = {"json": {"winner": "first", "reason": "r"}}
SECOND = {"json": {"winner": "second", "reason": "r"}}
PROGRAM = """
from loopwright import pair_judge
duel = pair_judge("Which title is more exact?", model="openai:any")
"""


@pytest.fixture
def pairs(project: Project) -> Project:
    """A folder with eight pairs; the judge is right about six of them, and follows the position in two."""
    rows = [
        {"id": f"p{i}", "first": f"fine {i}", "second": f"bad {i}", "label": "first"}
        for i in range(6)
    ]
    rows += [
        {"id": f"q{i}", "first": "alike", "second": f"alike {i}", "label": "tie"} for i in range(2)
    ]
    (project.folder / "titles.py").write_text(PROGRAM)
    (project.folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    bare = [{"first": row["first"], "second": row["second"]} for row in rows]
    (project.folder / "bare.jsonl").write_text("\n".join(map(json.dumps, bare)))
    rules = [
        {"prompt": r"First candidate:\n<<<\w+\nbad", "replies": [SECOND] * 99},
        {"replies": [FIRST] * 99},
    ]
    (project.folder / "replies.yaml").write_text(json.dumps(rules))
    return project


def measured(project: Project, *options: str, file: str = "pairs.jsonl") -> Answer:
    words = ("measure", "judge", "titles:duel", "--pairs", file, "--replies", "replies.yaml")
    return project.call(*words, *options)


def test_the_report_goes_to_the_terminal_and_to_a_file(pairs: Project) -> None:
    """Sixteen calls for eight pairs; a finished run is not asked again; the keys are a contract."""
    answer = measured(pairs, "--run-id", "m", "--out", "report.json")
    assert answer.code == 0, answer.err
    shown = answer.out[answer.out.index("judge 'Which") :].splitlines()
    assert shown[0] == "judge 'Which title is more exact?', 8 pairs in both orders"
    assert [line.split()[:2] for line in shown[1:4]] == [
        ["consistent_accuracy", "0.750"], ["consistency", "0.750"], ["first_share", "0.625"],
    ]  # fmt: skip
    report = json.loads((pairs.folder / "report.json").read_text())
    assert list(report) == [
        "run_id", "judge", "pairs", "undecided", "consistent_accuracy", "consistency", "flip_rate", "first_share",
        "turned", "persistent", "usage", "gate",
    ]  # fmt: skip
    assert (report["turned"], report["usage"]["calls"]) == (["q0", "q1"], 16)
    assert measured(pairs, "--run-id", "m", "--json").json == report


def test_gates_have_exit_code_3(pairs: Project) -> None:
    """Both gates at their value are met."""
    assert measured(pairs, "--min-consistent", "0.75", "--max-flip", "0.25").code == 0
    answer = measured(pairs, "--json", "--min-consistent", "0.8", "--max-flip", "0.2")
    assert answer.code == 3
    assert answer.json["gate"]["failed"] == [
        "consistent_accuracy 0.750 is below 0.8",
        "flip_rate 0.250 is above 0.2",
    ]


def test_without_labels_only_consistency_is_reported(pairs: Project) -> None:
    answer = measured(pairs, "--max-flip", "0.5", file="bare.jsonl")
    assert answer.code == 0, answer.err
    assert "consistent_accuracy no pair has a label" in answer.out
    assert "consistency         0.750" in answer.out


def test_a_judge_that_decides_nothing_fails_the_run(pairs: Project) -> None:
    """Unreadable answers are undecided, and a run without any other has failed."""
    rules = [{"prompt": "fine 0", "replies": [FIRST] * 9}, {"replies": ["hm"] * 99}]
    (pairs.folder / "replies.yaml").write_text(json.dumps(rules))
    assert measured(pairs, "--json").json["undecided"] == 7
    (pairs.folder / "replies.yaml").write_text(json.dumps([{"replies": ["hm"] * 99}]))
    answer = measured(pairs, "--json")
    assert (answer.code, answer.json["error"]["kind"]) == (1, "undecided")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("titles:duel", "--pairs", "none.jsonl"), "none.jsonl: it cannot be read"),
        (("titles:duel", "--pairs", "broken.jsonl"), "broken.jsonl:1:2: not valid JSON"),
        (("titles:duel", "--pairs", "label.jsonl"), "label.jsonl:1: label: 'frst' is not first"),
        (("titles:duel", "--pairs", "empty.jsonl"), "empty.jsonl: there is no case"),
        (
            ("titles:duel", "--pairs", "bare.jsonl", "--min-consistent", "0.5"),
            "bare.jsonl: the pairs have no label",
        ),
        (("titles:duel",), "name either CASES or --pairs FILE"),
        (("titles:duel", "pairs.jsonl", "--pairs", "pairs.jsonl"), "name either CASES or --pairs"),
        (("titles:duel", "--pairs", "pairs.jsonl", "--votes", "2"), "--votes is not for --pairs"),
        (("titles:duel", "--pairs", "pairs.jsonl", "--recorded"), "--recorded is not for --pairs"),
        (
            ("titles:duel", "cases.jsonl", "--min-consistent", "0.5"),
            "--min-consistent needs --pairs",
        ),
        (
            ("titles:duel", "--pairs", "pairs.jsonl", "--min-consistent", "2"),
            "--min-consistent: 2 is not a number from 0 to 1",
        ),
        (("note.yaml", "--pairs", "pairs.jsonl"), "note: this document has no judge of pairs"),
        (("titles:duel#x", "--pairs", "pairs.jsonl"), "no judge in step 'x'"),
    ],
)
def test_wrong_input_is_one_sentence(pairs: Project, words: tuple[str, ...], expected: str) -> None:
    """Before the judge is asked, with the file, the line or the option."""
    (pairs.folder / "broken.jsonl").write_text("{")
    (pairs.folder / "label.jsonl").write_text('{"first": "a", "second": "b", "label": "frst"}')
    (pairs.folder / "empty.jsonl").write_text("\n")
    (pairs.folder / "note.yaml").write_text(
        "schema: loopwright/1\nname: note\nmodel: openai:any\nsteps: [{name: write, prompt: Write}]\n"
    )
    answer = pairs.call("measure", "judge", *words)
    assert answer.code == 2
    assert expected in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_resume_continues_a_measurement(pairs: Project) -> None:
    """`resume` finds the judge of the program again, and pays for no recorded answer."""
    script = pairs.folder / "replies.yaml"
    full = script.read_text()
    script.write_text(json.dumps([{"step": "*/2/*", "replies": [{**FIRST, "after": 60}] * 9},
                                  {"replies": [FIRST] * 99}]))  # fmt: skip
    process = pairs.start(
        "measure", "judge", "titles:duel", "--pairs", "pairs.jsonl", "--replies", "replies.yaml",
        "--run-id", "m", "--at-once", "1",
    )  # fmt: skip
    assert process.stdout is not None
    assert any("pairs 1" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    script.write_text(full)
    resumed = pairs.call("resume", "m", "--json")
    assert resumed.code == 0, resumed.err
    # The first pair was answered `first` twice before the interruption.
    assert resumed.json["output"]["turned"] == ["p0", "q0", "q1"]
