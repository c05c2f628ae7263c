"""`convert`: the native form of foreign documents."""

from __future__ import annotations

import subprocess
from pathlib import Path

from warm_python import warm_python

from .conftest import Project

THEIRS = """$schema: "workflow/v2.0"
name: greet
version: 1.0.0
description: says hello
execution: {provider: deepseek, model: deepseek-chat}
steps:
  - name: hello
    run: "Say hello to {{input}}"
"""


def _run(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return warm_python().run(["-m", "loopwright", *args], cwd=folder)


def test_the_native_form_is_printed_and_can_run(tmp_path: Path) -> None:
    """What `convert` prints is a native document that `check` accepts."""
    (tmp_path / "theirs.yaml").write_text(THEIRS, encoding="utf-8")
    done = _run("convert", "theirs.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("schema: loopwright/1\nname: greet\n")
    (tmp_path / "ours.yaml").write_text(done.stdout, encoding="utf-8")
    (tmp_path / "any.yaml").write_text("- replies: [hello]\n")
    checked = _run("check", "ours.yaml", "--replies", "any.yaml", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_out_writes_a_file_for_every_document(tmp_path: Path) -> None:
    """With --out the document and all that it calls are written into a folder, with the schema for editors."""
    loop = "loops:\n  - {name: again, workflow: greet, max_iterations: 2, until: It is done}\n"
    head = THEIRS.split("steps:")[0].replace("name: greet", "name: outer")
    (tmp_path / "greet.yaml").write_text(THEIRS, encoding="utf-8")
    (tmp_path / "outer.yaml").write_text(head + loop, encoding="utf-8")
    done = _run("convert", "outer.yaml", "-o", "native", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    written = sorted(p.name for p in (tmp_path / "native").iterdir())
    assert written == ["greet.yaml", "loopwright.schema.json", "outer.yaml"]


def test_a_wrong_document_is_refused_with_its_place(tmp_path: Path) -> None:
    """Problems go to stderr, with exit code 2 and nothing on stdout."""
    (tmp_path / "theirs.yaml").write_text(THEIRS.replace("run:", "rum:"), encoding="utf-8")
    done = _run("convert", "theirs.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "theirs.yaml:8:" in done.stderr


def test_out_takes_a_folder_and_not_the_name_of_a_document(project: Project) -> None:
    """A folder with the name of a document would be created otherwise; the sentence says how to write one file."""
    (project.folder / "theirs.yaml").write_text(THEIRS, encoding="utf-8")
    refused = project.call("convert", "theirs.yaml", "--out", "native.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert "--out takes a folder; for one document use > native.yaml" in refused.err
    assert not (project.folder / "native.yaml").exists()


PROMPTFOO = """\
prompts: ["Name the capital of {{country}}."]
providers: [openai:gpt-4o-mini]
tests:
  - vars: {country: Spain}
    assert: [{type: icontains, value: madrid}, {type: python, value: len(output) < 50}]
"""


def test_an_evaluation_of_another_tool_becomes_a_document_and_its_cases(project: Project) -> None:
    """With --out its cases and Python assertions are written beside it; without, a note names them."""
    (project.folder / "capitals.yaml").write_text(PROMPTFOO, encoding="utf-8")
    shown = project.call("convert", "capitals.yaml")
    assert shown.out.startswith("schema: loopwright/1\nname: capitals\neval:\n")
    assert "note: --out DIR also writes capitals_checks.py, capitals.cases.jsonl" in shown.err
    written = project.call("convert", "capitals.yaml", "--out", "ours")
    names = [
        "capitals.cases.jsonl",
        "capitals.yaml",
        "capitals_checks.py",
        "loopwright.schema.json",
    ]
    assert sorted(file.name for file in (project.folder / "ours").iterdir()) == names
    assert sorted(Path(line).name for line in written.out.split()) == names[:-1]
    (project.folder / "capitals.yaml").write_text(
        PROMPTFOO.replace("icontains", "similar"), encoding="utf-8"
    )
    refused = project.call("convert", "capitals.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert "capitals.yaml:5:" in refused.err
