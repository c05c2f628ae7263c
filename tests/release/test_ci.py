"""What other repositories run: the action and the pre-commit hook check the documents of a repository, and nothing else."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
GOOD = "schema: loopwright/1\nname: a\nsteps:\n  - {name: one, set: 1}\n"
FILES = {
    "good.yaml": GOOD,
    "a folder/quoted.yml": GOOD.replace("loopwright/1", '"loopwright/1"'),
    "keyless.yaml": GOOD.replace("set: 1", "prompt: hello, model: openai:gpt-4o-mini"),
    "other.yaml": "services: {web: {image: nginx}}\n",
    "schema.yaml": "schema: 3\n",
}


@pytest.fixture(params=["action", "hook"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The command of the action, or of the hook with the names of all files."""
    repository = tmp_path / "repository"
    for name, text in FILES.items():
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    subprocess.run(["git", "add", "."], cwd=repository, check=True)
    if request.param == "action":
        (tmp_path / "loopwright").mkdir()
        (tmp_path / "loopwright/bin").symlink_to(PROGRAMS)
        steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
        return ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[-1]["run"]]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return [*shlex.split(hook["entry"]), *FILES]


def checked(check: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    keep = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
    env = keep | {
        "PATH": f"{PROGRAMS}:{keep['PATH']}", "RUNNER_TEMP": str(folder), "FILES": "*.yaml *.yml",
    }  # fmt: skip
    return subprocess.run(
        check, cwd=folder / "repository", env=env, capture_output=True, text=True, check=False
    )


def test_documents_of_a_repository_are_checked(check: list[str], tmp_path: Path) -> None:
    """Other YAML is left out, and a key that is missing on this machine is named and fails nothing."""
    done = checked(check, tmp_path)
    assert done.returncode == 0, done.stderr
    reported = {line.partition(": ")[0] for line in done.stdout.splitlines() if line[0] != " "}
    assert reported == {"good.yaml", "a folder/quoted.yml", "keyless.yaml"}
    assert "missing: keyless.yaml" in done.stderr


def test_a_wrong_document_fails_the_check(check: list[str], tmp_path: Path) -> None:
    """Its problem is printed with its place."""
    wrong = tmp_path / "repository" / "keyless.yaml"
    wrong.write_text(GOOD.replace("set: 1", "sett: 1"))
    done = checked(check, tmp_path)
    assert done.returncode != 0
    assert "keyless.yaml:4:" in done.stderr


def test_without_documents_nothing_is_checked(check: list[str], tmp_path: Path) -> None:
    """A repository without a document passes."""
    for name in FILES:
        (tmp_path / "repository" / name).write_text("other: 1\n")
    done = checked(check, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = "no file in *.yaml *.yml begins with schema: loopwright/\n"  # a hook says nothing
    assert done.stdout == (said if check[0] == "bash" else "")
