"""What importing the models loads, and what it must not."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "pydantic_ai",
    "openai",
    "httpx",
    "httpx2",
    "anthropic",
    "google.genai",
    "genai_prices",
    "jsonschema",
)


@pytest.mark.parametrize("module", ["loopwright.models", "loopwright.testing"])
def test_importing_models_loads_no_client_library(module: str) -> None:
    """The client library takes seconds to load, so only the first real request loads it."""
    code = f"import sys, {module}; print(*[n for n in {HEAVY!r} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_script_answers_without_a_client_library() -> None:
    """A scripted call, with a schema and a price that is stated, needs no client library."""
    code = (
        "import asyncio, sys\n"
        "from loopwright.models import Message, Request, ScriptedModel\n"
        "ask = Request((Message('user', 'x'),), 'm', 'openai')\n"
        "print(asyncio.run(ScriptedModel([{'replies': ['ok']}]).complete(ask)).text)\n"
        f"print(*[n for n in {HEAVY!r} if n in sys.modules])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["ok"]
