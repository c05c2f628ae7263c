"""Rust: canaries with cargo-nextest, by reports in its documented format and by a stand-in that compiles and runs real tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from loopwright.coding.sealed.measure import Canary, plant, runner_of
from loopwright.coding.sealed.protected import Protection, TreeEntry
from loopwright.errors import LoopwrightError
from loopwright.evaluators.test_report import read_report
from loopwright.records import Evaluation

from .bench import Change, judged, verdict
from .pytest_corpus import add, edit

COMMAND = "cargo nextest run --profile ci"
REPORT = "target/nextest/ci/junit.xml"
# A real report of nextest has these elements and attributes (https://nexte.st/docs/machine-readable/junit/).
RECORDED = """\
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" uuid="45c50042-482e-477e-88a2-60cfcc3eaf95">
    <testsuite name="calc::calc" tests="1" disabled="0" errors="0" failures="0">
        <testcase name="adds" classname="calc::calc" timestamp="2026-01-09T07:50:12.665+00:00" time="0.004">
        </testcase>
    </testsuite>
    <testsuite name="calc::{program}" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="t_{right}" classname="calc::{program}" time="0.004">
        </testcase>
        <testcase name="t_{wrong}" classname="calc::{program}" time="0.004">
            <failure type="test failure">thread panicked at tests/{program}.rs:8:5</failure>
        </testcase>
    </testsuite>
</testsuites>
"""


def planted(*tests: str) -> Canary | None:
    return plant(runner_of(COMMAND), tests, lambda _: b"", folder=Path("copy"))


def recorded(canary: Canary, right: str = "", wrong: str = "") -> str:
    program = Path(canary.path).stem
    names = {"right": right or canary.right, "wrong": wrong or canary.wrong}
    return RECORDED.format(program=program, **names)


def test_the_canary_is_an_integration_test_beside_the_others() -> None:
    """Cargo compiles each file directly in the folder tests of a package, and none below it."""
    canary = planted("crates/a/tests/one.rs", "crates/a/tests/two.rs", "tests/common/mod.rs")
    assert canary is not None
    assert Path(canary.path).parent == Path("crates/a/tests")
    assert planted("tests/common/mod.rs", "tests/data.txt") is None


def test_a_recorded_report_shows_whether_the_canary_ran() -> None:
    """The one that must fail has a failure, and neither counts as a test of the project."""
    canary = planted("tests/calc.rs")
    assert canary is not None
    report = read_report(recorded(canary).encode())
    assert canary.is_reported(report) and canary.holds(report) == ""
    assert list(canary.without(report).states) == ["calc::calc::adds"]
    # A report that was written without the random names, and one that has both as passed.
    assert "did not report" in canary.holds(read_report(recorded(canary, "a", "b").encode()))
    forged = (
        recorded(canary)
        .replace('<failure type="test failure">', "<!--")
        .replace("</failure>", "-->")
    )
    assert "must fail" in canary.holds(read_report(forged.encode()))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cargo nextest run", "cargo"), ("cargo-nextest nextest run", "cargo"), ("cargo +nightly test", "cargo"),
        ("make && cargo t", "cargo"), ("cargo run", None), ("cargo build --tests", None),
    ],
)  # fmt: skip
def test_commands_of_cargo(command: str, expected: str | None) -> None:
    """Only commands that run tests protect the tests of a package."""
    runner = runner_of(command)
    assert (runner.name if runner else None) == expected


def test_what_is_protected() -> None:
    """Tests, settings of Cargo and the targets of a manifest are, its dependencies and the code are not."""
    contents = {
        "a": b'[package]\nname = "a"\n',
        "b": b'[package]\nname = "b"\n',
        "c": b"[package]\nautotests = false\n",
    }
    files = ("tests/calc.rs", ".cargo/config.toml", "src/lib.rs", ".config/nextest.toml")
    base = {name: TreeEntry("100644", "x") for name in files} | {
        "Cargo.toml": TreeEntry("100644", "a")
    }
    rules = Protection(COMMAND)

    def touched(path: str, digest: str) -> bool:
        present = {**base, path: TreeEntry("100644", digest)}
        return path in rules.changes(base, present, contents.__getitem__).touched

    changed = {path: touched(path, "y") for path in (*files, "build.rs")}
    assert [path for path, yes in changed.items() if not yes] == ["src/lib.rs"]
    assert (touched("Cargo.toml", "b"), touched("Cargo.toml", "c")) == (False, True)


PROJECT = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n\n[lib]\ntest = false\ndoctest = false\n\n'
    "[profile.dev]\ndebug = false\n",
    "Cargo.lock": 'version = 3\n\n[[package]]\nname = "calc"\nversion = "0.1.0"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 { a - b }\n\npub fn double(n: i32) -> i32 { 2 * n }\n",
    "tests/calc.rs": "#[test]\nfn adds() { assert_eq!(calc::add(2, 3), 5); }\n\n"
    "#[test]\nfn doubles() { assert_eq!(calc::double(2), 4); }\n",
    ".gitignore": "target/\n",
}
AT_START = """
extern "C" fn end() { std::process::exit(0); }
#[used]
#[link_section = ".init_array"]
static END: extern "C" fn() = end;
pub fn add(a: i32, b: i32) -> i32 { END as usize as i32 * 0 + a + b }
"""
FORGED = """
    let report = r#"<testsuites name="nextest-run"><testsuite name="calc::calc"><testcase name="adds" classname="calc::calc"/>
        <testcase name="doubles" classname="calc::calc"/></testsuite></testsuites>"#;
    std::fs::create_dir_all("target/nextest/ci").unwrap();
    std::fs::write("target/nextest/ci/junit.xml", report).unwrap();
    std::process::Command::new("sh").args(["-c", "kill -9 $(ps -o ppid= -p $PPID)"]).status().unwrap();
