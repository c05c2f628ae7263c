"""Examples in a process of their own: their modules have plain names that must not meet."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from warm_python import warm_python

EXAMPLES = Path(__file__).parents[2] / "examples"

# `python` and `loopwright` are those of the environment that runs the tests.
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith("LOOPWRIGHT")},
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    "PYTHONUTF8": "1",
}


def python(*words: object, cwd: Path, path: Path | None = None, code: int = 0) -> str:
    """Run Python with these arguments, modules of `path` at hand; return what it printed. It must exit with `code`."""
    environment = {**ENVIRONMENT, **({"PYTHONPATH": str(path)} if path else {})}
    done = warm_python().run([*map(str, words)], cwd=cwd, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def answer(code: str, *, cwd: Path, path: Path) -> Any:
    """Run code that prints JSON as its last line, and return that."""
    return json.loads(python("-c", code, cwd=cwd, path=path).splitlines()[-1])


def loopwright(*words: object, cwd: Path, code: int = 0) -> dict[str, Any]:
    """Run the command line under --json and return its object."""
    found: dict[str, Any] = json.loads(
        python("-m", "loopwright", *words, "--json", cwd=cwd, code=code)
    )
    return found
