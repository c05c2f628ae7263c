"""I49 on the command line, on the page and in telemetry: no sink holds a key, whole or in part."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

import pytest

from telemetry.sink import Server
from ui.web.conftest import serving

from .conftest import Project
from .test_processes import on_terminal

KEYS = {
    "SERVICE_KEY": "zq7Kx+9/Lw=2",
    "HOUSE_WORD": "Hw/" + "4f9a8b7c6d5e+4f3a2b1c0d9e8f7a6b5c4d3e2f1" + "=Qz",
    "MODEL_WORD": "mw-Vb5Nn8Mm3QqRt6Yy1Uu4Ii0Oo",
}
PART = 10  # characters of a key, or of a form of one, that no sink may hold

LEAKS = '''
import base64, os
from urllib.parse import quote

KEYS = [os.environ[name] for name in ("SERVICE_KEY", "HOUSE_WORD", "MODEL_WORD")]
FORMS = [form for key in KEYS for form in (
    key, quote(key, safe=""), base64.b64encode(key.encode()).decode(),
    base64.encodebytes(key.encode() * 4).decode(),
)]

def write(value, ctx):
    """Give back each form, and fail in odd iterations with a message that is cut inside a key."""
    if ctx.iteration == 1:
        key = KEYS[1]
        raise ValueError("x" * (2000 - len("ValueError: ") - 20) + key + " " + " ".join(FORMS))
    if ctx.iteration == 2:
        try:
            raise KeyError("\\n".join(["y" * 100, *FORMS] * 5))
        except KeyError as error:
            raise ValueError(f"password={KEYS[0]}&{KEYS[1]} refused") from error
    return {form: f"an output with {form} in it" for form in FORMS}

def judge(output):
    """Say each form in the feedback."""
    return {"score": 0.5, "feedback": " ".join(FORMS)}

def look_up(word: str) -> str:
    """Return what a service says, which is a key."""
    return " ".join([word, *FORMS])
'''
DOCUMENT = """
schema: loopwright/1
name: leaking
input: one
steps:
  - {name: keep, memory: {operation: write, namespace: notes, text: "it is sunny"}}
  - {name: prints, shell: ["sh", "-c", "printf %s \\"$HOUSE_WORD\\"; printf %s \\"$HOUSE_WORD\\" >&2"], pass_env: [HOUSE_WORD]}
  - {name: note, memory: {operation: write, namespace: notes, text: "{{ prints }} of the house"}}
  - name: refine
    on_failure: continue
    loop:
      execute: {python: "leaks:write"}
      evaluate: {python: "leaks:judge"}
      until: [passed, {max_iterations: 3}]
      max_failures: 4
  - name: asks
    on_failure: continue
    prompt: Say it
    model: openai:gpt-4o
    api_key_env: MODEL_WORD
  - name: fails
    on_failure: continue
    shell: ["sh", "-c", "echo \\"$HOUSE_WORD$HOUSE_WORD\\" >&2; exit 3"]
    pass_env: [HOUSE_WORD]
"""


def leaked(texts: dict[str, str]) -> dict[str, str]:
    """Return which part of a key each sink holds, if any."""
    parts = {}
    for name, key in KEYS.items():
        encoded = base64.b64encode(key.encode()).decode().rstrip("=")[:-2]
        for form in (key, quote(key, safe=""), encoded):
            for at in range(len(form) - PART + 1):
                parts[form[at : at + PART]] = f"{name}: {form}"
    return {
        sink: f"{parts[part]} in {text[max(0, text.index(part) - 60) :][:160]!r}"
        for sink, text in texts.items()
        for part in parts
        if part in text
    }


@pytest.fixture
def leaking(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose steps write keys wherever they can, and an environment that has the keys."""
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    (project.folder / "leaks.py").write_text(LEAKS, "utf-8")
    (project.folder / "leaking.yaml").write_text(DOCUMENT, "utf-8")
    replies = [{"step": "*", "replies": [f"here: {KEYS['MODEL_WORD']}"]}]
    (project.folder / "replies.yaml").write_text(str(replies), "utf-8")
    return project


def test_no_sink_of_the_command_line_holds_a_key(leaking: Project) -> None:
    """I49: the terminal, `--json`, log lines, transcript, telemetry, the journal's bytes, `show` in
    all its forms, every export, memory and the page."""
    said: dict[str, str] = {}
    run = (
        "run", "leaking.yaml", "--yes", "--replies", "replies.yaml", "--transcript", "calls.jsonl",
        "--log", "log.jsonl", "--capture-content", "--verbose",
    )  # fmt: skip
    with Server() as sink:
        answer = leaking.run(*run, "--run-id", "r", "--json", "--otel", sink.url)
        said["json"] = answer.out + answer.err
        assert '"run_id":"r"' in answer.out.replace(" ", ""), answer.err
        said["spans"] = repr(sink.spans())
        said["events"] = repr(sink.events())
        said["metrics"] = repr(sink.metrics())
    said["terminal"] = on_terminal(leaking, *run, "--run-id", "t")[1]
    for words in (
        ["show", "r"], ["show", "r", "--json"], ["show", "r", "--output"], ["show", "r", "--trace"],
        *(["show", "r", "--iteration", str(n)] for n in (1, 2, 3)), ["runs"], ["runs", "--json"],
        *(["export", "r", "-f", form] for form in ("csv", "html", "jsonl", "json")),
        ["memory", "list"], ["memory", "show", "notes"],
    ):  # fmt: skip
        shown = leaking.run(*words)
        said[" ".join(words)] = shown.out + shown.err
    said["terminal of show"] = on_terminal(leaking, "show", "r", "--iteration", "1")[1]
    for file in leaking.folder.rglob("*"):
        if file.is_file() and file.suffix in (".db", ".db-wal", ".jsonl", ".log"):
            said[file.name] = file.read_bytes().decode("latin-1")
    with serving(leaking.folder) as server:
        pages = ["/", "/runs/r"]
        seen: set[str] = set()
        while pages:
            path = pages.pop()
            seen.add(path)
            code, text = server.ask(path)
            said[path] = text
            if code == 200 and path.startswith("/runs/r"):
                found = re.findall(r'"(/runs/r[^"#]*)"', text.replace("&amp;", "&"))
                pages += [one for one in found if one not in seen and one not in pages]
        assert len(seen) > 5
    assert "[redacted]" in said["json"]
    assert "[redacted]" in said["show r --iteration 1"]
    assert "leaks.py" in said["show r --iteration 1"]
    assert any(name.endswith(".db") and "[redacted]" in text for name, text in said.items())
    assert leaked(said) == {}
