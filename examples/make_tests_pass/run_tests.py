"""Run the project's tests on a copy of it: stdin is what `repair.propose` returned, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Only pytest itself: plugins that happen to be installed take longer to load than the tests to run.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

import pytest

PROJECT = Path(__file__).parent / "project"


def main() -> int:
    """Apply the proposal to a copy, run its tests there, and return pytest's exit code."""
    proposal = json.load(sys.stdin)
    print("tried:", proposal["tried"])
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, PROJECT.name)
        shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / proposal["module"]).write_text(proposal["text"], encoding="utf-8")
        with contextlib.chdir(copy):
            return pytest.main(["-q", "--tb=no", "-rN", "-p", "no:cacheprovider", "-c", os.devnull])


if __name__ == "__main__":
    sys.exit(main())
