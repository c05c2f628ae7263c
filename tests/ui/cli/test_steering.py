"""`steer --now` and `hold --now` name the calls that they interrupt, and those that they leave alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from .conftest import Project

CODER = """
import asyncio, os
from loopwright import Loop, MaxIterations, agent, parallel, step
from loopwright.coding.agents import Manifest
from loopwright.testing.fake_agent import manifest

async def slow(value):
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)

made = Manifest.model_validate(manifest("claude", "script.json"))
worker = agent(made, "Fix it.", workspace="here")
loop = Loop(parallel(claude=worker, slow=step(slow)), name="l", until=MaxIterations(1))
"""
SCRIPT = [
    {"when": "Use asyncio", "do": [{"say": "Done."}, {"run": "touch told"}]},
    [{"say": "Begun."}, {"run": "touch begun"}, {"wait": 300}],
]


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_now_names_what_it_interrupts(project: Project) -> None:
    """An agent with a session is interrupted, a function is not."""
    (project.folder / "coder.py").write_text(CODER)
    (project.folder / "script.json").write_text(json.dumps(SCRIPT))
    process = project.start("run", "coder:loop", "--input", "x", "--run-id", "r")
    _until((project.folder / "begun").exists)
    assert project.call("steer", "r", "Use asyncio.", "--now").out == (
        "hint 1 is recorded; its loops read it in the next iteration\n"
        "interrupts claude at l/1/execute/claude; left alone: l/1/execute/slow\n"
    )
    _until((project.folder / "told").exists)
    first, told = project.call("hold", "r", "--now").out.splitlines()
    assert first == "r is running; it stops before its next effect"
    assert told.endswith("left alone: l/1/execute/slow")
    (project.folder / "go").touch()
    process.wait()
