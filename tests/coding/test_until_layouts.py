"""`until` on real layouts of projects without special care: an editable install, `src` with uv, and node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIX = "sed -i 's/a - b/a + b/'"
LIMIT = 170  # seconds of one run on a busy machine


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    variables = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    return subprocess.run(
        words, cwd=folder, env={**variables, **env}, capture_output=True, text=True, check=False,
        timeout=LIMIT, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a git repository of files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        done = run(folder, "git", *who, *words)
        assert done.returncode == 0, done.stderr
    return folder


def until(folder: Path, check: str, file: str, python: str = sys.executable) -> Any:
    """Let an agent repair a file until the check passes; return the result and the repaired file."""
    words = [
        python,
        "-m",
        "loopwright",
        "until",
        check,
        "--yes",
        "--json",
        "--run-id",
        "one",
        "--max",
        "2",
    ]
    state = str(folder.parent / "state")
    done = run(folder, *words, "--", "sh", "-c", f"{FIX} {file}", XDG_STATE_HOME=state)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert done.returncode == 0, (result["detail"], result.get("warnings"))
    assert run(folder, "git", "status", "--porcelain").stdout.replace("?? .loopwright/\n", "") == ""
    return result, run(folder, "git", "show", f"loopwright/one:{file}").stdout


def test_a_package_in_editable_mode(tmp_path: Path) -> None:
    """The active environment has the user's folder on its path, and the check still tests the copy."""
    folder = repository(
        tmp_path / "project",
        {
            "src/sums/__init__.py": "def add(a, b):\n    return a - b\n",
            "tests/test_sums.py": "from sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
            "pyproject.toml": '[project]\nname = "sums"\nversion = "1"\n',
            ".gitignore": ".env/\n__pycache__/\n",
        },
    )
    environment = tmp_path / "env"
    run(tmp_path, sys.executable, "-m", "venv", "--without-pip", str(environment))
    (packages,) = environment.glob("lib/*/site-packages")
    # What an editable install leaves, and the packages of the tests.
    (packages / "__editable__.sums.pth").write_text(f"{folder / 'src'}\n")
    own = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (packages / "tests.pth").write_text(f"{own}\n{Path(__file__).parents[2] / 'src'}\n")
    result, text = until(
        folder, "python -m pytest -q tests", "src/sums/__init__.py", str(environment / "bin/python")
    )
    assert result["iterations"] == 1 and "a + b" in text


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_a_src_layout_with_uv(tmp_path: Path) -> None:
    """`uv run` installs the copy into an environment of the copy."""
    folder = repository(
        tmp_path / "project",
        {
            "src/sums/__init__.py": "def add(a, b):\n    return a - b\n",
            "tests/test_sums.py": "import unittest\n\nfrom sums import add\n\n\nclass Sums(unittest.TestCase):\n"
            "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
            "pyproject.toml": '[project]\nname = "sums"\nversion = "1"\nrequires-python = ">=3.11"\n\n'
            '[build-system]\nrequires = ["uv_build"]\nbuild-backend = "uv_build"\n',
            ".gitignore": ".venv/\n__pycache__/\n",
        },
    )
    run(folder, "uv", "lock", "--quiet")
    run(folder, "git", "add", "uv.lock")
    run(folder, "git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "lock")
    result, text = until(
        folder, "uv run python -m unittest discover -s tests", "src/sums/__init__.py"
    )
    assert result["iterations"] == 1 and "a + b" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_node_project(tmp_path: Path) -> None:
    """The installed packages are not in the repository; the copy has them as a link."""
    folder = repository(
        tmp_path / "project",
        {
            "sums.js": "exports.add = (a, b) => a - b;\n",
            "test/sums.test.js": "const test = require('node:test');\nconst assert = require('assert');\n"
            "const one = require('one');\nconst { add } = require('../sums');\n"
            "test('adds', () => assert.strictEqual(add(one, 2), 3));\n",
            "package.json": '{"name": "sums", "scripts": {"test": "node --test test/"}}\n',
            ".gitignore": "node_modules/\n",
        },
    )
    (folder / "node_modules" / "one").mkdir(parents=True)
    (folder / "node_modules" / "one" / "index.js").write_text("module.exports = 1;\n")
    result, text = until(folder, "npm test", "sums.js")
    assert result["iterations"] == 1 and "a + b" in text
