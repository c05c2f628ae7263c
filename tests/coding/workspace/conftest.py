"""Repositories of users, and the bytes of them that a run must not change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class Repo:
    """A repository of a user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.org")

    def git(self, *words: str) -> str:
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def commit(self, message: str = "change") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def bytes(self) -> dict[str, object]:
        """Every file of the folder with its content, mode and time, `.git` included."""
        found: dict[str, object] = {}
        for place in sorted(self.folder.rglob("*")):
            name = str(place.relative_to(self.folder))
            if place.is_symlink():
                found[name] = str(place.readlink())
            elif place.is_file():
                status = place.stat()
                # The store shares the files of objects, whose time git sets when it meets one again.
                time = 0 if name.startswith(".git/objects") else status.st_mtime_ns
                found[name] = (place.read_bytes(), status.st_mode, time)
            else:
                found[name] = None
        return found


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A repository with a commit; the current folder is another one."""
    result = Repo(tmp_path / "project")
    result.write(**{"n.txt": "0\n", ".gitignore": "*.log\n"})
    result.commit("start")
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    return result


@pytest.fixture
def make_repo(tmp_path: Path) -> object:
    """Make another repository by name."""
    return lambda name: Repo(tmp_path / name)