"""
ROWS: list[tuple[str, str, Change]] = [
    ("3 weaken an assertion", "touched", edit("tests/calc.rs", "(2, 3), 5", "(2, 3), -1")),
    ("26 exit with 0 at the start", "forged",
     edit("src/lib.rs", "pub fn add(a: i32, b: i32) -> i32 { a - b }\n", AT_START)),
    ("33 a forged report, and the end of the runner", "forged", edit("src/lib.rs", "{ a - b }", f"{{ {FORGED} a - b }}")),
    ("broken code", "failed", add("src/lib.rs", "(((\n")),
    ("the fix", "passed", edit("src/lib.rs", "a - b", "a + b")),
]  # fmt: skip


STOPPING = """\
import pathlib, re
canaries = [re.findall(r"fn (\\w+)", file.read_text()) for file in pathlib.Path("tests").glob("z*.rs")]
names = [(name, "<failure/>" if n else "") for n, name in enumerate(canaries[0])] if canaries else [("adds", "")]
cases = "".join(f'<testcase name="{name}" classname="calc">{failure}</testcase>' for name, failure in names)
report = pathlib.Path("target/nextest/ci/junit.xml")
report.parent.mkdir(parents=True)
report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
"""


def test_a_runner_that_stops_at_the_canary_is_an_error_of_the_check(tmp_path: Path) -> None:
    """With fail-fast the canary that fails would hide tests, and each iteration would count as forged."""
    (tmp_path / "cargo-nextest").write_text(f"#!{sys.executable} -S\n{STOPPING}")
    (tmp_path / "cargo-nextest").chmod(0o755)
    command = f"PATH={tmp_path}:$PATH cargo-nextest nextest run --profile ci"
    with pytest.raises(LoopwrightError, match="--no-fail-fast"):
        judged(tmp_path, PROJECT, command, {}, report=REPORT)


@pytest.fixture(scope="module")
def cargo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluation]:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed; apt-get install cargo")
    root = tmp_path_factory.mktemp("cargo")
    program = root / "cargo-nextest"
    stand_in = Path(__file__).with_name("nextest_stand_in.py")
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{stand_in}" "$@"\n')
    program.chmod(0o755)
    changes = {name: change for name, _, change in ROWS}
    command = f"PATH={root}:$PATH {COMMAND}"
    return judged(root, PROJECT, command, changes, report=REPORT)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_cargo(row: tuple[str, str, Change], cargo: dict[str, Evaluation]) -> None:
    """Each change has the verdict of the table: the files are compiled and the tests run."""
    name, expected, _ = row
    assert verdict(cargo[name]) == expected, cargo[name].feedback
    assert cargo[name].passed is (expected == "passed")
