"""`loopwright.documents.check` and `convert`: a document without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopwright.documents import check, convert, load
from loopwright.errors import DocumentError
from loopwright.ui.cli import main

VALID = "schema: loopwright/1\nname: hello\nsteps:\n  - name: greet\n    python: mine:f\n"


def document(folder: Path, text: str) -> Path:
    (folder / "mine.py").write_text("def f(value):\n    return value\n\nraise RuntimeError\n")
    file = folder / "hello.yaml"
    file.write_text(text)
    return file


def test_a_valid_document_has_no_problems_and_imports_nothing(tmp_path: Path) -> None:
    """Without settings no Python function is imported, so that a check runs no code."""
    assert check(document(tmp_path, VALID)) == ()


def test_every_problem_is_returned_with_its_line(tmp_path: Path) -> None:
    """`check` returns the problems that `load` raises, in the order of the document."""
    file = document(tmp_path, VALID + "    tiemout: 1\n  - set: x\n")
    assert [problem.line for problem in check(file)] == [6, 7]
    with pytest.raises(DocumentError):
        convert(file)


CODING = """\
schema: loopwright/1
name: fixing
workspace: {kind: copy, path: project, %s}
steps:
  - name: fix
    loop:
      execute: {agent: {%s, prompt: Fix it.}}
      evaluate: {tests: {command: pytest -q, %s}}
      until: [passed, {max_iterations: 2}]
"""


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        (("merge: none", "cli: sh.yaml", "timeout: 5m"), []),
        (("max_file: huge", "cli: clod", "timeout: 5m"), [3, 7]),
        (("retain: 7d", "cli: sh.yaml", "on_tamper: x"), [8]),
        (("setup: 'a {{ input }}'", "cli: sh.yaml", "timeout: 5m"), [3]),
        (("reset: [a, '{{ input }}']", "cli: sh.yaml", "protect: [../x]"), [3, 8]),
        (("branch: a..b", "cli: sh.yaml, max_turns: 3", "cwd: /etc"), [3, 7, 8]),
        (("merge: none", "cli: sh.yaml, output: {schema: {type: nothing}}", "timeout: 5m"), [7]),
    ],
)
def test_a_coding_document_has_the_same_problems_as_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: tuple[str, ...], lines: list[int]
) -> None:
    """`check` in Python and `loopwright check` find the problems of the workspace, the agent and its check."""
    (tmp_path / "sh.yaml").write_text("program: sh\ncommand: [-s]\nevents: text\n")
    (tmp_path / "project").mkdir()
    file = document(tmp_path, CODING % parts)
    problems = check(file)
    assert sorted({problem.line for problem in problems}) == lines
    assert main(["check", str(file), "--json", "--offline"]) == (2 if lines else 0)
    [report] = json.loads(capsys.readouterr().out)["documents"]
    assert [str(problem) for problem in problems] == [one["text"] for one in report["problems"]]


PRICED = """\
schema: loopwright/1
name: fixing
%s
steps:
  - name: fix
    loop:
      execute: {agent: {cli: %s, prompt: Fix it.%s}}
      evaluate: {check: {command: 'true'}}
      until: [passed, {max_iterations: 2}]
      %s
"""
LOOP_BUDGET = "guards: [{budget: {usd: 2}}]"
RUN_BUDGET = "budget: {usd: 2}"


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        (("", "codex", "", LOOP_BUDGET), [7]),
        ((RUN_BUDGET, "codex", "", ""), [7]),
        ((RUN_BUDGET, "codex", ", price: {input: 3, output: 15}", ""), []),
        ((RUN_BUDGET, "codex", ", billing: subscription", ""), []),
        ((RUN_BUDGET, "claude", "", LOOP_BUDGET), []),
        (("budget: {calls: 9}", "codex", "", ""), []),
    ],
)
def test_an_agent_without_a_price_is_a_problem_under_a_budget_in_dollars(
    tmp_path: Path, parts: tuple[str, ...], lines: list[int]
) -> None:
    """The budget could never stop it, so that the run is refused before it starts."""
    assert [one.line for one in check(document(tmp_path, PRICED % parts))] == lines


def test_a_provider_is_unknown_to_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default settings of `check` know the providers, as the command does."""
    text = VALID.replace("python: mine:f", "{prompt: Hello, model: 'opnai:x'}").replace(
        "    {prompt", "    loop: {execute: {prompt"
    )
    file = document(
        tmp_path, text.replace("'opnai:x'}", "'opnai:x'}, until: [{max_iterations: 1}]}")
    )
    [problem] = check(file)
    assert main(["check", str(file), "--json", "--offline"]) == 2
    [report] = json.loads(capsys.readouterr().out)["documents"]
    assert [str(problem)] == [one["text"] for one in report["problems"]]


def test_missing_programs_and_folders_are_listed(tmp_path: Path) -> None:
    """Before a run the program of an agent, the folder of a workspace and that of held-out tests must exist."""
    (tmp_path / "no.yaml").write_text(
        "program: no-such-agent\ncommand: [-s]\nevents: text\ninstall: pip install agent\n"
    )
    file = document(tmp_path, CODING % ("merge: none", "cli: no.yaml", "held_out: hidden"))
    missing = {(one.line, one.message) for one in load(file).missing(offline=True)}
    assert missing == {
        (3, f"there is no folder '{tmp_path / 'project'}'"),
        (7, "there is no program 'no-such-agent' on PATH; install it with: pip install agent"),
        (8, f"there is no folder '{tmp_path / 'hidden'}'"),
    }


def test_a_converted_document_converts_to_itself(tmp_path: Path) -> None:
    """The result of `convert` is a valid native document."""
    native = convert(document(tmp_path, VALID))
    assert check(document(tmp_path, native)) == ()
    assert convert(document(tmp_path, native)) == native
