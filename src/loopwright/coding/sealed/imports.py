"""From where a check imports the project: the clean copy, or the folder of the user.

An editable install leaves a path or a finder in the environment that points to the user's folder. The check
would then test that folder, whatever the files of the loop are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...errors import StepError
from ...tools.process import run_command

__all__ = ["OUTSIDE", "modules_of", "outside", "paths_for"]

SECONDS = 60.0
_ROOTS = ("src/", "")
# Names at the top of a repository that are not the product, or not to be imported.
_OTHERS = {
    "tests", "test", "docs", "doc", "examples", "build", "dist", "benchmarks", "scripts", "tools", "setup",
    "conftest", "noxfile", "tasks", "manage", "fabfile",
}  # fmt: skip
# The code of a function, for the interpreter and for the test that is added to a check.
OUTSIDE = """\
def outside(copy, names):
    import importlib.util, os
    copy, found = os.path.realpath(copy), {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            continue
        if spec is None:
            continue
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        for place in places:
            if place and os.path.commonpath([copy, os.path.realpath(place)]) != copy:
                found[name] = os.path.realpath(place)
    return found
"""
_PROBE = f"""\
import sys
all_paths, sys.path = sys.path, [path for path in sys.path if path.startswith(sys.base_prefix)]
import importlib.util, json, os  # those of Python: the project may have modules with these names
sys.path = [path for path in all_paths if path]
{OUTSIDE}
print(json.dumps(outside(sys.argv[1], sys.argv[2:])))
"""


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the modules of a project, each with the folder that must be on the import path.

    >>> modules_of(["src/shop/__init__.py", "app.py", "tests/__init__.py", "src/shop/cart.py"])
    {'shop': 'src', 'app': ''}
    """
    modules: dict[str, str] = {}
    for path in paths:
        root = next(root for root in _ROOTS if path.startswith(root))
        name, _, rest = path.removeprefix(root).partition("/")
        if rest not in ("", "__init__.py") or (not rest and not name.endswith(".py")):
            continue
        module = name.removesuffix(".py")
        if module.isidentifier() and module not in _OTHERS and not module.startswith("test_"):
            modules.setdefault(module, root.rstrip("/"))
    return modules


def paths_for(modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that must be on the import path."""
    return tuple(sorted(set(modules.values()), reverse=True))


async def outside(
    folder: Path, modules: Iterable[str], variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the modules that the active interpreter imports from outside of a copy, with their places."""
    words = ["python", "-c", _PROBE, str(folder), *modules]
    try:
        result = await run_command(words, cwd=folder, env=variables, timeout=SECONDS)
        places: dict[str, str] = json.loads(result.stdout)
    except (StepError, ValueError):
        return {}  # without an interpreter there is nothing to compare
    return places
