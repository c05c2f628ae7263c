"""Modules in the folder of a project are not imported by Loopwright, however it starts its processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.testing.fake_agent import manifest
from loopwright.ui.processes import RunProcesses

from .conftest import Project

# What a command imports, or a library of it: none of them is loaded when Python starts.
SHADOWS = (
    "anyio", "asyncio", "attrs", "base64", "click", "contextlib", "copy", "dataclasses", "email", "fractions", "getpass",
    "hashlib", "html", "inspect", "ipaddress", "jinja2", "json", "logging", "mimetypes", "platform", "pydantic",
    "random", "regex", "rich", "secrets", "shlex", "sqlite3", "tempfile", "typer", "typing_extensions", "yaml",
)  # fmt: skip
DOCUMENT = """\
schema: loopwright/1
name: quiet
steps:
  - {name: only, set: done}
"""
FAKE_AGENT = manifest("claude", "script.yaml")["program"]
LOOPWRIGHT = str(Path(sys.executable).with_name("loopwright"))


@pytest.fixture
def shadowed(project: Project) -> Project:
    """A folder with a module for each of the names, which tells when it is imported."""
    assert len(SHADOWS) == 31
    for name in SHADOWS:
        (project.folder / f"{name}.py").write_text(
            f"import sys\nopen({str(project.folder / 'imported.txt')!r}, 'a').write('{name} ')\nsys.exit(9)\n"
        )
    (project.folder / "quiet.yaml").write_text(DOCUMENT)
    return project


def started(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder."""
    return subprocess.run(
        words,
        cwd=project.folder,
        env=project.environ({}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_imports_nothing_of_the_folder(shadowed: Project) -> None:
    """The installed command."""
    done = started(shadowed, LOOPWRIGHT, "run", "quiet.yaml")
    assert done.returncode == 0, done.stderr
    assert not (shadowed.folder / "imported.txt").exists()


def test_the_page_starts_runs_without_the_modules_of_the_folder(shadowed: Project) -> None:
    """A run that the page starts has the folder of the project as its own, and not on its import path."""
    url = f"sqlite:{shadowed.folder / 'runs.db'}"

    async def launched() -> None:
        await RunProcesses(url, shadowed.folder).launch(["run", "quiet.yaml", "--run-id", "one"])
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(launched())
    done = started(shadowed, LOOPWRIGHT, "watch", "one", "--journal", url)
    assert done.returncode == 0, done.stderr
    assert not (shadowed.folder / "imported.txt").exists()


def test_a_detached_run_starts_without_the_modules_of_the_folder(shadowed: Project) -> None:
    """`until --detach` starts the same command again."""
    words = [
        LOOPWRIGHT,
        "until",
        "test -f done.txt",
        "--detach",
        "--yes",
        "--workspace",
        "here",
        "--sandbox",
        "none",
    ]
    done = started(shadowed, *words, "--", "sh", "-c", "touch done.txt")
    assert done.returncode == 0, done.stderr
    assert not (shadowed.folder / "imported.txt").exists()


def test_a_fake_agent_starts_without_the_modules_of_its_folder(shadowed: Project) -> None:
    """The agent of tests works in a folder of somebody else too."""
    (shadowed.folder / "script.yaml").write_text("- say: done\n")
    started(shadowed, *FAKE_AGENT, "-p", "hello")
    assert not (shadowed.folder / "imported.txt").exists()


def test_every_start_of_python_leaves_the_current_folder_out() -> None:
    """Each place in the source that starts our interpreter passes -P, or -I, which includes it."""
    source = Path(__file__).parents[3] / "src" / "loopwright"
    starts = re.compile(r"\[?\(?(?:sys\.executable|_interpreter\(\)),[^\]\)]*", re.DOTALL)
    found = [
        (file.name, match[0])
        for file in source.rglob("*.py")
        for match in starts.finditer(file.read_text("utf-8"))
    ]
    assert len(found) >= 3
    assert [one for one in found if not re.search(r'"-[PI]"', one[1])] == []
