"""`until`: the command line and the function, with commands as agents."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from loopwright import (
    Loop,
    MaxIterations,
    NoChange,
    NoProgress,
    OnStall,
    Passed,
    Workspace,
    run_sync,
    until,
)  # fmt: skip
from loopwright.coding.until_document import script_of
from loopwright.errors import ConfigurationError
from loopwright.tools.commands import ShellStep
from loopwright.tools.sandbox import sandbox_problem
from warm_python import warm_python

AGENT = 'echo "$LOOPWRIGHT_ITERATION" >> log; cat > prompt; touch "part$LOOPWRIGHT_ITERATION"'
CHECK = "test -e part2 || { echo 'part2 is missing'; exit 1; }"

PROBLEM = sandbox_problem()
isolated = pytest.mark.skipif(
    bool(PROBLEM) and not os.environ.get("CI"), reason=f"*** NO SANDBOX IS TESTED: {PROBLEM}"
)


def command(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder."""
    if words[0] == "until" and "--workspace" not in words:
        # The tests read what the agent writes.
        words = ("until", "--workspace", "here", *words[1:])
    variables = {**os.environ, "XDG_STATE_HOME": str(folder / ".state"), **env}
    return warm_python().run(["-m", "loopwright", *words], cwd=folder, env=variables, timeout=120)


def json_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_check_decides(tmp_path: Path) -> None:
    """The agent runs until the check exits with 0; its own exit code and words do not count."""
    agent = ["sh", "-c", f"{AGENT}; echo DONE; exit 1"]
    done = command(tmp_path, "until", CHECK, "--yes", "--json", "--", *agent)
    result = json_of(done)
    assert (done.returncode, result["status"], result["iterations"]) == (0, "satisfied", 2)
    assert (tmp_path / "log").read_text() == "1\n2\n"


def test_the_prompt_has_the_goal_and_the_output(tmp_path: Path) -> None:
    """The prompt of each iteration has the goal, the check, its last output and the earlier scores."""
    goal = "Repair it. {{ not a template }} {% nor this %}"
    agent = ["sh", "-c", AGENT]
    command(tmp_path, "until", CHECK, "--yes", "--prompt", goal, "--max", "2", "--", *agent)
    prompt = (tmp_path / "prompt").read_text()
    assert prompt.startswith(goal)
    assert "Iteration 2 of at most 2. The check is: test -e part2" in prompt
    assert "<output>\ntests exited with 1\npart2 is missing\n</output>" in prompt
    assert "Iteration 1: score 0" in prompt


@pytest.mark.parametrize(
    ("check", "code", "status", "reason"),
    [
        ("true", 0, "satisfied", "already_satisfied"),
        ("false", 3, "exhausted", "max_iterations"),
        ("no-such-program", 1, "failed", "evaluator_unusable"),
    ],
)
def test_exit_codes(check: str, code: int, status: str, reason: str, tmp_path: Path) -> None:
    """A check that passes or cannot run ends the run before the agent is called."""
    done = command(
        tmp_path, "until", check, "--yes", "--json", "--max", "2", "--", "sh", "-c", AGENT
    )
    result = json_of(done)
    assert (done.returncode, result["status"], result["reason"]) == (code, status, reason)
    assert (tmp_path / "log").exists() is (reason == "max_iterations")


def test_words_that_stand_for_values(tmp_path: Path) -> None:
    """Placeholders are single words; what a program printed is never read by a shell."""
    check = "test -e args || { echo '$(touch hacked) \"; touch hacked; \"'; exit 1; }"
    script = 'printf "%s\\f" "$@" > args; cat "$4" > file; cat > stdin'
    words = [
        "sh",
        "-c",
        script,
        "agent",
        "{prompt}",
        "{feedback}",
        "{iteration}",
        "{feedback_file}",
    ]
    done = command(tmp_path, "until", check, "--yes", "--", *words)
    assert done.returncode == 0, done.stderr
    prompt, feedback, number, file, _ = (tmp_path / "args").read_text().split("\f")
    assert (number, (tmp_path / "stdin").read_text()) == ("1", "")
    assert "$(touch hacked)" in feedback and feedback in prompt
    assert (tmp_path / "file").read_text() == f"{feedback}\n"
    assert not (tmp_path / "hacked").exists() and not Path(file).exists()


