"""What the tests of loop-node documents share: cases read from files, and their runs."""

from __future__ import annotations

from pathlib import Path

from dialects.workflow_v2 import support
from dialects.workflow_v2.support import Case, Played, converted, loaded, matches, played, written

__all__ = ["Case", "Played", "cases", "converted", "loaded", "matches", "played", "written"]

CASES = Path(__file__).parent / "cases"


def cases() -> list[Case]:
    """Return all cases, in the order of their names."""
    return [support._case(file) for file in sorted(CASES.glob("*.yaml"))]
