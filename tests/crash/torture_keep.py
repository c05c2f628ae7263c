"""Kill -9 of loops that keep or revert: at every journal write and call of git, and six times in 100 iterations: `make torture`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .keep_program import main

if __name__ == "__main__":
    code = 0
    for iterations, points in ((4, []), (100, [("kills", 6)])):
        with tempfile.TemporaryDirectory() as root:
            failed = main(Path(root), iterations, points)
        print(f"{iterations} iterations: {'failed' if failed else 'passed'}", flush=True)
        code = code or failed
    sys.exit(code)
