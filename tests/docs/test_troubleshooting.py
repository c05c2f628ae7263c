"""The page of messages: each mistake of a newcomer has a row, and each message on the page is one of the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright import Loop, LoopwrightError, MaxIterations, prompt, run_sync
from loopwright.models import Models, ScriptedModel
from loopwright.ui.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "more" / "troubleshooting.md"
HEAD = "schema: loopwright/1\nname: x\n"
FILES = {
    "greet.yaml": f"{HEAD}model: openai:gpt-4o-mini\nsteps:\n  - {{name: greet, prompt: Say hello.}}\n",
    "replies.yaml": "- {replies: [Hello]}\n",
    "two.yaml": f"{HEAD}model: openai:gpt-4o-mini\nbudget: {{calls: 1}}\nsteps:\n"
    "  - {name: a, prompt: one}\n  - {name: b, prompt: two}\n",
    "echo.yaml": f"{HEAD}steps:\n  - {{name: a, shell: echo hello}}\n",
    "count.yaml": f"{HEAD}steps:\n  - {{name: a, set: one}}\n",
    "typo.yaml": f"{HEAD}steps:\n  - {{name: greet, promt: Say hello.}}\n",
    "no_schema.yaml": "name: x\nsteps:\n  - {name: a, set: one}\n",
    "tab.yaml": f"{HEAD}steps:\n\t- name: a\n",
    "colon.yaml": "schema: loopwright/1\nname: a: b\n",
    "condition.yaml": f"{HEAD}steps:\n  - name: a\n    loop: {{execute: {{set: 1}}, until: [{{score: 5}}]}}\n",
    "name.yaml": f'{HEAD}steps:\n  - {{name: a, set: "{{{{ nope }}}}"}}\n',
    "command.yaml": f'{HEAD}steps:\n  - {{name: a, shell: "echo {{{{ input }}}}"}}\n',
    "model.yaml": f"{HEAD}steps:\n  - {{name: a, prompt: hi}}\n",
    "module.yaml": f'{HEAD}steps:\n  - {{name: a, python: "nowhere:f"}}\n',
    "local.yaml": f"{HEAD}model: openai_compatible:m\nmodel_url: http://127.0.0.1:9\nsteps:\n"
    "  - {name: a, prompt: hi, max_retries: 0}\n",
    "tests.yaml": f"{HEAD}steps:\n  - name: a\n    loop:\n      execute: {{set: 1}}\n"
    "      evaluate: {score: {tests: [echo, hello]}}\n      until: [passed]\n",
    "server.yaml": f"{HEAD}model: openai:gpt-4o-mini\nservers:\n  s: {{command: [python, nowhere.py]}}\n"
    "steps:\n  - {name: a, prompt: hi, tools: [s]}\n",
}  # fmt: skip
# The command lines, in the order in which they are typed.
MISTAKES = (
    "show last",
    "run greet.yaml --inpt x",
    "run nowhere.yaml",
    "check .",
    "runs",
    "run greet.yaml --journal runs.db",
    "run echo.yaml",
    "run greet.yaml",
    "run greet.yaml --replies nowhere.yaml",
    "run greet.yaml --model gpt-4o-mini",
    "run greet.yaml --model opnai:gpt-4o-mini",
    "run greet.yaml --model openai_compatible:m --model-url http://127.0.0.1:9 --max-usd 1",
    "run two.yaml --replies replies.yaml",
    "show nowhere",
    "run count.yaml --run-id first",
    "approve first --yes",
    "run count.yaml --run-id first --input other",
    "approve py --yes --resume",
    "run tests.yaml --yes",
    "run server.yaml --yes --replies replies.yaml",
    "doctor ollama",
    "run count.yaml --run-id first --max-effects 9",
    *(f"check {name}.yaml" for name in (
        "typo", "no_schema", "tab", "colon", "condition", "name", "command", "model", "module"
    )),
)  # fmt: skip
EDITED = "run count.yaml --run-id first --max-effects 9"  # after the file was edited
CORRECT = {"run count.yaml --run-id first"}
ANSWERS = Models(ScriptedModel([{"replies": ["no"]}]), default="openai_compatible:m")
PYTHON: dict[str, Callable[[], object]] = {
    "a limit that is a number": lambda: Loop(len, until=3),  # type: ignore[arg-type]
    "another scale": lambda: run_sync(Loop(len, lambda _: {"score": 5}), "x").detail,
    "no model": lambda: run_sync(prompt("hi"), 1),
    "not JSON": lambda: run_sync(lambda _: object(), 1).detail,
    "no format": lambda: run_sync(prompt("x", schema={"type": "object"}), 1, models=ANSWERS).detail,
}
# Messages of the shell, of a missing package and of another process.
ELSEWHERE = {"loopwright: command not found", "... needs ...: pip install 'loopwright[...]'"}


def rows() -> dict[str, re.Pattern[str]]:
    """Return the messages in the first column, each with the pattern of its output; `kind`s are single words."""
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    return {
        message: re.compile(".*".join(map(re.escape, message.split("..."))))
        for message in messages
        if " " in message
    }


def outputs(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the output of each mistake."""
    asks = Loop(lambda value: value, until=MaxIterations(2), approve=("iteration",), name="ask")
    printed = {}
    for words in MISTAKES:
        if words == "approve py --yes --resume":
            run_sync(asks, 1, journal="sqlite:.loopwright/runs.db", run_id="py")
        if words == EDITED:
            Path("count.yaml").write_text(
                FILES["count.yaml"].replace("one", "two"), encoding="utf-8"
            )
        main(words.split())
        answer = capsys.readouterr()
        if words not in CORRECT:
            printed[words] = " ".join((answer.out + answer.err).split())
    return printed | {name: message_of(mistake) for name, mistake in PYTHON.items()}


def message_of(mistake: Callable[[], object]) -> str:
    """Return the message of an error, or the detail of a result."""
    try:
        return str(mistake())
    except LoopwrightError as error:
        return str(error)


@pytest.mark.slow
def test_each_mistake_of_a_newcomer_has_a_row_and_each_row_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistakes run, and the page has their messages in the words of the program."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("OPENAI_API_KEY", "LOOPWRIGHT_MODEL", "LOOPWRIGHT_JOURNAL"):
        monkeypatch.delenv(variable, raising=False)
    printed, patterns = outputs(capsys), rows()
    missing = [
        f"{words}: {text}"
        for words, text in printed.items()
        if not any(p.search(text) for p in patterns.values())
    ]
    assert missing == []
    unseen = {
        m for m, p in patterns.items() if not any(p.search(text) for text in printed.values())
    }
    assert unseen == ELSEWHERE
