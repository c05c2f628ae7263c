"""`files apply`: the files of a run in your folder."""

from __future__ import annotations

from ....coding.workspace.saved import saved_workspace
from ... import formatting as texts
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, Snapshot, StoreFolder, chosen, keys_in


def files_apply(
    name: RunName,
    snapshot: Snapshot = None,
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """Change the files of your folder to those in place, or to those of iteration N.

    Nothing is changed if you and the run changed the same file.

    Examples:
        loopwright files apply last
        loopwright files apply last 2
    """
    with Output(as_json=as_json) as output:
        one = saved_workspace(home, name, loop)
        commit = chosen(one, snapshot, loop)
        count = len(one.apply(commit))
        keys = keys_in(one, commit, output)
        if as_json:
            output.write_json({"applied": count, **keys})
        else:
            output.write(f"{texts.plural(count, 'file')} of {one.source} changed")
    return 0
