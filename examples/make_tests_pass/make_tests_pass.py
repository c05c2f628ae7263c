"""A coding agent works in a git repository until the failing tests pass; the result is a branch.

python make_tests_pass.py                                    a fake agent, no key needed
python make_tests_pass.py claude -p "Repair the module."     Claude Code, or another coding agent
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from loopwright import Iteration, Workspace, run_sync, until

PROJECT = Path(__file__).parent / "project"
REPOSITORY = Path(".loopwright", "make_tests_pass")


def git(*words: str) -> str:
    """Run git in the repository and return what it prints."""
    person = ["-c", "user.name=example", "-c", "user.email=example@localhost"]
    command = ["git", *person, *words]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def prepare() -> None:
    """Make a repository with one commit, the project with its mistakes."""
    if REPOSITORY.exists():
        shutil.rmtree(REPOSITORY)
    shutil.copytree(PROJECT, REPOSITORY, ignore=shutil.ignore_patterns("__pycache__"))
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=Opening hours")


def show(item: Iteration) -> None:
    """Print an iteration once it is recorded."""
    print(f"{item.number}  {item.score:.3f}  {item.output}")


def main(agent: list[str]) -> int:
    """Run the loop with the words of an agent, and print the branch with its changes."""
    prepare()
    loop = until(
        "python -m pytest -q",
        agent or [str(REPOSITORY / "fake" / "agent.yaml")],
        max_iterations=6,
        usd=2,
        sandbox="auto",
        workspace=Workspace(REPOSITORY, branch="repaired"),
        name="repair",
        on_iteration=show,
    )
    result = run_sync(loop, "")
    print(f"{result.status}: {result.detail}\n")
    if result.satisfied:
        print(git("diff", "--stat", "main", "repaired"), end="")
    return result.status.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
