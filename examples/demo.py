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
    """Run the example on the command line, then explain the result and name further commands."""
    program = _program()
    command = [*program, "run", os.path.relpath(EXAMPLE), "--yes"]
    print(f"$ {shlex.join(command)}\n", flush=True)
    code = _call(command)
    if code == 0:
        print(_AFTER.format(program=shlex.join(program), example=shlex.join(command)))
    return code


def _program() -> list[str]:
    """Return the command line as it is called from here: its name, its path or its module."""
    script = Path(sys.executable).with_name("loopwright")
    if shutil.which("loopwright") == str(script):
        return ["loopwright"]
    return [os.path.relpath(script)] if script.exists() else [sys.executable, "-m", "loopwright"]


def _call(command: list[str]) -> int:
    """Run a command to its end. Ctrl-C interrupts the command, which then prints how to resume the run."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


_AFTER = """
Each iteration searched the postings, evaluated the result and changed one
filter: it removed a restriction while there were too few matches, and added
one while their relevance was too low. Iteration 5 lost too many matches, and
iteration 6 corrected that. Each step was recorded before its result was used,
so a run continues after a crash.

Read the record:
  {program} show last
  {program} runs

Interrupt and resume: run it again, press Ctrl-C, then resume it:
  {example}
  {program} resume last
"""

if __name__ == "__main__":
    sys.exit(main())
