"""Agents that speak the Agent Client Protocol: our client, and what the reader makes of its lines."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from loopwright import Status, agent, run_sync
from loopwright._extras import EXTRAS
from loopwright.coding.agents import Manifest, acp_client, load_manifest
from loopwright.coding.agents.events import reader_of
from loopwright.coding.agents.manifest import base_of
from loopwright.errors import ConfigurationError

from .fakes import WRONG_THEN_RIGHT, fake, scripted, until_42, working


def talk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *actions: Any,
    able: Any = None,
    **options: str,
) -> list[dict[str, Any]]:
    """Return the events of the client, which runs in this process."""
    made = scripted(tmp_path, "acp", list(actions))
    monkeypatch.chdir(working(tmp_path))
    if able is not None:
        monkeypatch.setenv("LOOPWRIGHT_FAKE_AGENT_ABLE", json.dumps(able))
    settings = {"permissions": "edit", "prompt": "Fix it.", **options}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    asyncio.run(acp_client.main([*words, "--", *made.program]))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def talked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    return lambda *actions, **options: talk(tmp_path, monkeypatch, capsys, *actions, **options)


def denied(events: list[dict[str, Any]]) -> list[str]:
    return [event["tool"] for event in events if event["type"] == "denied"]


@pytest.mark.parametrize("permissions", ["read", "edit", "full"])
def test_the_permissions_of_the_call_answer_and_nobody_is_asked(
    permissions: str, talked: Any, tmp_path: Path
) -> None:
    """`read` denies commands and writes no file; the others permit both."""
    events = talked({"deny": "make all"}, {"write": {"a.txt": "x"}}, permissions=permissions)
    assert bool(denied(events)) == (permissions == "read")
    assert (working(tmp_path) / "a.txt").exists() == (permissions != "read")
    assert events[-1]["type"] == "end"


def test_files_outside_of_the_working_folder_are_not_written(talked: Any, tmp_path: Path) -> None:
    """Neither by a path nor behind a link that the agent made."""
    (working(tmp_path) / "link").symlink_to(tmp_path)
    talked(
        {
            "write": {
                "../out.txt": "x",
                "link/out.txt": "x",
                str(tmp_path / "out.txt"): "x",
                "in/a.txt": "x",
            }
        }
    )
    assert not (tmp_path / "out.txt").exists()
    assert (working(tmp_path) / "in" / "a.txt").read_text() == "x"


def test_files_are_read_for_the_agent_within_the_folder(tmp_path: Path) -> None:
    """Whole, or some of their lines; a missing one is an error of the protocol."""
    folder = working(tmp_path)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret").write_text("x")
    client = acp_client.Client("read", folder)

    def read(path: str, **lines: int) -> str:
        return asyncio.run(client.read_text_file("s", str(folder / path), **lines)).content

    assert read("a.txt") == "one\ntwo\nthree\n" and read("a.txt", line=2, limit=1) == "two\n"
    for path in ("../secret", "missing", "."):
        with pytest.raises(acp_client.RequestError):
            read(path)


def test_a_model_that_cannot_be_chosen_ends_the_call(talked: Any, tmp_path: Path) -> None:
    """It never works with another model than the one that was named."""
    events = talked({"write": {"a.txt": "x"}}, model="big")
    assert events[-1]["type"] == "error" and "no choice of models" in events[-1]["message"]
    assert not (working(tmp_path) / "a.txt").exists()


def test_a_call_that_we_end_is_cancelled_in_order(tmp_path: Path) -> None:
    """At the time without output the agent gets `session/cancel`, and its cost is still reported."""
    step = fake(
        tmp_path, "acp", [{"spend": {"input_tokens": 5, "output_tokens": 3, "usd": 0.25}}, {"say": "hi"}, {"wait": 60}],
        idle_timeout=6,  # the agent begins later than after two seconds where much else runs
    )  # fmt: skip
    result = run_sync(step)
    assert result.error is not None and result.error.kind == "timeout"
    assert (result.usage.input_tokens, result.usage.usd) == (5, 0.25)


def test_the_cost_of_a_session_is_counted_once(tmp_path: Path) -> None:
    """The protocol reports the cost of the session so far, and the tokens of the call."""
    calls = [
        [{"write": {"answer.txt": answer}}, {"spend": {"input_tokens": 100, "output_tokens": 1, "usd": usd}}, {"say": "x"}]
        for answer, usd in (("41", 0.5), ("42", 0.75))
    ]  # fmt: skip
    step = fake(tmp_path, "acp", *calls, session="loop")
    usage = run_sync(until_42(step, working(tmp_path))).usage
    assert (usage.usd, usage.input_tokens, usage.unpriced) == (0.75, 200, 0)


def test_an_agent_without_sessions_begins_new_ones_with_a_warning(tmp_path: Path) -> None:
    """Usage that it does not report is unknown, and not 0 dollars."""
    able = {"LOOPWRIGHT_FAKE_AGENT_ABLE": "{}"}
    scripts = [[one for one in call if "spend" not in one] for call in WRONG_THEN_RIGHT]
    step = fake(tmp_path, "acp", *scripts, session="loop", env=able)
    result = run_sync(until_42(step, working(tmp_path)))
    assert result.satisfied and result.iterations == 2
    assert any(warning.startswith("no_session") for warning in result.warnings)
    assert result.usage.unpriced == result.usage.calls == 2


def test_a_session_that_the_agent_lost_is_named(talked: Any) -> None:
    """In the words that the manifest knows, so a new session is begun."""
    able = {
        "loadSession": False,
        "sessionCapabilities": {"resume": {}},
    }  # which the fake agent lacks
    events = talked({"say": "x"}, session="abc", able=able)
    (pattern,) = base_of("acp")["missing_session"]
    assert re.search(pattern, events[-1]["message"]) and "abc" in events[-1]["message"]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ({"stop": "refusal"}, "refused"),
        ({"stop": "cancelled"}, "unknown_outcome"),
        ({"stop": "end_turn"}, ""),
    ],
)
def test_the_reason_of_the_end_decides(end: dict[str, Any], kind: str) -> None:
    """Only a turn that ended in order is a success."""
    reader = reader_of(Manifest(program=["x"], events="acp"))
    reader.feed(json.dumps({"type": "end", **end}))
    assert reader.ended and (reader.failure.kind if reader.failure else "") == kind


def test_tokens_of_caches_and_thoughts_are_counted_once() -> None:
    """Some agents count them apart, others within; the total says which."""
    for extra, expected in (
        ({"total_tokens": 120}, (100, 20)),
        ({"total_tokens": 175, "cached_read_tokens": 50, "thought_tokens": 5}, (150, 25)),
        ({"total_tokens": 120, "cached_read_tokens": 50, "thought_tokens": 5}, (100, 20)),
    ):
        reader = reader_of(Manifest(program=["x"], events="acp"))
        usage = {"input_tokens": 100, "output_tokens": 20, **extra}
        reader.feed(json.dumps({"type": "end", "stop": "end_turn", "usage": usage}))
        assert (reader.usage.input_tokens, reader.usage.output_tokens) == expected


def test_replies_may_report_their_own_tokens() -> None:
    """As Qwen Code does, with empty messages; the conversation before the prompt is not counted."""
    reader = reader_of(Manifest(program=["x"], events="acp"))
    meta = {"usage": {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}}
    chunk = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": ""},
        "_meta": meta,
    }
    reader.feed(json.dumps({"type": "update", "update": chunk, "earlier": True}))
    for _ in range(2):
        reader.feed(json.dumps({"type": "update", "update": chunk}))
    reader.feed(json.dumps({"type": "end", "stop": "end_turn", "usage": None}))
    assert (reader.usage.tokens, reader.turns) == (240, 2)


def test_acp_is_extended_by_a_manifest_with_a_program(tmp_path: Path) -> None:
    """The name alone says what is missing; a program that is not installed is named."""
    with pytest.raises(ConfigurationError, match="extends: acp"):
        load_manifest("acp")
    path = tmp_path / "mine.yaml"
    path.write_text("extends: acp\nprogram: [no-such-agent, acp]\ninstall: get it\n")
    step = agent(str(path), "x", workspace="here", cwd=tmp_path)
    result = run_sync(step)
    assert result.status is Status.FAILED and result.error is not None
    assert result.error.kind == "cannot_start" and "get it" in result.error.message


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything runs."""
    monkeypatch.setitem(EXTRAS, "acp", EXTRAS["acp"]._replace(packages=("no_such_package",)))
    with pytest.raises(ConfigurationError, match=r"pip install 'loopwright\[acp\]'"):
        fake(tmp_path, "acp", [])
