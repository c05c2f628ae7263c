"""The workspaces on this machine, without their journals: for the command `loopwright workspace`."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigurationError, nearest
from ...records.codec import Json
from .git import Git, GitError
from .merge import HandOver, applied, make_branch
from .sources import WorkspaceSource
from .store import GitStore, slug_of
from .tree import FileTree

__all__ = ["SavedWorkspace", "saved_workspace", "saved_workspaces", "take_over"]

HEAD = "refs/heads/start"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class SavedWorkspace:
    """The workspace of one loop or run, as it is on disk.

    Args:
        home: the folder of stores and copies.
        run: the ID of the run.
        path: the path of its loop or workflow.
        kind: how it was made.
        folder: its files.
        source: the user's folder.
        base: the commit of the files at the start.
        ended: the status of its loop, or "" while it has none.
        retain: how long it stays after the end.
        used: when it was last used, in seconds since the epoch.
        tree: its files and snapshots.
        busy: whether a step was running when it was last used, so that its files are not in a recorded state.
    """

    home: Path
    run: str
    path: str
    kind: str
    folder: Path
    source: Path
    base: str
    ended: str
    retain: str
    used: float
    tree: FileTree
    busy: bool

    @property
    def snapshots(self) -> dict[int, str]:
        """The commits of its iterations by number; 0 is the start."""
        refs = self.tree.store.refs(self.tree.refs)
        numbers = {int(name): commit for name, commit in refs.items() if name.isdigit()}
        return {0: self.base, **dict(sorted(numbers.items()))}

    @property
    def lost(self) -> list[str]:
        """The commits of states that no record names."""
        return list(self.tree.store.refs(f"{self.tree.refs}lost/").values())

    def commit_of(self, number: int) -> str:
        """Return the commit of an iteration.

        Raises:
            ConfigurationError: naming the iterations that there are.
        """
        known = self.snapshots
        if number not in known:
            raise ConfigurationError(
                f"{self.run}: {self.path} has no snapshot {number}; it has 0 (the start) to {max(known)}"
            )
        return known[number]

    @property
    def present(self) -> str:
        """The commit in place."""
        return str(self.tree.memory["commit"])

    def restore(self, number: int | None) -> str:
        """Put an iteration in place, by default the recorded state; the present files are kept. Return its commit."""
        self.tree.lock()
        try:
            commit = self.present if number is None else self.commit_of(number)
            self.tree.restore(commit)
            self.tree.remember(busy=False)
        finally:
            self.tree.unlock()
        return commit

    def diff(self, before: int, after: int) -> str:
        """Return the difference of two iterations as a patch."""
        return self.tree.store.diff(self.commit_of(before), self.commit_of(after))

    def branch(self, number: int | None, name: str) -> str:
        """Make a branch in the user's repository, by default of the files in place; return its name."""
        commit = self.present if number is None else self.commit_of(number)
        end = "the end" if number is None else f"iteration {number}"
        return self.branch_of(commit, f"{self.path}: files of {end}", name)

    def branch_of(self, commit: str, title: str, name: str = "") -> str:
        """Make a branch of a snapshot in the user's repository; return its name.

        Args:
            commit: the snapshot.
            title: the first line of the message.
            name: the name of the branch. Default: `loopwright/` and the ID of the run.

        Raises:
            ConfigurationError: if the folder is not a repository, or the name is not one of a branch.
        """
        source = WorkspaceSource.of(self.source)
        if not source.git:
            raise ConfigurationError(
                f"{self.source} is not a git repository; use loopwright workspace diff for a patch"
            )
        wanted = name or f"loopwright/{slug_of(self.run)}"
        words = ("check-ref-format", "--branch", wanted)
        if wanted.startswith("-") or Git(cwd=self.home).run(*words, ok=(0, 128)).returncode:
            raise ConfigurationError(f"{wanted!r} is not a name for a branch")
        return make_branch(self.tree.store, source, self._hand_over(commit, title), wanted)

    def apply(self, commit: str) -> int:
        """Change the user's files by what a snapshot changed, three ways; return the number of files.

        Raises:
            ConfigurationError: if a file was changed on both sides; then nothing was changed.
        """
        if self.kind == "here":
            raise ConfigurationError(f"{self.folder} is your folder: the files are there already")
        root = WorkspaceSource.of(self.source).root
        user = FileTree(
            self.tree.store,
            root,
            self.tree.private / "source",
            f"{self.tree.refs}source/",
            max_file=self.tree.max_file,
        )
        outcome = applied(user, self._hand_over(commit, "applied"))
        if names := outcome.get("conflicts"):
            raise ConfigurationError(
                f"nothing was changed: you and the run both changed {', '.join(names[:5])}; make a branch, and merge it"
            )
        return int(outcome["applied"])

    def _hand_over(self, commit: str, title: str) -> HandOver:
        message = f"{title}\n\nLoopwright-Run: {self.run}\n"
        return HandOver(self.base, commit, message, self.tree.memory.get("submodules", {}))

    def bundle(self) -> bytes:
        """Return the start and the snapshots of all iterations as a bundle, with a branch for each."""
        store, git = self.tree.store, Git(cwd=self.home)
        with tempfile.TemporaryDirectory(prefix="loopwright-") as scratch:
            folder = Path(scratch) / "bundle.git"
            # A repository of its own, whose branches have short names, with the objects of the store.
            git("init", "--quiet", "--bare", "--", str(folder))
            (folder / "objects" / "info" / "alternates").write_text(f"{store.folder / 'objects'}\n")
            inner = Git(folder, cwd=folder)
            for number, commit in self.snapshots.items():
                inner("update-ref", f"refs/heads/iteration-{number}" if number else HEAD, commit)
            inner("symbolic-ref", "HEAD", HEAD)
            file = Path(scratch) / "files.bundle"
            words = ("bundle", "create", "--quiet", str(file), "HEAD", "--branches")
            inner(*words)
            return file.read_bytes()

    @property
    def expired(self) -> bool:
        """Whether its time after the end is over."""
        kept = int(self.retain[:-1]) * _SECONDS[self.retain[-1]]
        return bool(self.ended) and time.time() - self.used > kept

    def remove(self) -> None:
        """Delete its folder and its snapshots."""
        # A running loop must not lose its folder; the lock raises while it runs.
        self.tree.lock()
        if self.kind == "worktree":
            words = ("worktree", "remove", "--force", "--", str(self.folder))
            Git(cwd=self.source)(*words, ok=(0, 128))
        # With `here` the folder is the user's own.
        if self.kind != "here":
            shutil.rmtree(self.folder, ignore_errors=True)
        store = self.tree.store
        for name in store.refs(self.tree.refs):
            store.git("update-ref", "-d", self.tree.refs + name)
        self.tree.unlock()
        # Last, so that an interrupted removal is listed and can be repeated.
        shutil.rmtree(self.tree.private, ignore_errors=True)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "run_id": self.run,
            "path": self.path,
            "kind": self.kind,
            "folder": str(self.folder),
            "source": str(self.source),
            "status": self.ended,
            "recorded": not self.busy,
            "snapshots": {str(number): commit for number, commit in self.snapshots.items()},
            "lost": self.lost,
        }


