"""How a call of an agent ends: its events decide, never its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Budget,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Status,
    agent,
    run,
    run_sync,
)
from loopwright.coding.agents import Manifest
from loopwright.coding.agents.events import classified
from loopwright.errors import ConfigurationError

from .fakes import FORMATS, WITH_END, WRONG_THEN_RIGHT, fake, scripted, until_42, working

COUNTED = tuple(name for name in FORMATS if name not in ("acp", "text"))


def failed(step: Any) -> tuple[str, str]:
    result = run_sync(step)
    assert result.status is Status.FAILED and result.error is not None
    return result.error.kind, result.error.message


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("401 Invalid API key", "permanent"),
        ("status 404: model not found", "permanent"),
        ("You exceeded your current quota", "quota"),
        ("refused by the content filter", "refused"),
    ],
)
def test_an_error_event_gives_the_kind_of_the_failure(
    tmp_path: Path, name: str, message: str, kind: str
) -> None:
    """Every format reports its failures in events, and two of them with exit code 0."""
    assert failed(fake(tmp_path, name, [{"fail": message}]))[0] == kind


def test_words_and_statuses_of_providers_have_kinds() -> None:
    """The messages that the programs print, measured with a loopback server."""
    expected = {
        "API Error: 529 Overloaded": "transient",
        "exceeded retry limit, last status: 429 Too Many Requests": "throttled",
        "stream disconnected before completion: stream closed before response.completed": "transient",
        "Connection error.": "transient",
        "Invalid API key · Please run /login": "permanent",
        "Credit balance is too low": "quota",
        "Please set an Auth method in your settings": "permanent",
        "all is well": "",
    }
    assert {text: classified(text) for text in expected} == expected


@pytest.mark.parametrize("name", WITH_END)
def test_a_call_without_its_last_event_has_an_unknown_outcome(tmp_path: Path, name: str) -> None:
    """Exit code 0 is no success where the format has a last event."""
    assert (
        failed(fake(tmp_path, name, [{"raw": "hello"}, {"end": False}, {"exit": 0}]))[0]
        == "unknown_outcome"
    )


@pytest.mark.parametrize("name", ["claude", "gemini", "qwen"])
def test_a_turn_limit_is_a_result_and_keeps_the_work(tmp_path: Path, name: str) -> None:
    """A call that reached its limit is evaluated, with a warning."""
    step = fake(
        tmp_path,
        name,
        [{"write": {"answer.txt": "42"}}, {"say": "Not done yet."}, {"stop": "max_turns"}],
        output="result",
    )
    result = run_sync(until_42(step, working(tmp_path)))
    assert result.satisfied and result.output["stop"] == "max_turns"
    assert any(warning.startswith("agent_limit") for warning in result.warnings)


def test_an_empty_reply_without_tokens_is_an_error(tmp_path: Path) -> None:
    """A program may end in order without having asked a model."""
    assert failed(fake(tmp_path, "claude", [{"exit": 0}]))[0] == "empty_output"


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_program_that_we_end_was_stopped_whatever_it_reports(tmp_path: Path, name: str) -> None:
    """After the time without output the call ended, even if the program claims success then."""
    code = (
        "import signal, sys, time\n"
        'def end(*_):\n print(\'{"type": "result", "subtype": "success", "result": "ok"}\', flush=True); sys.exit(0)\n'
        "signal.signal(signal.SIGINT, end)\nprint('{}', flush=True)\ntime.sleep(60)"
    )
    made = scripted(tmp_path, name).model_copy(update={"program": [sys.executable, "-c", code]})
    step = agent(made, "x", workspace="here", cwd=tmp_path, idle_timeout=0.5)
    kind, message = failed(step)
    assert kind == "timeout" and "printed nothing" in message


def test_a_program_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    """The message names the command of the manifest, and nothing is charged, whatever was reserved."""
    step = agent(
        Manifest(program=["no-such-agent"], install="get it", title="Mine", usd=True),
        "x",
        workspace="here",
        cwd=tmp_path,
        name="mine",
    )
    result = run_sync(Loop(step, lambda: True, max_iterations=1, max_usd=2))
    assert result.error.kind == "cannot_start" and "get it" in result.error.message
    assert result.usage.usd == 0


def test_a_session_that_is_gone_is_replaced_with_a_warning(tmp_path: Path) -> None:
    """A missing session never fails an iteration."""
    made = scripted(tmp_path, "claude", *WRONG_THEN_RIGHT)
    # A program that refuses to resume, as Claude Code does after its state was deleted.
    code = (
        "import sys, runpy\n"
        "if '-r' in sys.argv: sys.stderr.write('No conversation found with session ID: x\\n'); sys.exit(1)\n"
        "runpy.run_module('loopwright.testing.fake_agent', run_name='__main__')"
    )
    made = made.model_copy(update={"program": [sys.executable, "-c", code, *made.program[4:]]})
    step = agent(
        made, "x", workspace="here", cwd=working(tmp_path), session="loop", output="result"
    )
    result = run_sync(until_42(step, working(tmp_path)))
    assert result.satisfied and result.iterations == 2
    assert any(warning.startswith("session_gone") for warning in result.warnings)


# The cost.


@pytest.mark.parametrize("name", ["codex", "qwen"])
def test_a_total_per_session_is_counted_once(tmp_path: Path, name: str) -> None:
    """The program reports 100, then 300 for the session: the run cost 300 and not 400."""
    first = [
        {"write": {"answer.txt": "41"}},
        {"spend": {"input_tokens": 100, "output_tokens": 10}},
        {"say": "a"},
    ]
    second = [
        {"write": {"answer.txt": "42"}},
        {"spend": {"input_tokens": 300, "output_tokens": 30}},
        {"say": "b"},
    ]
    step = fake(tmp_path, name, first, second, session="loop")
    usage = run_sync(until_42(step, working(tmp_path))).usage
    assert (usage.input_tokens, usage.output_tokens) == (300, 30)


def test_a_smaller_total_of_a_session_counts_as_it_is(tmp_path: Path) -> None:
    """A program that began to count again is not counted as negative."""
    first = [
        {"write": {"answer.txt": "41"}},
        {"spend": {"input_tokens": 300, "output_tokens": 30}},
        {"say": "a"},
    ]
    second = [
        {"write": {"answer.txt": "42"}},
        {"spend": {"input_tokens": 50, "output_tokens": 5}},
        {"say": "b"},
    ]
    usage = run_sync(
        until_42(fake(tmp_path, "codex", first, second, session="loop"), working(tmp_path))
    ).usage
    assert (usage.input_tokens, usage.output_tokens) == (350, 35)


async def cut_before(journal: MemoryJournal, run_id: str, part: str) -> MemoryJournal:
    """Return the journal of a process that died before its first entry at a path with this part."""
    crashed = MemoryJournal()
    log = await crashed.open(replace(await journal.find(run_id), status="interrupted"))
    for entry in await journal.entries(run_id):
        if part in entry.path:
            break
        log.append(entry)
    crashed.crash()
    return crashed


def test_a_resumed_run_counts_the_session_from_the_record(tmp_path: Path) -> None:
    """The difference needs the recorded total: a resumed process has it, and continues the same session."""
    first = [{"spend": {"input_tokens": 100, "output_tokens": 10}}, {"say": "a"}]
    second = [{"spend": {"input_tokens": 300, "output_tokens": 30}}, {"say": "b"}]
    step = fake(tmp_path, "codex", first, second, session="loop", output="result")
    loop = Loop(step, lambda output: output["text"] == "b", until=Passed() | MaxIterations(3))
    journal = MemoryJournal()
    whole = asyncio.run(run(loop, run_id="r", journal=journal))
    # Before the second iteration, and between the call of the first one and its evaluation.
    for part in ("/2/", "/evaluate"):
        crashed = asyncio.run(cut_before(journal, "r", part))
        resumed = asyncio.run(run(loop, run_id="r", journal=crashed))
        assert resumed.usage == whole.usage and whole.usage.input_tokens == 300
    assert resumed.output["session"] == whole.history[0].output["session"]


def test_a_budget_ends_the_call_that_reports_it_spent(tmp_path: Path) -> None:
    """At the reserved amount the program is interrupted; its work is kept, and the budget is never passed by more than a turn."""
    spending = [
        {"write": {"answer.txt": "41"}},
        *({"raw": json.dumps({"cost": n / 10})} for n in (1, 2, 3)),
        {"wait": 30},
    ]
    made = scripted(tmp_path, "text", spending, events="fields", fields={"usd": "/cost"}, usd=True)
    step = agent(made, "x", workspace="here", cwd=working(tmp_path), output="result")
    result = run_sync(until_42(step, working(tmp_path)), budget=Budget(usd=0.2))
    assert result.history[0].output["stop"] == "max_usd"
    assert 0.2 <= result.usage.usd <= 0.3
    assert result.iterations == 1


def test_a_program_without_us_dollars_needs_a_price(tmp_path: Path) -> None:
    """A limit that could never bind is an error before the first call."""
    with pytest.raises(ConfigurationError, match="price"):
        fake(tmp_path, "codex", [], max_usd=1)
    result = run_sync(fake(tmp_path, "codex", [{"write": {"x": "y"}}]), budget=Budget(usd=1))
    assert result.error is not None and result.error.kind == "unknown_price"
    assert not (working(tmp_path) / "x").exists()


def test_a_price_turns_tokens_into_dollars(tmp_path: Path) -> None:
    """A million input tokens at 2 dollars and a million output tokens at 8 dollars cost 10."""
    step = fake(
        tmp_path,
        "codex",
        [{"spend": {"input_tokens": 10**6, "output_tokens": 10**6}}, {"say": "x"}],
        price={"input": 2, "output": 8},
    )
    assert run_sync(step).usage.usd == 10


def test_the_dollars_of_a_subscription_are_not_counted(tmp_path: Path) -> None:
    """They are notional, unless `count_notional` is set."""
    script = [{"spend": {"input_tokens": 1, "output_tokens": 1, "usd": 0.5}}, {"say": "x"}]
    assert run_sync(fake(tmp_path, "claude", script, billing="subscription")).usage.usd == 0
    assert (
        run_sync(
            fake(tmp_path, "claude", script, billing="subscription", count_notional=True)
        ).usage.usd
        == 0.5
    )


def test_a_schema_is_asked_for_once_more(tmp_path: Path) -> None:
    """A reply without the JSON value is corrected in the same session."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    calls = [{"when": "no JSON value", "do": [{"say": '{"n": 3}'}]}, [{"say": "It is three."}]]
    assert run_sync(fake(tmp_path, "claude", *calls, output=schema)).output == {"n": 3}


