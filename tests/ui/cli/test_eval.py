"""`eval`: a task on the cases of a data set, its comparison with a baseline, its gate, and what shows it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from loopwright.evaluators.test_report import read_report

from .conftest import Answer, Project

DOCUMENT = """\
schema: loopwright/1
name: answers
eval:
  dataset: {file: cases.jsonl}
  task: {set: "{{ case.inputs }}"}
  evaluate: {check: equals_expected}
  at_once: 4
"""
FIELDS = {
    "run_id", "status", "dataset", "counts", "score", "metrics", "baseline", "gate", "worst", "usage",
}  # fmt: skip


def write(project: Project, right: Sequence[bool], document: str = DOCUMENT) -> None:
    """Write a document and a case for each verdict."""
    rows: list[dict[str, Any]] = [
        {"id": f"c{n}", "inputs": f"city {n}", "expected": f"city {n}" if good else "river"}
        for n, good in enumerate(right)
    ]
    (project.folder / "answers.yaml").write_text(document)
    (project.folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated(project: Project, *words: str) -> Answer:
    return project.call("eval", "answers.yaml", "--yes", *words)


def test_an_evaluation_is_reported_in_four_lines(project: Project) -> None:
    """The data set, the score with its interval, the states and the cost; the object of --json has the same."""
    write(project, [True] * 18 + [False] * 2)
    done = evaluated(project, "--run-id", "first")
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[1].startswith("answers · cases.jsonl (")
    assert lines[1].endswith("20 cases × 1 · 4 at a time")  # noqa: RUF001
    assert lines[2].split() == ["score", "0.900", "[0.699,", "0.972]", "wilson,", "20", "cases"]
    assert "passed 18   failed 2   errored 0   undecided 0   skipped 0" in lines[3]
    assert "c18 0.00 expected river" in done.out
    shown = evaluated(project, "--json").json
    assert set(shown) == FIELDS
    assert shown["counts"]["passed"] == 18
    assert shown["score"]["mean"] == 0.9
    assert (shown["baseline"], shown["gate"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--min-score", "0.9"], 0, "gate: mean ≥ 0.9 ok"),
        (["--min-score", "0.95"], 3, "the mean is 0.900, and at least 0.950 is needed"),
        (["--min-lower", "0.8"], 3, "the lower limit is 0.699, and at least 0.800 is needed"),
        (["--max-drop", "0.1"], 2, "--max-drop compares with a baseline; name a run with --baseline"),
        (["--min-score", "1.5"], 2, "--min-score: "),
        (["--max-errors", "five"], 2, "--max-errors: 'five' is not a share"),
        (["--use", "tset"], 2, "there is no split 'tset'"),
        (["--baseline", "nothing"], 2, "there is no"),
        (["--cases-out", "no/cases.jsonl"], 2, "--cases-out: there is no folder no"),
        (["--journal", "memory:"], 2, "does not keep the cases"),
        (["--resume", "nothing"], 2, "there is no"),
    ],
)  # fmt: skip
def test_the_exit_code_is_that_of_the_gate_or_of_the_problem(
    project: Project, options: list[str], code: int, sentence: str
) -> None:
    """0 if it is met, 3 if not, 2 for a wrong command line, before any case has run."""
    write(project, [True] * 18 + [False] * 2)
    done = evaluated(project, *options)
    assert done.code == code, done
    assert sentence in done.out + done.err
    assert code != 2 or project.call("runs", "--json").json["total"] == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("cases.jsonl}", "case.jsonl}"), "case.jsonl"),
        (("at_once: 4", "at_ones: 4"), "did you mean 'at_once'?"),
        (("task: {set", "taks: {set"), "did you mean 'task'?"),
        (("eval:\n", "steps: [{name: a, set: 1}]\n#"), None),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(
    project: Project, change: tuple[str, str], sentence: str | None
) -> None:
    """A missing file, an unknown key, a document without an evaluation."""
    document = DOCUMENT.replace(*change)
    if sentence is None:
        document = "schema: loopwright/1\nname: a\nsteps: [{name: a, set: 1}]\n"
        sentence = "has no `eval`; to run its steps: loopwright run answers.yaml"
    write(project, [True], document)
    done = evaluated(project)
    assert done.code == 2
    assert done.err.startswith(("answers.yaml:", "loopwright: answers.yaml:"))
    assert sentence in done.err


def test_each_broken_line_of_a_data_set_has_its_place(project: Project) -> None:
    """No case runs, and all problems are named at once."""
    write(project, [True] * 3)
    with (project.folder / "cases.jsonl").open("a") as file:
        file.write('{"id": "x", "inputs":\n{"id": "c1", "inputs": 1}\n')
    done = evaluated(project)
    assert done.code == 2
    assert "cases.jsonl:4" in done.err


def test_too_many_errors_are_no_score(project: Project) -> None:
    """Exit code 1 with the counts and the first error; below the limit they are only counted."""
    write(project, [True] * 10, DOCUMENT.replace("{{ case.inputs }}", "{{ case.inputs[9] }}"))
    done = evaluated(project, "--max-errors", "0", "--run-id", "none", "--json")
    assert (done.code, done.json["status"], done.json["score"]) == (1, "failed", None)
    assert evaluated(project, "--max-errors", "100%").code == 0


def test_a_baseline_is_compared_by_case(project: Project) -> None:
    """Pairs are cases with the same content; a fall of more than --max-drop is exit code 3."""
    write(project, [True] * 30)
    assert evaluated(project, "--run-id", "base").code == 0
    # The output of a case that was right is now another one, and one case is new.
    worse = DOCUMENT.replace(
        "{{ case.inputs }}", "{{ 'sea' if case.id in ('c0', 'c1', 'c2') else case.inputs }}"
    )
    write(project, [True] * 31, worse)
    done = evaluated(
        project, "--baseline", "last", "--max-drop", "0.05", "--run-id", "next", "--json"
    )
    assert done.code == 3, done
    compared = done.json["baseline"]
    assert compared["run_id"] == "base"
    assert (compared["paired"], compared["unpaired"]) == (30, 1)
    assert (compared["wins"], compared["losses"], compared["ties"]) == (0, 3, 27)
    assert compared["difference"] == pytest.approx(-0.1)
    assert compared["p"] == pytest.approx(0.25)
    assert not done.json["gate"]["ok"]
    shown = project.call("show", "next")
    assert "difference -0.100" in shown.out
    assert "paired with base, 30 cases (1 not paired): 0 better, 3 worse, p 0.25" in shown.out
    assert project.call("show", "next", "--json").json["evaluation"] == done.json
    pair = project.call("compare", "base", "next", "--json").json["paired"]
    assert pair == compared
    assert "by case: -0.100" in project.call("compare", "base", "next").out


def test_a_limit_on_the_drop_waits_for_the_first_baseline(project: Project) -> None:
    """A document may have it from the beginning: without --baseline it is not compared."""
    write(project, [True] * 12, DOCUMENT + "  gate: {max_drop: 0.02, mean_at_least: 0.5}\n")
    first = evaluated(project, "--run-id", "first")
    assert first.code == 0, first
    assert "mean ≥ 0.5 ok" in first.out
    assert "drop ≤ 0.02 not compared" in first.out
    assert "drop ≤ 0.02 ok" in evaluated(project, "--baseline", "first").out


def test_a_run_that_is_no_evaluation_is_no_baseline(project: Project) -> None:
    """The sentence names the run, and nothing was run."""
    project.call("run", "steps:echo", "--input", "x", "--run-id", "other")
    write(project, [True])
    done = evaluated(project, "--baseline", "other")
    assert done.code == 2
    assert "--baseline: other has no cases to compare with" in done.err


def test_the_cases_are_written_in_the_order_of_the_file(project: Project) -> None:
    """As JSON lines, and as a report in JUnit's XML that test tools read; `export` writes the same lines."""
    write(project, [n % 5 != 3 for n in range(300)])
    words = ["--cases-out", "out.jsonl", "--junit", "out.xml", "--at-once", "16", "--run-id", "r"]
    assert evaluated(project, *words).code == 0
    text = (project.folder / "out.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["id"] for row in rows] == [f"c{n}" for n in range(300)]
    assert [row["state"] for row in rows[:5]] == ["passed", "passed", "passed", "failed", "passed"]
    names = [
        "id",
        "repeat",
        "state",
        "score",
        "passed",
        "output",
        "feedback",
        "metrics",
        "usage",
        "seconds",
    ]
    assert list(rows[3]) == names
    assert (rows[3]["output"], rows[3]["feedback"]) == ("city 3", "expected river")
    assert project.call("export", "r", "--format", "cases.jsonl").out == text
    suite = ET.parse(project.folder / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("300", "60", "0")
    report = read_report((project.folder / "out.xml").read_bytes())
    assert len(report.failures) == 60


def test_settings_of_the_command_replace_those_of_the_document(project: Project) -> None:
    """A sample is drawn by the seed, each case runs K times, and a resume of an ended run prints the same."""
    write(project, [True] * 50)
    words = ["--sample", "12", "--repeat", "2", "--seed", "7"]
    done = evaluated(project, *words, "--run-id", "a", "--json").json
    again = evaluated(project, *words, "--run-id", "b", "--json").json
    assert (done["dataset"]["cases"], done["dataset"]["ran"]) == (12, 24)
    assert done["worst"] == again["worst"]
    drawn = [project.call("export", name, "-f", "cases.jsonl").out for name in ("a", "b")]
    ids = [[json.loads(line)["id"] for line in text.splitlines()] for text in drawn]
    assert ids[0] == ids[1]
    resumed = evaluated(project, "--resume", "a", "--json").json
    assert resumed == done
    # A limit that is given to the resume counts.
    assert evaluated(project, "--resume", "a", "--min-lower", "0.99").code == 3


TASKS = """
import os, signal

def answer(question, ctx):
    with open("paid.txt", "a") as file:
        print(question, file=file)
    if question == "city 20" and not os.path.exists("go.txt"):
        os.kill(os.getpid(), signal.SIGKILL)
    return question
"""


def test_a_killed_evaluation_continues_with_its_settings(project: Project) -> None:
    """--resume names the run; what has ended does not run again, and another document is refused."""
    document = DOCUMENT.replace('{set: "{{ case.inputs }}"}', '{python: "tasks:answer"}')
    write(project, [True] * 40, document)
    (project.folder / "tasks.py").write_text(TASKS)
    killed = project.run(
        "eval", "answers.yaml", "--yes", "--at-once", "2", "--min-score", "1", "--run-id", "k"
    )
    assert killed.code < 0
    (project.folder / "go.txt").touch()
    (project.folder / "other.yaml").write_text(document)
    refused = project.call("eval", "other.yaml", "--resume", "k")
    assert refused.code == 2
    assert "--resume: k is not an evaluation of other.yaml" in refused.err
    running = project.call("show", "k")
    assert running.out.startswith("answers")
    assert "eval answers.yaml --resume k" in running.out + running.err
    done = evaluated(project, "--resume", "k", "--in-doubt", "rerun")
    assert done.code == 0, done
    assert "40 cases × 1 · 2 at a time" in done.out  # noqa: RUF001
    assert "gate: mean ≥ 1 ok" in done.out
    paid = (project.folder / "paid.txt").read_text().splitlines()
    assert len(set(paid)) == 40
    assert len(paid) <= 42


def test_show_lists_the_cases_that_did_not_pass(project: Project) -> None:
    """On one screen with their number, with --failed by pages, with --first all of them."""
    write(project, [n < 30 for n in range(100)])
    evaluated(project, "--run-id", "r")
    shown = project.call("show", "r")
    assert len(shown.out.splitlines()) <= 40
    assert "more cases: " in shown.out
    assert "--failed" in shown.out
    failed = project.call("show", "r", "--failed")
    assert failed.out.splitlines()[0] == "100 cases: 30 passed, 70 failed"
    assert "  failed     0.00  c30  expected river" in failed.out
    assert "show r --failed --first 51" in failed.out
    page = project.call("show", "r", "--first", "95", "--json").json
    assert (page["left"], [row["id"] for row in page["rows"]]) == (
        0,
        [f"c{n}" for n in range(94, 100)],
    )


def test_resume_and_run_report_an_evaluation_too(project: Project) -> None:
    """With the same lines and the same exit code, because it is the same run."""
    write(project, [False] * 3, DOCUMENT + "  gate: {mean_at_least: 0.5}\n")
    done = project.call("run", "answers.yaml", "--yes", "--run-id", "r")
    assert done.code == 3
    assert "gate not met: the mean is 0.000, and at least 0.500 is needed" in done.out


def test_a_run_without_cases_has_no_export_of_cases(project: Project) -> None:
    """The sentence says what the run is not."""
    project.call("run", "steps:echo", "--input", "x", "--run-id", "r")
    for form, sentence in (
        ("cases.jsonl", "r is not an evaluation of a data set"),
        ("candidates.csv", "no iteration of r has several candidates"),
    ):
        done = project.call("export", "r", "--format", form)
        assert (done.code, sentence in done.err) == (2, True)


CANDIDATES = """\
schema: loopwright/1
name: titles
steps:
  - name: write
    loop:
      execute: {set: "{{ loop.vary * loop.iteration }}"}
      candidates: {n: 2, vary: ["a ", "b c "]}
      evaluate: {check: {min_words: 5}}
      on_stall: {then: fresh, patience: 1, restarts: 3}
      until: [passed, {max_iterations: 4}]
"""


def test_a_table_has_the_candidates_and_the_chains_of_a_loop(project: Project) -> None:
    """candidates.csv has a row for each; the table of iterations has the chosen one, its chain and its parent."""
    (project.folder / "titles.yaml").write_text(CANDIDATES)
    project.call("run", "titles.yaml", "--run-id", "r", "--input", "x")
    rows = list(
        csv.DictReader(io.StringIO(project.call("export", "r", "-f", "candidates.csv").out))
    )
    assert [(r["iteration"], r["candidate"], r["vary"]) for r in rows[:2]] == [
        ("1", "1", "a "), ("1", "2", "b c "),
    ]  # fmt: skip
    assert sum(row["state"] == "chosen" for row in rows) * 2 == len(rows)
    table = list(csv.DictReader(io.StringIO(project.call("export", "r", "-f", "csv").out)))
    assert {"chain", "parent", "candidate"} <= set(table[0])
    assert "strategy" not in table[0]
    assert [row["iteration"] for row in table] == [str(n + 1) for n in range(len(table))]
    assert table[-1]["chain"] != "1"
