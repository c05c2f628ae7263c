"""The options of `loopwright until`, each as a key of the document that it prints and runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import Workspace, keep_or_revert_loop, metric, run_sync, until
from loopwright.errors import ConfigurationError
from loopwright.models import Models, ScriptedModel
from loopwright.tools.sandbox import sandbox_problem

from .conftest import Project

CHECK = "grep -q 42 answer.txt"
CALLS = [
    [{"write": {"answer.txt": "41"}}, {"spend": {"input_tokens": 10**6, "output_tokens": 10**5}}, {"say": "Done."}],
    [{"write": {"answer.txt": "42"}}, {"spend": {"input_tokens": 10**6, "output_tokens": 10**5}}, {"say": "Fixed."}],
]  # fmt: skip
VERDICTS = """\
- step: "*"
  replies:
    - {json: {verdict: "no", score: 20, reason: "the answer has no reason"}}
    - {json: {verdict: "yes", score: 90, reason: "it is stated"}}
"""


@pytest.fixture
def folder(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with the manifest of a fake agent that needs two iterations."""
    monkeypatch.setenv("LOOPWRIGHT_TRUST", "all")
    fake_agent(project.folder, "claude", CALLS)
    fake_agent(project.folder, "codex", CALLS)
    (project.folder / "replies.yaml").write_text(VERDICTS)
    return project


def fake_agent(folder: Path, name: str, calls: Sequence[Any]) -> None:
    """Write the manifest `NAME.yaml` of a fake agent beside its script."""
    words = [
        sys.executable,
        "-m",
        "loopwright.testing.fake_agent",
        "--as",
        name,
        "--script",
        f"{name}.json",
    ]
    (folder / f"{name}.yaml").write_text(
        yaml.safe_dump({"extends": name, "program": words, "tested": []})
    )
    (folder / f"{name}.json").write_text(json.dumps(calls))


def printed(folder: Project, *options: str, agent: Sequence[str] = ("./claude.yaml",)) -> Any:
    """Return the loop of the printed document."""
    answer = folder.call("until", CHECK, "--print-yaml", *options, "--", *agent)
    assert answer.code == 0, answer.err
    return yaml.safe_load(answer.out)["steps"][0]["loop"]


def test_each_option_is_a_key(folder: Project) -> None:
    """The document has the options of the command line, and only those."""
    words = [
        "--session",
        "loop",
        "--permissions",
        "full",
        "--price",
        "3,15",
        "--sandbox",
        "bubblewrap",
    ]
    loop = printed(folder, *words)
    agent = loop["execute"]["agent"]
    assert {key: agent[key] for key in ("session", "permissions", "price", "sandbox")} == {
        "session": "loop", "permissions": "full", "price": {"input": 3.0, "output": 15.0}, "sandbox": "bubblewrap",
    }  # fmt: skip
    assert loop["evaluate"] == {"tests": {"command": CHECK, "sandbox": "bubblewrap"}}
    loop = printed(folder, "--sandbox", "none")
    assert loop["evaluate"] == {"tests": CHECK}
    assert set(loop["execute"]["agent"]) == {"cli", "prompt", "permissions"}
    words = [
        "--protect",
        "data/",
        "--allow",
        "conftest.py",
        "--on-tamper",
        "stop",
        "--held-out",
        "../hidden",
    ]
    loop = printed(folder, *words)
    assert loop["evaluate"]["tests"] == {
        "command": CHECK, "sandbox": "auto", "protect": ["auto", "data/"], "allow": ["conftest.py"],
        "on_tamper": "stop", "held_out": "../hidden",
    }  # fmt: skip
    assert loop["execute"]["agent"]["sandbox"] == {"mode": "auto", "hide": ["../hidden"]}
    loop = printed(folder, "--judge", "It is short.", "--judge", "{{ x }}", "--model", "openai:any")
    judge = loop["evaluate"]["judge"]
    assert judge["criteria"] == ["It is short.", "{{ '{' }}{ x }}"]
    assert (judge["of"], judge["model"], loop["evaluate"]["graded"]) == (
        "changes",
        "openai:any",
        True,
    )


