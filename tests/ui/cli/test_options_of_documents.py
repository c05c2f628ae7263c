"""--agent, --set, --model and --lenient mean the same to check, convert and run."""

from __future__ import annotations

import pytest

from .conftest import Project

OUTSIDE = """\
orchestrator: {id: search, agents: [find]}
agents:
  - {id: find, type: duckduckgo, prompt: "tea"}
"""
VARIABLE = """\
$schema: "workflow/v2.0"
name: greet
execution: {provider: openai, model: gpt-4o}
steps:
  - {name: hello, run: "Say hello to {{who}}"}
"""
FRAGMENT = """\
steps:
  - {name: hello, run: "Say hello to {{who}}", provider: openai, model: gpt-4o}
"""
NO_MODEL = """\
schema: loopwright/1
name: asks
steps:
  - {name: hello, prompt: "Say hello"}
"""
FUNCTIONS = "def found(value):\n    return f'found {value}'\n"
REPLIES = "- replies: [hello there]\n"


@pytest.fixture
def folder(project: Project) -> Project:
    """A folder with documents that each need one option, scripted replies and a function."""
    texts = {
        "outside.yaml": OUTSIDE, "variable.yaml": VARIABLE, "fragment.yaml": FRAGMENT,
        "model.yaml": NO_MODEL, "finding.py": FUNCTIONS, "replies.yaml": REPLIES,
    }  # fmt: skip
    for name, text in texts.items():
        (project.folder / name).write_text(text)
    return project


CASES = {
    "agent": ("outside.yaml", ["--agent", "duckduckgo=finding:found"], "duckduckgo"),
    "set": ("variable.yaml", ["--set", "who=Ada"], "'who' is not defined"),
    "lenient": ("fragment.yaml", ["--lenient"], "names no dialect"),
    "model": ("model.yaml", ["--model", "openai:gpt-4o"], "no model is set"),
}


@pytest.mark.parametrize("command", ["check", "convert", "run"])
@pytest.mark.parametrize("case", CASES)
def test_a_document_that_needs_an_option_is_refused_without_it(
    case: str, command: str, folder: Project
) -> None:
    """All three say the same of it, with exit code 2."""
    file, _, said = CASES[case]
    answer = folder.run(command, file)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


@pytest.mark.parametrize("command", ["check", "convert"])
@pytest.mark.parametrize("case", CASES)
def test_check_and_convert_take_the_options_of_run(
    case: str, command: str, folder: Project
) -> None:
    file, options, _ = CASES[case]
    answer = folder.run(command, file, *options, OPENAI_API_KEY="sk-0123456789abcdef0123")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("case", CASES)
def test_run_takes_the_options(case: str, folder: Project) -> None:
    file, options, _ = CASES[case]
    scripted = [] if case == "agent" else ["--replies", "replies.yaml"]
    answer = folder.run("run", file, *options, *scripted, "--yes", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["output"] == ("found tea" if case == "agent" else "hello there")


@pytest.mark.parametrize("command", ["check", "convert", "run"])
def test_a_variable_that_nothing_uses_is_refused_by_all(command: str, folder: Project) -> None:
    answer = folder.run(command, "variable.yaml", "--set", "who=Ada", "--set", "whom=Bob")
    assert answer.code == 2
    assert "--set: the document does not use the variable 'whom'; did you mean 'who'?" in answer.err


def test_the_output_of_a_step_is_no_variable(folder: Project) -> None:
    """`--set` does not take its name, and does not offer it."""
    steps = '[{name: count, set: 1}, {name: text, set: "{{ count }} of {{ all }}"}]'
    (folder.folder / "counted.yaml").write_text(f"schema: loopwright/1\nname: c\nsteps: {steps}\n")
    for name in ("count", "a"):
        answer = folder.run("check", "counted.yaml", "--set", "all=2", "--set", f"{name}=5")
        assert (answer.code, f"variable {name!r}; it takes: all" in answer.err) == (2, True)


def test_a_variable_with_a_default_can_be_set(folder: Project) -> None:
    """`--set` takes the names that a template gives a default or tests, with and without `given`."""
    text = "{{ given.person | default('you') }} {{ place | default('here') }} {{ 1 if late is defined }}"
    steps = f'[{{name: text, set: "{text}"}}]'
    (folder.folder / "greeting.yaml").write_text(f"schema: loopwright/1\nname: g\nsteps: {steps}\n")
    options = ("--set", "person=Ann", "--set", "place=there", "--set", "late=1")
    assert folder.run("run", "greeting.yaml", *options, "--json").json["output"] == "Ann there 1"
    answer = folder.run("check", "greeting.yaml", "--set", "persn=Ann")
    assert (answer.code, "did you mean 'person'?" in answer.err) == (2, True)
    answer = folder.run(
        "check", "greeting.yaml", "--set", "given=Ann"
    )  # the variables, and none of them
    assert (answer.code, "it takes: late, person, place\n" in answer.err) == (2, True)
