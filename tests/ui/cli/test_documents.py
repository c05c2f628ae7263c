"""Documents: checked before they run, run with their settings, gone on with from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Project

GOOD = """\
schema: loopwright/1
name: counting
input: three words here
steps:
  - name: count
    shell: [wc, -w]
"""
WRONG = GOOD.replace("shell: [wc, -w]", "shel: [wc, -w]")


@pytest.fixture
def documents(project: Project) -> Project:
    """A folder with a good document and a wrong one."""
    (project.folder / "good.yaml").write_text(GOOD)
    (project.folder / "wrong.yaml").write_text(WRONG)
    return project


def test_check_tells_what_would_run(documents: Project) -> None:
    """Steps and commands, and nothing is run."""
    answer = documents.call("check", "good.yaml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("good.yaml: can run\n")
    assert "    count: shell, shell wc -w\n" in answer.out
    assert "  commands:\n    wc -w\n" in answer.out


def test_check_tells_every_problem_with_its_place(documents: Project) -> None:
    """On stderr as file:line:column: path: what; the other documents are told all the same."""
    answer = documents.call("check", "wrong.yaml", "good.yaml")
    assert answer.code == 2
    assert answer.err.startswith("wrong.yaml:6:5: steps[0].shel")
    assert "did you mean 'shell'?" in answer.err
    assert answer.out.startswith("good.yaml: can run\n")


def test_check_is_one_object_for_programs(documents: Project) -> None:
    """Each document with its problems or its plan."""
    answer = documents.call("check", "good.yaml", "wrong.yaml", "--json")
    assert (answer.code, answer.json["ok"]) == (2, False)
    good, wrong = answer.json["documents"]
    assert (good["ok"], good["problems"], good["plan"]["commands"]) == (True, [], ["wc -w"])
    assert (wrong["ok"], wrong["plan"]) == (False, None)
    assert {"file", "line", "column", "path", "code", "message", "text"} == wrong["problems"][
        0
    ].keys()


def test_a_wrong_document_runs_nothing(documents: Project) -> None:
    """Exit code 2, problems on stderr, stdout empty, with --json too, and no journal is made."""
    for options in ([], ["--json"]):
        answer = documents.call("run", "wrong.yaml", *options)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("wrong.yaml:6:5: steps[0].shel")
    assert not (documents.folder / ".loopwright").exists()


def test_a_document_runs_on_its_own_input_or_the_given_one(documents: Project) -> None:
    """Its `input` counts where nothing is given."""
    assert documents.call("run", "good.yaml", "--yes", "--json").json["output"].strip() == "3"
    answer = documents.call("run", "good.yaml", "--yes", "--input", "two words", "--json")
    assert answer.json["output"].strip() == "2"


def test_a_run_goes_on_from_any_folder(documents: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run was started from is kept with it, by a path that holds anywhere."""
    documents.call("run", "good.yaml", "--yes", "--input", "one", "--run-id", "one")
    documents.call("rewind", "one", "counting/count")
    journal = f"sqlite:{documents.folder / '.loopwright' / 'runs.db'}"
    (documents.folder / "elsewhere").mkdir()
    monkeypatch.chdir(documents.folder / "elsewhere")
    answer = documents.call("resume", "one", "--journal", journal, "--json")
    assert (answer.code, answer.json["output"].strip()) == (0, "1")


def test_a_run_goes_on_when_its_document_is_renamed_or_gone(documents: Project) -> None:
    """The run keeps the document by content: resume says so, goes on with it, and asks for no new consent."""
    documents.call("run", "good.yaml", "--yes", "--input", "one two", "--run-id", "one")
    documents.call("rewind", "one", "counting/count")
    Path("good.yaml").rename("better.yaml")
    answer = documents.call("resume", "one")
    assert answer.code == 0
    assert (
        "good.yaml: document_gone: no longer exists; the run continues with the recorded document"
        in answer.err
    )
    documents.call("rewind", "one", "counting/count")
    Path("better.yaml").unlink()
    answer = documents.call("resume", "one", "--json")
    assert (answer.code, answer.json["output"].strip()) == (0, "2")
    shown = documents.call("show", "one", "--json").json
    assert "documents" not in shown["source"]


def test_a_run_goes_on_when_what_its_document_calls_is_gone(documents: Project) -> None:
    """All documents of a run are kept, with the file that each name meant."""
    head = "schema: loopwright/1\nname: {}\nsteps:\n"
    Path("parent.yaml").write_text(head.format("parent") + "  - {name: a, workflow: part/child}\n")
    Path("part").mkdir()
    Path("part/child.yaml").write_text(
        head.format("child") + "  - {name: b, shell: [echo, hello]}\n"
    )
    documents.call("run", "parent.yaml", "--yes", "--run-id", "one")
    documents.call("rewind", "one", "parent/a/b")
    Path("part/child.yaml").unlink()
    Path("parent.yaml").unlink()
    answer = documents.call("resume", "one", "--json")
    assert (answer.code, answer.json["output"].strip()) == (0, "hello")


def test_schema_is_that_of_documents(documents: Project) -> None:
    """JSON Schema for editors, as one object."""
    schema = documents.call("schema").json
    assert schema["properties"]["steps"]


@pytest.mark.parametrize("what", ["good.yaml", "steps:echo"])
def test_replies_that_are_not_there_are_named(documents: Project, what: str) -> None:
    """One sentence with the file, what is wrong with it and which option it is of, asked or not."""
    answer = documents.call("run", what, "--replies", "none.yaml", "--yes")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "none.yaml: cannot be read: No such file or directory; "
        "--replies expects a file of scripted replies\n"
    )
