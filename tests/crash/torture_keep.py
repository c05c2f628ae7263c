"""Kill -9 of loops that keep or revert: at every journal write and call of git, and six times in 100 iterations: `make torture`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .keep_program import main

if __name__ == "__main__":
    code = 0
    often = [("kills", 6)]
    for work, points in (
        ((4, False), []),
        ((4, True), []),
        ((100, False), often),
        ((60, True), often),
    ):
        with tempfile.TemporaryDirectory() as root:
            failed = main(Path(root), work, points)
        name = f"{work[0]} iterations{', confirmed' if work[1] else ''}"
        print(f"{name}: {'failed' if failed else 'passed'}", flush=True)
        code = code or failed
    sys.exit(code)
