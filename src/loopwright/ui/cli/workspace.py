"""`workspace`: the files of loops, from their snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...coding.workspace.saved import SavedWorkspace, collect, saved_workspace, saved_workspaces
from ...coding.workspace.store import HOME
from ...errors import ConfigurationError
from ...records.codec import Json
from .. import formatting as texts
from ..run_files import keys_text
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
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="N", help="Numbers of iterations; 0 is the start."),
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
        one = _Command(output, saved_workspace(home, name, loop), loop, as_json)
        one.do(action, numbers or [], branch)
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

    def do(self, action: Action, numbers: list[int], branch: str) -> None:
        """Do an action with the numbers of iterations, and write its outcome."""
        one, first = self.one, numbers[0] if numbers else None
        if action in ("list", "show"):
            self._show()
        elif action == "restore":
            commit = one.restore(first, self.loop)
            name = one.name_of(commit)
            text = f"{one.folder} has the files of " + (
                f"{name} ({commit[:12]})" if name else commit[:12]
            )
            self._write(text, folder=str(one.folder), commit=commit)
        elif action == "diff":
            self._diff(numbers)
        elif action == "branch":
            made = one.branch(first, branch or f"loopwright/{one.run}", self.loop)
            self._write(f"branch {made}", branch=made, **self._keys(first))
        elif action == "apply":
            count = one.apply(self._commit(first))
            text = f"{texts.plural(count, 'file')} of {one.source} changed"
            self._write(text, applied=count, **self._keys(first))
        else:
            one.remove()
            freed = _collect(self.output, one.home)
            text = f"deleted {one.folder}" + (f", {_freed(freed)}" if freed else "")
            self._write(text, deleted=str(one.folder), freed_bytes=freed)

    def _commit(self, number: int | None) -> str:
        return self.one.present if number is None else self.one.commit_of(number, self.loop)

    def _keys(self, number: int | None) -> dict[str, Json]:
        """Warn of files that have a key, as the end of a run does; return them as a member of the JSON."""
        paths = self.one.paths_with_keys(self._commit(number))
        if paths:
            self.output.note(f"warning: {keys_text(paths)}")
        return {"secrets": paths} if paths else {}

    def _write(self, text: str, **values: Json) -> None:
        self.output.write_json(values) if self.as_json else self.output.write(text)

    def _diff(self, numbers: list[int]) -> None:
        last = numbers[0] if numbers else max(self.one.snapshots(self.loop))
        before, after = numbers[:2] if len(numbers) > 1 else (0, last)
        patch = self.one.diff(before, after, self.loop)
        self._write(patch.encode("utf-8", "replace").decode().rstrip("\n"), diff=patch)

    def _show(self) -> None:
        one, output = self.one, self.output
        if self.as_json:
            output.write_json(one.to_json())
            return
        paths = [one.loop_of(self.loop)] if self.loop else list(one.loops)
        output.write(_row(one))
        place = "  (in place)" if one.base == one.present else ""
        output.write(f"  start  {one.base[:12]}{place}")
        for path in paths:
            if len(one.loops) > 1:
                output.write(f"  {path}")
            for number, commit in one.loops.get(path, {}).items():
                if number:
                    self._show_iteration(number, commit)
        for commit in one.lost:
            output.write(f"  without a record: {commit[:12]}")

    def _show_iteration(self, number: int, commit: str) -> None:
        store = self.one.tree.store
        changed = store.changes(store.parent_of(commit) or self.one.base, commit)
        added, removed = (sum(pair[i] for pair in changed.values()) for i in (0, 1))
        names = ", ".join(list(changed)[:5]) + (", …" if len(changed) > 5 else "")
        counts = f"files {len(changed)} +{added} -{removed}"
        place = "  (in place)" if commit == self.one.present else ""
        self.output.write(f"  {number}  {commit[:12]}  {counts}  {names}".rstrip() + place)
