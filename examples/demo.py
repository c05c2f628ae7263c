"""A first look at a loop at work, which `make demo` runs: no model, no key, no server."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent / "job_matching" / "job_matching.yaml"


def main() -> int:
    """Run the example as a person would, then say what happened and where to look."""
    program = _program()
    command = [*program, "run", os.path.relpath(EXAMPLE), "--yes"]
    print(f"$ {shlex.join(command)}\n", flush=True)
    code = _call(command)
    if code == 0:
        print(_AFTER.format(program=shlex.join(program), example=shlex.join(command)))
    return code


def _program() -> list[str]:
    """Return how the command line is called from here: by its name, its path or its module."""
    script = Path(sys.executable).with_name("loopwright")
    if shutil.which("loopwright") == str(script):
        return ["loopwright"]
    return [os.path.relpath(script)] if script.exists() else [sys.executable, "-m", "loopwright"]


def _call(command: list[str]) -> int:
    """Run a command to its end; Ctrl-C is for it, and it will tell how to go on."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


_AFTER = """
What happened: the first search found nothing (score 0). Each round
searched, judged what it found and changed one filter: looser while there
were too few postings, stricter once they were too weak, until 5 or more
were good enough. Round 5 went too far and round 6 made up for it. Each
round was on record before the next one began, so nothing is lost when
the process dies.

Look closer:
  {program} show last
  {program} runs

Interrupt it: run it again, press Ctrl-C on the way, then go on with it:
  {example}
  {program} resume last
"""

if __name__ == "__main__":
    sys.exit(main())
