"""A fake CI: it tests each version that is pushed, and sends the event `ci-finished` with the commit as key.

python ci.py              until Ctrl-C, for the runs of the journal in this folder
python ci.py JOURNAL      for the runs of another one
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loopwright import signal_sync

REMOTE = Path(__file__).parent / ".loopwright" / "wait_for_ci" / "remote"
MAIN = REMOTE / "refs" / "heads" / "main"
SECONDS = 0.1  # until a machine of the CI has started


def tested(commit: str) -> dict[str, str]:
    """Test a version in a folder of its own, and return the conclusion with the log."""
    time.sleep(SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(REMOTE), folder], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
        command = [sys.executable, "-m", "unittest"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return {"conclusion": "failure" if done.returncode else "success", "log": done.stderr[-4000:]}


def main(journal: str = "sqlite:.loopwright/runs.db") -> None:
    """Test what is pushed from now on."""
    last = MAIN.read_text("utf-8") if MAIN.exists() else ""
    while True:
        time.sleep(0.05)
        with contextlib.suppress(OSError):  # nothing is pushed yet
            if (head := MAIN.read_text("utf-8")) != last:
                last, commit = head, head.strip()
                signal_sync("ci-finished", tested(commit), key=commit, journal=journal)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
