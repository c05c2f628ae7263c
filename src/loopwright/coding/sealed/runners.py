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
    that word the report is standard output. `protected` are the patterns of the files that the program
    reads beside the tests.
    """

    name: str
    pattern: re.Pattern[str]
    variables: Mapping[str, str]
    protected: tuple[str, ...] = ()

    @property
    def prints_report(self) -> bool:
        """Whether the report is its standard output."""
        return not any("{report}" in value for value in self.variables.values())

    def environment(self, report: Path) -> dict[str, str]:
        """Return the variables that make it write a report to a file."""
        return {
            name: text.replace("{report}", str(report)) for name, text in self.variables.items()
        }


_PYTEST = Runner(
    "pytest",
    re.compile(r"(?:^|[\s/;&|])(?:pytest|py\.test)(?:$|[\s;&|])"),
    {"PYTEST_ADDOPTS": "--junitxml={report} -o junit_family=xunit2 -p no:cacheprovider"},
    (
        "tests/", "test/", "test_*.py", "*_test.py", "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini",
        "setup.cfg", "pytest.py", "_pytest/", "unittest/", "unittest.py",
    ),
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
        "*_test.js", "test.js", "test-*.js", "jest.config.*", "vitest.config.*",
    ),
)  # fmt: skip
_GO = Runner(
    "go",
    re.compile(r"(?:^|[\s/;&|])go test\b"),
    {"GOFLAGS": "-json"},
    ("*_test.go", "testdata/", "go.sum"),
)
_GOTESTSUM = Runner(
    "gotestsum",
    re.compile(r"(?:^|[\s/;&|])gotestsum\b"),
    {"GOTESTSUM_JUNITFILE": "{report}"},
    ("*_test.go", "testdata/", "go.sum"),
)
RUNNERS = (_PYTEST, _GOTESTSUM, _GO, _NODE)


def runner_of(command: Sequence[str] | str) -> Runner | None:
    """Return the test program that a command names, or None.

    >>> runner_of("uv run pytest -q").name, runner_of(["make"])
    ('pytest', None)
    """
    text = command if isinstance(command, str) else " ".join(command)
    return next((runner for runner in RUNNERS if runner.pattern.search(text)), None)
