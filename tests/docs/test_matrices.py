"""The failure matrices name tests that exist, and programs that `make torture` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding.sealed.pytest_corpus import ATTACKS, KNOWN_TO_PASS
from coding.sealed.test_nextest import ROWS as CARGO_ROWS
from coding.sealed.test_other_programs import GO_ROWS, NODE_ROWS

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "tests" / name / "README.md").read_text() for name in ("cluster", "coding")}
ROWS = [line for page in PAGES.values() for line in page.splitlines() if "`tests/" in line]
ROWS = [line for line in ROWS if line.startswith("|")]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:60] for row in ROWS])
def test_each_row_of_a_matrix_has_its_tests(row: str) -> None:
    """A test that is renamed or deleted is renamed or replaced in the matrix too."""
    for file, name in re.findall(r"`([\w/.]+)::(\w+)`", row):
        assert re.search(rf"\b{name}( =|\()", (ROOT / file).read_text()), f"{file}::{name}"
    for module in re.findall(r"`(\w+(?:\.\w+)+)` in `make torture`", row):
        assert f"python -m {module}\n" in (ROOT / "Makefile").read_text()


def test_the_table_of_attacks_is_that_of_the_tests() -> None:
    """Each of the 38 attacks has a row with the verdict and the programs of its tests."""
    expected: dict[int, tuple[str, str]] = {21: ("touched", "a command without a report")}
    verdicts = {row[0]: row[2] for row in ATTACKS} | {row[0]: "passes" for row in KNOWN_TO_PASS}
    programs = {"node": NODE_ROWS, "go": GO_ROWS, "cargo": CARGO_ROWS}
    for number, verdict in verdicts.items():
        names = [
            name
            for name, rows in programs.items()
            if any(row[0].startswith(f"{number} ") for row in rows)
        ]
        expected[number] = (verdict, ", ".join(names))
    table = re.findall(r"^\| (\d+) \| .+? \| (\w+) \| ?(.*?) ?\|$", PAGES["coding"], re.MULTILINE)
    assert {int(number): (verdict, names) for number, verdict, names in table} == expected
    assert sorted(expected) == list(range(1, 39))
