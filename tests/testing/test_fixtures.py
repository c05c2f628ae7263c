"""What users' tests get from this package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Passed, Reason
from loopwright.evaluators import judge
from loopwright.models import KINDS
from loopwright.prompts import prompt


async def test_the_plugin_gives_a_script_a_journal_and_virtual_time(
    models: Any, virtual: Any, journal: Any
) -> None:
    """A loop of a prompt and a judge runs on the fixtures alone, and its journal can be looked at."""
    replies = models(
        {"step": "*/execute", "replies": ["a draft", "a better one"]},
        {"replies": [{"json": {"verdict": v, "reason": v}} for v in ("no", "yes")]},
    )
    loop = Loop(
        prompt("Write", model="openai:any"),
        judge("It is good", model="openai:any"),
        until=Passed(),
        name="write",
    )
    result = await asyncio.to_thread(virtual, loop, "tea", resources=replies, run_id="written")
    assert (result.reason, result.output, result.iterations) == (
        Reason.CONDITION_MET, "a better one", 2,
    )  # fmt: skip
    assert (await journal.find("written")).status == "satisfied"


def test_virtual_time_passes_without_waiting(virtual: Any) -> None:
    """An hour of a step's own waiting is over at once, and counted."""

    async def nap(value: Any) -> Any:
        await asyncio.sleep(3600)
        return value

    result = virtual(Loop(nap, name="nap", until=MaxIterations(2)))
    assert result.seconds == 7200


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_can_be_scripted(kind: str, models: Any, virtual: Any) -> None:
    """Each documented fault is a reply of the script; the run ends classified, or goes on."""
    replies = models({"replies": [{"error": kind, "retry_after": 1}, "ok"]})
    result = virtual(prompt("Ask", model="openai:any", name="ask"), None, resources=replies)
    assert result.output == "ok" or result.reason in (Reason.ERROR, Reason.QUOTA)


def test_the_plugin_loads_nothing_until_it_is_used() -> None:
    """pytest loads the plugin in every project: that must not load the engine or a model client."""
    code = (
        "import sys, loopwright.testing.fixtures;"
        "print([m for m in sys.modules if m.startswith(('pydantic_ai', 'loopwright.models'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
