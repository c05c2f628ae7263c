"""Kill -9 at every journal write and before every call of git of loops in workspaces: `make torture`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from workspace_program import ENDINGS, KINDS

PROGRAM = Path(__file__).with_name("workspace_program.py")


def main() -> int:
    """Run every point of every kind and ending, and of a run with two trees; print those that differ."""
    code = 0
    for kind, ending in [*((k, e) for k in KINDS for e in ENDINGS), ("copy", "trees")]:
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run([sys.executable, str(PROGRAM), root, kind, ending], check=False)
        print(f"{kind} {ending}: {'failed' if done.returncode else 'passed'}", flush=True)
        code = code or done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
