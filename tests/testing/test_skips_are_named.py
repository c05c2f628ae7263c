"""No test is skipped without a word: the end of a run of tests names each reason."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SKIPPING = """
import pytest

def test_go():
    pytest.skip("NOT TESTED: go is not installed")

def test_go_too():
    pytest.skip("go is not installed")

@pytest.mark.skipif(True, reason="there is no chromium")
def test_page():
    pass

def test_runs():
    pass
"""


def test_the_end_of_a_run_of_tests_names_what_was_skipped(tmp_path: Path) -> None:
    """One line for each file and reason, with the number of tests."""
    (tmp_path / "test_some.py").write_text(SKIPPING)
    tests = Path(__file__).parents[1]
    shutil.copy(tests / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {tests}\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_some.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    named = [line for line in done.stdout.splitlines() if line.startswith("NOT TESTED")]
    assert named == [
        "NOT TESTED: 2 in test_some.py: go is not installed",
        "NOT TESTED: 1 in test_some.py: there is no chromium",
    ]
