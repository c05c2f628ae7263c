"""The examples run as their README says, each in a process and an empty folder of its own."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from warm_python import warm_python

EXAMPLES = Path(__file__).parents[2] / "examples"
README = (EXAMPLES / "README.md").read_text()
JOBS = EXAMPLES / "job_matching"
TESTS = EXAMPLES / "make_tests_pass"

# `python` in a document is the one that runs the tests, as in an activated environment.
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
}
MATCHING = [0.0, 0.551, 0.948, 0.973, 0.9, 1.0]
PASSING = [10, 10, 18]  # of 18 tests in each iteration

pytestmark = pytest.mark.slow


def _python(*words: object, cwd: Path) -> str:
    """Run Python with these arguments and return what it printed."""
    done = warm_python().run([*map(str, words)], cwd=cwd, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _loopwright(*words: object, cwd: Path) -> dict[str, Any]:
    """Run the command line under --json and return its object."""
    return json.loads(_python("-m", "loopwright", *words, "--json", cwd=cwd))


def _request(pause: float) -> dict[str, Any]:
    document = yaml.safe_load((JOBS / "job_matching.yaml").read_text())
    return {**document["input"], "pause": pause}


def _scores(loop: dict[str, Any]) -> list[float | None]:
    return [item["score"] for item in loop["history"]]


@pytest.fixture(scope="module")
def matching(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What job_matching.yaml gives when nobody interrupts it."""
    folder = tmp_path_factory.mktemp("matching")
    given = json.dumps(_request(0))
    return _loopwright("run", JOBS / "job_matching.yaml", "--yes", "--input", given, cwd=folder)


def test_job_matching_in_yaml_is_satisfied_in_six_rounds(matching: dict[str, Any]) -> None:
    """The document needs six rounds, which find nothing, too little, too much and enough."""
    loop = matching["loops"]["matching"]
    assert (matching["status"], matching["reason"]) == ("satisfied", "condition_met")
    assert _scores(loop) == MATCHING
    assert loop["output"]["found"] >= 5
    assert loop["output"]["average"] >= 0.7
    assert len(matching["output"].splitlines()) == 1 + loop["output"]["found"]


def test_job_matching_keeps_the_input_it_was_given(matching: dict[str, Any]) -> None:
    """Each round's input is the first one with other filters, and no filter passes the limits."""
    rounds = [item["input"] for item in matching["loops"]["matching"]["history"]]
    given = _request(0)
    assert rounds[0] == given
    assert all({**item, "filters": None} == {**given, "filters": None} for item in rounds)
    changes = [
        sum(before["filters"][name] != after["filters"][name] for name in before["filters"])
        for before, after in itertools.pairwise(rounds)
    ]
    assert changes == [1] * 5
    assert all(item["filters"]["salary_from"] >= given["person"]["salary_floor"] for item in rounds)


def test_job_matching_in_python_scores_the_same(tmp_path: Path) -> None:
    """The loop written in Python goes through the same scores as the document."""
    told = _python(JOBS / "job_matching.py", cwd=tmp_path)
    scores = re.findall(r"^\d+  score (\S+)", told, re.MULTILINE)
    assert [float(score) for score in scores] == MATCHING
    assert "satisfied after 6 iterations" in told


def test_the_catalogue_is_made_once_in_the_working_directory(tmp_path: Path) -> None:
    """The first run makes the catalogue under .loopwright, the second one finds it as it was."""
    _python(JOBS / "job_matching.py", cwd=tmp_path)
    (made,) = (tmp_path / ".loopwright" / "job_matching").iterdir()
    before = made.stat()
    _python(JOBS / "job_matching.py", cwd=tmp_path)
    assert made.stat().st_mtime_ns == before.st_mtime_ns
    assert [*tmp_path.iterdir()] == [tmp_path / ".loopwright"]


def test_an_interrupted_job_matching_goes_on_to_the_same_result(
    matching: dict[str, Any], tmp_path: Path
) -> None:
    """After SIGINT in the third round `resume` gives what the uninterrupted run gave."""
    given = json.dumps(_request(0.3))
    command = [
        sys.executable,
        "-m",
        "loopwright",
        "run",
        JOBS / "job_matching.yaml",
        "--yes",
        "-i",
        given,
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = _until(process.stdout, "matching 2:")
        process.send_signal(signal.SIGINT)
        seen += process.stdout.read()
    assert process.returncode == 130, seen
    resumed = _loopwright("resume", "last", cwd=tmp_path)
    loop = resumed["loops"]["matching"]
    assert _scores(loop) == MATCHING
    assert loop["output"] == matching["loops"]["matching"]["output"]
    assert resumed["output"] == matching["output"]


def _until(lines: Iterator[str], word: str) -> str:
    """Read up to the line that holds a word, and return what was read."""
    seen = ""
    for line in lines:
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"{word!r} is not in:\n{seen}")


