"""What runs is what was agreed to: contents are read once, and nothing is made of files after that."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright import LoopwrightError, run_sync
from loopwright.documents import Settings, load
from loopwright.errors import DocumentError

TEXT = 'schema: loopwright/1\nname: x\nsteps: [{name: a, python: "agreed_own:word"}]\n'
OWN = "from agreed_pack import part\n\ndef word(value):\n    import agreed_late\n    return part.WORD + agreed_late.WORD\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A document, a module with a package, and one that it imports when it is called."""
    (tmp_path / "agreed_pack").mkdir()
    files = {
        "x.yaml": TEXT, "agreed_own.py": OWN, "agreed_late.py": "WORD = ' and late'\n",
        "agreed_pack/__init__.py": "", "agreed_pack/part.py": "WORD = 'agreed'\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("agreed_")]:
        del sys.modules[name]


def test_what_is_imported_is_what_was_agreed_to(folder: Path) -> None:
    """Rule: every file may change after the answer; document and modules are those of before."""
    actions = load(folder / "x.yaml", Settings(execute=False)).local_actions()
    for file in folder.rglob("*.py"):
        file.write_text("raise SystemExit('changed')\n")
    (folder / "x.yaml").write_text("changed")
    made = load(folder / "x.yaml", Settings(agreed=actions.contents))
    assert made.local_actions().digest == actions.digest
    assert run_sync(made.step, "x").output == "agreed and late"


def test_a_compiled_file_beside_the_source_is_not_run(folder: Path) -> None:
    """Rule: nothing is run that was not digested, such as a compiled module with the source's date."""
    source = folder / "agreed_late.py"
    kept = source.stat()
    evil = folder / "evil.py"
    evil.write_text("WORD = ' evil'\n#xy\n")
    assert evil.stat().st_size == kept.st_size
    os.utime(evil, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    cached = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(evil), cfile=cached)
    actions = load(folder / "x.yaml", Settings(execute=False)).local_actions()
    made = load(folder / "x.yaml", Settings(agreed=actions.contents))
    assert run_sync(made.step, "x").output == "agreed and late"


def test_a_document_that_came_since_is_refused(folder: Path) -> None:
    """Rule: a called document must be among those that were agreed to."""
    with pytest.raises(DocumentError, match="not among the approved files"):
        load(folder / "x.yaml", Settings(agreed={}))


def test_a_module_that_came_since_is_refused(folder: Path) -> None:
    """Rule: a module of the folder that nobody was shown is not imported."""
    actions = load(folder / "x.yaml", Settings(execute=False)).local_actions()
    contents = {file: text for file, text in actions.contents.items() if "part" not in file.name}
    with pytest.raises(LoopwrightError, match="not among the approved files"):
        load(folder / "x.yaml", Settings(agreed=contents))
