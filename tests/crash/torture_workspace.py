"""Kill -9 at every journal write and before every call of git of loops in workspaces: `make torture`.

python -m crash.torture_workspace [KIND:ENDING …]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

CASES = [
    *(
        (kind, ending)
        for ending in ("satisfied", "exhausted", "failed", "cancelled")
        for kind in ("copy", "worktree", "snapshot", "here")
    ),
    ("copy", "trees"),
    ("worktree", "trees"),
    ("snapshot", "trees"),
]
AT_ONCE = 8  # cases; most of the time of a point is waiting


def tried(case: tuple[str, str]) -> int:
    """Run every point of a kind and an ending; print the number of points and those that differ."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, "-m", "crash.workspace_program", root, *case]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    word = "failed" if done.returncode else "passed"
    lines = f"{' '.join(case)}: {word}, {time.monotonic() - began:.0f} s\n{done.stdout.strip()}\n"
    print(lines + (done.stderr if done.returncode else ""), flush=True)
    return done.returncode


def main(words: list[str]) -> int:
    """Run the named cases, or all."""
    named = [case for case in CASES if not words or ":".join(case) in words]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return max(pool.map(tried, named))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
