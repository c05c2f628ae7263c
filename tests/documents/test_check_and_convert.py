"""`loopwright.documents.check` and `convert`: a document without a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents import check, convert
from loopwright.errors import DocumentError

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


def test_a_converted_document_converts_to_itself(tmp_path: Path) -> None:
    """The result of `convert` is a valid native document."""
    native = convert(document(tmp_path, VALID))
    assert check(document(tmp_path, native)) == ()
    assert convert(document(tmp_path, native)) == native
