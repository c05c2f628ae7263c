"""The files of a recorded run: what each iteration changed, and the difference of two."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .._home import HOME, Home
from ..coding.workspace.saved import ABBREVIATED, SavedWorkspace, home_of, moved, saved_workspaces
from ..coding.workspace.store import GitError, GitStore, checked_home, hash_of
from ..errors import ConfigurationError, EvaluationError
from ..journal import Entry, RunInfo, surviving
from ..records import Evaluation, Iteration
from ..records.codec import Json
from ..records.evaluation import as_evaluation
from ..records.redaction import of_environment
from . import formatting as texts

__all__ = [
    "REPLACED",
    "UNRECORDED",
    "RunFiles",
    "UnrecordedFiles",
    "changes_text",
    "files_text",
    "filtered_text",
    "in_place",
    "keys_text",
    "names_text",
    "protected_text",
    "run_files",
    "turned_tests",
    "uncommitted_text",
    "unrecorded_files",
    "unrecorded_folders",
    "unused_files",
]

MAX_NAMES = 5  # of files in a sentence
UNRECORDED = "workspace not in a recorded state"
# Changes of a step and edits of a person cannot be told apart in such a state.
REPLACED = "resume and files restore replace the files, with edits of yours, and keep them as a state without a record"


def files_text(item: Iteration) -> str:
    """Return the changes of an iteration, such as `files 3 +14 -2`; "" without a workspace."""
    if item.files is None:
        return ""
    return f"files {item.files['files']} +{item.files['added']} -{item.files['removed']}"


def changes_text(changes: Mapping[str, Sequence[int]]) -> str:
    """Return changed paths with the lines added and removed as `files_text` does."""
    added, removed = (sum(pair[i] for pair in changes.values()) for i in (0, 1))
    return f"files {len(changes)} +{added} -{removed}"


def protected_text(item: Iteration) -> str:
    """Return which protected files an iteration changed, such as `protected: tests/t.c`, or ""."""
    tampered = None if item.evaluation is None else item.evaluation.tampered
    if tampered is None or not tampered.paths:
        return ""
    return f"protected: {names_text(tampered.paths)}"


def keys_text(paths: Sequence[str]) -> str:
    """Return a warning for files with a key, or ""."""
    if not paths:
        return ""
    return f"files of the result have a key that they did not have at the start: {', '.join(paths[:5])}"


def filtered_text(paths: Sequence[str]) -> str:
    """Return a warning for files of a branch whose filter did not run."""
    return f"a filter of the repository did not run on {names_text(paths)}"


def uncommitted_text(paths: Sequence[str]) -> str:
    """Return a warning for uncommitted files of the project that a branch has too."""
    return f"the branch has uncommitted files of the project too, which git merge does not replace: {names_text(paths)}"


def names_text(paths: Iterable[str]) -> str:
    """Return the first paths as text, without keys."""
    redactor, names = of_environment(os.environ), list(paths)
    shown = [redactor.text(texts.one_line(name)) for name in names[:MAX_NAMES]]
    return ", ".join([*shown, *(["…"] if len(names) > MAX_NAMES else [])])


@dataclass(frozen=True)
class RunFiles:
    """The snapshots of one loop.

    Args:
        store: the store on this machine.
        base: the commit of the files at its start.
    """

    store: GitStore
    base: str

    def changes(self, item: Iteration) -> dict[str, list[int]]:
        """Return the changed paths of an iteration with the lines added and removed, without keys."""
        commit = self.commit_of(item)
        return self.changes_between(self.store.parent_of(commit) or self.base, commit)

    def changes_between(self, before: str, after: str) -> dict[str, list[int]]:
        """Return the changed paths of two commits with the lines added and removed, without keys."""
        redactor = of_environment(os.environ)
        changes = self.store.changes(before, after)
        return {redactor.text(path): counts for path, counts in changes.items()}

    def diff(self, before: Iteration | None, after: Iteration) -> str:
        """Return the difference of two iterations as a patch; None is the start."""
        first = self.base if before is None else self.commit_of(before)
        return self.store.diff(first, self.commit_of(after)).encode("utf-8", "replace").decode()

    def diff_from_parent(self, item: Iteration) -> str:
        """Return what an iteration changed as a patch for readers, without the content of binary files."""
        commit = self.commit_of(item)
        parent = self.store.parent_of(commit) or self.base
        return self.readable_diff(parent, commit)

    def readable_diff(self, before: str, after: str) -> str:
        """Return the difference of two commits as text, without keys and the content of binary files."""
        words = ("diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv")
        patch = self.store.git(*words, before, after).decode("utf-8", "replace")
        # `diff` has the bytes of the files: its patch is made to be applied, and not only to be read.
        return of_environment(os.environ).text(patch)

    def saved(self, run: str, path: str) -> SavedWorkspace:
        """Return the workspace of a loop on this machine.

        Raises:
            ConfigurationError: if it was deleted.
        """
        around = (
            one
            for one in saved_workspaces(self.store.home, run)
            if f"{path}/".startswith(f"{one.path}/")
        )
        # The loop's own one before that of the workflow around it.
        found = max(around, key=lambda one: len(one.path), default=None)
        if found is None:
            raise ConfigurationError(f"the files of {path} were deleted")
        return found

    def commit_of(self, item: Iteration) -> str:
        """Return the commit of an iteration.

        Raises:
            ConfigurationError: if the store on this machine does not have it.
        """
        commit = str((item.files or {})["commit"])
        if not self.store.has(commit):
            raise ConfigurationError(
                f"the files of iteration {item.number} are not on this machine: {self.store.folder} "
                "does not have them, or they were deleted"
            )
        return commit


def turned_tests(
    before: Iteration | None, after: Iteration, start: Sequence[Entry] = ()
) -> tuple[list[str], list[str]]:
    """Return the tests that an iteration turned green and those that it turned red.

    The first iteration is compared with the evaluation before it, in the entries `start` of iteration 0.
    Both are empty if one of the evaluations does not name its failing tests.
    """
    first = _failing(_baseline(start) if before is None else [before.evaluation])
    second = _failing([after.evaluation])
    if first is None or second is None:
        return [], []
    return sorted(first - second), sorted(second - first)


def _baseline(start: Sequence[Entry]) -> Iterator[Evaluation]:
    """Iterate over the evaluations before the first iteration: several steps may evaluate together."""
    for entry in start:
        if entry.kind == "finished" and entry.error is None:
            with contextlib.suppress(EvaluationError):
                yield as_evaluation(entry.value)


def _failing(evaluations: Iterable[Evaluation | None]) -> set[str] | None:
    """Return the names of the failing tests; None if they are not known."""
    found = [
        one["failing"]
        for evaluation in evaluations
        if evaluation is not None
        for one in evaluation.details.values()
        if isinstance(one, dict) and "failing" in one
    ]
    return {str(name) for names in found for name in names} if found else None


def _begun(entries: Sequence[Entry]) -> list[Json]:
    """Return the recorded beginnings of the workspaces of a run."""
    return [
        entry.value
        for entry in surviving(entries)
        if entry.kind == "finished" and entry.path.endswith("/workspace")
        if isinstance(entry.value, dict) and "home" in entry.value
    ]


def _homes_of(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> list[Path]:
    """Return the known folders `.loopwright` with the files of a run.

    Raises:
        ConfigurationError: if one has contents that are not used.
    """
    homes = {home_of(begun, info.run_id, journal) for begun in _begun(entries)}
    return [checked_home(home).folder for home in sorted(homes) if Home(home).known]


def in_place(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> RunInfo:
    """Return a run with the documents where they are, if its project was moved or copied since it began."""
    if journal is None:
        return info
    begun = _begun(entries)
    homes = {Path(one["home"]) for one in begun if home_of(one, info.run_id, journal) == journal}
    # A run that waits before its first workspace has no recorded folder.
    places = {journal.resolve(), *homes, *Home(journal).places}
    # The innermost first: a copy may be inside its original.
    befores = sorted(places, key=lambda one: len(one.parts), reverse=True)

    def place(name: str) -> str:
        inside = (one for one in befores if Path(name).is_relative_to(one.parent))
        return str(moved(Path(name), next(inside, befores[-1]), journal))

    names, source = ("file", "replies", "root"), info.source
    paths: dict[str, Json] = {one: place(source[one]) for one in names if source.get(one)}
    if documents := source.get("documents"):
        files = {place(name): content for name, content in documents["files"].items()}
        paths["documents"] = {**documents, "files": files}
    return replace(info, source={**source, **paths})


def unused_files(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> str:
    """Return why files of a run on this machine are not used, or ""."""
    try:
        _homes_of(info, entries, journal)
    except ConfigurationError as error:
        return str(error)
    return ""


def _saved_of(
    info: RunInfo, entries: Sequence[Entry], journal: Path | None
) -> list[SavedWorkspace]:
    """Return the workspaces of a run on this machine."""
    with contextlib.suppress(ConfigurationError):
        homes = _homes_of(info, entries, journal)
        return [one for home in homes for one in saved_workspaces(home, info.run_id)]
    return []


@dataclass(frozen=True, slots=True)
class UnrecordedFiles:
    """A workspace whose files, or some earlier ones of it, are in no record.

    Args:
        folder: the workspace.
        present: whether the files in place are in no recorded state, because a process died in a step.
        states: the changed files of each state without a record, by its abbreviated hash.
    """

    folder: Path
    present: bool
    states: dict[str, str]


def unrecorded_files(
    info: RunInfo, entries: Sequence[Entry], journal: Path | None
) -> list[UnrecordedFiles]:
    """Return the workspaces of a run on this machine with files that are in no record."""
    found = []
    for one in _saved_of(info, entries, journal):
        states: dict[str, str] = {}
        # A person may have deleted the store.
        with contextlib.suppress(GitError):
            states = {commit[:ABBREVIATED]: names_text(one.changes(commit)) for commit in one.lost}
        if states or _is_unrecorded(info, one):
            found.append(UnrecordedFiles(one.folder, _is_unrecorded(info, one), states))
    return found


def unrecorded_folders(info: RunInfo, entries: Sequence[Entry], journal: Path | None) -> list[Path]:
    """Return the folders on this machine that a dead process left in the middle of a step."""
    return [one.folder for one in _saved_of(info, entries, journal) if _is_unrecorded(info, one)]


def _is_unrecorded(info: RunInfo, saved: SavedWorkspace) -> bool:
    # The steps of a run in progress are changing the files.
    return saved.busy and not saved.ended and info.status not in ("running", "queued")


def run_files(
    run_id: str, entries: Sequence[Entry], path: str, journal: Path | None
) -> RunFiles | None:
    """Return the snapshots of the loop at a path of a run; None without a workspace.

    Args:
        run_id: the run.
        entries: its entries.
        path: the path of the loop.
        journal: the folder of the journal, or None.

    Raises:
        ConfigurationError: if the folder that the journal names is not one that this user made.
    """
    begun = {
        entry.path.removesuffix("/workspace"): entry.value
        for entry in surviving(entries)
        if entry.kind == "finished" and entry.path.endswith("/workspace") and entry.value
    }
    if path not in begun:
        return None
    # A loop inside another one shares its store.
    around = [value for at, value in begun.items() if "home" in value and path.startswith(at)]
    if not around:
        return None
    home = home_of(around[-1], run_id, journal)
    if not Home(home).known:
        if journal is not None and journal.name == HOME:
            checked_home(
                journal
            )  # of a clone or an archive, which has the files beside its journal
        raise ConfigurationError(
            f"the files of {path} are on another machine, or in a folder that is not known as one of yours: {home}"
        )
    return RunFiles(GitStore(home), hash_of(begun[path]["commit"]))