def test_first_use_needs_an_approval(tmp_path: Path) -> None:
    """Without a terminal and without --yes nothing runs; an approval is remembered by content."""
    words = ["until", CHECK, "--", "sh", "-c", AGENT]
    done = command(tmp_path, *words)
    assert (done.returncode, "needs your approval" in done.stderr) == (2, True)
    assert command(tmp_path, "until", CHECK, "--yes", "--", "sh", "-c", AGENT).returncode == 0
    assert command(tmp_path, *words).returncode == 0
    assert command(tmp_path, *words[:-1], "other").returncode == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["until", "true", "--"], "missing argument"),
        (["until", " ", "--", "sh"], "the check is empty"),
        (["until", "true", "--max-time", "soon", "--", "sh"], "'soon' is not a duration"),
        (["until", "true", "--prompt", "@missing", "--", "sh"], "missing cannot be read"),
        (["until", "true", "--", "sh", "{{ x }}"], "sign of a template"),
        (["until", "echo {{ x }}", "--yes", "--", "sh"], "cannot contain template values"),
    ],
)
def test_wrong_command_lines(words: list[str], problem: str, tmp_path: Path) -> None:
    """A wrong option is a sentence and exit code 2."""
    done = command(tmp_path, *words)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr


def entries(folder: Path, run: str) -> list[tuple[str, str]]:
    exported = json_of(command(folder, "export", run, "--format", "json"))
    return [(entry["kind"], entry["path"]) for entry in exported["entries"]]


def test_the_printed_document_runs_identically(tmp_path: Path) -> None:
    """The document of --print-yaml makes the same entries as the command."""
    words = [CHECK, "--max", "4", "--patience", "2", "--", "sh", "-c", AGENT]
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    printed = command(second, "until", "--print-yaml", *words).stdout
    assert yaml.safe_load(printed)["name"] == "until"
    (second / "fix.yaml").write_text(printed)
    assert command(first, "until", "--yes", "--run-id", "one", *words).returncode == 0
    assert command(second, "run", "fix.yaml", "--yes", "--run-id", "two").returncode == 0
    assert entries(first, "one") == entries(second, "two")


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    """Ctrl-C ends the agent and the run with 130; resume runs the iteration again from its beginning."""
    # Resumed, the agent finds the files from before the iteration, so it waits again.
    script = "echo >> log; touch ready; sleep 8; touch part2"
    words = [
        "until",
        CHECK,
        "--workspace",
        "here",
        "--yes",
        "--run-id",
        "one",
        "--",
        "sh",
        "-c",
        script,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "loopwright", *words], cwd=tmp_path, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / ".state")},
    )  # fmt: skip
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    done = command(tmp_path, "resume", "one", "--json")
    assert (done.returncode, json_of(done)["iterations"]) == (0, 1)
    # The files before the iteration were put back.
    assert (tmp_path / "log").read_text() == "\n"


def test_a_loop_in_python(tmp_path: Path) -> None:
    """`until` makes a loop of a check and a command, or of an evaluator and a function."""
    mark = tmp_path / "mark"
    loop = until(f"test -e {mark}", ["sh", "-c", 'cat > "$0"; exit 1', str(mark)], max_iterations=2)
    result = run_sync(loop, "")
    assert (result.status.value, result.iterations) == ("satisfied", 1)
    assert mark.read_text().startswith("Make the check pass.\n\nIteration 1 of at most 2.")
    loop = until(lambda output: output == 2, lambda _, ctx: ctx.iteration)
    assert run_sync(loop, 0).iterations == 2


def test_the_baseline_is_no_iteration() -> None:
    """The input is evaluated first; if it passes, there is no iteration and no record."""
    passing: Loop[Any, Any] = Loop(lambda value: 1 / 0, lambda value: value == 1, baseline=True)
    result = run_sync(passing, 1)
    assert (result.reason.value, result.iterations, len(result.history)) == (
        "already_satisfied",
        0,
        0,
    )
    assert (
        run_sync(Loop(lambda value: 1, lambda value: value == 1, baseline=True), 0).iterations == 1
    )


def scores(*values: float) -> Loop[Any, Any]:
    replies = iter(values)
    return Loop(
        lambda _: 0,
        lambda _: next(replies),
        until=Passed() | MaxIterations(len(values)),
        on_stall=OnStall("last", patience=2, restarts=1),
    )


