"""A key that an agent prints, commits or uses as a file name is in no place that Loopwright writes."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, Workspace, agent, run_sync
from loopwright.coding.workspace.handover import paths_with_secrets
from loopwright.coding.workspace.store import GitError, GitStore
from loopwright.records.redaction import of_environment
from loopwright.ui.cli import main

from ..agents.fakes import scripted
from .conftest import Repo

KEY = "sk-live-0123456789abcdef0123"
CODED = base64.b64encode(f"key={KEY} and more".encode()).decode()
SCRIPT = [
    {"run": f"echo {KEY}; echo {CODED} >&2"},
    {"write": {f"{KEY}.txt": "named by a key", "n.txt": "1\n", "settings": f"key = {KEY}\n"}},
    {"run": f"git -c user.name=a -c user.email=a@b commit -qam 'use {KEY}'"},
    {"say": f"I use {KEY}, or {CODED}."},
]


SHOWN = [
    *(["export", "r", "--format", form] for form in ("json", "csv", "jsonl", "html")),
    ["show", "r", "--files"],
    ["show", "r", "--json"],
]


def test_a_file_that_cannot_be_searched_is_an_error(tmp_path: Path) -> None:
    """It could have a key, so that it must not count as a file without one."""
    store = GitStore(tmp_path)
    store.make(None)
    base = store.commit(store.git("mktree", stdin=b"").decode().strip(), "", "base")
    entry = f"100644 blob {'1' * 40}\tlost.txt\n".encode()
    lost = store.commit(store.git("mktree", "--missing", stdin=entry).decode().strip(), base, "one")
    with pytest.raises(GitError):
        paths_with_secrets(store, base, lost, None)


def judge() -> dict[str, object]:
    return {"score": 0.5, "feedback": f"use {KEY} or {CODED}"}


def test_no_key_of_an_agent_is_recorded_shown_or_committed(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in the journal and its files, nor in an export, a view, or a commit of the branch."""
    monkeypatch.setenv("MY_AGENT_KEY", KEY)
    step = agent(scripted(tmp_path, "claude", SCRIPT), "Fix it.", pass_env=["MY_AGENT_KEY"])
    workspace = Workspace(repo.folder, branch="b", secrets="drop", commits="iterations")
    loop = Loop(step, evaluate=judge, until=MaxIterations(1), workspace=workspace, name="leaks")
    result = run_sync(
        loop,
        run_id="r",
        journal="sqlite:runs.db",
        resources={"redactor": of_environment(os.environ)},
    )
    assert result.error is None
    assert repo.git("show", "b:n.txt") == "1"
    places = {
        str(file): file.read_bytes() for file in Path().rglob("runs.db*/**/*") if file.is_file()
    }
    places |= {str(file): file.read_bytes() for file in Path().glob("runs.db*") if file.is_file()}
    places["branch"] = repo.git("log", "-p", "main..b", "--", "n.txt", "settings").encode()
    capfd.readouterr()
    for words in SHOWN:
        assert main([*words, "--journal", "sqlite:runs.db"]) == 0
        places[" ".join(words)] = capfd.readouterr().out.encode()
        assert places[" ".join(words)]
    leaks = [
        name for name, text in places.items() if KEY.encode() in text or CODED.encode() in text
    ]
    assert leaks == []
