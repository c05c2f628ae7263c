"""Kill -9 at every journal write and before every call of git of a loop in a workspace: `make torture`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).with_name("workspace_program.py")


def main() -> int:
    """Run every point of every kind and ending; print those that differ."""
    code = 0
    for kind in ("copy", "worktree", "snapshot"):
        for ending in ("satisfied", "exhausted", "failed"):
            with tempfile.TemporaryDirectory() as root:
                done = subprocess.run(
                    [sys.executable, str(PROGRAM), root, kind, ending], check=False
                )
            print(f"{kind} {ending}: {'failed' if done.returncode else 'passed'}", flush=True)
            code = code or done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
