"""The sandbox of commands: what a command inside of it cannot read, write or reach."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Workspace, run_sync, shell
from loopwright.errors import ConfigurationError
from loopwright.tools.sandbox import Sandbox, sandbox_problem

PROBLEM = sandbox_problem()
isolated = pytest.mark.skipif(
    bool(PROBLEM) and not os.environ.get("CI"), reason=f"*** NO SANDBOX IS TESTED: {PROBLEM}"
)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is not below the temporary files, which a sandbox replaces as a whole."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def ended(script: str, cwd: Path, **options: Any) -> dict[str, Any]:
    """Return how a script ended in a sandbox."""
    sandbox = Sandbox("bubblewrap", **options)
    result = run_sync(shell(script, cwd=cwd, sandbox=sandbox, output="result"), "")
    assert isinstance(result.output, dict), result.error
    return result.output


@isolated
def test_the_home_folder_has_what_is_shown_and_nothing_else(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs on PATH work with their installations and through links; `show` adds files; what is made there is gone."""
    home = outside / "home"
    monkeypatch.setenv("HOME", str(home))
    files = {
        ".profile": "x",
        "notes/a.txt": "a",
        ".local/share/keyrings/login": "x",
        # As npm, uv and a person install programs: in a prefix, with an interpreter of its own, by a link.
        ".node/bin/node": f"#!/bin/sh\ncat {home}/.node/lib/text",
        ".node/lib/text": "node ",
        ".local/share/tools/aider/bin/aider": f"#!{home}/.python/bin/python3\n",
        ".python/real/bin/python3": f"#!/bin/sh\ncat {home}/.python/real/lib/text",
        ".python/real/lib/text": "aider ",
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    (home / ".python/bin").symlink_to("real/bin")
    (home / ".local/bin").mkdir()
    (home / ".local/bin/aider").symlink_to("../share/tools/aider/bin/aider")
    path = f"{home}/.node/bin:{home}/.local/bin:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    (outside / "work").mkdir()
    script = "node; aider; cat ~/notes/a.txt; cat ~/.profile ~/.local/share/keyrings/login || touch ~/new"
    done = ended(script, outside / "work", show=["~/notes"])
    assert done["stdout"] == "node aider a", done["stderr"]
    assert not (home / "new").exists()


@isolated
@pytest.mark.parametrize("kind", ["here", "copy", "snapshot", "worktree"])
def test_the_repository_and_the_journal_cannot_be_changed(outside: Path, kind: Any) -> None:
    """A command in the folder itself, or in any copy, plants no settings and hooks, and deletes no journal."""
    git = ["git", "-C", str(outside), "-c", "user.name=Ann", "-c", "user.email=a@b.c"]
    for words in (
        ["init", "-q"],
        ["config", "user.name", "Ann"],
        ["commit", "-qm", "x", "--allow-empty"],
    ):
        subprocess.run([*git, *words], check=True)
    home = outside / ".loopwright"
    (outside / ".env").write_text("secret")
    (outside / ".git/info/exclude").write_text(".env\n.loopwright\n")
    before = {
        p: p.read_bytes() for p in (outside / ".git").rglob("*") if p.name in ("config", "HEAD")
    }
    script = (
        f"for f in .git/config .git/hooks/pre-commit {outside}/.git/config {home}/runs.db {outside}/new; do"
        " echo planted > $f; done; rm -rf .git .loopwright; mv .git g; "
        f"cat {outside}/.env; git rev-parse HEAD; git status --short; git var GIT_AUTHOR_IDENT"
    )
    loop: Loop[Any, Any] = Loop(
        shell(f"({script}) || true", sandbox="bubblewrap", output="result"),
        until=MaxIterations(1),
        workspace=Workspace(outside, kind=kind, merge="none", home=home),
    )
    result = run_sync(loop, "", journal=f"sqlite:{home}/runs.db")
    printed = result.output["stdout"]
    assert ("secret" in printed) is (kind == "here"), result.output
    assert ("Ann" in printed) is True
    assert (
        kind == "snapshot"
        or subprocess.check_output([*git, "rev-parse", "HEAD"], text=True) in printed
    )
    assert {p: p.read_bytes() for p in before} == before
    assert (home / "runs.db").read_bytes().startswith(b"SQLite")
    assert not (outside / ".git/hooks/pre-commit").exists()
    copy = Path(result.workspace["folder"]) if result.workspace else outside
    assert kind == "snapshot" or "planted" not in subprocess.check_output(
        ["git", "-C", str(copy), "config", "--list"], text=True
    )


@isolated
def test_a_link_of_an_agent_shows_nothing(outside: Path) -> None:
    """A working folder or repository that an agent replaced by a link does not bring its target into the sandbox."""
    secret = outside / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    work = outside / "work"
    work.mkdir()
    (work / "sub").symlink_to(secret)
    (work / ".git").symlink_to(secret)
    sandbox = Sandbox("bubblewrap", writable=[work], project=[outside])
    result = run_sync(shell("cat key .git/key; touch new", cwd=work / "sub", sandbox=sandbox), "")
    assert not result.satisfied and result.output is None
    assert [p.name for p in secret.iterdir()] == ["key"]


@isolated
def test_only_the_working_folder_can_be_written(outside: Path) -> None:
    """The repository beside the copy is read-only, and so is the rest; temporary files are private."""
    work, repository = outside / "work", outside / "repository"
    work.mkdir()
    repository.mkdir()
    mark = Path(tempfile.gettempdir(), f"mark-{os.getpid()}")
    script = f"for f in {work}/a {repository}/b {outside}/c {mark}; do touch $f || true; done; test -e {mark}"
    assert ended(script, work)["exit_code"] == 0
    assert sorted(p.name for p in outside.rglob("*")) == ["a", "repository", "work"]
    assert not mark.exists()


@isolated
def test_a_folder_can_be_hidden_or_read_only(outside: Path) -> None:
    """Tests that an agent must not see are hidden from it; a command that only reads cannot write."""
    secret = outside / "held_out"
    secret.mkdir()
    (secret / "test_x.py").write_text("x")
    assert ended(f"ls {secret}", outside, hide=[secret])["stdout"] == ""
    cache = Path.home() / ".cache"
    mark = cache / f"loopwright-mark-{os.getpid()}"
    script = f"touch {mark} && ls -A {cache}"
    # Private and empty, so that packages in it cannot be changed for later commands.
    assert ended(script, outside, hide=["~/.cache"])["stdout"] == f"{mark.name}\n"
    assert not mark.exists()
    assert ended("touch a || echo refused", outside, changes_folder=False)["stdout"] == "refused\n"


@isolated
def test_files_inside_of_the_working_folder_can_be_read_only(outside: Path) -> None:
    """A file or folder that a call names keeps its bytes and its name; the rest of the folder can be changed."""
    for name in ("tests/a.py", "b.py", "c.py"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text("kept\n")
    script = (
        "for f in tests/a.py b.py c.py tests/new; do echo changed > $f || true; done;"
        "rm -f tests/a.py b.py || true; mv c.py b.py || true; cat tests/a.py b.py"
    )
    done = ended(script, outside, read_only=[outside / "tests", outside / "b.py"])
    assert done["stdout"] == "kept\nkept\n"
    assert (outside / "c.py").read_text() == "changed\n"
    assert not (outside / "tests" / "new").exists()


@isolated
def test_a_check_has_no_network_and_an_agent_has_one(tmp_path: Path) -> None:
    """With `network=False` even the loopback of the machine is out of reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        script = f'{sys.executable} -c "{connect}"'
        assert ended(script, tmp_path, network=True)["exit_code"] == 0
        refused = ended(script + " || echo refused", tmp_path, network=False)
    assert refused["stdout"] == "refused\n"


@isolated
def test_processes_are_separate_and_end_with_the_command(tmp_path: Path) -> None:
    """A command sees its own processes only, and those that it leaves end with it."""
    seen = ended("setsid sleep 77 & ls /proc | grep -c '^[0-9]'", tmp_path)
    assert 0 < int(seen["stdout"]) < 12
    words = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")]
    assert b"sleep\x0077\x00" not in words


@isolated
def test_an_interrupt_reaches_the_command(tmp_path: Path) -> None:
    """At its timeout the command is asked to end and has its grace period, as without a sandbox."""
    script = "trap 'echo asked > end; exit 3' TERM; touch begun; sleep 60 & wait"
    result = run_sync(shell(script, cwd=tmp_path, sandbox="bubblewrap", timeout=1), "")
    assert result.error is not None and result.error.kind == "timeout"
    assert (tmp_path / "end").read_text() == "asked\n"


@isolated
def test_the_workspace_of_a_loop_is_writable_and_captured(outside: Path) -> None:
    """A command in a sandbox works in the copy; the user's folder stays as it is."""
    (outside / "a.txt").write_text("red")
    source, home = outside, outside / ".loopwright"
    script = f"echo green > a.txt; echo blue > {source}/a.txt || true"
    loop: Loop[Any, Any] = Loop(
        shell(script, sandbox="bubblewrap"),
        shell(
            ["grep", "-q", "green", "a.txt"],
            output="result",
            sandbox=Sandbox("auto", network=False),
        ),
        until=MaxIterations(1),
        workspace=Workspace(source, kind="snapshot", merge="none", home=home),
    )
    result = run_sync(loop, "")
    assert result.workspace is not None and result.history[0].files is not None
    assert (Path(result.workspace["folder"]) / "a.txt").read_text() == "green\n"
    assert (source / "a.txt").read_text() == "red"


def test_without_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` runs the command with a warning, `bubblewrap` refuses it; nothing is assumed from a name."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run_sync(shell(["/bin/echo", "x"], sandbox="auto"), "")
    assert result.output == "x"
    assert [warning.partition(":")[0] for warning in result.warnings] == ["no_sandbox"]
    failed = run_sync(shell(["/bin/echo", "x"], sandbox="bubblewrap"), "")
    assert failed.error is not None and failed.error.kind == "no_sandbox"
    # A program of that name that isolates nothing does not count.
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    assert "does not work here" in sandbox_problem()


def test_words_of_another_program(tmp_path: Path) -> None:
    """`wrap` runs a command in a container or a sandbox of the user, with the folder in its place."""
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    wrap = [sys.executable, "-c", script, "--volume={folder}"]
    result = run_sync(shell(["make", "it"], cwd=tmp_path, sandbox=Sandbox(wrap=wrap)), "")
    assert json.loads(result.output) == [f"--volume={tmp_path}", "make", "it"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Sandbox("bubblewarp"),  # type: ignore[arg-type]
        lambda: Sandbox(wrap="docker run"),
        lambda: shell("true", sandbox="own"),
    ],
)
def test_wrong_options(wrong: Any) -> None:
    """An unknown mode is an error with the nearest one."""
    with pytest.raises(ConfigurationError):
        wrong()
