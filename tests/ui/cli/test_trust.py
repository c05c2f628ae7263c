"""Trust: what runs on this machine is agreed to once, by its contents."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from .conftest import Project

COMMAND = """\
schema: loopwright/1
name: doing
steps:
  - name: act
    shell: [sh, act.sh]
  - {name: shout, python: "own:shout"}
"""
PROMPT = """\
schema: loopwright/1
name: asking
model: openai:gpt-4o-mini
steps:
  - {name: ask, prompt: "Say hello"}
"""


@pytest.fixture
def folder(project: Project) -> Project:
    """A document that runs a script and a function, and one that only asks a model."""
    files = {
        "doing.yaml": COMMAND,
        "asking.yaml": PROMPT,
        "act.sh": "echo acted >> acted.txt\n",
        "own.py": "import beside\nopen('imported.txt', 'a').write('own')\n\ndef shout(value):\n    return beside.WORD\n",
        "beside.py": "WORD = 'hey'\n",
        "replies.yaml": '- {replies: ["hello"]}\n',
    }
    for name, text in files.items():
        (project.folder / name).write_text(text)
    return project


def acted(project: Project) -> int:
    """Return how often the script ran."""
    file = project.folder / "acted.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_without_a_terminal_nothing_runs_until_it_is_agreed_to(folder: Project) -> None:
    """Exit code 2 and how to agree; no command, no import, no journal."""
    answer = folder.run("run", "doing.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "loopwright: doing needs your approval: it runs 1 command and 1 Python function on this machine. "
        "Review it with loopwright check, then approve it with --yes.\n"
    )
    assert acted(folder) == 0
    assert not (folder.folder / "imported.txt").exists()
    assert not (folder.folder / ".loopwright").exists()


def test_a_file_for_a_model_needs_an_approval(folder: Project) -> None:
    """A document that sends a file of its folder to a model is approved first, and addresses are not asked about."""
    text = (
        "schema: loopwright/1\nname: sends\nmodel: openai:m\nsteps:\n- name: ask\n  prompt: What is it?\n"
        "  files: [act.sh, 'https://example.org/a.png']\n"
    )
    (folder.folder / "sends.yaml").write_text(text)
    answer = folder.run("run", "sends.yaml", "--replies", "replies.yaml")
    assert answer.code == 2
    assert "sends needs your approval: it sends act.sh to a model. " in answer.err
    assert not (folder.folder / ".loopwright").exists()
    (folder.folder / "sends.yaml").write_text(text.replace("act.sh, ", ""))
    assert "approved" not in folder.run("run", "sends.yaml", "--replies", "replies.yaml").err


def test_what_was_agreed_to_is_not_asked_again(folder: Project) -> None:
    """--yes once, then never again for these contents."""
    assert folder.run("run", "doing.yaml", "--yes").code == 0
    assert folder.run("run", "doing.yaml").code == 0
    assert acted(folder) == 2


@pytest.mark.parametrize("name", ["doing.yaml", "act.sh", "own.py", "beside.py"])
def test_a_changed_file_is_asked_about_again(folder: Project, name: str) -> None:
    """The document, a script that a command names, a module, and one that it imports."""
    assert folder.run("run", "doing.yaml", "--yes").code == 0
    file = folder.folder / name
    file.write_text(file.read_text() + "\n# changed\n")
    assert folder.run("run", "doing.yaml").code == 2
    assert acted(folder) == 1


def test_a_resumed_run_is_asked_about_too(folder: Project) -> None:
    """What changed since is not run by resume either."""
    assert folder.run("run", "doing.yaml", "--yes", "--run-id", "one").code == 0
    folder.run("rewind", "one", "doing/act")
    file = folder.folder / "act.sh"
    file.write_text("echo other >> acted.txt\n")
    assert folder.run("resume", "one").code == 2
    assert acted(folder) == 1
    assert folder.run("resume", "one", "--yes").code == 0
    assert acted(folder) == 2


def test_a_document_of_prompts_is_never_asked_about(folder: Project) -> None:
    """Models answer; nothing of the document runs on this machine."""
    answer = folder.run("run", "asking.yaml", "--replies", "replies.yaml", "--json")
    assert (answer.code, answer.json["output"]) == (0, "hello")


def test_a_machine_can_agree_to_everything(folder: Project) -> None:
    """LOOPWRIGHT_TRUST=all runs without a question and keeps nothing."""
    assert folder.run("run", "doing.yaml", LOOPWRIGHT_TRUST="all").code == 0
    assert folder.run("run", "doing.yaml").code == 2


def test_where_agreement_cannot_be_kept_it_is_told(folder: Project) -> None:
    """The run goes on, and a note says that it will be asked again."""
    (folder.folder / "blocked").write_text("")
    answer = folder.run("run", "doing.yaml", "--yes", XDG_STATE_HOME=str(folder.folder / "blocked"))
    assert answer.code == 0
    assert "note: your approval cannot be stored" in answer.err


def on_terminal(project: Project, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, answer its question, and return its code and what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "loopwright", *arguments],
        cwd=project.folder, env=project.environ({"TERM": "xterm"}),
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        with suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    return process.returncode, shown.decode(errors="replace")


def test_a_terminal_is_asked_once(folder: Project) -> None:
    """The question shows what would run; yes is kept, and no runs nothing."""
    code, shown = on_terminal(folder, "n\n", "run", "doing.yaml")
    assert (code, acted(folder)) == (2, 0)
    assert "sh act.sh" in shown
    assert "own:shout" in shown
    assert "was not approved; nothing was run" in shown
    assert (
        "You are asked again only if the document, its code or what it may send changes." in shown
    )
    assert on_terminal(folder, "y\n", "run", "doing.yaml")[0] == 0
    code, shown = on_terminal(folder, "", "run", "doing.yaml")
    assert (code, acted(folder)) == (0, 2)
    assert "[y/N]" not in shown


HIDING = """\
schema: loopwright/1
name: hiding
steps:
  - {name: one, shell: "echo ok # a harmless comment\\ntouch PWNED"}
  - {name: two, shell: [echo, "a\\u200b\\U000E0041\\u3164\\e[2J"]}
