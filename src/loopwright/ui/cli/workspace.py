"""`workspace`: the files of loops, from their snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ...coding.workspace.saved import SavedWorkspace, saved_workspace, saved_workspaces
from ...coding.workspace.store import HOME
from ...errors import ConfigurationError
from .. import formatting as texts
from .options import AsJson
from .output import Output

__all__ = ["workspace"]

Action = Literal["list", "show", "restore", "diff", "branch", "apply", "prune"]


def workspace(
    action: Annotated[
        Action,
        typer.Argument(
            help="list, show, restore, diff, branch, apply or prune.", show_default=False
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Run ID, or the beginning of it.")
    ] = "",
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="N", help="Numbers of iterations; 0 is the start."),
    ] = None,
    loop: Annotated[
        str, typer.Option("--loop", help="Loop, if the run has several workspaces.")
    ] = "",
    branch: Annotated[
        str, typer.Option("--name", help="Name of the branch. Default: loopwright/RUN.")
    ] = "",
    home: Annotated[Path, typer.Option("--home", help="Folder of stores and copies.")] = Path(HOME),
    as_json: AsJson = False,
) -> int:
    """List, show or put back the files of loops.

    `restore RUN [N]` puts iteration N in place, or the recorded state; the present files are kept. `diff RUN I J`
    prints a patch. `branch RUN [N]` makes a branch in your repository, and `apply RUN [N]` changes the files of your
    folder, both from iteration N or the files in place. `prune` deletes the workspaces of ended loops after their time,
    or the one of RUN.
    """
    with Output(as_json=as_json) as output:
        if action in ("list", "prune") and not name:
            _all(output, action, home, as_json=as_json)
            return 0
        if not name:
            raise ConfigurationError(
                f"workspace {action}: RUN is missing; use a run ID of workspace list"
            )
        _one(
            output,
            action,
            saved_workspace(home, name, loop),
            numbers or [],
            branch,
            as_json=as_json,
        )
    return 0


def _all(output: Output, action: str, home: Path, *, as_json: bool) -> None:
    found = list(saved_workspaces(home))
    if action == "prune":
        found = [one for one in found if one.expired]
        for one in found:
            one.remove()
    if as_json:
        output.write_json({"workspaces": [one.to_json() for one in found]})
        return
    for one in found:
        output.write(_row(one) if action == "list" else f"deleted {one.folder}")
    if not found:
        output.write("no workspaces" if action == "list" else "no workspace to delete")


def _row(one: SavedWorkspace) -> str:
    state = "not in a recorded state" if one.busy else one.ended or "not ended"
    count = texts.plural(len(one.snapshots) - 1, "snapshot")
    return f"{one.run}  {one.path}  {one.kind}  {count}  {state}  {one.folder}"


def _one(
    output: Output,
    action: str,
    one: SavedWorkspace,
    numbers: list[int],
    branch: str,
    *,
    as_json: bool,
) -> None:
    first = numbers[0] if numbers else None
    if action in ("list", "show"):
        if as_json:
            output.write_json(one.to_json())
        else:
            _show(output, one)
    elif action == "restore":
        commit = one.restore(first)
        text = f"{one.folder} has the files of {commit[:12]}"
        output.write_json(
            {"folder": str(one.folder), "commit": commit}
        ) if as_json else output.write(text)
    elif action == "diff":
        before, after = numbers[:2] if len(numbers) > 1 else (0, _last(one, first))
        patch = one.diff(before, after)
        if as_json:
            output.write_json({"diff": patch})
        else:
            output.write(patch.encode("utf-8", "replace").decode().rstrip("\n"))
    elif action == "branch":
        made = one.branch(first, branch or f"loopwright/{one.run}")
        output.write_json({"branch": made}) if as_json else output.write(f"branch {made}")
    elif action == "apply":
        count = one.apply(one.present if first is None else one.commit_of(first))
        text = f"{texts.plural(count, 'file')} of {one.source} changed"
        output.write_json({"applied": count}) if as_json else output.write(text)
    else:
        one.remove()
        output.write_json({"deleted": str(one.folder)}) if as_json else output.write(
            f"deleted {one.folder}"
        )


def _last(one: SavedWorkspace, number: int | None) -> int:
    return max(one.snapshots) if number is None else number


def _show(output: Output, one: SavedWorkspace) -> None:
    output.write(_row(one))
    before = 0
    store = one.tree.store
    for number, commit in one.snapshots.items():
        if number == 0:
            output.write(f"  start  {commit[:12]}")
            continue
        changed = store.changes(one.commit_of(before), commit)
        added, removed = (sum(pair[i] for pair in changed.values()) for i in (0, 1))
        names = ", ".join(list(changed)[:5]) + (", …" if len(changed) > 5 else "")
        output.write(
            f"  {number}  {commit[:12]}  files {len(changed)} +{added} -{removed}  {names}"
        )
        before = number
    for commit in one.lost:
        output.write(f"  without a record: {commit[:12]}")
