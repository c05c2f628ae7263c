"""Wrong documents: every problem at once, each at its place; and strings as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents.wrong_documents import FILES, WRONG
from loopwright.documents import Settings, load
from loopwright.errors import DocumentError
from loopwright.models.providers.endpoints import PROVIDER_NAMES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with modules and documents, some of them wrong, and a link that leaves it."""
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside.yaml").write_text(str(FILES["child.yaml"]))
    for name, content in FILES.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (project / name).write_bytes(raw)
    (project / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    monkeypatch.chdir(project)
    return project


def problems(text: str, **settings: object) -> list[str]:
    """Return what is said of a document, without the name of its file."""
    Path("document.yaml").write_text(text)
    with pytest.raises(DocumentError) as caught:
        load("document.yaml", Settings(providers=PROVIDER_NAMES, **settings))
    return [str(p).removeprefix("document.yaml:") for p in caught.value.problems]


@pytest.mark.parametrize("name", WRONG)
def test_every_problem_is_told_at_once_with_its_place(name: str, folder: Path) -> None:
    """What is wrong, where, and the nearest name: the whole text that a user sees."""
    text, expected = WRONG[name]
    assert problems(text) == expected


def test_no_message_is_longer_than_a_screen(folder: Path) -> None:
    """A field of a mebibyte is quoted in part only."""
    long = "x" * 500_000
    for field in ("python", "workflow", "model", "timeout", "name", long):
        text = (
            f"schema: loopwright/1\nname: x\nsteps:\n  - {{name: a, prompt: hi, {field}: {long}}}\n"
        )
        told = problems(text)
        assert all(len(problem) < 700 for problem in told), (field[:10], [len(p) for p in told])


PAYLOADS = [
    *("../" * depth + "etc/passwd" for depth in range(1, 20)),
    *("a/" + "../" * depth + "outside.yaml" for depth in range(1, 20)),
    *(f"/{name}" for name in ("etc/passwd", "proc/self/environ", "dev/zero", "tmp", "", ".")),
    *(f"{lead}../outside.yaml" for lead in ("./", ".//", "././", "a/../../", "a/./../../")),
    *("..", "../", "../.", "./..", ".../../..", " ..", "../outside", "..//outside.yaml"),
    *(f"link{end}" for end in (".yaml", "", "s/outside.yaml", "s/outside", "s/deep.yaml")),
    *(f"{'d/' * depth}{'../' * (depth + 1)}outside.yaml" for depth in range(1, 20)),
    *(f"links/{'../' * depth}outside.yaml" for depth in range(1, 20)),
]


def test_no_path_leads_out_of_the_project(folder: Path) -> None:
    """Absolute, upwards or by a link: a called document outside the project is refused."""
    (folder / "links").symlink_to(folder.parent)
    (folder.parent / "deep.yaml").write_text(str(FILES["child.yaml"]))
    assert len(PAYLOADS) >= 100
    for payload in PAYLOADS:
        quoted = payload.replace('"', "")
        told = problems(
            f'schema: loopwright/1\nname: x\nsteps:\n  - {{name: a, workflow: "{quoted}"}}\n'
        )
        refused = ("is outside the project folder", "there is no document", "cannot be read")
        assert any(word in told[0] for word in refused), (payload, told)


def test_no_folder_of_a_command_leads_out_of_the_project(folder: Path) -> None:
    """The folder a command runs in is inside the project, by its real path."""
    (folder / "links").symlink_to(folder.parent)
    for cwd in ("..", "../..", "/", "/tmp", "links", "links/../..", "a/../.."):
        told = problems(
            f"schema: loopwright/1\nname: x\nsteps:\n  - {{name: a, shell: [ls], cwd: {cwd}}}\n"
        )
        assert told == [f"4:33: steps[0].cwd: {cwd!r} is outside the project folder"]


def test_documents_call_each_other_at_most_eight_deep(folder: Path) -> None:
    """The ninth is a problem at the call that is one too many."""
    for level in range(1, 10):
        step = f"workflow: level{level + 1}.yaml" if level < 9 else "set: 1"
        text = f"schema: loopwright/1\nname: level{level}\nsteps:\n  - {{name: a, {step}}}\n"
        (folder / f"level{level}.yaml").write_text(text)
    told = problems((folder / "level1.yaml").read_text().replace("level2", "level2"))
    assert told == [
        "level8.yaml:4:25: steps[0].workflow: calls between documents are nested more than 8 levels deep"
    ]
    load(folder / "level2.yaml", Settings())


def test_text_fields_take_the_text_that_was_written(folder: Path) -> None:
    """`version: 1.10` and `env: {FLAG: yes, N: 012, DAY: 2026-01-07}` stay what they are."""
    text = """\
schema: loopwright/1
name: x
version: 1.10
env: {FLAG: yes, N: 012, DAY: 2026-01-07, NONE: 1e3}
steps:
  - {name: a, shell: [echo, 1.0, true], env: {B: 0x1f}}
"""
    Path("document.yaml").write_text(text)
    document = next(iter(load("document.yaml").documents.values()))
    assert document.version == "1.10"
    assert document.env == {"FLAG": "yes", "N": "012", "DAY": "2026-01-07", "NONE": "1e3"}
    assert document.steps[0].shell == ["echo", "1.0", "true"]
    assert document.steps[0].env == {"B": "0x1f"}
