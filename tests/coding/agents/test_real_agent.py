"""One real coding agent, Qwen Code, against a loopback server. `make test-agents` has four."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, Passed, run_sync

from .provider import INPUT, OUTPUT, Provider
from .real import BIN, real_agent

PLACES = (Path(__file__).parents[2] / "npm" / "node_modules" / ".bin", BIN)
PROGRAMS = next((place for place in PLACES if (place / "qwen").exists()), None)

pytestmark = pytest.mark.skipif(
    PROGRAMS is None and not os.environ.get("CI"),
    reason="*** NO REAL AGENT IS TESTED: run make npm",
)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    (tmp_path / "work").mkdir()
    server = Provider(tmp_path / "work")
    yield server
    server.close()


def test_a_real_agent_edits_until_the_check_passes(provider: Provider, tmp_path: Path) -> None:
    """It writes the file, continues its session after the check failed, and costs what the server counted."""
    assert PROGRAMS is not None, "make npm installs Qwen Code"
    answer = provider.folder / "answer.txt"
    seen: list[str] = []

    def check() -> bool:
        seen.append(answer.read_text())
        return len(seen) > 1

    step = real_agent("qwen", provider, tmp_path, programs=PROGRAMS, session="loop")
    result = run_sync(Loop(step, check, until=Passed() | MaxIterations(3)))
    assert result.satisfied, result.detail
    outputs = [item.output for item in result.history]
    assert seen[0] == "42" and outputs[0]["session"] == outputs[1]["session"]
    assert result.usage.input_tokens == INPUT * provider.replies
    assert result.usage.output_tokens == OUTPUT * provider.replies
