"""`module:function`: looked up without running it, imported when the run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopwright.documents.compiler.functions import function, resolve_reference
from loopwright.errors import ConfigurationError

MODULE = """\
import os as system
from json import dumps, loads as read
raise_me = 1
if True:
    def inside(value): ...
try:
    def tried(value): ...
except OSError: ...
class Kind:
    def method(value): ...
async def later(value): ...
typed: int = 3
first, second = 1, 2
"""


@pytest.mark.parametrize(
    "name",
    [
        "system",
        "dumps",
        "read",
        "inside",
        "tried",
        "Kind",
        "Kind.method",
        "later",
        "second",
    ],
)
def test_a_name_is_found_without_running_the_module(name: str, tmp_path: Path) -> None:
    """However the module defines it."""
    (tmp_path / "own.py").write_text(MODULE + "raise SystemExit('it was run')\n")
    resolve_reference(f"own:{name}", tmp_path)


@pytest.mark.parametrize("name", ["raise_me", "typed"])
def test_a_constant_is_refused_without_running_the_module(name: str, tmp_path: Path) -> None:
    """With the words of the import, which a run would refuse it with."""
    (tmp_path / "own.py").write_text(MODULE + "raise SystemExit('it was run')\n")
    with pytest.raises(ConfigurationError, match=f"'own:{name}' is of type int; name a function"):
        resolve_reference(f"own:{name}", tmp_path)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        ":",
        "own",
        "own:",
        ":f",
        "own:f:g",
        "own f:g",
        "../own:f",
        "own:f()",
        "own..a:f",
        "a/b:f",
        "own:1f",
        "é è:f",
    ],
)
def test_what_is_no_reference_is_refused(reference: str, tmp_path: Path) -> None:
    """Only package.module:function, in names of Python."""
    with pytest.raises(
        ConfigurationError, match=r"is not a function reference; write package\.module:function"
    ):
        resolve_reference(reference, tmp_path)


@pytest.mark.parametrize("reference", ["os:nofn", "math:sqr", "sys:no", "json:no"])
def test_modules_without_a_source_are_looked_into_where_they_are_there(
    reference: str, tmp_path: Path
) -> None:
    """What Python holds already needs no import to tell what it has."""
    with pytest.raises(ConfigurationError, match="has no"):
        resolve_reference(reference, tmp_path)
    resolve_reference("os:getcwd", tmp_path)
    resolve_reference("math:sqrt", tmp_path)


def test_modules_of_two_folders_with_one_name_are_two_modules(tmp_path: Path) -> None:
    """Each document gets the functions that lie beside it."""
    for word in ("one", "two"):
        (tmp_path / word).mkdir()
        (tmp_path / word / "twins.py").write_text(f"def say(): return {word!r}\n")
    assert [function("twins:say", tmp_path / word)() for word in ("one", "two", "one")] == [
        "one",
        "two",
        "one",
    ]


@pytest.mark.parametrize(
    "body", ["raise SystemExit", "raise OSError('no')", "1 / 0", "def f(:", "x = '\0'"]
)
def test_a_module_that_cannot_be_imported_is_told(body: str, tmp_path: Path) -> None:
    """Whatever it does while it loads."""
    (tmp_path / "bad_module.py").write_text(body)
    with pytest.raises(ConfigurationError, match="bad_module"):
        function("bad_module:f", tmp_path)