"""


def test_commands_are_shown_as_they_run(folder: Project) -> None:
    """The question and `check` show every line of a command, numbered, and what cannot be seen is escaped."""
    (folder.folder / "hiding.yaml").write_text(HIDING)
    _, shown = on_terminal(folder, "n\n", "run", "hiding.yaml")
    checked = folder.run("check", "hiding.yaml").out
    for text in (shown.replace("\r", ""), checked):
        assert "    1  echo ok # a harmless comment\n    2  touch PWNED\n" in text
        assert r"a\u200b\U000e0041\u3164\x1b[2J" in text
    assert "\x1b[2J" not in checked and "\u200b" not in checked


def test_a_file_that_no_model_receives_is_not_asked_about(folder: Project) -> None:
    """The cases of a data set stay on this machine where the document asks no model."""
    (folder.folder / "cases.jsonl").write_text('{"inputs": "a", "expected": "a"}\n')
    text = (
        "schema: loopwright/1\nname: own\neval:\n  dataset: {file: cases.jsonl}\n"
        "  task: {shell: 'echo a'}\n  evaluate: {check: equals_expected}\n"
    )
    (folder.folder / "own.yaml").write_text(text)
    answer = folder.run("eval", "own.yaml")
    assert "own needs your approval: it runs 1 command on this machine. " in answer.err


def test_a_file_for_a_list_needs_an_approval(folder: Project) -> None:
    """The items of a file reach a model too: they are asked about, `check` names the file, and `submit` asks too."""
    (folder.folder / ".env").write_text("KEY=1")
    text = (
        "schema: loopwright/1\nname: sends\nmodel: openai:m\nsteps:\n- name: ask\n"
        "  each: {items: 'file://.env', execute: {prompt: '{{ loop.current }}'}}\n"
    )
    (folder.folder / "sends.yaml").write_text(text)
    for words in (("run", "sends.yaml", "--replies", "replies.yaml"), ("submit", "sends.yaml")):
        answer = folder.run(*words)
        assert answer.code == 2
        assert "sends needs your approval: it sends .env to a model. " in answer.err
    plan = folder.run("check", "sends.yaml", "--json").json["documents"][0]["plan"]
    assert plan["files"] == [".env"]
    _, shown = on_terminal(folder, "n\n", "run", "sends.yaml")
    assert "files: \x1b[0m.env" in shown and "hosts: \x1b[0mapi.openai.com" in shown
    assert folder.run("run", "sends.yaml", "--replies", "replies.yaml", "--yes").code == 0
    # The path is approved and not the contents, as the question says.
    (folder.folder / ".env").write_text("KEY=2")
    assert folder.run("run", "sends.yaml", "--replies", "replies.yaml").code == 0
    text = text.replace(".env", "act.sh")
    (folder.folder / "sends.yaml").write_text(text)
    assert folder.run("run", "sends.yaml", "--replies", "replies.yaml").code == 2


def test_an_agreement_is_for_its_owner_alone(folder: Project) -> None:
    """The folder of agreements is the user's own, one empty file for each."""
    folder.run("run", "doing.yaml", "--yes")
    kept = Path(os.environ["XDG_STATE_HOME"]) / "loopwright" / "trusted"
    assert [file.read_bytes() for file in kept.iterdir()] == [b""]
    assert kept.stat().st_mode & 0o077 == 0


