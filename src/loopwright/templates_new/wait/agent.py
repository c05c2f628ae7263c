"""Stands for a coding agent: it writes a function with a mistake, and repairs it when CI reports the mistake."""

import sys
from pathlib import Path

reported = "failure" in sys.stdin.read()
Path("total.py").write_text(
    f"def total(prices, shipping):\n    return sum(prices) {'+' if reported else '-'} shipping\n"
)
