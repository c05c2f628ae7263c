"""Kill -9 at every journal write of a tuned run, and of the process that requests the limits: `make torture`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from crash.tune_program import main

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        sys.exit(main(Path(root), []))
