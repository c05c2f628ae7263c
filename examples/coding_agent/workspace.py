"""The folder that the coding agent works in, and what it may do there.

The project itself is never changed: `prepare` copies it to .loopwright/coding_agent/ in the working
directory, and no tool opens a path outside of that copy.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent / "project"
COPY = Path(".loopwright", "coding_agent")
KEPT = ("basket.py", "test_basket.py")


def prepare() -> list[str]:
    """Copy the project and return the names of its files."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for name in KEPT:
        shutil.copy(PROJECT / name, COPY)
    return sorted(KEPT)


def _inside(path: str) -> Path:
    """Return a path as one inside the copy.

    Raises:
        ValueError: if it leads out of it.
    """
    root = COPY.resolve()
    found = (root / path).resolve()
    if not found.is_relative_to(root):
        raise ValueError(f"{path!r} is outside of the project")
    return found


def read_file(path: str) -> str:
    """Read a file of the project.

    Args:
        path: Its path, as in "basket.py".
    """
    return _inside(path).read_text(encoding="utf-8")


def write_file(path: str, text: str) -> str:
    """Write a file of the project; the tests themselves stay as they are.

    Args:
        path: Its path, as in "basket.py".
        text: All of its new text.
    """
    file = _inside(path)
    if file.name.startswith("test_"):
        raise ValueError(f"{path} is a test; change the code that it tests")
    file.write_text(text, encoding="utf-8")
    return f"{path} has {len(text.splitlines())} lines now"


def run_tests() -> str:
    """Run the tests of the project, and return what they print."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "."]
    # Without the settings of folders above the copy, without plugins that happen to be installed,
    # and without bytecode that outlives a change.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, "--rootdir=.", "-c", os.devnull],
        cwd=COPY, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return re.sub(r" in [\d.]+s", "", done.stdout.replace(str(COPY.resolve()), "."))


def tested() -> dict[str, Any]:
    """Score the project by the share of its tests that pass; the rest is the feedback.

    Raises:
        RuntimeError: if no test ran, which says nothing about the project.
    """
    told = run_tests()
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", told)
    }
    passed, total = counts.get("passed", 0), sum(counts.values())
    if not total:
        raise RuntimeError(f"no test ran: {told.strip() or 'pytest printed nothing'}")
    return {
        "score": passed / total,
        "passed": passed == total,
        "feedback": f"{passed} of {total} tests pass" if passed == total else told.strip(),
    }


def diff() -> str:
    """Return what was changed, as a unified diff."""
    parts: list[str] = []
    for name in KEPT:
        before, after = (f.read_text(encoding="utf-8") for f in (PROJECT / name, COPY / name))
        lines = [text.splitlines(keepends=True) for text in (before, after)]
        parts += difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")
    return "".join(parts)
