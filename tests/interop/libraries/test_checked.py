"""mypy accepts the objects of the libraries themselves as steps and evaluators."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = HERE.parents[2] / ".venv" / "bin" / "python"  # has mypy, and not the libraries


@pytest.mark.timeout(300)  # without a cache, mypy reads the stubs of six libraries
@pytest.mark.skipif(not PYTHON.exists(), reason="mypy is in the environment of the package")
def test_objects_of_the_libraries_are_steps_for_a_type_checker(tmp_path: Path) -> None:
    """Each protocol of `loopwright.engine.functions` fits the classes that it stands for."""
    command = [
        str(PYTHON), "-m", "mypy", "--strict", "--python-executable", sys.executable,
        "--cache-dir", str(tmp_path), "--follow-imports", "silent", "passes.py",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