def test_a_second_stall_ends_the_loop() -> None:
    """The first stall starts again; progress begins a new count."""
    assert run_sync(scores(0.1, 0.1, 0.1, 0.1, 0.1, 0.1), 0).reason.value == "no_progress"
    assert run_sync(scores(0.1, 0.1, 0.1, 0.1, 0.1, 0.1), 0).iterations == 5
    assert run_sync(scores(0.1, 0.1, 0.2, 0.2, 0.3), 0).reason.value == "max_iterations"


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """Its temporary folders only: not those of a live process, of another name, or behind a link."""
    place, project = tmp_path / "tmp", tmp_path / "project"
    other, target = place / "loopwright-mine", tmp_path / "loopwright-scratch-target"
    for folder in (project, other, target):
        folder.mkdir(parents=True)
    (target / "file").touch()
    (place / "loopwright-scratch-link").symlink_to(target)
    settings = {"TMPDIR": str(place), "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ["until", "--workspace", "copy", "--sandbox", "none", "--yes", "test -e made"]

    def started(run: str) -> subprocess.Popen[bytes]:
        ready, go = tmp_path / run, tmp_path / f"{run}.go"
        script = f"touch {ready}; until test -e {go}; do sleep 0.05; done; touch made"
        process = subprocess.Popen(
            [sys.executable, "-m", "loopwright", *words, "--run-id", run, "--", "sh", "-c", script], cwd=project,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **settings},
        )  # fmt: skip
        while not ready.exists():
            assert process.poll() is None
        return process

    with started("live") as live:
        used = set(place.glob("loopwright-scratch-*-*"))
        killed = started("killed")
        killed.kill()
        killed.wait()
        (tmp_path / "killed.go").touch()
        left = set(place.glob("loopwright-scratch-*-*")) - used
        assert {one.name.split("-")[2] for one in left} == {"check", "usage"}
        for one in left:
            os.utime(one, (1, 1))
        done = command(project, "resume", "killed", **settings)
        present = set(place.glob("loopwright-scratch-*-*"))
        (tmp_path / "live.go").touch()
    assert (done.returncode, live.returncode) == (0, 0)
    assert present == used and used
    assert other.is_dir() and (target / "file").exists()


def test_other_failing_tests_are_progress() -> None:
    """The same score with other failing tests is progress."""
    names = iter(["a", "b", "b", "b"])
    loop: Loop[Any, Any] = Loop(
        lambda _: 0,
        lambda _: {"score": 0.5, "details": {"tests": {"failing": [next(names)]}}},
        until=NoProgress(2) | MaxIterations(4),
    )
    result = run_sync(loop, 0)
    assert (result.reason.value, result.iterations) == ("no_progress", 4)


def test_conditions_without_a_workspace() -> None:
    """`no_change` needs a workspace; options that are not valid are errors."""
    loop: Loop[Any, Any] = Loop(lambda _: 0, until=NoChange() | MaxIterations(3))
    assert run_sync(loop, 0).iterations == 3
    for wrong in (lambda: OnStall("later"), lambda: OnStall(patience=0), lambda: NoProgress(0)):
        with pytest.raises(ConfigurationError):
            wrong()


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_the_result_is_a_branch(tmp_path: Path) -> None:
    """The agent works in a copy; the user's files stay as they are until the printed merge."""
    project(tmp_path)
    words = ["until", "--workspace", "copy", "grep -q green state", "--yes", "--run-id", "one"]
    done = command(tmp_path, *words, "--", "sh", "agent.sh")
    assert done.returncode == 0, done.stderr
    assert "branch: loopwright/one (git merge loopwright/one)" in done.stdout + done.stderr
    assert git(tmp_path, "show", "loopwright/one:state") == "green\n"
    assert (tmp_path / "state").read_text() == "red\n"
    assert git(tmp_path, "branch", "--show-current") == "main\n"
    git(tmp_path, "merge", "-q", "loopwright/one")
    assert (tmp_path / "state").read_text() == "green\n"


def project(folder: Path) -> None:
    """Make a repository with a file that an agent repairs."""
    git(folder, "init", "-q", "-b", "main")
    (folder / "state").write_text("red\n")
    (folder / "agent.sh").write_text("echo green > state\n")
    (folder / ".gitignore").write_text(".state\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")


@pytest.mark.parametrize("edited", ["notes.txt", "agent.sh"])
def test_a_result_with_uncommitted_files_has_a_command_that_takes_it(
    tmp_path: Path, edited: str
) -> None:
    """`git merge` would refuse the branch; one sentence says why, also in `show` and `files branch`."""
    project(tmp_path)
    with (tmp_path / edited).open("a") as file:
        file.write("# mine\n")
    words = ["until", "--workspace", "copy", "grep -q green state", "--yes", "--run-id", "one"]
    done = command(tmp_path, *words, "--", "sh", "agent.sh")
    assert done.returncode == 0, done.stderr
    line = "branch: loopwright/one (loopwright files apply one)\n"
    why = f"uncommitted files of the project too, which git merge does not replace: {edited}\n"
    for said in (done.stdout, command(tmp_path, "show", "one").stdout):
        assert line in said and why in said and "(git merge" not in said
    assert why in command(tmp_path, "files", "branch", "one").stderr
    applied = command(tmp_path, "files", "apply", "one")
    assert applied.returncode == 0, applied.stderr
    assert (tmp_path / "state").read_text() == "green\n"
    assert (tmp_path / edited).read_text().endswith("# mine\n")


