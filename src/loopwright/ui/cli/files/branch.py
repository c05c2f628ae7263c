"""`files branch`: the files of a run as a branch of your repository."""

from __future__ import annotations

from typing import Annotated

import typer

from ....coding.workspace.saved import saved_workspace
from ...run_files import filtered_text, uncommitted_text
from ..options import AsJson, LoopName, RunName
from ..output import Output
from . import STORES, Snapshot, StoreFolder, chosen, keys_in


def files_branch(
    name: RunName,
    snapshot: Snapshot = None,
    branch: Annotated[
        str,
        typer.Option("--branch", metavar="NAME", help="Branch of the result; {run} is its ID."),
    ] = "loopwright/{run}",
    loop: LoopName = "",
    home: StoreFolder = STORES,
    as_json: AsJson = False,
) -> int:
    """Make a branch of your repository from the files in place, or from iteration N.

    Examples:
        loopwright files branch last
        loopwright files branch last 2 --branch second-try
    """
    with Output(as_json=as_json) as output:
        one = saved_workspace(home, name, loop)
        made = one.branch(snapshot, branch.replace("{run}", one.run), loop)
        if made.filtered:
            output.note(f"warning: {filtered_text(made.filtered)}")
        if made.uncommitted:
            output.note(f"warning: {uncommitted_text(made.uncommitted)}")
        keys = keys_in(one, chosen(one, snapshot, loop), output)
        if as_json:
            output.write_json({"branch": made.name, **keys})
        else:
            output.write(f"branch {made.name}")
    return 0
