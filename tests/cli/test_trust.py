"""Trust: what runs on this machine is agreed to once, by its contents."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from .conftest import Project

COMMAND = """\
schema: loopwright/1
name: doing
steps:
  - name: act
    shell: [sh, act.sh]
  - {name: shout, python: "own:shout"}
"""
PROMPT = """\
schema: loopwright/1
name: asking
model: openai:gpt-4o-mini
steps:
  - {name: ask, prompt: "Say hello"}
"""


@pytest.fixture
def folder(project: Project) -> Project:
    """A document that runs a script and a function, and one that only asks a model."""
    files = {
        "doing.yaml": COMMAND,
        "asking.yaml": PROMPT,
        "act.sh": "echo acted >> acted.txt\n",
        "own.py": "import beside\nopen('imported.txt', 'a').write('own')\n\ndef shout(value):\n    return beside.WORD\n",
        "beside.py": "WORD = 'hey'\n",
        "replies.yaml": '- {replies: ["hello"]}\n',
    }
    for name, text in files.items():
        (project.folder / name).write_text(text)
    return project


def acted(project: Project) -> int:
    """Return how often the script ran."""
    file = project.folder / "acted.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_without_a_terminal_nothing_runs_until_it_is_agreed_to(folder: Project) -> None:
    """Exit code 2 and how to agree; no command, no import, no journal."""
    answer = folder.run("run", "doing.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "loopwright: doing runs 1 command and 1 Python function on this machine, which nobody has "
        "agreed to yet; loopwright check tells which, --yes agrees\n"
    )
    assert acted(folder) == 0
    assert not (folder.folder / "imported.txt").exists()
    assert not (folder.folder / ".loopwright").exists()


def test_what_was_agreed_to_is_not_asked_again(folder: Project) -> None:
    """--yes once, then never again for these contents."""
    assert folder.run("run", "doing.yaml", "--yes").code == 0
    assert folder.run("run", "doing.yaml").code == 0
    assert acted(folder) == 2


@pytest.mark.parametrize("name", ["doing.yaml", "act.sh", "own.py", "beside.py"])
def test_a_changed_file_is_asked_about_again(folder: Project, name: str) -> None:
    """The document, a script that a command names, a module, and one that it imports."""
    assert folder.run("run", "doing.yaml", "--yes").code == 0
    file = folder.folder / name
    file.write_text(file.read_text() + "\n# changed\n")
    assert folder.run("run", "doing.yaml").code == 2
    assert acted(folder) == 1


def test_a_resumed_run_is_asked_about_too(folder: Project) -> None:
    """What changed since is not run by resume either."""
    assert folder.run("run", "doing.yaml", "--yes", "--run-id", "one").code == 0
    folder.run("rewind", "one", "doing/act")
    file = folder.folder / "act.sh"
    file.write_text("echo other >> acted.txt\n")
    assert folder.run("resume", "one").code == 2
    assert acted(folder) == 1
    assert folder.run("resume", "one", "--yes").code == 0
    assert acted(folder) == 2


def test_a_document_of_prompts_is_never_asked_about(folder: Project) -> None:
    """Models answer; nothing of the document runs on this machine."""
    answer = folder.run("run", "asking.yaml", "--replies", "replies.yaml", "--json")
    assert (answer.code, answer.json["output"]) == (0, "hello")


def test_a_machine_can_agree_to_everything(folder: Project) -> None:
    """LOOPWRIGHT_TRUST=all runs without a question and keeps nothing."""
    assert folder.run("run", "doing.yaml", LOOPWRIGHT_TRUST="all").code == 0
    assert folder.run("run", "doing.yaml").code == 2


def test_where_agreement_cannot_be_kept_it_is_told(folder: Project) -> None:
    """The run goes on, and a note says that it will be asked again."""
    (folder.folder / "blocked").write_text("")
    answer = folder.run("run", "doing.yaml", "--yes", XDG_STATE_HOME=str(folder.folder / "blocked"))
    assert answer.code == 0
    assert "note: that you agreed cannot be kept" in answer.err


def on_terminal(project: Project, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, answer its question, and return its code and what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "loopwright", *arguments],
        cwd=project.folder, env=project.environ({"TERM": "xterm"}),
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        with suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    return process.returncode, shown.decode(errors="replace")


def test_a_terminal_is_asked_once(folder: Project) -> None:
    """The question shows what would run; yes is kept, and no runs nothing."""
    code, shown = on_terminal(folder, "n\n", "run", "doing.yaml")
    assert (code, acted(folder)) == (2, 0)
    assert "sh act.sh" in shown
    assert "own:shout" in shown
    assert "not agreed to, nothing was run" in shown
    assert on_terminal(folder, "y\n", "run", "doing.yaml")[0] == 0
    code, shown = on_terminal(folder, "", "run", "doing.yaml")
    assert (code, acted(folder)) == (0, 2)
    assert "[y/N]" not in shown


def test_an_agreement_is_for_its_owner_alone(folder: Project) -> None:
    """The folder of agreements is the user's own, one empty file for each."""
    folder.run("run", "doing.yaml", "--yes")
    kept = Path(os.environ["XDG_STATE_HOME"]) / "loopwright" / "trusted"
    assert [file.read_bytes() for file in kept.iterdir()] == [b""]
    assert kept.stat().st_mode & 0o077 == 0
