"""The agent step: a program in a loop with a check, from Python and from documents."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import MemoryJournal, Result, Status, agent, run, run_sync
from loopwright.coding.agents import Manifest, load_manifest, manifest_names
from loopwright.documents import Settings, load
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.testing.fake_agent import manifest

from .fakes import FORMATS, RESUMABLE, WITH_END, WRONG_THEN_RIGHT, fake, scripted, until_42, working


@pytest.mark.parametrize("name", FORMATS)
def test_a_loop_runs_the_agent_until_the_check_passes(tmp_path: Path, name: str) -> None:
    """The files that the agent writes decide, in the format of each program."""
    step = fake(tmp_path, name, *WRONG_THEN_RIGHT)
    result = run_sync(until_42(step, working(tmp_path)))
    assert (result.status, result.iterations) == (Status.SATISFIED, 2)
    assert "Fixed." in str(result.output)
    assert result.usage.calls >= 2


@pytest.mark.parametrize("name", FORMATS)
def test_the_result_form_has_the_facts_of_the_events(tmp_path: Path, name: str) -> None:
    """`output: result` holds text, session, usage and changed files, whatever program wrote the events."""
    step = fake(tmp_path, name, WRONG_THEN_RIGHT[0], output="result")
    output = run_sync(step).output
    assert "Done." in output["text"]
    assert output["stop"] == "completed"
    if name != "text":
        assert output["changed"] == ["answer.txt"]
        assert (output["usage"]["input_tokens"], output["usage"]["output_tokens"]) == (100, 20)
    assert bool(output["session"]) == (name in WITH_END)


def document(tmp_path: Path, **keys: Any) -> Path:
    folder = tmp_path / "project"
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    (folder / "agents" / "mine.yaml").write_text(
        yaml.safe_dump(manifest("claude", tmp_path / "script-claude.json"))
    )
    scripted(tmp_path, "claude", *WRONG_THEN_RIGHT)
    task = {
        "cli": "./agents/mine.yaml",
        "prompt": "Fix it. {{ loop.last.feedback }}",
        "workspace": "here",
        **keys,
    }
    file = folder / "fix.yaml"
    loop = {
        "execute": {"agent": {k: v for k, v in task.items() if v is not None}},
        "evaluate": {
            "score": {"of": {"shell": "grep -q 42 answer.txt && echo score: 1 || echo score: 0"}}
        },
        "until": [{"score_at_least": 0.9}, {"max_iterations": 3}],
    }
    file.write_text(
        yaml.safe_dump(
            {"schema": "loopwright/1", "name": "fix", "steps": [{"name": "fix", "loop": loop}]}
        )
    )
    return file


def ran(file: Path, journal: MemoryJournal | None = None) -> Result:
    loaded = load(file, Settings())
    return asyncio.run(
        run(loaded.step, "go", journal=journal or MemoryJournal(), resources=loaded.resources)
    )


def test_a_document_runs_an_agent_with_a_check_of_the_shell(tmp_path: Path) -> None:
    """An `agent:` action works in the folder of the document, and a shell command scores its files."""
    result = ran(document(tmp_path))
    assert (result.status, result.total) == (Status.SATISFIED, 2)
    assert (tmp_path / "project" / "answer.txt").read_text() == "42"


def test_an_agent_of_a_document_needs_a_workspace_or_consent(tmp_path: Path) -> None:
    """Without a workspace and without `workspace: here` nothing starts."""
    result = ran(document(tmp_path, workspace=None))
    assert result.status is Status.FAILED
    assert "workspace" in result.detail
    assert not (tmp_path / "project" / "answer.txt").exists()


def test_the_approval_of_a_document_covers_its_manifest(tmp_path: Path) -> None:
    """The program of a manifest is shown, and an edited manifest needs another approval."""
    file = document(tmp_path)
    before = load(file, Settings()).local_actions()
    assert any("loopwright.testing.fake_agent" in command for command in before.commands)
    path = tmp_path / "project" / "agents" / "mine.yaml"
    path.write_text(path.read_text() + "\n# edited\n")
    assert load(file, Settings()).local_actions().digest != before.digest


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"cli": "clade"}, ("claude",)),
        ({"cli": "../outside.yaml"}, ("outside the project folder",)),
        ({"cli": "claude", "args": ["{{ input }}"]}, ("template",)),
        ({"cli": "codex", "max_usd": 1.5}, ("price",)),
        ({"cli": "codex", "max_turns": 3}, ("max_turns",)),
        ({"cli": "aider", "permissions": "full"}, ("read, edit",)),
        ({"prompt": "{{ nothing }}"}, ("nothing",)),
        ({"session": "a b"}, ("session",)),
    ],
)
def test_wrong_settings_are_reported_before_the_run(
    tmp_path: Path, keys: dict[str, Any], words: tuple[str, ...]
) -> None:
    """`check` reports a wrong agent with its place."""
    with pytest.raises(DocumentError) as caught:
        load(document(tmp_path, **keys), Settings())
    assert all(word in str(caught.value) for word in words)
    assert "fix.yaml:" in str(caught.value)


def test_every_built_in_manifest_is_valid() -> None:
    """Each manifest loads, knows its events, and says how it is installed."""
    for name in manifest_names():
        made = load_manifest(name)
        assert made.events == name and made.install and made.tested


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("program: x\ncomand: [a]", ("comand", "command")),
        ("program: x\ncommand: ['{promt}']", ("promt", "{prompt}")),
        ("program: x\ncommand: ['--p={prompt}']", ("word by itself",)),
        ("extends: clade\nprogram: x", ("claude",)),
        ("program: x\nevents: fields", ("fields",)),
        ("program: x\nfailure_text: ['(']", ("regular expression",)),
        ("program: x\nkeys: ['A B']", ("environment variable",)),
        ("program: x\nhome: {'../x': y}", ("home folder",)),
        ("a: &a [1]\nprogram: *a", ("alias",)),
        ("[1, 2]", ("mapping",)),
        ("program: x\nfailure_text: [", ("YAML",)),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_place(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    """A manifest is checked when it is loaded."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_manifest(str(path))
    assert str(path) in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_values_fill_whole_words_only_and_once() -> None:
    """A prompt that looks like a placeholder or an option stays one word."""
    made = Manifest.model_validate(
        {
            "program": "x",
            "command": ["{session}", "{options}", "{prompt}", "end"],
            "optional": {"model": ["-m", "{model}"]},
            "prompt": {"argument": ["--", "{prompt}"]},
        }
    )
    values = {"prompt": "{model}", "model": "--yolo", "session": ""}
    assert made.words(values, [], "edit") == ["-m", "--yolo", "--", "{model}", "end"]


