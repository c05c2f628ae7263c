"""`new`: each template runs at once and ends as its README says, and so does its twin that cheats."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from loopwright.documents.schema.export import EDITOR_SCHEMA
from loopwright.ui.cli.new import KINDS, TEMPLATES, command_of, twins_of
from warm_python import warm_python

from .conftest import Answer, Project
from .test_completion import completed

ENDING = re.compile(r"ends\s+as\s+(\w+)\s+\(reason\s+`(\w+)`,\s+exit\s+code\s+(\d)\)")
CASES = [(kind, twin) for kind in KINDS for twin in ("", *twins_of(kind))]


def played(project: Project, folder: Path, command: str) -> tuple[str, str, int]:
    """Run the command of a template in its folder, and return the status, the reason and the exit code."""
    program, *words = shlex.split(command)
    if program == "python":
        done = warm_python().run(words, cwd=folder, env=project.environ({}), timeout=120)
        found = re.search(r"^(\w+) \((\w+)\): ", done.stdout, re.MULTILINE)
        assert found, done.stdout + done.stderr
        return found[1], found[2], done.returncode
    answer = project.call(*words)
    shown = json.loads(project.call("show", "last", "--json").out)
    return shown["status"], shown["reason"], answer.code


@pytest.mark.parametrize(("kind", "twin"), CASES)
def test_a_template_ends_as_its_readme_says(
    project: Project, monkeypatch: pytest.MonkeyPatch, kind: str, twin: str
) -> None:
    """The README names the command, the ending of the template and that of its twin."""
    made = project.call("new", kind, *(["--from", twin] if twin else []))
    assert made.code == 0
    assert f"run: cd {kind} && {command_of(kind)}\n" in made.out
    folder = project.folder / kind
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("shop", "agent"):
        sys.modules.pop(name, None)
    status, reason, code = ENDING.findall((folder / "README.md").read_text())[bool(twin)]
    assert played(project, folder, command_of(kind)) == (status, reason, int(code))


def test_the_list_names_each_template_with_its_twin(project: Project) -> None:
    """All folders are templates, each with at least one twin that its README explains."""
    listed = project.call("new").out
    assert sorted(KINDS) == sorted(folder.name for folder in TEMPLATES.iterdir())
    for kind in KINDS:
        readme = (TEMPLATES / kind / "README.md").read_text()
        assert readme.splitlines()[0].removeprefix("# ") in listed
        assert twins_of(kind)
        for twin in twins_of(kind):
            assert f"--from {twin}: " in listed
            assert f"loopwright new {kind} --from {twin}`" in readme


def test_documents_of_templates_are_valid_where_they_stand(project: Project) -> None:
    """A document begins with the line that names the schema for editors, which stands beside it."""
    for kind in KINDS:
        project.call("new", kind)
        for file in (project.folder / kind).glob(f"{kind}.yaml"):
            assert file.read_text().startswith(f"# yaml-language-server: $schema={EDITOR_SCHEMA}\n")
            assert (file.parent / EDITOR_SCHEMA).is_file()
            report = json.loads(project.call("check", str(file), "--json").out)["documents"][0]
            # unittest writes no report, which `check` says of each such command.
            notes = {note["code"] for note in report["notes"]} - {"exit_code_only"}
            assert (report["problems"], notes) == ([], set())


def wrong(project: Project, *words: str) -> str:
    """Return the sentence of a refusal."""
    refused: Answer = project.call("new", *words)
    assert (refused.code, refused.out) == (2, "")
    return refused.err


def test_nothing_is_overwritten(project: Project) -> None:
    """A file of the same name refuses the copy as a whole; other files of the folder stay."""
    (project.folder / "text").mkdir()
    (project.folder / "text" / "mine.txt").write_text("mine")
    assert project.call("new", "text").code == 0
    (project.folder / "text" / "replies.yaml").unlink()
    (project.folder / "text" / "text.yaml").write_text("edited")
    assert "exists, and nothing is overwritten" in wrong(project, "text")
    assert (project.folder / "text" / "text.yaml").read_text() == "edited"
    assert not (project.folder / "text" / "replies.yaml").exists()
    (project.folder / "file").write_text("")
    assert "file exists, and nothing is overwritten" in wrong(project, "text", "file")


def test_a_wrong_name_has_the_nearest_one(project: Project) -> None:
    """Of templates and of twins."""
    assert "there is no template 'texd'; did you mean 'text'?" in wrong(project, "texd")
    assert "tests has no twin 'deleted-test'; did you mean 'deleted-tests'?" in wrong(
        project, "tests", "--from", "deleted-test"
    )
    assert "there is no template '..'" in wrong(project, "..")
    assert [file.name for file in project.folder.iterdir()] == ["steps.py"]


def test_a_shell_completes_templates_and_twins(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twins are those of the template on the command line."""
    assert completed(project, monkeypatch, "loopwright new te", "fish") == ["text", "tests"]
    assert completed(project, monkeypatch, "loopwright new tests --from ", "fish") == [
        "deleted-tests"
    ]
