"""Canaries: one test that must fail and one that must pass, in a file with a random name beside the tests.

A test program that was told to report success reports it for the canary that must fail, too.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...evaluators.parsing.reports import TestCase, TestReport, TestState
from .imports import OUTSIDE
from .runners import Runner

__all__ = ["Canary", "imports_outside", "plant"]

_PACKAGE = re.compile(rb"^\s*package\s+(\w+)", re.MULTILINE)
_IMPORTS = "imports outside of the copy: "
_PYTEST_CANARY = """\
def test_{right}():
    assert {number} % 2 == {parity}


def test_{wrong}():
    assert {number} % 2 != {parity}, "expected"
"""
# In the process of the tests, after its settings: there the import path is the one that counts.
_PYTEST_IMPORTS = """

def test_{imports}():
    import json

{search}
    found = outside({copy!r}, {modules!r})
    assert not found, {label!r} + json.dumps(found)
"""
_NODE_CANARY = """\
const test = require("node:test");
const assert = require("node:assert");
test("{right}", () => assert.strictEqual({number} % 2, {parity}));
test("{wrong}", () => assert.notStrictEqual({number} % 2, {parity}));
"""
_GO_CANARY = """\
package {package}

import "testing"

func Test_{right}(t *testing.T) {{
	if {number}%2 != {parity} {{
		t.Fatal("expected")
	}}
}}

func Test_{wrong}(t *testing.T) {{
	if {number}%2 == {parity} {{
		t.Fatal("expected")
	}}
}}
"""
# An integration test: a program of its own, which Cargo finds in the folder tests of a package.
_RUST = """\
#[test]
fn t_{right}() {{
    assert_eq!({number} % 2, {parity});
}}

#[test]
fn t_{wrong}() {{
    assert_ne!({number} % 2, {parity}, "expected");
}}
"""


@dataclass(frozen=True)
class Canary:
    """The canaries of one check.

    Args:
        path: their file, inside the copy.
        text: its content.
        right: the name of the test that must pass.
        wrong: the name of the test that must fail.
        imports: the name of the test that compares the places of imported modules, or "".
    """

    path: str
    text: str
    right: str
    wrong: str
    imports: str = ""

    def write(self, folder: Path) -> None:
        """Write the file into the copy."""
        place = folder / self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.text)

    def remove(self, folder: Path) -> None:
        """Remove the file from the copy."""
        (folder / self.path).unlink(missing_ok=True)

    def is_reported(self, report: TestReport) -> bool:
        """Return whether the report has one of its tests."""
        return any(self._mine(case) for case in report.cases)

    def holds(self, report: TestReport) -> str:
        """Return why its tests did not end as they must, or ""."""
        for name, state in ((self.right, TestState.PASSED), (self.wrong, TestState.FAILED)):
            ends = [case.state for case in report.cases if name in case.id]
            if not ends:
                return "the test program did not report a test that was added for this check"
            if ends != [state]:
                must = "pass" if state is TestState.PASSED else "fail"
                return f"a test that was added for this check, and must {must}, is reported as {ends[0]}"
        return ""

    def imported(self, report: TestReport) -> Mapping[str, str]:
        """Return the modules that were imported from outside of the copy, with their places."""
        case = next((c for c in report.cases if self.imports and self.imports in c.id), None)
        if case is None or not case.failing:
            return {}
        found = re.search(rf"{_IMPORTS}(\{{.*?\}})", f"{case.message}\n{case.text}")
        try:
            places: dict[str, str] = json.loads(found[1]) if found else {}
        except ValueError:
            places = {}
        # A report may cut the message off; the failure of this test is enough.
        return places or {"a module": "another folder"}

    def without(self, report: TestReport) -> TestReport:
        """Return the report without its tests."""
        return TestReport(
            tuple(case for case in report.cases if not self._mine(case)), report.problem
        )

    def _mine(self, case: TestCase) -> bool:
        names = (self.right, self.wrong, self.imports, PurePosixPath(self.path).name)
        return any(name and name in case.id for name in names)


def imports_outside(places: Mapping[str, str]) -> str:
    """Return the sentence on modules that a check imports from outside of the copy."""
    name, place = next(iter(sorted(places.items())))
    return (
        f"it imports {name} from {place} and not from the clean copy, so it would not test the files of the "
        "loop; name a command that installs the project into the copy with --setup (setup: in a document)"
    )


def plant(
    runner: Runner | None,
    tests: Sequence[str],
    read: Callable[[str], bytes],
    *,
    folder: Path,
    modules: Sequence[str] = (),
) -> Canary | None:
    """Return new canaries for a test program, or None for one without.

    Args:
        runner: the test program.
        tests: the paths of its test files.
        read: returns the content of one of them.
        folder: the copy.
        modules: the modules of the project whose places a test compares with the copy.
    """
    if runner is None:
        return None
    beside = _beside(tests)
    number = secrets.randbelow(10**6)
    names = [secrets.token_hex(8) for _ in range(4)]
    # The order and the names do not show which test must fail.
    fields = {
        "right": names[0],
        "wrong": names[1],
        "imports": names[2],
        "number": number,
        "parity": number % 2,
    }
    if runner.name == "pytest":
        last = any(PurePosixPath(path).stem.endswith("_test") for path in tests)
        first = any(PurePosixPath(path).name.startswith("test_") for path in tests)
        # A project may collect only the pattern that it uses.
        name = f"{names[3]}_test.py" if last and not first else f"test_{names[3]}.py"
        functions = _PYTEST_CANARY.format(**fields).split("\n\n\n")
        random.SystemRandom().shuffle(functions)
        text = "\n\n".join(functions)
        if modules:
            search = textwrap.indent(OUTSIDE, "    ")
            more = {
                "copy": str(folder),
                "modules": list(modules),
                "label": _IMPORTS,
                "search": search,
            }
            text += _PYTEST_IMPORTS.format(**fields, **more)
        imports = names[2] if modules else ""
        return Canary(f"{beside}{name}", text, names[0], names[1], imports)
    if runner.name == "node":
        text = _NODE_CANARY.format(**fields)
        # The suffix makes it CommonJS, whatever the `type` of the package is.
        return Canary(f"{beside}{names[3]}.test.cjs", text, names[0], names[1])
    if runner.name == "cargo":
        return _rust(fields, names[3], tests)
    return _go(fields, beside, names[3], tests, read)


def _rust(fields: Mapping[str, object], name: str, tests: Sequence[str]) -> Canary | None:
    programs = [path for path in tests if re.fullmatch(r"(?:.*/)?tests/[^/]+\.rs", path)]
    if not programs:
        return None
    place = f"{_beside(programs)}z{name}.rs"
    return Canary(place, _RUST.format(**fields), str(fields["right"]), str(fields["wrong"]))


def _go(
    fields: Mapping[str, object],
    beside: str,
    name: str,
    tests: Sequence[str],
    read: Callable[[str], bytes],
) -> Canary | None:
    mine = next((path for path in tests if _folder(path) == beside and path.endswith(".go")), None)
    package = None if mine is None else _PACKAGE.search(read(mine))
    if package is None:
        return None
    text = _GO_CANARY.format(package=package[1].decode(), **fields)
    return Canary(f"{beside}z{name}_test.go", text, str(fields["right"]), str(fields["wrong"]))


def _beside(tests: Sequence[str]) -> str:
    """Return the folder with the most test files, with a slash at the end."""
    counts: dict[str, int] = {}
    for path in tests:
        counts[_folder(path)] = counts.get(_folder(path), 0) + 1
    return min(counts, key=lambda folder: (-counts[folder], len(folder), folder), default="")


def _folder(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head + slash