def test_the_first_command_of_the_readme(folder: Project) -> None:
    """It is valid as it stands there, although it needs Claude Code to run."""
    text = (Path(__file__).parents[3] / "README.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("    loopwright until "))
    words = shlex.split(line)[1:]
    answer = folder.call(words[0], "--print-yaml", *words[1:])
    agent = yaml.safe_load(answer.out)["steps"][0]["loop"]["execute"]["agent"]
    assert agent["cli"] == "claude" and agent["prompt"].startswith("Make the tests pass.\n")


@pytest.mark.parametrize(
    "options",
    [
        ("--session", "loop", "--permissions", "read", "--price", "3,15", "--on-stall", "last"),
        ("--sandbox", "none", "--on-stall", "stop", "--patience", "1", "--keep", "last"),
        ("--judge", "The answer is stated.", "--model", "openai:any", "--replies", "replies.yaml"),
        ("--max-usd", "9", "--max", "3", "--max-time", "5m", "--check-timeout", "1m", "--no-merge"),
    ],
)
def test_a_printed_document_runs_identically(folder: Project, options: tuple[str, ...]) -> None:
    """For any options, the printed document makes the same entries as the command."""
    words = ["until", CHECK, *options]
    answer = folder.call(*words, "--print-yaml", "--", "./claude.yaml")
    (folder.folder / "fix.yaml").write_text(answer.out)
    replies = ["--replies", "replies.yaml"] if "--judge" in options else []
    usd = ["--max-usd", "9"] if "--max-usd" in options else []
    entries = []
    for number, command in enumerate(
        ([*words, "--", "./claude.yaml"], ["run", "fix.yaml", *replies, *usd])
    ):
        command = [command[0], f"--run-id=run{number}", *command[1:]]
        folder.call(*command)
        exported = folder.call("export", f"run{number}", "--format", "json").json
        entries.append([(entry["kind"], entry["path"]) for entry in exported["entries"]])
    assert entries[0] == entries[1] and len(entries[0]) > 5


def test_a_judge_sees_the_changes_and_must_be_convinced(folder: Project) -> None:
    """The check alone does not satisfy; the judge is asked only after it passes, about the files."""
    words = [
        "--judge",
        "The answer is stated.",
        "--model",
        "openai:any",
        "--replies",
        "replies.yaml",
    ]
    log = folder.folder / "calls.jsonl"
    answer = folder.call(
        "until",
        CHECK,
        *words,
        "--max",
        "4",
        "--json",
        "--transcript",
        str(log),
        "--",
        "./claude.yaml",
    )
    result = answer.json
    assert (answer.code, result["status"], result["iterations"]) == (0, "satisfied", 3)
    scores = [item["score"] for item in result["loops"]["until"]["history"]]
    # Nothing passes; the check passes and the judge gives 20 of 100; both pass.
    assert scores == [0.0, 0.6, 0.95]
    question = log.read_text()
    assert question.count("The output of tests") == question.count("The changes of the files") == 2
    assert "+42" in question and "Fixed." in question


def test_dollars_of_a_program_that_reports_none(folder: Project) -> None:
    """A limit in US dollars needs a price in one sentence, and holds with one."""
    words = ["until", CHECK, "--max-usd", "5", "--json"]
    answer = folder.call(*words, "--", "./codex.yaml")
    assert answer.code == 2 and "--price INPUT,OUTPUT" in answer.err and answer.err.count("\n") == 1
    result = folder.call(*words, "--price", "2,10", "--", "./codex.yaml").json
    assert (result["status"], result["usage"]["usd"]) == ("satisfied", 6.0)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--price", "3", "--", "claude"], "'3' is not INPUT,OUTPUT"),
        (["--price", "3,-1", "--", "claude"], "is not INPUT,OUTPUT"),
        (["--price", "3,15", "--", "sh"], "price is for coding agents"),
        (["--session", "loop", "--", "sh"], "session is for coding agents"),
        (["--permissions", "full", "--", "sh"], "permissions is for coding agents"),
        (["--sandbox", "own", "--", "./claude.yaml", "-p", "x"], "has no sandbox"),
        (["--", "./missing.yaml"], "missing.yaml"),
    ],
)
def test_options_that_cannot_be_obeyed(folder: Project, words: list[str], problem: str) -> None:
    """They are refused before anything runs."""
    answer = folder.call("until", CHECK, *words)
    assert (answer.code, problem in answer.err) == (2, True), answer.err


