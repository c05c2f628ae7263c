"""The repositories of the example in .loopwright/wait_for_ci, beside this file: one to push to, and a clone with project/."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).parent / ".loopwright" / "wait_for_ci"
CLONE = HOME / "clone"


def git(*words: str) -> None:
    """Run git in the clone."""
    subprocess.run(["git", *words], cwd=CLONE, check=True)


def make() -> None:
    """Make both, in place of earlier ones."""
    if HOME.exists():
        shutil.rmtree(HOME)
    shutil.copytree(
        Path(__file__).parent / "project", CLONE, ignore=shutil.ignore_patterns("__pycache__")
    )
    git("init", "--quiet", "--bare", "--initial-branch=main", "../remote")
    git("init", "--quiet", "--initial-branch=main")
    git("config", "user.name", "example")
    git("config", "user.email", "example@localhost")
    git("remote", "add", "origin", "../remote")
    git("add", "--all")
    git("commit", "--quiet", "--message=Tests of prices")


if __name__ == "__main__":
    make()
