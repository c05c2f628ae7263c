"""The failure matrix names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line for line in (Path(__file__).parent / "README.md").read_text().splitlines() if "::" in line
]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_each_row_of_the_matrix_has_its_tests(row: str) -> None:
    """A test that is renamed or deleted is renamed or replaced in the matrix too."""
    for file, name in re.findall(r"`([\w/.]+)::(\w+)`", row):
        assert re.search(rf"(def|class) {name}\(", (ROOT / file).read_text()), f"{file}::{name}"
