"""The git repository of the example: one commit of project/, whose tests fail.

python repository.py     makes it in .loopwright/coding_agent, beside this file
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parent / "project"
REPOSITORY = Path(__file__).parent / ".loopwright" / "coding_agent"


def git(*words: str) -> str:
    """Run git in the repository and return what it prints."""
    person = ["-c", "user.name=example", "-c", "user.email=example@localhost"]
    command = ["git", *person, *words]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def make() -> None:
    """Make the repository, in place of an earlier one."""
    if REPOSITORY.exists():
        shutil.rmtree(REPOSITORY)
    shutil.copytree(PROJECT, REPOSITORY, ignore=shutil.ignore_patterns("__pycache__"))
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=A basket")


if __name__ == "__main__":
    make()
