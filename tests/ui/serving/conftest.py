"""A folder with workflows, and a service on it in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright.ui.journals import opened
from loopwright.ui.serving.service import Caller, Service

PLAIN = """
schema: loopwright/1
name: plain
input: hello
steps:
  - {name: greet, set: "Hello {{ input }}"}
"""
ASKS = """
schema: loopwright/1
name: asks
input: x
steps:
  - name: grow
    loop:
      execute: {set: "{{ loop.initial }}x"}
      until: {max_iterations: 2}
      approve: iteration
"""
ACTS = """
schema: loopwright/1
name: acts
input: hello
steps:
  - {name: say, shell: "echo $WORD", env: {WORD: "{{ input }}"}}
"""
SLOW = """
schema: loopwright/1
name: slow
steps:
  - name: wait
    loop:
      execute: {shell: "sleep 9"}
      until: {max_iterations: 1}
"""
WHO = Caller("a test")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with workflows, as the current one; what the user's state has is beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LOOPWRIGHT_TRUST", raising=False)
    made = tmp_path / "flows"
    made.mkdir()
    for name, text in {"plain": PLAIN, "asks": ASKS, "acts": ACTS, "slow": SLOW}.items():
        (made / f"{name}.yaml").write_text(text, "utf-8")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
async def service(folder: Path) -> AsyncIterator[Service]:
    """The operations on that folder."""
    async with opened("sqlite:.loopwright/runs.db", create=True) as store:
        made = Service(folder, store, "sqlite:.loopwright/runs.db", note=print)
        yield made
        await ended(made)


async def confirmed(service: Service, workflow: str) -> str:
    """Return a confirmation of a workflow as it is."""
    checked: Any = await service.check({"workflow": workflow}, WHO)
    return str(checked["confirmation"])


async def ended(service: Service) -> None:
    """Wait until the processes of its runs have ended: this loop collects them."""
    await asyncio.gather(*service._processes._watched)


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.02)