KEYED = """\
schema: loopwright/1
name: keyed
model: openai_compatible:any
model_url: https://models.example.org/v1
api_key_env: GITHUB_TOKEN
steps:
  - {name: ask, prompt: "Say hello"}
"""


def test_a_key_for_a_host_is_agreed_to(folder: Project) -> None:
    """Rule: a variable goes to a host only after somebody agreed; `check` lists who sends what where."""
    (folder.folder / "keyed.yaml").write_text(KEYED)
    answer = folder.run("run", "keyed.yaml", GITHUB_TOKEN="ghp_0123456789abcdef")
    assert answer.code == 2
    assert (
        "keyed needs your approval: it sends GITHUB_TOKEN to https://models.example.org. "
        in answer.err
    )
    plan = folder.run("check", "keyed.yaml", "--json").json["documents"][0]["plan"]
    assert plan["keys"] == ["GITHUB_TOKEN to https://models.example.org"]
    assert "GITHUB_TOKEN" in plan["environment"]


def test_another_host_for_a_key_is_agreed_to_anew(folder: Project) -> None:
    """Rule: agreement is to the pair of host and variable, whoever changed one: a file or an option."""
    text = KEYED.replace("model_url: https://models.example.org/v1\n", "")
    (folder.folder / "keyed.yaml").write_text(text)
    first = folder.run("run", "keyed.yaml", "--model-url", "https://one.example.org", "--yes")
    assert "approved" not in first.err
    again = folder.run("run", "keyed.yaml", "--model-url", "https://two.example.org")
    assert again.code == 2
    assert "GITHUB_TOKEN to https://two.example.org" in again.err


def test_a_providers_own_key_stays_with_it_and_is_not_asked_about(folder: Project) -> None:
    """Rule: known provider keys are bound to their provider's host."""
    own = "schema: loopwright/1\nname: own\nmodel: openai:gpt-4o-mini\napi_key_env: OPENAI_API_KEY\nsteps: [{name: a, prompt: hi}]\n"
    (folder.folder / "own.yaml").write_text(own)
    assert folder.run("check", "own.yaml", "--json").json["documents"][0]["plan"]["keys"] == []
    (folder.folder / "away.yaml").write_text(KEYED.replace("GITHUB_TOKEN", "OPENAI_API_KEY"))
    answer = folder.run("check", "away.yaml")
    assert answer.code == 2
    assert "OPENAI_API_KEY belongs to https://api.openai.com and is not sent to" in answer.err


def test_a_servers_token_is_listed_with_its_address(folder: Project) -> None:
    """Rule: servers too: their token, and variables in their headers and environment."""
    text = (
        "schema: loopwright/1\nname: served\nservers:\n"
        '  far: {url: "https://tools.example.org/mcp", token_env: FAR_TOKEN, headers: {x-a: "${OTHER}"}}\n'
        '  near: {command: [server], pass_env: [NEAR], env: {B: "${SECOND}"}}\n'
        "steps: [{name: a, tool: far.do}]\n"
    )
    (folder.folder / "served.yaml").write_text(text)
    keys = folder.run("check", "served.yaml", "--json").json["documents"][0]["plan"]["keys"]
    assert keys == [
        "FAR_TOKEN to https://tools.example.org",
        "OTHER to https://tools.example.org",
        "NEAR to the server near",
        "SECOND to the server near",
    ]


def test_variables_of_commands_are_listed_with_what_is_given_them(folder: Project) -> None:
    """Rule: `pass_env` of steps and tools is part of what is agreed to, and `check` lists it."""
    text = (
        "schema: loopwright/1\nname: commands\ntools:\n  git: {commands: [[git, fetch]], pass_env: [GIT_TOKEN]}\n"
        "steps:\n  - {name: build, shell: [make], pass_env: [NPM_TOKEN]}\n"
        "  - {name: get, tool: git, pass_env: [MORE_TOKEN], arguments: {argv: [git, fetch]}}\n"
    )
    (folder.folder / "commands.yaml").write_text(text)
    plan = folder.run("check", "commands.yaml", "--json").json["documents"][0]["plan"]
    assert plan["keys"] == [
        "GIT_TOKEN to the tool git",
        "NPM_TOKEN to the command of build",
        "MORE_TOKEN to the tool git in get",
    ]
    listed = folder.run("check", "commands.yaml").out
    assert "NPM_TOKEN to the command of build" in listed
    answer = folder.run("run", "commands.yaml")
    assert answer.code == 2
    assert (
        "it runs 2 commands on this machine and sends GIT_TOKEN to the tool git, NPM_TOKEN to the "
        "command of build, and MORE_TOKEN to the tool git in get. " in answer.err
    )


