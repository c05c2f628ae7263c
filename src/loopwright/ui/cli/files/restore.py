"""`files restore`: an iteration of a run in its workspace."""

from __future__ import annotations

from ....coding.workspace.saved import ABBREVIATED, saved_workspace
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, Snapshot, StoreFolder


def files_restore(
    name: RunName,
    snapshot: Snapshot = None,
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """Put the recorded result of a run in place in its workspace, or iteration N.

    The present files are kept as a state without a record.

    Examples:
        loopwright files restore last
        loopwright files restore last 1
    """
    with Output(as_json=as_json) as output:
        one = saved_workspace(home, name, loop)
        commit = one.restore(snapshot, loop)
        if as_json:
            output.write_json({"folder": str(one.folder), "commit": commit})
            return 0
        known, hash_ = one.name_of(commit), commit[:ABBREVIATED]
        output.write(f"{one.folder} has the files of {f'{known} ({hash_})' if known else hash_}")
    return 0