def saved_workspaces(home: Path, run: str = "") -> Iterator[SavedWorkspace]:
    """Iterate over the workspaces below a folder `.loopwright`, by run; or over those of one run."""
    home = home.expanduser().resolve()
    store = GitStore(home)
    name = slug_of(run) if run else "*"
    for file in sorted(home.glob(f"trees/{name}/.state/*/state.json")):
        known = json.loads(file.read_text())
        if "run" not in known:
            continue  # it was not made completely
        private = file.parent
        folder = Path(known["folder"])
        refs = f"refs/runs/{private.parent.parent.name}/{private.name}/"
        yield SavedWorkspace(
            home=home,
            run=known["run"],
            path=known["path"],
            kind=known["kind"],
            folder=folder,
            source=Path(known["source"]),
            base=known["base"],
            ended=known.get("ended", ""),
            retain=known["retain"],
            used=file.stat().st_mtime,
            tree=FileTree(store, folder, private, refs, max_file=known["max_file"]),
            busy=bool(known.get("busy")),
        )


def saved_workspace(home: Path, run: str, loop: str = "") -> SavedWorkspace:
    """Return the workspace of a run, by its ID or the beginning of it.

    Raises:
        ConfigurationError: if there is none, or several.
    """
    everything = list(saved_workspaces(home))
    found = [one for one in everything if one.run.startswith(run)]
    if loop:
        found = [one for one in found if loop in (one.path, one.path.rsplit("/", 1)[-1])]
    if not found:
        hint = nearest(run, {one.run for one in everything})
        raise ConfigurationError(f"{run}: there is no workspace of this run in {home}{hint}")
    if len(found) > 1:
        names = ", ".join(f"{one.run} {one.path}" for one in found[:5])
        raise ConfigurationError(f"{run}: there are several workspaces; use --loop: {names}")
    return found[0]


def take_over(tree: FileTree, begun: Json) -> None:
    """Give a new tree the rules and the snapshots of the one that another run began.

    Args:
        tree: the tree of the new run.
        begun: the recorded beginning of the other run.

    Raises:
        GitError: if the files of the other run were deleted.
    """
    trees = saved_workspaces(tree.store.home)
    same = (
        one for one in trees if one.base == begun["commit"] and str(one.folder) == begun["folder"]
    )
    other = next(same, None)
    if other is None:
        raise GitError(
            f"workspace: the files of this run were deleted from {begun['folder']}; start a new run"
        )
    tree.private.mkdir(parents=True, exist_ok=True)
    for name in ("rules", "always"):
        shutil.copy(other.tree.private / name, tree.private / name)
    # Its own refs: the other run may be deleted, and a finished step is found by its ref.
    for name, commit in tree.store.refs(other.tree.refs).items():
        if not name.startswith(("lost/", "source/")):
            tree.store.point(tree.refs + name, commit)