def test_the_keys_of_an_agent_are_listed_by_the_agent(folder: Project) -> None:
    """The sentence names the program once, and counts it once although each step with it runs it."""
    step = "  - {name: %s, agent: {cli: claude, prompt: Fix it.}}\n"
    text = f"schema: loopwright/1\nname: fixing\nsteps:\n{step % 'fix'}{step % 'again'}"
    (folder.folder / "fixing.yaml").write_text(text)
    answer = folder.run("run", "fixing.yaml")
    assert (
        "loopwright: fixing needs your approval: it runs 1 command on this machine and sends "
        "ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN and 1 more variable to the agent "
        "claude. Review it" in answer.err
    )


V2_KEYED = """\
$schema: "workflow/v2.0"
name: keyed
execution: {provider: openai, model: gpt-4o, servers: [tools]}
steps:
  - {name: ask, run: "Say hello"}
"""


def test_a_server_of_workflow_v2_is_agreed_to_with_its_variables(folder: Project) -> None:
    """Rule: the pair of host and variable needs consent in workflow/v2.0 as in native documents."""
    (folder.folder / "keyed.yaml").write_text(V2_KEYED)
    servers = '{"mcpServers": {"tools": {"url": "https://tools.example.org/mcp", "headers": {"x": "${FAR_TOKEN}"}}}}'
    (folder.folder / "mcp.json").write_text(servers)
    plan = folder.run("check", "keyed.yaml", "--json").json["documents"][0]["plan"]
    assert plan["keys"] == ["FAR_TOKEN to https://tools.example.org"]
    answer = folder.run("run", "keyed.yaml")
    assert answer.code == 2
    assert "FAR_TOKEN to https://tools.example.org" in answer.err


@pytest.mark.parametrize("name", ["doing.yaml", "act.sh", "own.py", "beside.py"])
def test_what_changes_while_the_question_stands_is_asked_again(folder: Project, name: str) -> None:
    """Rule: consent applies to exactly what was shown: yes to something else is no yes."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "loopwright", "run", "doing.yaml"],
        cwd=folder.folder, env=folder.environ({"TERM": "xterm"}),
        stdin=theirs, stdout=theirs, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = _until(ours, b"[y/N]")
        file = folder.folder / name
        file.write_text(file.read_text() + "\n# changed\n")
        os.write(ours, b"y\n")
        shown = _until(ours, b"[y/N]")
        os.write(ours, b"n\n")
        shown += _until(ours, b"nothing that ever comes")
    os.close(ours)
    assert b"has changed in the meantime" in shown
    assert (process.returncode, acted(folder)) == (2, 0)
    assert not (folder.folder / "imported.txt").exists()
    assert folder.run("run", "doing.yaml").code == 2  # and neither was agreed to


def _until(stream: int, wanted: bytes) -> bytes:
    """Read a terminal until it shows something, or ends."""
    shown = b""
    with suppress(OSError):
        while wanted not in shown and (part := os.read(stream, 65536)):
            shown += part
    return shown


LIMITED = """\
schema: loopwright/1
name: limited
steps:
  - {name: greet, set: "Hello {{ who }}"}
  - name: count
    loop:
      execute: {shell: [sh, act.sh]}
      until: [{max_iterations: 1}]
"""


def forgotten(folder: Project) -> None:
    """Take all approvals away, as a moved project does."""
    for approval in (folder.folder / "state" / "loopwright" / "trusted").iterdir():
        approval.unlink()


@pytest.mark.parametrize("why", ["unapproved", "changed", "key", "wrong loop"])
def test_a_refused_resume_with_a_higher_limit_changes_nothing(folder: Project, why: str) -> None:
    """A limit is recorded after the document was loaded, approved and compared with the recorded one."""
    file = folder.folder / "limited.yaml"
    file.write_text(LIMITED)
    assert folder.run("run", "limited.yaml", "--run-id", "r", "--yes", "--set", "who=Ada").code == 3
    before = folder.run("export", "r", "-f", "jsonl").out
    words, environment = ["--max-iterations", "2"], {}
    if why == "unapproved":
        forgotten(folder)
    elif why == "changed":
        file.write_text(LIMITED.replace("who", "who }} {{ who"))
        words.append("--yes")
    elif why == "key":
        environment = {"SERVICE_KEY": "sk-of-the-service-0123456789"}
        words += ["--yes", "--set", "who=sk-of-the-service-0123456789"]
    else:
        words += ["--yes", "--loop", "other"]
    answer = folder.run("resume", "r", *words, **environment)
    assert answer.code in (1, 2)
    assert answer.err.startswith("loopwright: "), answer.err
    assert folder.run("export", "r", "-f", "jsonl").out == before
    again = folder.run("resume", "r", "--yes")
    assert again.code == 3
    assert again.out.startswith("nothing was run: r has ended: Exhausted: ")
    assert acted(folder) == 1
