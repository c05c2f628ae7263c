"""Workspaces: the folder of a loop, captured after each iteration and put back to the best one.

`store` runs git and holds the snapshots, `tree` makes, captures and restores one folder, `copying` copies its files,
`handover` hands it over, `saved` finds those on disk, and `workspace` is the declaration. Only this package runs git.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .workspace import Workspace as Workspace

__all__ = ["Workspace"]


def __getattr__(name: str) -> object:
    # At first use: a command that shows the files of a run needs the store only, not tools and models.
    if name == "Workspace":
        return import_module(".workspace", __name__).Workspace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
