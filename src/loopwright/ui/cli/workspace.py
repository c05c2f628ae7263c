"""`workspace`: the files of loops, from their snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..._home import HOME
from ...coding.workspace.saved import (
    ABBREVIATED,
    SavedWorkspace,
    collect,
    saved_workspace,
    saved_workspaces,
)
from ...errors import ConfigurationError
from ...records.codec import Json
from .. import formatting as texts
from ..journals import workspace_line
from ..run_files import REPLACED, filtered_text, keys_text, uncommitted_text
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
        str,
        typer.Argument(metavar="RUN", help="Run ID, the beginning of it, or `last`."),
    ] = "",
    snapshots: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="N",
            help="Numbers of iterations, or the beginning of hashes that `show` prints; 0 is the start.",
        ),
    ] = None,
    loop: Annotated[str, typer.Option("--loop", help="Loop, if the run has several.")] = "",
    branch: Annotated[
        str, typer.Option("--name", help="Name of the branch. Default: loopwright/RUN.")
    ] = "",
    home: Annotated[Path, typer.Option("--home", help="Folder of stores and copies.")] = Path(HOME),
    as_json: AsJson = False,
) -> int:
    """List, show or put back the files of loops.

    `restore RUN [N]` puts iteration N in place, or the recorded result; the present files are kept. `diff RUN I J`
    prints a patch. `branch RUN [N]` makes a branch in your repository, and `apply RUN [N]` changes the files of your
    folder, both from iteration N or the files in place. N is a number or the beginning of a hash that `show` prints.
    `prune` deletes the workspaces of ended loops after their time, or the one of RUN.
    """
    with Output(as_json=as_json) as output:
        if action in ("list", "prune") and not name:
            _all(output, action, home, as_json=as_json)
            return 0
        if not name:
            raise ConfigurationError(
                f"workspace {action}: RUN is missing; use a run ID of workspace list"
            )
        one = _Command(output, saved_workspace(home, name, loop), loop, as_json)
        one.do(action, snapshots or [], branch)
    return 0


def _all(output: Output, action: str, home: Path, *, as_json: bool) -> None:
    found = list(saved_workspaces(home))
    if action == "prune":
        found = [one for one in found if one.expired]
    described = [one.to_json() for one in found] if as_json else []
    freed: int | None = None
    if action == "prune":
        for one in found:
            one.remove()
        freed = _collect(output, home)
    if as_json:
        pruned = {"freed_bytes": freed} if action == "prune" else {}
        output.write_json({"workspaces": described, **pruned})
        return
    for one in found:
        output.write(_row(one) if action == "list" else f"deleted {one.folder}")
    if action == "list" and any(one.busy for one in found):
        output.note(f"not in a recorded state: {REPLACED}")
    if action == "list" and any(one.lost for one in found):
        output.note("states without a record: loopwright workspace show RUN")
    if not found:
        output.write("no workspaces" if action == "list" else "no workspace to delete")
    if freed:
        output.write(_freed(freed))


def _collect(output: Output, home: Path) -> int | None:
    freed = collect(home)
    if freed is None:
        output.note(
            "the space of snapshots is not freed while a run works here; repeat loopwright workspace prune"
        )
    return freed


def _freed(size: int) -> str:
    return f"{size / 1e6:.1f} MB freed" if size >= 1e5 else f"{size} bytes freed"


def _row(one: SavedWorkspace) -> str:
    state = "not in a recorded state" if one.busy else one.ended or "not ended"
    # The result is the usual state, which needs no name.
    if not one.busy and one.present != one.recorded and (name := one.name_of(one.present)):
        state += f", {name} in place"
    if one.lost:
        state += f", {texts.plural(len(one.lost), 'state')} without a record"
    # The start is none of them.
    count = texts.plural(sum(len(one.loops[path]) - 1 for path in one.outermost), "snapshot")
    return f"{one.run}  {one.path}  {one.kind}  {count}  {state}  {one.folder}"


@dataclass(frozen=True)
class _Command:
    """A command on one workspace; a loop of "" is the outermost one."""

    output: Output
    one: SavedWorkspace
    loop: str
    as_json: bool

    def do(self, action: Action, snapshots: list[str], branch: str) -> None:
        """Do an action with snapshots, and write its outcome."""
        one, first = self.one, snapshots[0] if snapshots else None
        if action in ("list", "show"):
            self._show()
        elif action == "restore":
            commit = one.restore(first, self.loop)
            name = one.name_of(commit)
            text = f"{one.folder} has the files of " + (
                f"{name} ({commit[:ABBREVIATED]})" if name else commit[:ABBREVIATED]
            )
            self._write(text, folder=str(one.folder), commit=commit)
        elif action == "diff":
            last = max(one.snapshots(self.loop)) if first is None else first
            before, after = snapshots[:2] if len(snapshots) > 1 else (0, last)
            patch = one.diff(before, after, self.loop)
            self._write(patch.encode("utf-8", "replace").decode().rstrip("\n"), diff=patch)
        elif action == "branch":
            made = one.branch(first, branch or f"loopwright/{one.run}", self.loop)
            if made.filtered:
                self.output.note(f"warning: {filtered_text(made.filtered)}")
            if made.uncommitted:
                self.output.note(f"warning: {uncommitted_text(made.uncommitted)}")
            self._write(f"branch {made.name}", branch=made.name, **self._keys(first))
        elif action == "apply":
            count = len(one.apply(self._commit(first)))
            text = f"{texts.plural(count, 'file')} of {one.source} changed"
            self._write(text, applied=count, **self._keys(first))
        else:
            one.remove()
            freed = _collect(self.output, one.home)
            text = f"deleted {one.folder}" + (f", {_freed(freed)}" if freed else "")
            self._write(text, deleted=str(one.folder), freed_bytes=freed)

    def _commit(self, snapshot: str | None) -> str:
        return self.one.present if snapshot is None else self.one.commit_of(snapshot, self.loop)

    def _keys(self, snapshot: str | None) -> dict[str, Json]:
        """Warn of files that have a key, as the end of a run does; return them as a member of the JSON."""
        paths = self.one.paths_with_keys(self._commit(snapshot))
        if paths:
            self.output.note(f"warning: {keys_text(paths)}")
        return {"secrets": paths} if paths else {}

    def _write(self, text: str, **values: Json) -> None:
        self.output.write_json(values) if self.as_json else self.output.write(text)

    def _show(self) -> None:
        one, output = self.one, self.output
        if self.as_json:
            output.write_json(one.to_json())
            return
        paths = [one.loop_of(self.loop)] if self.loop else list(one.loops)
        output.write(_row(one))
        place = "  (in place)" if self._is_in_place(one.base) else ""
        output.write(f"  start  {one.base[:ABBREVIATED]}{place}")
        for path in paths:
            if len(one.loops) > 1:
                output.write(f"  {path}")
            for number, commit in one.loops.get(path, {}).items():
                if number:
                    self._show_snapshot(str(number), commit)
        for commit in one.lost:
            self._show_snapshot("without a record", commit)
        if one.busy:
            output.note(f"not in a recorded state: {REPLACED}")
        if one.lost:
            command = workspace_line("restore", one.run, one.folder, one.lost[-1][:ABBREVIATED])
            output.note(f"put a state without a record in place: {command}")

    def _is_in_place(self, commit: str) -> bool:
        # In the middle of a step the files are those of no snapshot.
        return commit == self.one.present and not self.one.busy

    def _show_snapshot(self, name: str, commit: str) -> None:
        changed = self.one.changes(commit)
        added, removed = (sum(pair[i] for pair in changed.values()) for i in (0, 1))
        names = ", ".join(list(changed)[:5]) + (", …" if len(changed) > 5 else "")
        counts = f"files {len(changed)} +{added} -{removed}"
        place = "  (in place)" if self._is_in_place(commit) else ""
        self.output.write(f"  {name}  {commit[:ABBREVIATED]}  {counts}  {names}".rstrip() + place)
