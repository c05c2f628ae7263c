"""mypy and pyright accept every line of `passes.py` and refuse exactly the marked lines of `fails.py`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARK = "# refused"
REFUSED = {
    number
    for number, line in enumerate((HERE / "fails.py").read_text().splitlines(), start=1)
    if line.endswith(MARK)
}


Refused = dict[str, dict[int, str]]  # messages by file and line
FILES = ("passes.py", "fails.py")


def refused_by_mypy() -> Refused:
    """Return the refused lines of both files; most of the time is the package, which `make check` leaves in the cache."""
    root = HERE.parents[1]
    files = [str(HERE.joinpath(file).relative_to(root)) for file in FILES]
    command = [sys.executable, "-m", "mypy", "--strict", *files]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    refused: Refused = {file: {} for file in FILES}
    for file, line, message in re.findall(
        r"^tests/typing/(\w+\.py):(\d+): error: (.*)$", done.stdout, flags=re.MULTILINE
    ):
        refused[file][int(line)] = message
    return refused


def refused_by_pyright() -> Refused:
    """Return the refused lines of both files."""
    command = [
        sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *FILES,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        message = f"pyright did not run; its npm part could not be fetched: {done.stderr[-400:]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(f"*** {message}")
    refused: Refused = {file: {} for file in FILES}
    for problem in report["generalDiagnostics"]:
        if problem["severity"] == "error":
            line = problem["range"]["start"]["line"] + 1
            refused[Path(problem["file"]).name][line] = problem["message"]
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("checker", [refused_by_mypy, refused_by_pyright])
def test_a_checker_infers_types_and_refuses_wrong_ones(checker: Callable[[], Refused]) -> None:
    """Every `assert_type` holds under --strict, and a wrong type is an error on its own line, and no other is."""
    refused = checker()
    assert refused["passes.py"] == {}
    assert refused["fails.py"].keys() == REFUSED
