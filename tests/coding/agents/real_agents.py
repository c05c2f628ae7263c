"""The facts of real coding agents, against a loopback server: `make test-agents`.

Each program runs in a home folder of its own. Versions are pinned in tests/npm/agents/package.json.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, Passed, run_sync

from .provider import INPUT, OUTPUT, Provider
from .real import BIN, NAMES, real_agent
from .test_agent_ends import TREE, gone, sleepers

pytestmark = pytest.mark.skipif(
    not BIN.is_dir(), reason="run make test-agents: it installs the programs"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside of the temporary files, where Codex refuses to keep its state."""
    base = Path.home() / ".cache" / "loopwright-tests"
    base.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=base))
    (path / "work").mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def provider(folder: Path) -> Iterator[Provider]:
    server = Provider(folder / "work")
    yield server
    server.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_edits_and_continues_its_session(
    name: str, provider: Provider, folder: Path
) -> None:
    """The check fails once; the second iteration continues the session, and the cost is what the server counted."""
    answer = provider.folder / "answer.txt"
    seen: list[str] = []

    def check() -> bool:
        seen.append(answer.read_text())
        provider.content = "43"
        # The session of the second call already has a tool result, so its reply is a text in some programs.
        return len(seen) == 2

    step = real_agent(name, provider, folder, session="loop")
    result = run_sync(Loop(step, check, until=Passed() | MaxIterations(3)))
    assert result.satisfied and seen[0] == "42"
    assert len({item.output["session"] for item in result.history}) == 1
    assert all(
        item.output["stop"] == "completed" and item.output["text"] == "done"
        for item in result.history
    )
    # OpenCode also asks for a title, which its events do not report.
    hidden = 1 if name == "opencode" else 0
    turns = provider.replies - hidden
    assert (result.usage.input_tokens, result.usage.output_tokens) == (
        turns * INPUT,
        turns * OUTPUT,
    )
    assert result.warnings == ()


@pytest.mark.parametrize(("name", "word"), [("opencode", "acp"), ("qwen", "--acp")])
def test_an_agent_of_acp_edits_until_the_tests_pass(
    name: str, word: str, provider: Provider, folder: Path
) -> None:
    """It first writes a wrong answer; the second iteration continues the session, and the tests pass."""
    test = "from pathlib import Path\ndef test(): assert Path('answer.txt').read_text() == '42'\n"
    (provider.folder / "test_answer.py").write_text(test)
    provider.content = "41"
    outcomes: list[int] = []

    def tests_pass() -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        outcomes.append(subprocess.run(command, cwd=provider.folder, check=False).returncode)
        provider.content = "42"
        # Qwen Code writes a file only after it has read it in the same process.
        (provider.folder / "answer.txt").unlink()
        return outcomes[-1] == 0

    step = real_agent(name, provider, folder, acp=[word], session="loop")
    result = run_sync(Loop(step, tests_pass, until=Passed() | MaxIterations(3)))
    assert result.satisfied and outcomes == [1, 0]
    assert len({item.output["session"] for item in result.history}) == 1
    assert all(item.output["text"] == "done" for item in result.history)
    assert result.output["version"] and result.usage.input_tokens
    # OpenCode reports US dollars, Qwen Code does not.
    assert bool(result.usage.usd) == (name == "opencode") != bool(result.usage.unpriced)
    assert result.warnings == ()


@pytest.mark.parametrize("mode", ["edit", "529"])
def test_an_agent_of_acp_is_ended_in_time(mode: str, provider: Provider, folder: Path) -> None:
    """A tool that does not end, and a provider that is down, are never a success."""
    mark = f"4321.{os.getpid()}91"
    provider.mode, provider.command = mode, TREE.format(n=mark[5:])
    result = run_sync(real_agent("opencode", provider, folder, acp=["acp"], timeout=12))
    assert result.error is not None and result.error.kind in ("timeout", "transient")
    assert gone(mark, 3)


@pytest.mark.parametrize(
    ("name", "kind"), [("codex", "permanent"), ("gemini", "permanent"), ("qwen", "permanent")]
)
def test_a_refused_request_is_permanent(
    name: str, kind: str, provider: Provider, folder: Path
) -> None:
    """Status 400 is read from the events: Qwen Code exits with 0 after it."""
    provider.mode = "400"
    result = run_sync(real_agent(name, provider, folder))
    assert result.error is not None and result.error.kind == kind


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["529", "closed"])
def test_a_provider_that_is_down_is_never_a_success(
    name: str, mode: str, provider: Provider, folder: Path
) -> None:
    """The programs repeat the request themselves, most of them for longer than the limit."""
    provider.mode = mode
    if mode == "closed":
        provider.close()
    result = run_sync(real_agent(name, provider, folder, timeout=12))
    assert result.error is not None and result.error.kind in (
        "timeout",
        "transient",
        "throttled",
        "unknown_outcome",
    )


def test_codex_reports_a_rate_limit_and_a_cut_stream(provider: Provider, folder: Path) -> None:
    """Status 429 is throttled, a stream without its end is transient."""
    provider.mode = "429"
    limited = run_sync(real_agent("codex", provider, folder))
    provider.mode = "cut"
    cut = run_sync(real_agent("codex", provider, folder))
    assert [one.error and one.error.kind for one in (limited, cut)] == ["throttled", "transient"]


def test_the_turn_limit_of_qwen_code_is_a_result(provider: Provider, folder: Path) -> None:
    """Exit code 53 without a last event: the work is kept."""
    provider.mode = "tools"
    result = run_sync(real_agent("qwen", provider, folder, max_turns=2))
    assert (
        result.output["stop"] == "max_turns"
        and (provider.folder / "answer.txt").read_text() == "42"
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_process_of_a_tool_is_left_after_a_timeout(
    name: str, provider: Provider, folder: Path
) -> None:
    """The programs start tools in sessions of their own; the supervisor ends them all."""
    mark = f"4321.{os.getpid()}{NAMES.index(name)}1"
    provider.command = TREE.format(n=mark[5:])
    # Codex returns to its model after ten seconds of a command, and ends in order then.
    result = run_sync(real_agent(name, provider, folder, timeout=6 if name == "codex" else 15))
    assert result.error is not None and result.error.kind == "timeout"
    assert gone(mark, 3)


KILLED = """
import sys
from pathlib import Path
from loopwright import run_sync
from tests.coding.agents.provider import Provider
from tests.coding.agents.real import real_agent
folder = Path(sys.argv[2])
provider = Provider(folder / "work")
provider.command = sys.argv[3]
run_sync(real_agent(sys.argv[1], provider, folder))
"""


@pytest.mark.parametrize("name", NAMES)
def test_no_process_is_left_after_a_kill_of_our_process(name: str, folder: Path) -> None:
    """`kill -9` of the caller in the middle of a tool call ends the program and its tools."""
    mark = f"4321.{os.getpid()}{NAMES.index(name)}2"
    command = [sys.executable, "-c", KILLED, name, str(folder), TREE.format(n=mark[5:])]
    child = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    until = time.monotonic() + 40
    while len(sleepers(mark)) < 4 and time.monotonic() < until:
        time.sleep(0.1)
    started = len(sleepers(mark))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert started >= 4 and gone(mark, 5)
