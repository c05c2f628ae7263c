"""Stands for a coding agent: it writes two functions, one with a mistake, and repairs it when CI reports it."""

import sys
from pathlib import Path

FILE = Path("prices.py")
FUNCTIONS = """

def cheapest(prices):
    return max(prices)


def total(prices):
    return sum(prices)
"""

log, text = sys.stdin.read(), FILE.read_text("utf-8")
FILE.write_text(
    text.replace("max(", "min(") if "test_cheapest" in log else text + FUNCTIONS, "utf-8"
)
