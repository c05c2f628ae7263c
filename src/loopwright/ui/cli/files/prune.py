"""`files prune`: delete the workspaces of ended loops."""

from __future__ import annotations

from pathlib import Path

from ....coding.workspace.saved import saved_workspace, saved_workspaces
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, StoreFolder, collected, freed_text


def files_prune(
    name: RunName = "",
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """Delete the workspaces of ended loops after their time, or the one of RUN, and free the space of their snapshots.

    Examples:
        loopwright files prune
        loopwright files prune last
    """
    with Output(as_json=as_json) as output:
        if name:
            return _one(name, loop, home, output)
        found = [one for one in saved_workspaces(home) if one.expired]
        described = [one.to_json() for one in found] if as_json else []
        for one in found:
            one.remove()
        freed = collected(output, home)
        if as_json:
            output.write_json({"workspaces": described, "freed_bytes": freed})
            return 0
        for one in found:
            output.write(f"deleted {one.folder}")
        if not found:
            output.write("no workspace to delete")
        if freed:
            output.write(freed_text(freed))
    return 0


def _one(name: str, loop: str, home: Path, output: Output) -> int:
    one = saved_workspace(home, name, loop)
    one.remove()
    freed = collected(output, one.home)
    if output.as_json:
        output.write_json({"deleted": str(one.folder), "freed_bytes": freed})
    else:
        output.write(f"deleted {one.folder}" + (f", {freed_text(freed)}" if freed else ""))
    return 0
