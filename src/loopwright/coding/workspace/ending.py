"""The end of a workspace: the chosen snapshot becomes a branch, a patch, or changes in the user's folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ...records import Iteration, Result, Status
from ...records.codec import Json
from ...records.display import idea_of
from ...records.redaction import Redactor
from .merge import HandOver, applied, make_branch, write_patch
from .secrets import paths_with_secrets, without_changes
from .sources import WorkspaceSource
from .store import slug_of
from .tree import FileTree

__all__ = ["handed_over"]


class HandOverOptions(Protocol):
    """The options of a workspace that decide how its files are handed over; `Workspace` explains them."""

    @property
    def branch(self) -> str: ...

    @property
    def commits(self) -> str: ...

    @property
    def secrets(self) -> str: ...


class EndedFiles(Protocol):
    """The members of a workspace that the hand-over uses; `workspace.Files` explains them."""

    # A protocol, because `workspace` imports this module.

    run_id: str
    path: str
    slug: str
    base: str
    head: str
    stored: str
    filtered: list[str]
    submodules: dict[str, str]
    redactor: Redactor | None

    @property
    def settings(self) -> HandOverOptions: ...

    @property
    def tree(self) -> FileTree: ...

    @property
    def place(self) -> WorkspaceSource: ...

    @property
    def merge(self) -> str: ...

    def user_tree(self) -> FileTree:
        """Return the user's folder, to capture it."""


def handed_over(files: EndedFiles, result: Result, snapshot: Json) -> dict[str, Json]:
    """Hand over a snapshot; return the branch, patch or conflicts, and the files that have a key.

    Args:
        files: the workspace.
        result: the result of its loop or workflow.
        snapshot: the chosen snapshot, with its iteration.
    """
    store, base, commit = files.tree.store, files.base, snapshot["commit"]
    # A failed or cancelled run keeps its snapshots, but hands nothing over.
    ended = result.status in (Status.SATISFIED, Status.EXHAUSTED, Status.IMPOSSIBLE)
    if files.merge == "none" or not ended or store.tree_of(base) == snapshot["tree"]:
        return {}
    found = paths_with_secrets(store, base, commit, files.redactor)
    work = _described(files, result, snapshot)
    if found and files.settings.secrets == "drop":
        # One commit: those of the iterations have the key too.
        work = replace(work, commit=without_changes(store, base, commit, found), chain=())
    return {**_made(files, result, work), **({"secrets": found} if found else {})}


def _made(files: EndedFiles, result: Result, work: HandOver) -> dict[str, Json]:
    """Make the branch or the patch, or change the user's files."""
    store, run = files.tree.store, slug_of(files.run_id)
    if files.merge == "branch":
        made = make_branch(store, files.place, work, files.settings.branch.replace("{run}", run))
        filtered = {"filtered": made.filtered} if made.filtered else {}
        return {"branch": made.name, **filtered}
    patch = store.home / "patches" / f"{run}-{files.slug}.patch"
    outcome: dict[str, Json] = {}
    # Only a satisfied result may change the user's files; another one becomes a patch.
    if files.merge == "apply" and result.status is Status.SATISFIED:
        changed, conflicts = applied(files.user_tree(), work)
        if not conflicts:
            return {"applied": len(changed)}
        outcome = {"conflicts": conflicts}
    write_patch(store, work, patch)
    return {**outcome, "patch": str(patch)}


def _described(files: EndedFiles, result: Result, snapshot: Json) -> HandOver:
    """Return the description of a snapshot for a branch or a patch."""
    chain: tuple[tuple[str, str], ...] = ()
    if files.settings.commits == "iterations":
        span = f"{files.base}..{snapshot['commit']}"
        git = files.tree.store.git
        commits = git.text("rev-list", "--reverse", "--first-parent", span).split()
        items = {item.files["commit"]: item for item in _iterations(result) if item.files}
        chain = tuple((commit, _message_of(files, commit, items.get(commit))) for commit in commits)
    message = _message(files, result, snapshot)
    commit = snapshot["commit"]
    return HandOver(
        files.base, commit, message,
        head=files.head, stored=files.stored, filtered=tuple(files.filtered), submodules=files.submodules, chain=chain,
    )  # fmt: skip


def _message(files: EndedFiles, result: Result, snapshot: Json) -> str:
    """Return the message of the commit, with the run as trailers."""
    number, history = snapshot.get("iteration", 0), result.history
    chosen = next((item for item in history if item.number == number), None)
    if not number:
        # Of the workspace of a document: the iteration of a loop whose files are there at the end.
        same = [
            item
            for item in _iterations(result)
            if (item.files or {}).get("tree") == snapshot["tree"]
        ]
        chosen = same[-1] if same else None
        loops = (one.history for one in result.loops.values())
        history = next((one for one in loops if any(item is chosen for item in one)), history)
    title = f"{result.name or files.path}: {result.status.value}"
    trailers = [f"Loopwright-Run: {files.run_id}"]
    if chosen is not None:
        title += f" in iteration {chosen.number} of {len(history)}"
        trailers.append(f"Loopwright-Iteration: {chosen.number}")
        trailers += _rating(chosen)
    return "\n".join([title, "", *trailers, ""])


def _iterations(result: Result) -> list[Iteration]:
    """Return the iterations of a result and of its loops."""
    inner = (item for one in result.loops.values() for item in one.history)
    return [*result.history, *inner]


def _message_of(files: EndedFiles, commit: str, item: Iteration | None) -> str:
    """Return the message for the commit of one iteration, or of an edit from outside."""
    trailers = [f"Loopwright-Run: {files.run_id}"]
    if item is None:
        title = files.tree.store.git.text("show", "-s", "--format=%s", commit)
        return "\n".join([title, "", *trailers, ""])
    title = idea_of(item) if item.accepted is not None else ""
    trailers.append(f"Loopwright-Iteration: {item.number}")
    trailers += _rating(item)
    return "\n".join([title or f"{files.path}: iteration {item.number}", "", *trailers, ""])


def _rating(item: Iteration) -> list[str]:
    """Return the trailers with the objective or the score of an iteration."""
    if item.objective is not None:
        return [f"Loopwright-Metric: {item.objective.name} {item.objective.text}"]
    return [] if item.score is None else [f"Loopwright-Score: {item.score:g}"]
