"""A check tests the files of the loop, although the environment points to the folder of the user."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loopwright import Loop, MaxIterations, Passed, Result, Workspace, run_sync, tests

from .bench import write

MODULE = "def add(a, b):\n    return a - b\n"
TEST = "from shop import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
# As an editable install does it whose builder compiles at import.
FINDER = """\
import sys
from importlib.machinery import PathFinder


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{source!r}]) if name == "shop" else None


sys.meta_path.insert(0, Finder)
"""


class Environment:
    """An environment with pytest, in which a project can be installed in editable mode."""

    def __init__(self, root: Path) -> None:
        venv.create(root, with_pip=False, symlinks=True)
        self.bin = root / "bin"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = root / "lib" / version / "site-packages"
        (self.packages / "pytest.pth").write_text(sysconfig.get_path("purelib") + "\n")

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


def run(
    root: Path, files: Mapping[str, str], environment: Environment, **options: Any
) -> Result[Any]:
    """Run a loop whose first iteration repairs the module in the workspace."""
    source = root / "project"
    write(source, files)
    place = next(name for name, text in files.items() if text == MODULE)

    def fix(_: object, ctx: Any) -> None:
        (ctx.folder / place).write_text(MODULE.replace("-", "+"))

    evaluate = tests("python -m pytest -q", env=environment.variables, **options)
    workspace = Workspace(source, kind="snapshot", home=root / "home", merge="none")
    return run_sync(Loop(fix, evaluate, until=Passed() | MaxIterations(1), workspace=workspace), "")


@pytest.mark.parametrize(("module", "path"), [("src/shop/__init__.py", "src"), ("shop.py", "")])
def test_an_editable_install(
    module: str, path: str, environment: Environment, tmp_path: Path
) -> None:
    """The copy comes before a path that an editable install added."""
    (environment.packages / "shop.pth").write_text(f"{tmp_path / 'project' / path}\n")
    result = run(tmp_path, {module: MODULE, "tests/test_shop.py": TEST}, environment)
    assert result.satisfied, result.detail


def test_an_install_that_cannot_be_avoided(environment: Environment, tmp_path: Path) -> None:
    """The loop ends before its first iteration, and the sentence names the option."""
    source = str(tmp_path / "project" / "src")
    (environment.packages / "finder.py").write_text(FINDER.format(source=source))
    (environment.packages / "finder.pth").write_text("import finder\n")
    files = {"src/shop/__init__.py": MODULE, "tests/test_shop.py": TEST}
    result = run(tmp_path, files, environment)
    assert (result.reason.value, result.iterations) == ("evaluator_unusable", 0)
    assert "--setup" in result.detail
    assert str(tmp_path / "project") in result.detail


def test_a_setup_of_the_copy(environment: Environment, tmp_path: Path) -> None:
    """A command that runs in each copy makes the modules importable from there."""
    # The command of the project, such as `uv sync`; here it adds the copy to the environment.
    setup = f'echo "$PWD/src" > {environment.packages}/shop.pth'
    files = {"src/shop/__init__.py": MODULE, "tests/test_shop.py": TEST}
    assert run(tmp_path, files, environment, setup=setup).satisfied


def test_links(environment: Environment, tmp_path: Path) -> None:
    """Folders that git ignores are not in the copy; `link` brings them there."""
    (tmp_path / "project" / "vendor").mkdir(parents=True)
    (tmp_path / "project" / "vendor" / "shop.py").write_text("")
    files = {
        "shop.py": MODULE,
        "tests/test_shop.py": TEST
        + "\n\ndef test_vendor():\n    import os\n\n    assert os.path.exists('vendor')\n",
        ".gitignore": "vendor/\n",
    }
    assert run(tmp_path, files, environment, link=["vendor"]).satisfied