@pytest.mark.parametrize("kind", ["copy", "snapshot"])
def test_a_result_that_could_not_be_applied_is_said_to_be_one(tmp_path: Path, kind: str) -> None:
    """With the file that both sides changed, and commands that take the rest, also in `show`."""
    project(tmp_path)
    (tmp_path / "other").write_text("1\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "two")
    edit = f"echo mine > {tmp_path}/state; echo 2 > other; echo green > state"
    words = ["until", "--workspace", kind, "grep -q green state", "--yes", "--run-id", "one"]
    words += ["--apply", "--sandbox", "none"]
    done = command(tmp_path, *words, "--", "sh", "-c", edit)
    assert done.returncode == 0, done.stderr
    branch = "or commit your edits, and git merge the branch of: loopwright files branch one\n"
    for said in (done.stdout, command(tmp_path, "show", "one").stdout):
        assert "not applied: you and the run both changed state; none of your files" in said
        assert (branch in said) == (kind == "copy")
        [line] = [row for row in said.splitlines() if row.startswith("patch: ")]
    assert (tmp_path / "other").read_text() == "1\n"
    if kind == "copy":
        git(tmp_path, "commit", "-q", "-am", "mine")
        assert command(tmp_path, "files", "branch", "one").returncode == 0
        words = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "merge", "loopwright/one"]
        merged = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Merge conflict in state" in merged.stdout
    else:
        printed = shlex.split(line.partition("(")[2].removesuffix(")"))
        subprocess.run(printed, cwd=tmp_path, capture_output=True, check=False)
        assert "+green" in (tmp_path / "state.rej").read_text()
    assert (tmp_path / "other").read_text() == "2\n"


@isolated
def test_a_relative_file_that_the_agent_would_not_find_is_named(tmp_path: Path) -> None:
    """Before the first iteration: the copy is at another place, and the sandbox hides what is around the project."""
    project, bot = tmp_path / "project", tmp_path / "agents" / "honest.sh"
    for item in (project, bot.parent):
        item.mkdir()
    bot.write_text("touch part2\n")
    words = ["until", CHECK, "--yes", "--json", "--sandbox", "bubblewrap"]
    for place, said in (("copy", f"--show {bot}"), ("here", "--show ../agents/honest.sh")):
        refused = command(project, *words, "--workspace", place, "--", "sh", "../agents/honest.sh")
        assert refused.returncode == 2, refused.stderr
        assert "../agents/honest.sh is a word of the command and exists" in refused.stderr
        assert said in refused.stderr
        assert not (project / ".loopwright").exists()
    shown = [*words, "--workspace", "copy", "--show", str(bot), "--", "sh", str(bot)]
    assert command(project, *shown).returncode == 0


def test_a_branch_on_which_the_check_fails_is_said_to_be_one(tmp_path: Path) -> None:
    """The line of an exhausted run differs from that of success."""
    project(tmp_path)
    words = ["until", "--workspace", "copy", "false", "--yes", "--run-id", "one", "--max", "1"]
    said = command(tmp_path, *words, "--", "touch", "made").stdout
    line = "branch: loopwright/one (git merge loopwright/one); the check does not pass on it\n"
    assert line in said


def test_protected_files_that_were_put_back_are_named_and_nothing_is_offered(
    tmp_path: Path,
) -> None:
    """The end of an agent that changes its check only; a result without a difference is not offered."""
    (tmp_path / "test_a.py").write_text("def test_a():\n    assert False\n")
    cheat = "echo 'def test_a(): pass' > test_a.py"
    check = f"{sys.executable} -m pytest -q test_a.py"
    words = ["until", "--workspace", "copy", check, "--yes"]
    said = command(tmp_path, *words, "--", "sh", "-c", cheat).stdout
    assert (
        "2 iterations in a row changed no file; protected files were changed and put back, "
        "the first is test_a.py (" in said
    )
    assert "no file differs from the beginning\n" in said
    assert "take them" not in said and "patch: " not in said and "branch: " not in said


