"""The workspaces on this machine, without their journals: for the commands `loopwright files`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..._home import HOME, Home
from ..._platform import take_lock, temporary_folder
from ...errors import ConfigurationError, nearest
from ...records.codec import Json
from ...records.redaction import Redactor, secrets_in
from .handover import Branch, HandOver, applied, make_branch, paths_with_secrets
from .store import PUT_BACK, Git, GitStore, is_branch_name, slug_of
from .tree import FileTree, WorkspaceSource

__all__ = [
    "ABBREVIATED",
    "SavedWorkspace",
    "collect",
    "home_of",
    "moved",
    "saved_workspace",
    "saved_workspaces",
]

HEAD = "refs/heads/start"
LATEST = "last"  # names the latest run on the command line
ABBREVIATED = 12  # characters of a hash that is shown
SHORTEST = 4  # characters of an abbreviated hash, as in git
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

    @functools.cached_property
    def loops(self) -> dict[str, dict[int, str]]:
        """The commits of the iterations of each loop that ran in it, by its path and the number; 0 is the start."""
        rows = self.tree.store.captures(self.tree.refs)
        # The files that count are those without the agent's changes of protected files.
        put_back = {row.parent: row.commit for row in rows if row.name == PUT_BACK}
        named = {row.name: put_back.get(row.commit, row.commit) for row in rows}
        found: dict[str, dict[int, str]] = {}
        for name, commit in named.items():
            path, _, number = name.rpartition("/")
            if path and number.isdigit():
                start = named.get(f"{path}/workspace", self.base)
                found.setdefault(path, {0: start})[int(number)] = commit
        return {path: dict(sorted(found[path].items())) for path in sorted(found)}

    @property
    def outermost(self) -> list[str]:
        """The paths of the loops that are inside no other one."""
        depths = {path: path.count("/") for path in self.loops}
        return [path for path in depths if depths[path] == min(depths.values())]

    def loop_of(self, name: str = "") -> str:
        """Return the path of a loop by its path or name; by default that of the outermost loop.

        Raises:
            ConfigurationError: if there is none of this name, or several are outermost.
        """
        if name and (found := [path for path in self.loops if _has_name(path, name)]):
            return found[-1]
        if name and not _has_name(self.path, name):
            hint = nearest(name, [path.rpartition("/")[2] for path in self.loops])
            raise ConfigurationError(f"--loop: there is no loop {name!r} in {self.run}{hint}")
        if len(self.outermost) > 1:
            names = ", ".join(path.rpartition("/")[2] for path in self.outermost[:5])
            raise ConfigurationError(f"{self.run}: there are several loops; use --loop: {names}")
        return self.outermost[0] if self.outermost else self.path

    def snapshots(self, loop: str = "") -> dict[int, str]:
        """Return the commits of the iterations of a loop by number; 0 is the start."""
        return self.loops.get(self.loop_of(loop), {0: self.base})

    @property
    def begun(self) -> float:
        """When it was made, in seconds since the epoch."""
        # The lock is made with it, and never written.
        return (self.tree.private / "lock").stat().st_mtime

    @property
    def lost(self) -> list[str]:
        """The commits of states that no record names."""
        return list(self.tree.store.refs(f"{self.tree.refs}lost/").values())

    def commit_of(self, snapshot: int | str, loop: str = "") -> str:
        """Return the commit of a snapshot.

        Args:
            snapshot: the number of an iteration, 0 for the start, or the beginning of a hash.
            loop: the loop whose iteration it is.

        Raises:
            ConfigurationError: naming the snapshots that there are.
        """
        text = str(snapshot)
        number = int(text) if text.isascii() and text.isdigit() else None
        if number == 0 and not loop and len(self.outermost) > 1:
            return self.base
        # A hash is one of any loop, so it needs none.
        if number is None and (commit := self._by_hash(text)):
            return commit
        known = self.snapshots(loop)
        if number in known:
            return known[number]
        # The beginning of a hash may have digits only.
        if commit := self._by_hash(text):
            return commit
        hint = ""
        # The hashes that a text may mean; a short number is none.
        if not text.isdigit() or len(text) >= SHORTEST:
            hashes = [commit[:ABBREVIATED] for commit in self._commits]
            names = ", ".join(hashes[:5]) + (", …" if len(hashes) > 5 else "")
            hint = nearest(text[:ABBREVIATED].lower(), hashes) or f", with the hashes {names}"
        raise ConfigurationError(
            f"{self.run}: {self.loop_of(loop)} has no snapshot {text}; it has 0 (the start) to {max(known)}"
            + hint
        )

    def _by_hash(self, text: str) -> str:
        """Return the commit whose hash begins with a text, or "".

        Raises:
            ConfigurationError: if several do.
        """
        if len(text) < SHORTEST:
            return ""
        found = [commit for commit in self._commits if commit.startswith(text.lower())]
        if len(found) > 1:
            names = ", ".join(commit[:ABBREVIATED] for commit in found[:5])
            raise ConfigurationError(f"{self.run}: several snapshots begin like {text}: {names}")
        return found[0] if found else ""

    @property
    def _commits(self) -> list[str]:
        """The commits that have a number, or no record."""
        numbered = (commit for one in self.loops.values() for commit in one.values())
        return list(dict.fromkeys([self.base, *numbered, *self.lost]))

    def changes(self, commit: str) -> dict[str, list[int]]:
        """Return the paths that a snapshot changed since the one before it, with lines added and removed."""
        store = self.tree.store
        return store.changes(store.parent_of(commit) or self.base, commit)

    @property
    def present(self) -> str:
        """The commit in place."""
        return str(self.tree.memory["commit"])

    @property
    def recorded(self) -> str:
        """The commit of the result at the end of the loop or run; before the end, the one in place."""
        if not self.ended:
            return self.present
        # Restoring an iteration changes the files in place, and not the recorded end.
        return str(self.tree.memory.get("result") or self.present)

    def name_of(self, commit: str) -> str:
        """Return a commit in words, such as `the start` or `iteration 2`, or ""."""
        if commit == self.base:
            return "the start"
        if commit in self.lost:
            return "a state without a record"
        places = [
            (path, number)
            for path, snapshots in self.loops.items()
            for number, one in snapshots.items()
            if number and one == commit
        ]
        if not places:
            return ""
        path, number = places[0]
        return f"iteration {number}" + (f" of {path}" if len(self.loops) > 1 else "")

    def restore(self, snapshot: int | str | None, loop: str = "") -> str:
        """Put a snapshot in place, by default the recorded result; the present files are kept. Return its commit."""
        self.tree.lock()
        try:
            commit = self.recorded if snapshot is None else self.commit_of(snapshot, loop)
            self.tree.restore(commit)
            self.tree.remember(busy=False)
        finally:
            self.tree.unlock()
        return commit

    def diff(self, before: int | str, after: int | str, loop: str = "") -> str:
        """Return the difference of two snapshots as a patch."""
        return self.tree.store.diff(self.commit_of(before, loop), self.commit_of(after, loop))

    def branch(self, snapshot: int | str | None, name: str, loop: str = "") -> Branch:
        """Make a branch in the user's repository, by default of the files in place."""
        if snapshot is None:
            return self.branch_of(self.present, f"{self.path}: files of the end", name)
        commit = self.commit_of(snapshot, loop)
        title = self.name_of(commit) or commit[:ABBREVIATED]
        return self.branch_of(commit, f"{self.path}: files of {title}", name)

    def branch_of(self, commit: str, title: str, name: str = "") -> Branch:
        """Make a branch of a snapshot in the user's repository.

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
                f"{self.source} is not a git repository; use loopwright files diff for a patch"
            )
        wanted = name or f"loopwright/{slug_of(self.run)}"
        if not is_branch_name(wanted):
            raise ConfigurationError(f"{wanted!r} is not a name for a branch")
        return make_branch(self.tree.store, source, self._hand_over(commit, title), wanted)

    def paths_with_keys(self, commit: str) -> list[str]:
        """Return the files of a snapshot that have a key that they did not have at the start."""
        redactor = Redactor(secrets_in(os.environ))
        return paths_with_secrets(self.tree.store, self.base, commit, redactor)

    @property
    def project(self) -> Path:
        """The folder of the user that `apply` changes: that of the repository, if there is one."""
        return WorkspaceSource.of(self.source).root

    def apply(self, commit: str, *, write: bool = True) -> list[str]:
        """Change the user's files by what a snapshot changed, three ways; return the paths.

        Args:
            commit: the snapshot.
            write: false to change nothing, and only return the paths that would change.

        Raises:
            ConfigurationError: if a file was changed on both sides; then nothing was changed.
        """
        if self.kind == "here":
            raise ConfigurationError(f"{self.folder} is your folder: the files are there already")
        user = FileTree(
            self.tree.store,
            self.project,
            self.tree.private / "source",
            f"{self.tree.refs}source/",
            max_file=self.tree.max_file,
        )
        changed, conflicts = applied(user, self._hand_over(commit, "applied"), write=write)
        if conflicts:
            raise ConfigurationError(
                f"nothing was changed: you and the run both changed {', '.join(conflicts[:5])}; make a branch, and merge it"
            )
        return changed

    def _hand_over(self, commit: str, title: str) -> HandOver:
        message, known = f"{title}\n\nLoopwright-Run: {self.run}\n", self.tree.memory
        return HandOver(
            self.base, commit, message,
            head=known.get("head", ""), stored=known.get("stored", ""),
            filtered=tuple(known.get("filtered", ())), submodules=known.get("submodules", {}),
        )  # fmt: skip

    def bundle(self, loop: str) -> bytes:
        """Return the start and the snapshots of the iterations of a loop as a bundle, with a branch for each."""
        store, git = self.tree.store, Git(cwd=self.home)
        with temporary_folder("bundle") as scratch:
            folder = scratch / "bundle.git"
            # A repository of its own, whose branches have short names, with the objects of the store.
            git("init", "--quiet", "--bare", "--", str(folder))
            (folder / "objects" / "info" / "alternates").write_text(f"{store.folder / 'objects'}\n")
            inner = Git(folder, cwd=folder)
            for number, commit in self.snapshots(loop).items():
                inner("update-ref", f"refs/heads/iteration-{number}" if number else HEAD, commit)
            inner("symbolic-ref", "HEAD", HEAD)
            file = scratch / "files.bundle"
            inner("bundle", "create", "--quiet", str(file), "HEAD", "--branches")
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
        for empty in (self.tree.private.parent, self.tree.private.parent.parent):
            with contextlib.suppress(OSError):
                empty.rmdir()

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""

        def by_text(snapshots: dict[int, str]) -> dict[str, Json]:
            return {str(number): commit for number, commit in snapshots.items()}

        default = self.snapshots() if len(self.outermost) < 2 else {0: self.base}
        return {
            "run_id": self.run,
            "path": self.path,
            "kind": self.kind,
            "folder": str(self.folder),
            "source": str(self.source),
            "status": self.ended,
            "recorded": not self.busy,
            "snapshots": by_text(default),
            "loops": {path: by_text(snapshots) for path, snapshots in self.loops.items()},
            "lost": self.lost,
        }


def collect(home: Path) -> int | None:
    """Delete the snapshots of deleted workspaces; return the bytes freed, or None while a run works there."""
    store = GitStore(home)
    home = store.home
    if not (store.folder / "complete").exists():
        return 0
    with store.locked(), contextlib.ExitStack() as stack:
        for file in home.glob("trees/*/.state/*/lock"):
            lock = stack.enter_context(file.open("r+"))
            if not take_lock(lock.fileno()):
                return None
        return store.collect()


def saved_workspaces(home: Path, run: str = "") -> Iterator[SavedWorkspace]:
    """Iterate over the workspaces below a folder `.loopwright`, by run; or over those of one run."""
    store = GitStore(home)
    home = store.home
    name = slug_of(run) if run else "*"
    for file in sorted(home.glob(f"trees/{name}/.state/*/state.json")):
        known = json.loads(file.read_text())
        if "run" not in known:
            continue  # it was not made completely
        private, folder = file.parent, Path(known["folder"])
        here = known["kind"] == "here"
        # Without a name in records of a former version: a tree is HOME/trees/RUN/LOOP.
        before = Path(known.get("home") or (home if here else folder.parents[2]))
        trees = private.parent.parent
        folder = moved(folder, before, home) if here else trees / private.name
        refs = f"refs/runs/{private.parent.parent.name}/{private.name}/"
        yield SavedWorkspace(
            home=home,
            run=known["run"],
            path=known["path"],
            kind=known["kind"],
            folder=folder,
            source=moved(Path(known["source"]), before, home),
            base=known["base"],
            ended=known.get("ended", ""),
            retain=known["retain"],
            used=file.stat().st_mtime,
            tree=FileTree(store, folder, private, refs, max_file=known["max_file"]),
            busy=bool(known.get("busy")),
        )


def home_of(begun: Json, run_id: str, journal: Path | None) -> Path:
    """Return the folder `.loopwright` with the files of a run: after a move or a copy, that of its journal.

    Args:
        begun: the recorded beginning.
        run_id: the run.
        journal: the folder of the journal, or None.
    """
    recorded = Home(Path(begun["home"]))
    if journal is None or not (own := Home(journal)).known:
        return recorded.folder
    # The recorded folder may be the original of a copy, or one that was made later in its place.
    if not recorded.known or own.is_copy_of(recorded) or any(saved_workspaces(journal, run_id)):
        return own.folder
    return recorded.folder


def moved(place: Path, before: Path, home: Path) -> Path:
    """Return where a recorded place is, if the project was moved or copied with its folder `.loopwright`.

    Args:
        place: a place in the project, or above it in its repository; others stay where they are.
        before: the folder `.loopwright` at that time.
        home: the folder now.
    """
    before, after = before.resolve(), home.resolve()
    if not (place.is_relative_to(before.parent) or before.is_relative_to(place)):
        return place
    # The folder that was moved is the last one whose name, or place, is another one.
    while before != after and before.name == after.name:
        before, after = before.parent, after.parent
    return after / place.relative_to(before) if place.is_relative_to(before) else place


def saved_workspace(home: Path, run: str, loop: str = "") -> SavedWorkspace:
    """Return the workspace of a run, by its ID, the beginning of it, or `last`.

    Args:
        home: the folder of stores and copies.
        run: the run; `last` is the one whose workspace was made last.
        loop: the path or name of the loop that has the workspace, or of one inside it.

    Raises:
        ConfigurationError: if there is none, or several.
    """
    everything = list(saved_workspaces(home))
    if run == LATEST and everything:
        run = max(everything, key=lambda one: one.begun).run
    # The complete ID of a run may be the beginning of another one.
    found = [one for one in everything if one.run == run]
    found = found or [one for one in everything if one.run.startswith(run)]
    if not found:
        # The name of another run would be a guess: this one may have no workspace, or have it elsewhere.
        raise ConfigurationError(
            f"{run}: there is no workspace of this run in {home}; list its workspaces with: loopwright files list. "
            f"If the files are in another folder, name it with --home DIR/{HOME}"
        )
    if len({one.run for one in found}) > 1:
        names = ", ".join(sorted({one.run for one in found})[:5])
        raise ConfigurationError(f"{run}: several runs begin like this: {names}")
    if loop:
        own = [one for one in found if _has_name(one.path, loop)]
        around = (one for one in found if any(_has_name(path, loop) for path in one.loops))
        # Without a match, the first one names the loops that there are.
        found = own or list(around) or found[:1]
    if len(found) > 1:
        names = ", ".join(one.path for one in found[:5])
        raise ConfigurationError(f"{run}: there are several workspaces; use --loop: {names}")
    return found[0]


def _has_name(path: str, name: str) -> bool:
    """Return whether a path is that of a loop by its path or its name."""
    return name in (path, path.rpartition("/")[2])
