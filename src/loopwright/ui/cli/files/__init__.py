"""`files`: the files of loops, from their snapshots. Each command is a module; this one has what they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...._home import HOME
from ....coding.workspace.saved import SavedWorkspace, collect
from ....records.codec import Json
from ... import formatting as texts
from ...run_files import keys_text
from ..output import Output

__all__ = [
    "STORES",
    "Snapshot",
    "StoreFolder",
    "chosen",
    "collected",
    "freed_text",
    "keys_in",
    "row_text",
]

STORES = Path(HOME)
StoreFolder = Annotated[
    Path, typer.Option("--home", metavar="DIR", help="Folder of stores and copies.")
]
Snapshot = Annotated[
    str | None,
    typer.Argument(
        metavar="N",
        help="Number of an iteration, or the beginning of a hash that `files list RUN` prints; 0 is the start.",
    ),
]


def collected(output: Output, home: Path) -> int | None:
    """Free the space of deleted snapshots; return the bytes, or None while a run works in this folder."""
    freed = collect(home)
    if freed is None:
        output.note(
            "the space of snapshots is not freed while a run works here; repeat loopwright files prune"
        )
    return freed


def freed_text(size: int) -> str:
    """Return a size as text."""
    return f"{size / 1e6:.1f} MB freed" if size >= 1e5 else f"{size} bytes freed"


def row_text(one: SavedWorkspace) -> str:
    """Return a workspace as the line of a list."""
    state = "not in a recorded state" if one.busy else one.ended or "not ended"
    # The result is the usual state, which needs no name.
    if not one.busy and one.present != one.recorded and (name := one.name_of(one.present)):
        state += f", {name} in place"
    if one.lost:
        state += f", {texts.plural(len(one.lost), 'state')} without a record"
    # The start is none of them.
    count = texts.plural(sum(len(one.loops[path]) - 1 for path in one.outermost), "snapshot")
    return f"{one.run}  {one.path}  {one.kind}  {count}  {state}  {one.folder}"


def chosen(one: SavedWorkspace, snapshot: str | None, loop: str) -> str:
    """Return the commit of a snapshot, by default that of the files in place."""
    return one.present if snapshot is None else one.commit_of(snapshot, loop)


def keys_in(one: SavedWorkspace, commit: str, output: Output) -> dict[str, Json]:
    """Warn of files that have a key, as the end of a run does; return them as a member of the JSON."""
    paths = one.paths_with_keys(commit)
    if paths:
        output.note(f"warning: {keys_text(paths)}")
    return {"secrets": paths} if paths else {}
