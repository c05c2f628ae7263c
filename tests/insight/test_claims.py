"""The table of claims names tests and benchmarks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = (ROOT / "benchmarks" / "insight.py").read_text("utf-8")
ROWS = [
    line.split("|")[1:-1]
    for line in (Path(__file__).parent / "README.md").read_text("utf-8").splitlines()
    if "::" in line or line.endswith("` |")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip() for row in ROWS])
def test_each_claim_has_its_tests(row: list[str]) -> None:
    """A test that is renamed or deleted is renamed or replaced in the table too."""
    _, bound, tests, benchmark = row
    assert bound.strip()
    assert tests.strip() or benchmark.strip()
    for file, name in re.findall(r"`([\w/.]+)::(\w+)`", tests):
        assert re.search(rf"def {name}\(", (ROOT / file).read_text("utf-8")), f"{file}::{name}"
    for name in re.findall(r"`([\w/.]+)`", benchmark):
        assert (ROOT / name).exists() or f"def {name}(" in BENCHMARKS, name


def test_each_benchmark_is_in_the_table() -> None:
    """A benchmark without a claim would have a figure that nobody can find."""
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[3])}
    checks = re.search(r"^CHECKS = \((.*?)\)$", BENCHMARKS, re.DOTALL | re.MULTILINE)
    assert checks is not None
    assert named == set(re.findall(r"\w+", checks[1]))