def test_a_long_prompt_goes_through_standard_input(tmp_path: Path) -> None:
    """An argument has at most 96 KiB; the program reads the rest from standard input."""
    calls = [{"when": "END$", "do": [{"say": "read it all"}]}, [{"say": "cut"}]]
    step = fake(tmp_path, "claude", *calls, prompt="x" * 200_000 + "END")
    assert run_sync(step).output == "read it all"


# Processes.

TREE = "sleep 4321.{n} & setsid sleep 4321.{n} & (setsid sh -c 'sleep 4321.{n} & sleep 4321.{n}' &) ; sleep 4321.{n}"


def sleepers(mark: str) -> list[int]:
    """Return the processes whose command line has the mark."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"sleep\0{mark}".encode() in words:
                result.append(int(entry.name))
    return result


def gone(mark: str, seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while sleepers(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not sleepers(mark)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it reads /proc")
@pytest.mark.parametrize("stubborn", [False, True])
def test_no_process_is_left_after_a_timeout(tmp_path: Path, stubborn: bool) -> None:
    """Tools in sessions of their own end with the agent, also if it ignores the interrupt."""
    mark = f"4321.{os.getpid()}{int(stubborn)}"
    actions = [{"ignore_signals": stubborn}, {"run": TREE.format(n=mark[5:])}]
    kind, _ = failed(fake(tmp_path, "claude", actions, timeout=1))
    assert kind == "timeout" and gone(mark)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it reads /proc")
def test_no_process_is_left_after_a_kill_of_our_process(tmp_path: Path) -> None:
    """The supervisor ends the tree when the process that started it is killed."""
    mark = f"4321.{os.getpid()}7"
    fake(tmp_path, "claude", [{"run": TREE.format(n=mark[5:])}])
    program = (
        "import sys\nfrom pathlib import Path\nfrom loopwright import agent, run_sync\n"
        "from loopwright.coding.agents import Manifest\nfrom loopwright.testing.fake_agent import manifest\n"
        "run_sync(agent(Manifest.model_validate(manifest('claude', sys.argv[1])), 'x', workspace='here', cwd=sys.argv[2]))"
    )
    script = tmp_path / "script-claude.json"
    child = subprocess.Popen([sys.executable, "-c", program, str(script), str(tmp_path)])
    until = time.monotonic() + 20
    while len(sleepers(mark)) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(sleepers(mark)) >= 4
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert gone(mark)