def test_make_tests_pass_makes_a_branch_that_passes(tmp_path: Path) -> None:
    """An agent repairs a part, makes a mistake and repairs the rest; the branch passes, main stays as it was."""
    told = _python(TESTS / "make_tests_pass.py", cwd=tmp_path)
    assert told == _shown("python examples/make_tests_pass/make_tests_pass.py")
    repository = tmp_path / ".loopwright" / "make_tests_pass"
    before = (TESTS / "project" / "opening_hours.py").read_text()
    assert (repository / "opening_hours.py").read_text() == before
    subprocess.run(["git", "checkout", "-q", "repaired"], cwd=repository, check=True, timeout=10)
    assert " passed" in _python("-m", "pytest", "-q", cwd=repository)


def test_keep_or_revert_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """The same changes stay in every run, and the project is unchanged."""
    project = EXAMPLES / "keep_or_revert" / "project"
    before = {file.name: file.read_bytes() for file in project.iterdir() if file.is_file()}
    told = _python(EXAMPLES / "keep_or_revert" / "keep_or_revert.py", cwd=tmp_path)
    assert _timeless(told) == _shown("python examples/keep_or_revert/keep_or_revert.py")
    assert {f.name: f.read_bytes() for f in project.iterdir() if f.is_file()} == before


def test_wait_for_ci_repairs_what_another_process_reports(tmp_path: Path) -> None:
    """The first push is red and the second green, by the events of the CI process; the project is unchanged."""
    example = tmp_path / "wait_for_ci"
    shutil.copytree(EXAMPLES / "wait_for_ci", example, ignore=shutil.ignore_patterns(".loopwright"))
    told = _python(example / "wait_for_ci.py", cwd=tmp_path)
    assert told == _shown("python examples/wait_for_ci/wait_for_ci.py")
    assert "def " not in (example / "project" / "prices.py").read_text()


def test_make_tests_pass_in_yaml_leaves_a_patch(tmp_path: Path) -> None:
    """The document works on a copy of the folder, and its patch makes the tests pass."""
    shutil.copytree(TESTS, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__"))
    result = _loopwright("run", "example/make_tests_pass.yaml", "--yes", cwd=tmp_path)
    loop = result["loops"]["repair"]
    assert (result["status"], [round(score * 18) for score in _scores(loop)]) == (
        "satisfied",
        PASSING,
    )
    patch = result["workspace"]["patch"]
    subprocess.run(
        ["git", "apply", patch], cwd=tmp_path / "example" / "project", check=True, timeout=10
    )
    assert " passed" in _python("-m", "pytest", "-q", cwd=tmp_path / "example" / "project")


def test_the_outer_budget_ends_the_nested_loops(tmp_path: Path) -> None:
    """The budget of the outer loop cuts the inner one short, and the best of before is kept."""
    told = _python(EXAMPLES / "nested_budget.py", cwd=tmp_path)
    assert _timeless(told) == _shown("python examples/nested_budget.py")
    assert "4  from 70  $0.06  {'at': 78" in told  # what the climb had when its money was gone
    assert told.endswith("best: {'at': 75.0, 'strength': 0.9582}, for $0.64 in 32 calls\n")


def test_the_text_is_polished_on_scripted_replies(tmp_path: Path) -> None:
    """The polishing example needs no model, and prints what the README shows."""
    told = _python(EXAMPLES / "polish_text" / "polish.py", cwd=tmp_path)
    assert _timeless(told) == _shown("python examples/polish_text/polish.py")


def test_the_demo_runs_the_first_example_and_says_where_to_look(tmp_path: Path) -> None:
    """The demo prints the command, what the README shows under it, and the commands to go on."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    told = _python("examples/demo.py", cwd=tmp_path)
    command = "loopwright run examples/job_matching/job_matching.yaml --yes"
    first, _, rest = told.partition("\n\n")
    assert first.endswith(command)
    assert _timeless(rest).startswith(_shown(command))
    assert "show last" in rest
    assert "resume last" in rest
    assert "\x1b" not in told


def _shown(command: str) -> str:
    """Return what the README shows under a command, without the times and ids of one run."""
    blocks = re.findall(r"^```console\n\$ (.*)\n([^`]*)^```$", README, re.MULTILINE)
    return _timeless(dict(blocks)[command])


def _timeless(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\d{8}-\d{6}-\w{6}|\b[\d.]+ m?s\b", "…", lines)
