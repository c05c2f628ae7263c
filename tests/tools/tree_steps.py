"""A run whose shell step starts processes that leave its session; to be killed in the middle.

tree_steps.py JOURNAL FOLDER SCRIPT
"""

from __future__ import annotations

import sys
from pathlib import Path

from loopwright import run_sync
from loopwright.tools import ShellStep


def step_of(folder: str, script: str) -> ShellStep:
    return ShellStep(script, name="busy", cwd=folder)


if __name__ == "__main__":
    run_sync(
        step_of(sys.argv[2], sys.argv[3]),
        None,
        journal=f"sqlite:{Path(sys.argv[1])}",
        run_id="busy",
    )
