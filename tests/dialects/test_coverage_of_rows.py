"""Each row of the tables and decisions of the dialects has a case: its id stands in the first line of one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROW = re.compile(r"\b(?:[AB]\d+|[23]\.\d+)\b")
ROWS = {
    "workflow_v2": [*(f"A{n}" for n in range(1, 34)), *(f"2.{n}" for n in range(1, 11))],
    "loop_nodes": [*(f"B{n}" for n in range(1, 33)), *(f"3.{n}" for n in range(1, 14))],
}
# Rows that no case of a document can show, with the test that does; "" where there is nothing to do.
ELSEWHERE = {
    "A24": "",  # a remark on costs: ignored
    "A25": "tests/ui/cli/test_run.py",  # lines of the command line
    "2.10": "tests/ui/cli/test_run.py",
    "B2": "",  # how code fences of a guide are read
    "B27": "tests/dialects/loop_nodes/test_persistence.py",
    "3.13": "",  # what the guide's own examples do elsewhere
}


def covered(dialect: str) -> set[str]:
    firsts = [
        file.read_text(encoding="utf-8").partition("\n")[0]
        for file in (HERE / dialect / "cases").glob("*.yaml")
    ]
    return {row for line in firsts for row in ROW.findall(line)}


@pytest.mark.parametrize("dialect", ROWS)
def test_every_row_has_a_case(dialect: str) -> None:
    """Of the rows of a dialect exactly those without a case are named here, each with its reason."""
    missing = {row for row in ROWS[dialect] if row not in covered(dialect)}
    assert missing == {row for row in ELSEWHERE if row in ROWS[dialect]}


def test_what_is_tested_elsewhere_is() -> None:
    """The files that stand in for a case exist."""
    root = HERE.parents[1]
    assert all((root / file).is_file() for file in ELSEWHERE.values() if file)
