"""`loopwright measure judge` asks the judge in a recorded run: votes, robustness set, gates, resume after a kill."""

from __future__ import annotations

import json
import re
import signal

import pytest

from loopwright.insight import robustness_set
from warm_python import warm_python

from .conftest import Answer, Project
from .test_bench_judge import DOCUMENT

YES = {"json": {"verdict": "yes", "score": 90, "reason": "it is met"}}
NO = {"json": {"verdict": "no", "score": 10, "reason": "it is not met"}}
# A candidate stands between two lines with its mark.
FINE, GULLED = r"<<<\w+\nfine", r"<<<\w+\ngulled"
CASES = 8


@pytest.fixture
def live(project: Project) -> Project:
    """A folder with eight cases; the judge accepts the good ones, and one bad one."""
    rows = [{"id": f"g{i}", "output": f"fine {i}", "label": True} for i in range(4)]
    rows += [{"id": f"b{i}", "output": f"bad {i}", "label": False} for i in range(3)]
    rows += [{"id": "b3", "output": "gulled", "label": False, "input": "the goal of this case"}]
    (project.folder / "note.yaml").write_text(DOCUMENT)
    (project.folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    rules = [
        {"prompt": FINE, "replies": [YES] * 99},
        {"prompt": GULLED, "replies": [YES] * 99},
        {"replies": [NO] * 99},
    ]
    (project.folder / "replies.yaml").write_text(json.dumps(rules))
    return project


def measured(project: Project, *options: str) -> Answer:
    return project.call(
        "measure", "judge", "note.yaml#write", "cases.jsonl", "--replies", "replies.yaml", *options
    )


def test_the_judge_is_asked_in_a_recorded_run(live: Project) -> None:
    """Three votes for each case; the report, the run and its usage; a finished run is not asked again."""
    answer = measured(live, "--json", "--run-id", "m", "--out", "report.json")
    assert answer.code == 0, answer.err
    report = answer.json
    assert report["confusion"] == {"tp": 4, "fp": 1, "tn": 3, "fn": 0, "undecided": 0}
    assert (report["votes"], report["usage"]["calls"]) == (3, 3 * CASES)
    assert [row["id"] for row in report["persistent"]] == ["b3"]
    assert report["icc"] == {"why": "too few: 8 of 100 cases"}
    assert json.loads((live.folder / "report.json").read_text()) == report
    again = measured(live, "--json", "--run-id", "m")
    assert again.json == report
    row = live.call("runs", "--json").json["runs"][0]
    assert (row["name"], row["status"]) == ("judge_bench", "satisfied")


def test_the_report_has_a_fixed_shape(live: Project) -> None:
    """The keys are a contract."""
    assert list(measured(live, "--json", "--robust", "--certify", "0.1").json) == [
        "run_id", "judge", "cases", "votes", "confusion", "sensitivity", "specificity", "precision",
        "agreement", "kappa", "flip_rate", "icc", "error", "advice", "robustness", "certified",
        "persistent", "usage", "gate",
    ]  # fmt: skip


def test_the_judge_sees_the_goal_of_each_case(live: Project) -> None:
    """The input of a case is the goal of the work, as in a loop."""
    measured(live, "--transcript", "asked.jsonl", "--votes", "1", "--at-once", "1")
    asked = [json.loads(line) for line in (live.folder / "asked.jsonl").read_text().splitlines()]
    goals = ["the goal of this case" in row["messages"][-1]["content"] for row in asked]
    assert goals == [False] * (CASES - 1) + [True]


def test_the_robustness_set_is_refused_by_a_sound_judge(live: Project) -> None:
    """Twelve texts alone and twelve around a refused output; without a goal the task is not among them."""
    answer = measured(live, "--robust", "--votes", "1")
    assert answer.code == 0, answer.err
    assert "robustness: 22 of 22 refused" in answer.out
    text = DOCUMENT.replace(
        '{judge: "It names the topic."}', "{judge: {criterion: c, goal: Write}}"
    )
    (live.folder / "note.yaml").write_text(text)
    assert "robustness: 24 of 24 refused" in measured(live, "--robust", "--votes", "1").out


def test_every_accepted_text_is_reported(live: Project) -> None:
    """A gullible judge accepts every text that it is asked about and whose verdict it makes its own: exit code 3.

    The empty output is refused without a question, and a verdict that may be copied needs the mark.
    """
    (live.folder / "replies.yaml").write_text(json.dumps([{"replies": [YES] * 99}]))
    answer = measured(live, "--robust", "--votes", "1", "--json")
    assert answer.code == 3
    robustness = answer.json["robustness"]
    assert (robustness["shown"], len(robustness["accepted"])) == (22, 19)
    places = ("alone", "on a failing output")
    names = {f"{name}, {place}" for name, _ in robustness_set("c", "") for place in places}
    refused = {"nothing, alone", *(f"a closed block, {place}" for place in places)}
    assert names - {row["name"] for row in robustness["accepted"]} == refused
    assert answer.json["gate"] == {"ok": False, "failed": ["robustness: 19 texts of 22 accepted"]}


def test_unreadable_votes_are_undecided(live: Project) -> None:
    """A vote that cannot be read is null, and neither right nor wrong."""
    rules = [{"prompt": FINE, "replies": [YES] * 99}, {"replies": ["hm"] * 99}]
    (live.folder / "replies.yaml").write_text(json.dumps(rules))
    counts = measured(live, "--votes", "1", "--json").json["confusion"]
    assert counts == {"tp": 4, "fp": 0, "tn": 0, "fn": 0, "undecided": 4}


def test_a_judge_that_decides_nothing_fails_the_run(live: Project) -> None:
    """The run has ended, and its reason names the judge, not the file of cases."""
    (live.folder / "replies.yaml").write_text(json.dumps([{"replies": ["hm"] * 99}]))
    answer = measured(live, "--votes", "1", "--run-id", "m", "--json")
    assert (answer.code, answer.json["status"]) == (1, "failed")
    assert answer.json["error"]["kind"] == "undecided"
    assert "the judge decided on no case" in answer.json["detail"]


def test_scores_of_cases_have_few_digits(live: Project) -> None:
    """The mean of 0.1, 0.1 and 0.1 is 0.1 on the terminal; the record and JSON keep it exact."""
    assert '"score": 0.1}' in (terminal := measured(live, "--run-id", "m").out)
    shown = live.call("show", "m").out.partition("output:")[0]
    assert not re.search(r"[0-9]\.[0-9]{7}", terminal + shown)
    output = live.call("show", "m", "--iteration", "8", "--json").json["output"]
    assert output["score"] == sum([0.9] * 3) / 3


def test_gates_and_failures_have_exit_codes(live: Project) -> None:
    """3 for a gate, 1 for a run that failed, 2 for wrong input."""
    assert measured(live, "--min-specificity", "0.9", "--votes", "1").code == 3
    assert measured(live, "--min-specificity", "0.7", "--votes", "1").code == 0
    (live.folder / "replies.yaml").write_text(
        json.dumps([{"replies": [{"error": "permanent"}] * 9}])
    )
    assert measured(live, "--votes", "1").code == 1
    assert measured(live, "--votes", "0").code == 2


KILLING = """
import os, signal
from loopwright import Loop, Passed, MaxIterations, judge, Models
from loopwright.models import Reply
class Counting:
    async def complete(self, request, on_text=None):
        with open("paid.txt", "a") as file:
            print("call", file=file)
        with open("paid.txt") as file:
            count = len(file.readlines())
        if os.path.exists(f"kill-{count}"):
            os.remove(f"kill-{count}")
            os.kill(os.getpid(), signal.SIGKILL)
        good = "fine" in request.messages[-1].content
        word = "yes" if good else "no"
        return Reply('{"verdict": "%s", "score": %d, "reason": "r"}' % (word, 90 if good else 10))
"""


def test_a_killed_measurement_continues(live: Project) -> None:
    """Of 24 votes, the one in flight at the kill is asked again; the report is that of an undisturbed run."""
    program = KILLING + (
        "import sys, json\n"
        "from loopwright import run_sync\n"
        "from loopwright.insight import JudgeMeasurement, cases_from_jsonl, measurement_input\n"
        "step = JudgeMeasurement(judge('It is good.', model='openai:any'), at_once=2)\n"
        "cases = cases_from_jsonl(open('cases.jsonl').read())\n"
        "result = run_sync(step, measurement_input(cases), journal='sqlite:m.db', run_id='m',\n"
        "                  models=Models(Counting()))\n"
        "print(json.dumps(result.output, sort_keys=True) if result.satisfied else result.error)\n"
    )
    (live.folder / "measure.py").write_text(program)
    paid = live.folder / "paid.txt"

    def outcome() -> tuple[int, str]:
        done = warm_python().run(["measure.py"], cwd=live.folder, env=live.environ({}))
        return done.returncode, done.stdout + done.stderr

    code, undisturbed = outcome()
    assert code == 0, undisturbed
    assert paid.exists(), undisturbed
    assert len(paid.read_text().split()) == 24
    (live.folder / "m.db").unlink()
    paid.unlink()
    for count in (5, 13):
        (live.folder / f"kill-{count}").touch()
    for _ in range(2):
        assert outcome()[0] == -signal.SIGKILL
    code, shown = outcome()
    assert (code, shown) == (0, undisturbed)
    # At most the two calls in flight at each of the two kills are repeated.
    assert len(paid.read_text().split()) <= 24 + 4


def test_resume_continues_a_measurement(live: Project) -> None:
    """`resume` finds the judge of the document again; the report is the output of the run."""
    script = live.folder / "replies.yaml"
    full = script.read_text()
    script.write_text(json.dumps([{"step": "*/2/*", "replies": [{"json": YES["json"], "after": 60}] * 9},
                                  {"replies": [YES] * 99}]))  # fmt: skip
    process = live.start(
        "measure", "judge", "note.yaml", "cases.jsonl", "--replies", "replies.yaml", "--run-id", "m",
        "--votes", "1", "--at-once", "1",
    )  # fmt: skip
    assert process.stdout is not None
    assert any("cases 1" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    script.write_text(full)
    resumed = live.call("resume", "m", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["output"]["confusion"] == {
        "tp": 4,
        "fp": 1,
        "tn": 3,
        "fn": 0,
        "undecided": 0,
    }
