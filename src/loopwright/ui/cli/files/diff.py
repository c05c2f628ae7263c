"""`files diff`: what changed between two iterations, as a patch."""

from __future__ import annotations

from ....coding.workspace.saved import saved_workspace
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, Snapshot, StoreFolder


def files_diff(
    name: RunName,
    before: Snapshot = None,
    after: Snapshot = None,
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """Print what changed from one iteration to another, as a patch.

    With one number, the patch begins at the start; without any, it ends at the last iteration.

    Examples:
        loopwright files diff last
        loopwright files diff last 1 2
    """
    with Output(as_json=as_json) as output:
        one = saved_workspace(home, name, loop)
        first, second = ("0", before) if before is None or after is None else (before, after)
        patch = one.diff(first, max(one.snapshots(loop)) if second is None else second, loop)
        if as_json:
            output.write_json({"diff": patch})
        elif patch:
            output.write(patch.encode("utf-8", "replace").decode().rstrip("\n"))
        else:
            output.note("no change")
    return 0
