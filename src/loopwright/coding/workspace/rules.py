"""Which files are ignored: the rules of the beginning, for all iterations.

A step may rewrite `.gitignore`. If its rules counted from then on, a file could be part of one snapshot and
be ignored by the next, and putting a snapshot back would neither restore nor remove it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["ALWAYS", "exclude_file"]

# Folders of tools: most of them are ignored by a file that the tool puts into them.
ALWAYS = (
    ".loopwright/", ".venv/", "node_modules/", "__pycache__/", "*.py[cod]", ".pytest_cache/", ".mypy_cache/",
    ".ruff_cache/", ".tox/", ".nox/", ".hypothesis/", "*.egg-info/", ".coverage", ".coverage.*", ".DS_Store",
    ".aider*",
)  # fmt: skip
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


def exclude_file(
    root: Path,
    files: Iterable[bytes],
    exclude: Sequence[str],
    links: Sequence[str],
    local: str = "",
) -> str:
    """Return the rules of a folder as one file: the last rule that matches a path decides.

    Args:
        root: the folder.
        files: the paths of its `.gitignore` files.
        exclude: further rules.
        links: paths that are links to folders of the user.
        local: the rules of the user's `.git/info/exclude`.
    """
    lines = [*ALWAYS, *local.splitlines()]
    # The rules of a deeper folder come later, because they have precedence.
    for path in sorted(files, key=lambda path: (path.count(b"/"), path)):
        file = root / os.fsdecode(path)
        # Git ignores a link in this place.
        if file.is_file() and not file.is_symlink():
            text = file.read_text("utf-8", "replace")
            lines += _moved(text.splitlines(), os.fsdecode(path).rpartition("/")[0])
    lines += [*exclude, *(f"/{_escaped(link.strip('/'))}" for link in links)]
    return "\n".join(lines) + "\n"


def _escaped(name: str) -> str:
    return _SPECIAL.sub(r"\\\1", name)


def _moved(lines: Iterable[str], folder: str) -> Iterable[str]:
    """Iterate over the rules of a folder as rules of the root."""
    for line in lines:
        rule = line.rstrip("\r\n")
        if not rule.strip() or rule.startswith("#"):
            continue
        if not folder:
            yield rule
            continue
        negated = "!" if rule.startswith("!") else ""
        rule = rule.removeprefix("!")
        # A rule with a slash before its end belongs to its folder only.
        anchored = "/" in rule.rstrip().rstrip("/")
        middle = "/" if anchored else "/**/"
        yield f"{negated}/{_escaped(folder)}{middle}{rule.lstrip('/')}"