def test_a_program_of_the_user_reports_facts_by_pointers(tmp_path: Path) -> None:
    """`events: fields` reads JSON lines at the places that the manifest names."""
    code = 'import json; print(json.dumps({"sid": "s1", "out": {"text": "hi"}, "n": [3, 4], "cost": 0.5}))'
    made = Manifest.model_validate(
        {
            "program": [sys.executable, "-c", code],
            "events": "fields",
            "usd": True,
            "fields": {
                "session": "/sid",
                "text": "/out/text",
                "input_tokens": "/n/0",
                "output_tokens": "/n/1",
                "usd": "/cost",
            },
        }
    )
    step = agent(made, "x", workspace="here", cwd=tmp_path, output="result", name="mine")
    output = run_sync(step).output
    assert (output["text"], output["session"], output["usage"]["usd"]) == ("hi", "s1", 0.5)


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_session_continues_within_a_loop(tmp_path: Path, name: str) -> None:
    """`session: loop` passes the session of the first iteration to the second one."""
    step = fake(tmp_path, name, *WRONG_THEN_RIGHT, session="loop", output="result")
    result = run_sync(until_42(step, working(tmp_path)))
    sessions = {item.output["session"] for item in result.history}
    assert result.iterations == 2 and len(sessions) == 1


def test_a_fresh_session_is_another_one_in_each_iteration(tmp_path: Path) -> None:
    """`session: fresh`, the default, begins a conversation in each iteration."""
    step = fake(tmp_path, "claude", *WRONG_THEN_RIGHT, output="result")
    result = run_sync(until_42(step, working(tmp_path)))
    assert len({item.output["session"] for item in result.history}) == 2


def test_a_program_without_resume_has_no_loop_session(tmp_path: Path) -> None:
    """A session that the program cannot continue is refused when the step is created."""
    with pytest.raises(ConfigurationError, match="session"):
        fake(tmp_path, "text", [], session="loop")


@pytest.mark.parametrize("session", ["fresh", "loop"])
def test_aider_continues_the_conversation_of_an_answer(session: str, tmp_path: Path) -> None:
    """A reply that cannot be read is corrected in the same conversation, also if it has no ID."""
    log = tmp_path / "words"
    made = scripted(tmp_path, "aider", [{"say": "no JSON"}, {"spend": {"input_tokens": 1}}])
    words = ["sh", "-c", 'echo "$@" >> "$0"; exec "$@"', str(log), *made.program]
    made = made.model_copy(update={"program": words})
    schema = {"type": "object", "required": ["x"]}
    step = agent(made, "x", workspace="here", cwd=working(tmp_path), output=schema, session=session)
    run_sync(step)
    first, second = log.read_text().split("--message")[:2], log.read_text().splitlines()[-1]
    assert "--restore-chat-history" not in first[0]
    assert "--restore-chat-history" in second
