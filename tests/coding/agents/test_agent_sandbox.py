"""Coding agents in a sandbox: ours around the program, and the program's own switched off inside of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loopwright import agent, run_sync
from loopwright.coding.agents import load_manifest
from loopwright.documents import Settings, load
from loopwright.documents.trust import local_actions
from loopwright.errors import ConfigurationError
from loopwright.tools.sandbox import sandbox_problem

from .fakes import scripted, working

PROBLEM = sandbox_problem()
isolated = pytest.mark.skipif(
    bool(PROBLEM) and not os.environ.get("CI"), reason=f"*** NO SANDBOX IS TESTED: {PROBLEM}"
)
OWN = ["-c", 'sandbox_mode="workspace-write"']
OFF = ["--dangerously-bypass-approvals-and-sandbox"]


def words_of(tmp_path: Path, name: str, **options: Any) -> list[str]:
    """Return the words with which a program was started."""
    script = "import sys; print(chr(10).join(sys.argv[1:]))"
    manifest = load_manifest(name).model_copy(
        update={
            "program": [sys.executable, "-c", script],
            "events": "text",
            "end": "none",
            "tested": [],
        }
    )
    step = agent(manifest, "x", workspace="here", cwd=working(tmp_path), home="run", **options)
    result = run_sync(step)
    assert result.satisfied, result.error
    return str(result.output).splitlines()


@isolated
def test_one_sandbox_and_not_two(tmp_path: Path) -> None:
    """The own sandbox of Codex is off inside of ours, and on without ours."""
    inside = words_of(tmp_path, "codex", sandbox="bubblewrap")
    assert OFF[0] in inside and OWN[1] not in inside
    for mode in ("own", "none"):
        outside = words_of(tmp_path, "codex", sandbox=mode)
        assert OWN[1] in outside and OFF[0] not in outside


@isolated
def test_an_agent_can_change_its_folder_and_its_state_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login and the sessions of a program stay writable; `read` makes the folder read-only."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    home, work = tmp_path / "home", working(tmp_path)
    script = "for f in new ~/.claude/state ~/other; do touch $f; done; true"
    # The script of the fake agent is in the folder, because the sandbox hides temporary files.
    made = scripted(tmp_path, "claude", [{"run": script}, {"say": "x"}])
    (tmp_path / "script-claude.json").rename(work / "script.json")
    made = made.model_copy(update={"program": [*made.program[:-1], str(work / "script.json")]})
    for permissions, changed in (("read", False), ("edit", True)):
        step = agent(
            made, "x", workspace="here", cwd=work, sandbox="bubblewrap", permissions=permissions
        )
        assert run_sync(step).satisfied
        assert (work / "new").exists() is changed
        (home / ".claude" / "state").unlink()
        assert not (home / "other").exists()


def test_an_agent_without_a_sandbox_of_its_own(tmp_path: Path) -> None:
    """`own` is refused before the first call for a program that has none."""
    with pytest.raises(ConfigurationError, match="has no sandbox"):
        agent(scripted(tmp_path, "aider"), "x", sandbox="own")


def test_the_home_folders_of_old_runs_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder stays a week after its last call, because a suspended run still needs its sessions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    homes = tmp_path / "loopwright" / "homes"
    for name, age in (("old", 8), ("young", 6)):
        (homes / name).mkdir(parents=True)
        (homes / name / "sessions").write_text("x")
        then = time.time() - age * 86_400
        os.utime(homes / name, (then, then))
    assert words_of(tmp_path, "claude")
    assert not (homes / "old").exists() and (homes / "young" / "sessions").exists()
    assert len(list(homes.iterdir())) == 2


def test_a_manifest_is_read_once(tmp_path: Path) -> None:
    """The approval covers the bytes that the run uses: a later change of the file changes nothing."""
    manifest = tmp_path / "mine.yaml"
    manifest.write_text("program: [echo, approved]\n")
    (tmp_path / "fix.yaml").write_text(
        "schema: loopwright/1\nname: fix\nsteps:\n  - {name: a, agent: {cli: ./mine.yaml, prompt: x, workspace: here}}\n"
    )
    actions = local_actions(load(tmp_path / "fix.yaml", Settings()))
    assert actions.contents[manifest.resolve()] == b"program: [echo, approved]\n"
    manifest.write_text("program: [echo, changed]\n")
    loaded = load(tmp_path / "fix.yaml", Settings(agreed=actions.contents))
    assert local_actions(loaded).digest == actions.digest
    assert "approved x" in str(run_sync(loaded.step).output)
