"""`files list`: the workspaces of loops, and the snapshots of one."""

from __future__ import annotations

from ....coding.workspace.saved import (
    ABBREVIATED,
    SavedWorkspace,
    saved_workspace,
    saved_workspaces,
)
from ...journals import files_line
from ...run_files import REPLACED, changes_text
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, StoreFolder, row_text


def files_list(
    name: RunName = "",
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """List the workspaces of loops, or the snapshots of a run with their hashes.

    States without a record are listed too: a crash or a restore left them, and `files restore` puts one in place.

    Examples:
        loopwright files list
        loopwright files list last
        loopwright files list last --json
    """
    with Output(as_json=as_json) as output:
        if name:
            one = saved_workspace(home, name, loop)
            if as_json:
                output.write_json(one.to_json())
            else:
                _write_snapshots(one, loop, output)
            return 0
        found = list(saved_workspaces(home))
        if as_json:
            output.write_json({"workspaces": [one.to_json() for one in found]})
            return 0
        for one in found:
            output.write(row_text(one))
        if any(one.busy for one in found):
            output.note(f"not in a recorded state: {REPLACED}")
        if any(one.lost for one in found):
            output.note("states without a record: loopwright files list RUN")
        if not found:
            output.write("no workspaces")
    return 0


def _write_snapshots(one: SavedWorkspace, loop: str, output: Output) -> None:
    output.write(row_text(one))
    output.write(f"  start  {one.base[:ABBREVIATED]}{_place(one, one.base)}")
    for path in [one.loop_of(loop)] if loop else list(one.loops):
        if len(one.loops) > 1:
            output.write(f"  {path}")
        for number, commit in one.loops.get(path, {}).items():
            if number:
                _write_snapshot(one, str(number), commit, output)
    for commit in one.lost:
        _write_snapshot(one, "without a record", commit, output)
    if one.busy:
        output.note(f"not in a recorded state: {REPLACED}")
    if one.lost:
        command = files_line("restore", one.run, one.folder, one.lost[-1][:ABBREVIATED])
        output.note(f"put a state without a record in place: {command}")


def _write_snapshot(one: SavedWorkspace, name: str, commit: str, output: Output) -> None:
    changed = one.changes(commit)
    names = ", ".join(list(changed)[:5]) + (", …" if len(changed) > 5 else "")
    row = f"  {name}  {commit[:ABBREVIATED]}  {changes_text(changed)}  {names}".rstrip()
    output.write(row + _place(one, commit))


def _place(one: SavedWorkspace, commit: str) -> str:
    # In the middle of a step the files are those of no snapshot.
    return "  (in place)" if commit == one.present and not one.busy else ""