PATTERN = "the number into a group"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--branch", "bad..name"], "--branch: 'bad..name' is not a name for a branch"),
        (["--branch", "main"], "--branch: the branch 'main' exists"),
        (["--branch", "main/x"], "--branch: the branch 'main' exists"),
        (["--branch", "b", "--workspace", "here"], "--branch: the result is no branch here"),
        (["--held-out", "none"], "--held-out: there is no folder 'none'"),
        (["--held-out", ".."], "--held-out: '..' contains the project"),
        (["--held-out", "inside"], "--held-out: 'inside' is inside the project"),
        (["--held-out", "../hidden"], "--held-out: needs a sealed check with a report"),
        (["--held-out", "../hidden", "--metric", "x:min"], "--held-out needs the tests of a check"),
        (["--protect", "x", "--score-pattern", "([0-9]+)"], "--protect needs the tests of a check"),
        (
            ["--on-tamper", "stop", "--score-pattern", "([0-9]+)"],
            "--on-tamper needs the tests of a check",
        ),
        (["--protect", "/abs"], "--protect: '/abs' is not a path inside"),
        (["--link", "none"], "--link: there is no folder 'none'"),
        (["--metric", "x:min=("], "--metric: pattern '(': missing )"),
        (["--metric", "x:min=loss: [0-9]+"], PATTERN),
        (["--score-pattern", "("], "--score-pattern: pattern '(': missing )"),
        (["--score-pattern", "share: [0-9]+"], PATTERN),
        (["--max-usd", "nan"], "--max-usd: nan is out of range; use a number above 0"),
        (["--max-usd", "-1"], "--max-usd: -1 is out of range"),
        (["--max-calls", "0"], "--max-calls: 0 is too small"),
        (["--max-time", "0s"], "--max-time: 0.0 is out of range"),
        (
            ["--judge", "It is short."],
            "--judge: no model is set; use --model, or set LOOPWRIGHT_MODEL",
        ),
    ],
)
def test_an_invalid_option_is_refused_before_any_work(
    folder: Project, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
) -> None:
    """One sentence names the option, and nothing is recorded."""
    monkeypatch.delenv("LOOPWRIGHT_MODEL", raising=False)
    if "--branch" in words:
        subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
        name = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *name, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    for name in ("inside", "../hidden"):
        (folder.folder / name).mkdir(exist_ok=True)
    answer = folder.call("until", CHECK, *words, "--", "sh", "-c", "true")
    assert (answer.code, problem in answer.err) == (2, True), answer.err
    assert not (folder.folder / ".loopwright").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["grep 'x", "--", "sh"], 'CHECK: the shell cannot read "grep \'x": '),
        (["pytest", "-q", "--", "sh"], "one word in quotes, such as: loopwright until"),
        (
            ["pytest", "tests", "--", "sh", "agent"],
            "AGENT: there is no program 'tests'; write the check as",
        ),
        (["pytest", "--", "codx"], "AGENT: there is no program 'codx'; did you mean 'codex'?"),
        (["pytest", "--", "./none.sh"], "AGENT: there is no program './none.sh'"),
    ],
)
def test_a_check_or_agent_that_cannot_run_is_refused(
    folder: Project, words: list[str], problem: str
) -> None:
    """Also a check without quotes, with the hint to write them."""
    answer = folder.call("until", *words)
    assert (answer.code, problem in answer.err) == (2, True), answer.err


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: until("", ["x"]), "the check is empty"),
        (lambda: until("true", ["x"], max_iteration=3), "did you mean 'max_iterations'"),  # type: ignore[call-arg]
        (
            lambda: until(lambda text: True, ["x"], protect=["x"]),
            "protect needs a check that is a command",
        ),
        (lambda: metric("x", pattern="loss: [0-9]+"), PATTERN),
        (
            lambda: keep_or_revert_loop(["x"], metric("los"), {"loss": "minimise"}),
            "the evaluator measures 'los', and metrics has 'loss'",
        ),
        (lambda: Workspace(merge="brnch"), "did you mean 'branch'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_arguments_in_python(make: Callable[[], object], problem: str) -> None:
    """The message names the argument, and the nearest valid one."""
    with pytest.raises(ConfigurationError, match=problem) as caught:
        make()
    assert "none of ," not in str(caught.value)


@pytest.mark.skipif(bool(sandbox_problem()) and not os.environ.get("CI"), reason=sandbox_problem())
def test_agent_and_check_are_isolated(folder: Project) -> None:
    """By default neither can write outside of the workspace, and the check has no network."""
    outside = folder.folder.parent / "outside.txt"
    script = f"echo x > {outside}; echo 42 >> answer.txt"
    # In the sandbox of the check, only its own loopback exists.
    check = f"{CHECK}; echo x > {outside}; test $(tail -n +3 /proc/net/dev | wc -l) = 1"
    options = ["--workspace", "snapshot", "--no-merge", "--json"]
    result = folder.call("until", check, *options, "--", "sh", "-c", script).json
    assert (result["status"], result["warnings"]) == ("satisfied", [])
    assert not outside.exists()


def test_a_result_in_the_copy_is_named_with_its_commands(folder: Project) -> None:
    """The end names the folder and the commands, and no empty output; `show` names the command."""
    options = ["--workspace", "snapshot", "--no-merge", "--sandbox", "none", "--run-id", "kept"]
    shown = folder.call("until", CHECK, *options, "--", "sh", "-c", "echo 42 > answer.txt").out
    assert f"files: {folder.folder / '.loopwright' / 'trees' / 'kept'}" in shown
    for word in ("diff", "apply"):
        assert f"  loopwright files {word} kept\n" in shown
    assert "files branch" not in shown  # the folder is no repository
    assert "output:" not in shown


TAP = 'echo 1..1; if grep -q 42 answer.txt; then echo "ok 1 - answers"; else echo "not ok 1 - answers"; exit 1; fi'


def test_a_coding_run_says_what_it_did(folder: Project) -> None:
    """It is named after the folder and the check; `show` has the check, the agent, and the tests that turned."""
    options = ["--workspace", "snapshot", "--no-merge", "--sandbox", "none", "--report", "stdout"]
    work = ["--", "sh", "-c", "echo 42 > answer.txt"]
    made = folder.call("until", TAP, *options, "--run-id", "one", *work)
    name = f"{folder.folder.name}: {TAP}"[:59].rstrip()
    assert made.err.startswith(f"{name}") or made.out.startswith(f"{name}")
    shown = folder.call("show", "one").out
    assert shown.startswith(name)
    assert "from loopwright until\n" in shown
    assert "agent: sh -c 'echo 42 > answer.txt'\n" in shown
    assert f"check: {TAP}: 1 of 1 tests pass\n" in shown
    assert "tests that turned green: answers\n" in shown
    traced = folder.call("show", "one", "--trace").out
    assert "command execute  sh -c 'echo 42 > answer.txt': exit code 0" in traced
    coding = folder.call("show", "one", "--json").json["coding"]
    assert (coding["fixed"], coding["broken"], coding["iteration"]) == (["answers"], [], 1)
    folder.call("until", TAP, *options, "--run-id", "two", "--name", "calc", *work)
    assert folder.call("show", "two").out.startswith("calc  run two")
    # The paths of its entries begin with the name of its step, so that it continues and rewinds like any other.
    assert "nothing was run" in folder.call("resume", "two").out
    latest = folder.call("again", "two", "--yes", "--json").json["run_id"]
    assert folder.call("show", latest).out.startswith("calc  run ")
    assert folder.call("rewind", "two", "until/until/1", "--yes").code == 0


def test_a_failed_coding_run_is_retried(folder: Project) -> None:
    """`show` of a run that has failed names `retry` besides its files, and not `resume`, which would run nothing."""
    options = ["--workspace", "snapshot", "--no-merge", "--sandbox", "none", "--report", "stdout"]
    folder.call("until", "echo nothing; exit 1", *options, "--run-id", "one", "--", "true")
    shown = folder.call("show", "one").out
    assert "loopwright retry one" in shown and "loopwright resume" not in shown


def test_a_refusal_lists_the_commands(folder: Project) -> None:
    """Without a terminal and an approval, it prints the commands, because there is no file to check."""
    words = ["--workspace", "snapshot", "--sandbox", "none", "--", "sh", "-c", "echo 42"]
    refused = folder.run("until", CHECK, *words, LOOPWRIGHT_TRUST="")
    assert refused.code == 2
    assert "Review its commands, then approve it with --yes:\n" in refused.err
    # `resume` says the same, and has other options.
    assert "--print-yaml" not in refused.err and "loopwright check" not in refused.err
    assert CHECK in refused.err and "echo 42" in refused.err


def test_detached(folder: Project) -> None:
    """The command returns with the ID, and the run continues without it."""
    words = ["until", CHECK, "--detach", "--json", "--workspace", "here", "--", "./claude.yaml"]
    started = folder.run(*words, LOOPWRIGHT_TRUST="all").json
    assert (folder.folder / started["log"]).exists()
    folder.run("watch", started["run_id"])
    assert folder.call("show", started["run_id"], "--json").json["status"] == "satisfied"
    failed = folder.run(*words[:-1], "./none.yaml", LOOPWRIGHT_TRUST="all")
    assert failed.code == 2 and "none.yaml" in failed.err


def test_the_same_keywords_in_python(folder: Project) -> None:
    """A coding agent by its words, with a judge, a price and a sandbox."""
    model = Models(ScriptedModel(VERDICTS), default="openai:any")
    loop = until(
        CHECK, ["./codex.yaml", "make it 42"], judge="The answer is stated.", session="loop",
        permissions="full", price=(2, 10), usd=9, sandbox="auto", max_iterations=4,
        workspace=Workspace(".", merge="none"),
    )  # fmt: skip
    result = run_sync(loop, "", models=model)
    assert (result.status.value, result.iterations) == ("satisfied", 3), result.detail
    assert [item.score for item in result.history] == [0.0, 0.6, 0.95]


def test_a_workspace_of_git(folder: Project) -> None:
    """The keys of agent and check work in a copy of a repository too; its files stay as they are."""
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run(["git", *who, *words], cwd=folder.folder, check=True, timeout=60)
    result = folder.call("until", CHECK, "--branch", "fix", "--json", "--", "./claude.yaml").json
    assert (result["status"], result["workspace"]["branch"]) == ("satisfied", "fix")
    assert not (folder.folder / "answer.txt").exists()


def test_the_printed_document_has_the_limits_of_the_run(folder: Project) -> None:
    """Limits of calls, tokens and effects are a budget of the printed loop, beside that of dollars."""
    limits = (
        "--max-calls",
        "7",
        "--max-total-tokens",
        "900",
        "--max-effects",
        "50",
        "--max-usd",
        "2",
    )
    words = [
        sys.executable,
        "-m",
        "loopwright",
        "until",
        CHECK,
        *limits,
        "--print-yaml",
        "--",
        "./agent.sh",
    ]
    printed = subprocess.run(words, cwd=folder.folder, capture_output=True, text=True, check=True)
    loop = yaml.safe_load(printed.stdout)["steps"][0]["loop"]
    assert loop["guards"][0] == {"budget": {"usd": 2.0, "calls": 7, "tokens": 900, "effects": 50}}
