"""`check` says what a document needs here and does not find: keys, packages, servers."""

from __future__ import annotations

import socket
from importlib import util

import pytest

from .conftest import Project

HEAD = "schema: loopwright/1\nname: ask\n"
HOSTED = HEAD + "model: openai:gpt-4o\nsteps: [{name: say, prompt: Say hello}]\n"
LOCAL = (
    HEAD + "model: openai_compatible:m\nmodel_url: http://127.0.0.1:%d/v1\n"
    "steps: [{name: say, prompt: Say hello}]\n"
)
SERVER = (
    HEAD + "servers: {files: {command: [python, files.py]}}\n"
    "steps: [{name: read, tool: files.read}]\n"
)
GOALLESS = (
    HEAD + "steps:\n- name: again\n  loop:\n    execute: {shell: [cat]}\n"
    "    until: [passed, {max_iterations: 2}]\n"
)
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def written(project: Project, text: str) -> str:
    """Write a document and return its name."""
    (project.folder / "ask.yaml").write_text(text)
    return "ask.yaml"


def test_check_reports_a_missing_key(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key the document is right and cannot run here: exit code 1, and never "can run"."""
    file = written(project, HOSTED)
    answer = project.call("check", file)
    assert answer.code == 1
    assert "can run" not in answer.out.replace("cannot run here", "")
    assert (
        "missing: ask.yaml:4:9: steps[0]: openai:gpt-4o: openai: there is no key; set OPENAI_API_KEY"
        in answer.err
    )
    data = project.call("check", file, "--json").json
    assert (data["ok"], len(data["documents"][0]["missing"])) == (False, 1)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0000")
    assert "ask.yaml: can run\n" in project.call("check", file).out


def test_scripted_replies_need_no_key(project: Project) -> None:
    """With --replies no model is asked."""
    file = written(project, HOSTED)
    (project.folder / "replies.yaml").write_text('- {replies: ["hello"]}\n')
    answer = project.call("check", file, "--replies", "replies.yaml")
    assert (answer.code, answer.out.startswith("ask.yaml: can run\n")) == (0, True)


def test_one_model_of_several_is_enough(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models that stand in for each other, one that can be asked will do."""
    text = HOSTED.replace("model: openai:gpt-4o", "models: [openai:gpt-4o, deepseek:deepseek-chat]")
    file = written(project, text)
    assert project.call("check", file).code == 1
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test-0000")
    assert project.call("check", file).code == 0


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [
        (HOSTED.replace("openai:gpt-4o", "anthropic:claude"), "anthropic", "anthropic"),
        (HOSTED.replace("openai:gpt-4o", "gemini:gemini-pro"), "google.genai", "google"),
        (SERVER, "mcp", "mcp"),
    ],
)
def test_check_reports_a_missing_extra(
    project: Project, monkeypatch: pytest.MonkeyPatch, text: str, package: str, extra: str
) -> None:
    """A package that is not installed is named, with the extra that brings it."""
    for name in KEYS:
        monkeypatch.setenv(name, "sk-test-0000")
    file = written(project, text)
    assert project.call("check", file).code == 0
    found = util.find_spec
    monkeypatch.setattr(
        "loopwright._extras.find_spec",
        lambda name: None if name == package else found(name),
    )
    answer = project.call("check", file)
    assert answer.code == 1
    assert f"pip install 'loopwright[{extra}]'" in answer.err


def test_check_reports_an_unreachable_server(project: Project) -> None:
    """A server on this machine that does not answer is named; --offline does not ask it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        file = written(project, LOCAL % port)
        assert project.call("check", file).code == 0
    answer = project.call("check", file)
    assert answer.code == 1
    assert f"no server answers at http://127.0.0.1:{port}/v1" in answer.err
    assert project.call("check", file, "--offline").code == 0


LIST = "  each: {items: 'file://cases.txt', execute: {shell: [cat]}}\n"


def test_the_missing_file_of_a_list_is_reported_and_refused(project: Project) -> None:
    """With its place, by `check`, and by `run` before its first effect; not if another step may write the file."""
    file = written(project, HEAD + "steps:\n- {name: one, set: x}\n- name: two\n" + LIST)
    answer = project.call("check", file)
    assert answer.code == 1
    words = "ask.yaml:6:17: steps[1].each.items: there is no file file://cases.txt"
    assert f"missing: {words}" in answer.err
    refused = project.call("run", file, "--yes")
    assert refused.code == 2 and words in refused.err
    assert not (project.folder / ".loopwright").exists()
    (project.folder / "cases.txt").write_text("a\nb\n")
    assert "ask.yaml: can run\n" in project.call("check", file).out
    assert project.call("run", file, "--yes").code == 0
    (project.folder / "cases.txt").unlink()
    one = "- {name: one, shell: [sh, -c, 'echo a > cases.txt']}\n"
    file = written(project, HEAD + f"steps:\n{one}- name: two\n  needs: [one]\n" + LIST)
    assert "ask.yaml: can run\n" in project.call("check", file).out
    assert project.call("run", file, "--yes").code == 0


def test_check_contacts_no_other_machine(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosted provider is never contacted."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0000")

    def refused(*_: object) -> None:
        raise AssertionError("it was contacted")

    monkeypatch.setattr("socket.create_connection", refused)
    assert project.call("check", written(project, HOSTED)).code == 0


def test_check_reports_passed_without_an_evaluator(project: Project) -> None:
    """A condition that nothing can ever meet is noted at its place."""
    answer = project.call("check", written(project, GOALLESS))
    assert (
        "until: goal_without_evaluator: passed can never hold: the loop has no evaluate"
        in answer.err
    )
