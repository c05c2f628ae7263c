"""The test programs that write a report when an environment variable asks for it.

A variable reaches the program through `uv run`, `npm test` or `make`, so the command stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RUNNERS", "Runner", "runner_of"]


@dataclass(frozen=True, slots=True)
class Runner:
    """A test program.

    `pattern` finds it in a command. `variables` are set for a report, with `{report}` as its file; without
    that word the report is standard output. Without variables only its own settings make it write one.
    `tests` are the patterns of its test files, and `settings` those of the other files that it reads.
    `normal_exits` are the exit codes after which it has written a report.
    """

    name: str
    pattern: re.Pattern[str]
    variables: Mapping[str, str]
    tests: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    normal_exits: tuple[int, ...] = (0, 1)

    @property
    def prints_report(self) -> bool:
        """Whether the report is its standard output."""
        return not any("{report}" in value for value in self.variables.values())

    def environment(self, report: Path, words: str = "") -> dict[str, str]:
        """Return the variables that make it write a report to a file; `words` are more options of pytest."""
        filled = {
            name: text.replace("{report}", str(report)) for name, text in self.variables.items()
        }
        if words and "PYTEST_ADDOPTS" in filled:
            filled["PYTEST_ADDOPTS"] += f" {words}"
        return filled


_PYTEST = Runner(
    "pytest",
    re.compile(r"(?:^|[\s/;&|])(?:pytest|py\.test)(?:$|[\s;&|])"),
    {"PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit2 -p no:cacheprovider"},
    ("tests/", "test/", "test_*.py", "*_test.py"),
    (
        "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pytest.py", "_pytest/",
        "pluggy/", "unittest/", "unittest.py",
    ),
    # 5: no test was collected.
    normal_exits=(0, 1, 5),
)  # fmt: skip
_NODE = Runner(
    "node",
    re.compile(r"(?:^|[\s/;&|])node\s(?:.*\s)?--test\b|(?:^|[\s/;&|])npm (?:run )?test\b"),
    {
        "NODE_OPTIONS": "--test-reporter=junit --test-reporter-destination={report} "
        "--test-reporter=spec --test-reporter-destination=stdout"
    },
    (
        "tests/", "test/", "__tests__/", "*.test.js", "*.test.mjs", "*.test.cjs", "*.test.ts", "*-test.js",
        "*_test.js", "test.js", "test-*.js",
    ),
    ("jest.config.*", "vitest.config.*", ".mocharc*"),
)  # fmt: skip
_GO_TESTS = ("*_test.go", "testdata/")
_GO = Runner(
    "go", re.compile(r"(?:^|[\s/;&|])go test\b"), {"GOFLAGS": "-json"}, _GO_TESTS, ("go.sum",),
    # A package that cannot be compiled has no events.
    normal_exits=(0,),
)  # fmt: skip
_GOTESTSUM = Runner(
    "gotestsum",
    re.compile(r"(?:^|[\s/;&|])gotestsum\b"),
    {"GOTESTSUM_JUNITFILE": "{report}"},
    _GO_TESTS,
    ("go.sum",),
    normal_exits=(0,),
)
_CARGO = Runner(
    "cargo",
    re.compile(r"(?:^|[\s/;&|])cargo(?:\s+\+\S+)?[\s-](?:nextest|test|t)\b"),
    {},
    ("tests/", "testdata/"),
    # A build script could change the tests before they are compiled.
    ("build.rs", ".cargo/", "rust-toolchain", "rust-toolchain.toml"),
    # nextest exits with 100 if a test fails.
    normal_exits=(0, 100),
)
RUNNERS = (_PYTEST, _GOTESTSUM, _GO, _NODE, _CARGO)


def runner_of(command: Sequence[str] | str) -> Runner | None:
    """Return the test program that a command names, or None.

    >>> runner_of("uv run pytest -q").name, runner_of(["make"])
    ('pytest', None)
    """
    text = command if isinstance(command, str) else " ".join(command)
    return next((runner for runner in RUNNERS if runner.pattern.search(text)), None)
