"""mypy and pyright accept every line of `passes.py` and refuse exactly the marked lines of `fails.py`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARK = "# refused"
REFUSED = {
    number
    for number, line in enumerate((HERE / "fails.py").read_text().splitlines(), start=1)
    if line.endswith(MARK)
}


def lines_refused_by_mypy(file: str, cache: Path) -> dict[int, str]:
    """Return the refused lines of a file, with their messages."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), file]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stdout + found.stderr
    errors = re.findall(rf"^{file}:(\d+): error: (.*)$", found.stdout, flags=re.MULTILINE)
    return {int(line): message for line, message in errors}


def lines_refused_by_pyright(file: str) -> dict[int, str]:
    """Return the refused lines of a file, with their messages."""
    command = [
        sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, file,
    ]  # fmt: skip
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    try:
        report = json.loads(found.stdout)
    except ValueError:
        message = f"pyright did not run; its npm part could not be fetched: {found.stderr[-400:]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(f"*** {message}")
    return {
        problem["range"]["start"]["line"] + 1: problem["message"]
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.slow
def test_mypy_accepts_the_types_that_it_must_infer(cache: Path) -> None:
    """Every `assert_type` holds under --strict."""
    assert lines_refused_by_mypy("passes.py", cache) == {}


@pytest.mark.slow
def test_mypy_refuses_each_marked_line_and_no_other(cache: Path) -> None:
    """A wrong type is an error on its own line."""
    assert lines_refused_by_mypy("fails.py", cache).keys() == REFUSED


@pytest.mark.slow
def test_pyright_accepts_the_types_that_it_must_infer() -> None:
    """Every `assert_type` holds."""
    assert lines_refused_by_pyright("passes.py") == {}


@pytest.mark.slow
def test_pyright_refuses_each_marked_line_and_no_other() -> None:
    """A wrong type is an error on its own line."""
    assert lines_refused_by_pyright("fails.py").keys() == REFUSED