def test_an_agent_that_changes_nothing_is_ended(tmp_path: Path) -> None:
    """Two iterations in a row without a changed file end the loop, whatever the agent says."""
    words = ["until", "--workspace", "copy", "false", "--yes", "--json"]
    result = json_of(command(tmp_path, *words, "--", "echo", "DONE"))
    assert (result["status"], result["reason"], result["iterations"]) == (
        "exhausted",
        "no_change",
        2,
    )


@pytest.mark.parametrize(
    ("words", "program", "goal", "rest"),
    [
        (["claude", "-p", "repair it", "--strict-mcp-config"], "claude", "repair it", ["--strict-mcp-config"]),
        (["codex", "exec", "repair it"], "codex", "repair it", None),
        (["aider", "--message", "repair it"], "aider", "repair it", None),
    ],
)  # fmt: skip
def test_known_agents(
    words: list[str], program: str, goal: str, rest: list[str] | None, tmp_path: Path
) -> None:
    """A known coding agent is an `agent` step with its prompt; the document is valid."""
    printed = command(tmp_path, "until", "true", "--print-yaml", "--", *words).stdout
    (tmp_path / "fix.yaml").write_text(printed)
    agent = yaml.safe_load(printed)["steps"][0]["loop"]["execute"]["agent"]
    assert (agent["cli"], agent.get("args")) == (program, rest)
    assert agent["prompt"].startswith(f"{goal}\n")
    # Whether it can run here depends on the installed agents.
    assert command(tmp_path, "check", "fix.yaml").stdout.startswith(
        ("fix.yaml: can run", "fix.yaml: is valid, but cannot run here")
    )


def test_the_last_lines_of_the_agents_stderr_are_shown(tmp_path: Path) -> None:
    """A failing agent says why: in the output of the iteration, which is recorded, and on its own stderr."""
    script = "cat > /dev/null; for i in 1 2 3 4 5 6; do echo line $i >&2; done; echo said; exit 2"
    agent = ["sh", "-c", script]
    done = command(tmp_path, "until", "false", "--yes", "--json", "--max", "1", "--", *agent)
    told = "The agent exited with 2: line 2\nline 3\nline 4\nline 5\nline 6"
    assert json_of(done)["output"] == f"said\n{told}"
    result = run_sync(until("false", ["sh", "-c", "cat > /dev/null; exit 3"], max_iterations=1))
    assert result.output == "The agent exited with 3."


def test_runs_with_the_former_script_of_an_agent_can_be_resumed() -> None:
    """The fingerprint is that of the words of the agent, as it is on record."""
    step = cast("Any", until("false", ["./agent.sh", "{prompt}"]).execute)
    recorded = script_of(["./agent.sh", "{prompt}"], recorded=True)
    assert "errors" not in recorded and "errors" in step.command
    former = ShellStep(recorded, env=step.env, stdin="", idempotent=True, max_output=1_000_000)
    assert step.fingerprint == former.fingerprint


@isolated
@pytest.mark.parametrize("place", ["outside", "/tmp"])
def test_a_file_of_the_command_that_the_sandbox_hides_is_named(tmp_path: Path, place: str) -> None:
    """Before the first iteration, with the remedy; the program itself is shown, wherever it is."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp" if place == "outside" else None))
    project, bot, home = folder / "project", folder / "bots" / "run.sh", folder / "home"
    for item in (project, bot.parent, home):
        item.mkdir()
    bot.write_text('#!/bin/sh\ncat > /dev/null; cat "$(dirname "$0")/lib" > part2; cat "$@"\n')
    bot.chmod(0o755)
    (bot.parent / "lib").write_text("x")
    notes = home / "notes.txt"
    notes.write_text("the notes")
    words = ["until", CHECK, "--yes", "--json", "--workspace", "copy", "--sandbox", "bubblewrap"]
    refused = command(project, *words, "--", str(bot), str(notes), HOME=str(home))
    assert refused.returncode == 2, refused.stderr
    assert (
        f"{notes} is a word of the command" in refused.stderr
        and f"--show {notes}" in refused.stderr
    )
    assert not (project / ".loopwright").exists()
    shown = [*words, "--show", str(notes), "--", str(bot), str(notes)]
    done = command(project, *shown, HOME=str(home))
    result = json_of(done)
    assert (done.returncode, result["iterations"], result["output"]) == (0, 1, "the notes"), (
        done.stderr
    )
    # The user's own folder is hidden behind its copy.
    (project / "task.txt").touch()
    with pytest.raises(ConfigurationError, match="a word of the command"):
        until(
            CHECK, ["cat", str(project / "task.txt")], workspace=Workspace(project), sandbox="bubblewrap"
        )  # fmt: skip
    shutil.rmtree(folder)
