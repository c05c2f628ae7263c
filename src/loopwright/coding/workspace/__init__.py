"""Workspaces: the folder of a loop, captured after each iteration and put back to the best one.

`git` runs git, `store` holds the snapshots, `tree` captures and restores one folder, `sources` makes one,
`merge` hands it over, and `workspace` is the declaration. Only this package runs git.
"""

from .workspace import Workspace

__all__ = ["Workspace"]
