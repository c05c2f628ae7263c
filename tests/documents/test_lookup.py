"""Which file a document means when it names another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright import run
from loopwright.documents import load
from loopwright.documents.load import find
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.testing import run_virtual


def tree(root: Path, **files: str) -> None:
    """Write files, each a document with a name; `__` in a key is a slash, `_yml` its ending."""
    for key, name in files.items():
        path = root / key.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"name": "{name}", "steps": []}}')


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.yaml", "sub/a.yaml"),
        ("a", "sub/a.yaml"),
        ("b", "b.yaml"),
        ("by-name", "b.yaml"),
        ("data", "sub/data.json"),
        ("sub/a", "sub/a.yaml"),
        ("sub/own", "sub/a.yaml"),
        ("sub/deep/x", "sub/deep/x.yaml"),
        ("deep/x", "sub/deep/x.yaml"),
    ],
)
def test_beside_the_caller_first_then_in_the_root(tmp_path: Path, name: str, found: str) -> None:
    """A file, a stem or a name: in the caller's folder, and if it is not there, in the root."""
    tree(
        tmp_path,
        a_yaml="root",
        b_yaml="by-name",
        sub__a_yaml="own",
        sub__data_json="d",
        sub__deep__x_yaml="x",
    )
    real = tmp_path.resolve()
    assert find(name, [tmp_path / "sub", tmp_path], tmp_path) == real / found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../a", "'../a' is outside the project folder"),
        ("/etc/passwd", "'/etc/passwd' is outside the project folder"),
        ("", "'' is outside the project folder"),
        ("link", "'link' is outside the project folder"),
        ("revieww", "there is no document 'revieww' beside this one; did you mean 'review'?"),
        ("no/where", "there is no document 'no/where' beside this one or from the project folder"),
        ("twice", "'twice' is ambiguous: review.yaml, twice.yaml; use a file name"),
    ],
)
def test_what_cannot_be_found_says_why(tmp_path: Path, name: str, message: str) -> None:
    """Out of the root, by a link too; nowhere; in several files."""
    root = tmp_path / "root"
    tree(root, review_yaml="twice", twice_yaml="other")
    (tmp_path / "outside.yaml").write_text("name: link")
    (root / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    with pytest.raises(ConfigurationError) as caught:
        find(name, [root], root)
    assert str(caught.value) == message


def test_a_caller_is_meant_only_if_no_other_is(tmp_path: Path) -> None:
    """A document that has the name of the one it calls is not a second candidate."""
    tree(tmp_path, main_yaml="task", task_yaml="x")
    real = tmp_path.resolve()
    assert find("task", [tmp_path], tmp_path, [real / "main.yaml"]) == real / "task.yaml"
    assert find("main", [tmp_path], tmp_path, [real / "main.yaml"]) == real / "main.yaml"


def test_repeated_blocks_do_not_hide_a_name(tmp_path: Path) -> None:
    """A document of stages is found by its name; one that cannot be read is not, and is no error."""
    (tmp_path / "x.yaml").write_text("name: staged\nsteps: []\nsteps: []\n")
    (tmp_path / "y.yaml").write_text("staged: [")
    assert find("staged", [tmp_path], tmp_path).name == "x.yaml"


def test_the_hint_names_a_file_of_that_stem(tmp_path: Path) -> None:
    """A name that is a file somewhere below the project folder is told with its path."""
    tree(tmp_path, flows__deep__review_yaml="review", flows__x_yaml="x")
    with pytest.raises(ConfigurationError, match=r"did you mean deep/review\.yaml\?"):
        find("other/review", [tmp_path / "flows", tmp_path], tmp_path)


def test_a_child_given_by_path_is_found_from_the_project_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the caller first, then from the folder in which the command is given."""
    monkeypatch.chdir(tmp_path)
    flows, parts = tmp_path / "flows", tmp_path / "parts"
    flows.mkdir()
    parts.mkdir()
    head = "schema: loopwright/1\nname: {}\nsteps:\n"
    (flows / "main.yaml").write_text(head.format("main") + "  - {name: a, workflow: parts/child}\n")
    (parts / "child.yaml").write_text(head.format("child") + "  - {name: b, set: found}\n")
    assert run_virtual(run(load(flows / "main.yaml").step, "")).output == "found"
    (parts / "child.yaml").write_text(
        head.format("child")
        + "  - {name: b, each: {items: 'file://../secret', execute: {set: x}}}\n"
    )
    with pytest.raises(DocumentError, match=r"file://\.\./secret is outside the project folder"):
        load(flows / "main.yaml")
