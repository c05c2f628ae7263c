"""The declaration of a workspace, and the workspace of one run, also of a run that continues another one."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..._home import HOME, Home
from ..._platform import remove_left_scratch
from ...engine.files import Edits, LoopState, StateRun
from ...engine.functions import digest_of
from ...engine.loop_options import one_of
from ...errors import ConfigurationError
from ...journal import FileStore
from ...records import Result
from ...records.codec import Json
from ...records.redaction import Redactor
from ...tools.process import run_command
from .handover import committed_tree, handed_over, stored_start
from .saved import SavedWorkspace, home_of, saved_workspaces
from .store import Git, GitError, GitStore, is_branch_name, problem_with_git, slug_of
from .tree import FileTree, WorkspaceSource, keep_index, make_copy, make_worktree, prepare

__all__ = [
    "Files",
    "Workspace",
    "bytes_of",
    "origin_of",
    "take_over",
]


def origin_of(home: Path, begun: Json, run_id: str) -> SavedWorkspace | None:
    """Return the workspace in a store that has the recorded beginning: that of the run, or of another one."""
    same = [one for one in saved_workspaces(home) if one.tree.memory["source"] == begun["source"]]
    own = (one for one in same if one.run == run_id)
    other = (one for one in same if one.base == begun["commit"])
    return next(own, None) or next(other, None)


def take_over(tree: FileTree, begun: Json, origin: str = "") -> None:
    """Give a new tree the rules and the snapshots of the one that another run began.

    Args:
        tree: the tree of the new run.
        begun: the recorded beginning of the first run, whose entries each fork has.
        origin: the run that was forked. It may be a fork itself, with snapshots that the first run lacks.

    Raises:
        GitError: if the files of the other run were deleted.
    """
    same = [one for one in saved_workspaces(tree.store.home) if one.base == begun["commit"]]
    # The path of a loop is the same in all of them, and so is the name of its folder.
    forked = (one for one in same if one.run == origin and one.folder.name == tree.folder.name)
    first = (one for one in same if one.tree.memory["folder"] == begun["folder"])
    other = next(forked, None) or next(first, None)
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


KINDS = ("copy", "worktree", "snapshot", "here")
MERGES = ("branch", "patch", "apply", "none")
SETUP_TIMEOUT = 1800.0  # seconds of a setup command
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(KB|MB|GB|)", re.IGNORECASE)
_AGE = re.compile(r"([0-9]+)([smhd])")


def bytes_of(size: int | str) -> int:
    """Return a size such as `100 MB` in bytes."""
    found = _SIZE.fullmatch(str(size).strip())
    if found is None:
        raise ConfigurationError(
            f"workspace: max_file: {size!r} is not a size; use bytes, or text such as 100 MB"
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])


@dataclass(frozen=True)
class Workspace:
    """The folder in which the commands of a loop run, separate from yours.

    After each `execute` its files are captured, and they are put back before an iteration that continues
    from another one. A loop that ends leaves the files of its output in place: those that satisfied it,
    else the best.

    Args:
        path: the folder that is copied. Default: the current one.
        kind: `copy` is a clone; `worktree` one that `git worktree list` shows; `snapshot` a folder without git;
            `here` the folder itself. Default: `copy`, and `snapshot` if the folder is no repository.
        dirty: uncommitted changes are copied (`include`), an error (`refuse`), or left out (`leave`).
        history: `full`, or `base`: one commit without the history of the repository.
        include: patterns of files that are captured although they are ignored.
        exclude: patterns, as in `.gitignore`, of files that are never captured.
        max_file: the size of the largest file that is captured, in bytes or as text.
        setup: a command, as words or a script, that prepares each new copy. Default: none.
        reset: a command, as words or a script, that puts a database or a service into the state of the files.
            It runs in the folder whenever files were put in place for an iteration. Default: none.
        link: folders of yours that the copy contains as links, such as `node_modules`.
        on_cancel: the files of a cancelled loop: those of the `best` iteration, or `leave` them as they are.
        merge: a loop that ends satisfied, exhausted or impossible makes a `branch` in your repository or
            writes a `patch`; `apply` changes your files, if the loop is satisfied; `none` does nothing.
            Default: `branch`, without git `patch`, and `none` for `here`.
        branch: the name of the branch; `{run}` is the ID of the run. Default: `loopwright/{run}`.
        commits: `squash` makes one commit, `iterations` one for each iteration that led to the result.
        secrets: a file that the loop changed and that has a key is handed over with a warning (`warn`), or
            left out (`drop`).
        retain: how long the folder stays after the end, such as `7d`, for `loopwright files prune`.
        home: the folder of stores and copies. Default: `.loopwright` in the current folder.

    Raises:
        ConfigurationError: for an invalid option.
        StepError: at run time, of kind `workspace`: no git, or a folder that cannot be copied.

    Example:
        >>> from loopwright import Loop, Workspace, shell
        >>> loop = Loop(
        ...     shell("echo fixed > bug.txt"),
        ...     evaluate=shell(["grep", "-q", "fixed", "bug.txt"], output="result"),
        ...     workspace=Workspace(".", merge="none"),
        ... )
        >>> loop.workspace.kind
        'copy'
    """

    path: str | Path = "."
    kind: Literal["copy", "worktree", "snapshot", "here"] = "copy"
    dirty: Literal["include", "refuse", "leave"] = field(default="include", kw_only=True)
    history: Literal["full", "base"] = field(default="full", kw_only=True)
    include: Sequence[str] = field(default=(), kw_only=True)
    exclude: Sequence[str] = field(default=(), kw_only=True)
    max_file: int | str = field(default="100 MB", kw_only=True)
    setup: Sequence[str] | str = field(default=(), kw_only=True)
    reset: Sequence[str] | str = field(default=(), kw_only=True)
    link: Sequence[str] = field(default=(), kw_only=True)
    on_cancel: Literal["best", "leave"] = field(default="best", kw_only=True)
    merge: Literal["", "branch", "patch", "apply", "none"] = field(default="", kw_only=True)
    branch: str = field(default="loopwright/{run}", kw_only=True)
    commits: Literal["squash", "iterations"] = field(default="squash", kw_only=True)
    secrets: Literal["warn", "drop"] = field(default="warn", kw_only=True)
    retain: str = field(default="7d", kw_only=True)
    home: str | Path = field(default=HOME, kw_only=True)

    def __post_init__(self) -> None:
        one_of("workspace: kind", self.kind, KINDS)
        one_of("workspace: dirty", self.dirty, ("include", "refuse", "leave"))
        one_of("workspace: history", self.history, ("full", "base"))
        one_of("workspace: on_cancel", self.on_cancel, ("best", "leave"))
        one_of("workspace: merge", self.merge, ("", *MERGES))
        one_of("workspace: commits", self.commits, ("squash", "iterations"))
        one_of("workspace: secrets", self.secrets, ("warn", "drop"))
        bytes_of(self.max_file)
        if not _AGE.fullmatch(self.retain):
            raise ConfigurationError(
                f"workspace: retain: {self.retain!r} is not a duration; use text such as 7d or 12h"
            )
        # At the end of a run, an invalid name would lose the branch after all the work.
        if not is_branch_name(self.branch.replace("{run}", "run")):
            raise ConfigurationError(
                f"workspace: branch: {self.branch!r} is not a name for a branch"
            )
        for name in ("include", "exclude", "link"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ConfigurationError(f"workspace: {name}: use a list, such as [{value!r}]")
            object.__setattr__(self, name, tuple(value))
        for name in ("setup", "reset"):
            if not isinstance(getattr(self, name), str):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for link in self.link:
            if Path(link).is_absolute() or ".." in Path(link).parts:
                raise ConfigurationError(
                    f"workspace: link: {link!r} is outside the folder; use a path inside it"
                )

    def fingerprint_with(self, refine_from: str) -> str:
        """Return a digest that changes when another workspace would be made.

        Args:
            refine_from: the rule for the parent, which it had in earlier versions; `last` in others.
        """
        # Without its places: they differ between machines.
        options = (
            self.kind, self.dirty, self.history, self.include, self.exclude, self.max_file, self.setup,
            self.link, refine_from,
        )  # fmt: skip
        # Only if it is used: runs on record keep their fingerprint.
        return digest_of("workspace", repr((*options, self.reset) if self.reset else options))

    @property
    def copies(self) -> bool:
        """Whether several folders can have its files at a time."""
        return self.kind != "here"

    def state(self, run: StateRun, path: str) -> LoopState:
        """Return the workspace of the loop or workflow at a path of a run."""
        store: FileStore = run.resources["file_store"]
        return Files(
            self, run.run_id, path, redactor=run.redactor, origin=run.origin,
            journal=store.journal_folder, journal_files=store.journal_files,
        )  # fmt: skip


class Files:
    """The workspace of one loop or workflow: it implements `engine.files.LoopState`.

    Args:
        settings: the declaration.
        run_id: the run.
        path: the path of the loop or workflow.
        number: the number of the tree, if the loop has several.
        redactor: the filter with the values of keys.
        origin: the run that this one was forked from, or "".
        journal: the folder of the journal, or None.
        journal_files: its files and folders, which are no files of a project that they are in.
    """

    def __init__(
        self,
        settings: Workspace,
        run_id: str,
        path: str,
        number: int = 0,
        redactor: Redactor | None = None,
        origin: str = "",
        journal: Path | None = None,
        journal_files: Sequence[Path] = (),
    ) -> None:
        self.redactor, self.origin, self.journal = redactor, origin, journal
        self.settings, self.run_id, self.path = settings, run_id, path
        self._journal_files = [file.parent.resolve() / file.name for file in journal_files]
        self.slug = slug_of(path.replace("/", ".")) + (f"-{number}" if number else "")
        self._source: WorkspaceSource | None = None
        self._tree: FileTree | None = None
        self._user: FileTree | None = None
        self._taken_over = False
        self._kind = settings.kind
        self.submodules: dict[str, str] = {}
        self.base = self.head = self.stored = ""
        self.filtered: list[str] = []

    @property
    def source(self) -> Path:
        """The user's folder; a working directory inside it is one inside `folder`."""
        return self.place.root

    @property
    def folder(self) -> Path:
        """The folder in which commands run."""
        return self.tree.folder / self.place.inside

    @property
    def root(self) -> Path:
        """The folder of all files."""
        return self.tree.folder

    @property
    def tree(self) -> FileTree:
        """The files, once it is open."""
        assert self._tree is not None
        return self._tree

    @property
    def place(self) -> WorkspaceSource:
        """The user's folder, once it is open."""
        assert self._source is not None
        return self._source

    @property
    def shown(self) -> tuple[Path, ...]:
        """The linked folders, and of the user's repository what git needs."""
        return (*(self.source / link for link in self.settings.link), *self._repositories)

    @property
    def covered(self) -> tuple[Path, ...]:
        """The user's folder, and that of the stores."""
        return (self.source, self.tree.store.home)

    @functools.cached_property
    def _repositories(self) -> tuple[Path, ...]:
        """The repositories outside of the folder from which git reads in it; read from the user's files only."""
        if not self.place.git or self._kind == "snapshot":
            return ()
        common = self.source / Git(cwd=self.source).text("rev-parse", "--git-common-dir")
        borrowed = common / "objects" / "info" / "alternates"
        lines = borrowed.read_text().splitlines() if borrowed.is_file() else []
        others = tuple(common / "objects" / line for line in lines if line and line[0] != "#")
        # A clone has the objects of the user's repository as its own files.
        return others if self._kind == "copy" else (common, *others)

    @functools.cached_property
    def _author(self) -> dict[str, str]:
        """The name and address of the user for git, whose settings a sandbox does not show."""
        git, home = Git(cwd=self.source), Path(os.environ.get("HOME", "/"))
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        files = [f for f in (home / ".gitconfig", config / "git" / "config") if f.is_file()]
        places = [
            *([()] if self.place.git else []),
            *(("--file", str(f), "--includes") for f in files),
        ]
        result: dict[str, str] = {}
        for key in ("name", "email"):
            # Also without the key, and with a file that git cannot read.
            words = ("--get", f"user.{key}")
            found = (git.text("config", *file, *words, ok=(0, 1, 3, 128)) for file in places)
            if value := next(filter(None, found), ""):
                result |= {f"GIT_{role}_{key.upper()}": value for role in ("AUTHOR", "COMMITTER")}
        return result

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its commands.

        Bytecode of Python is found by time and size only, which a file that was put back may share with
        another version of it, so no command writes any.
        """
        own = {"LOOPWRIGHT_WORKSPACE": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**self._author, **own}

    def leave_out(self, patterns: Sequence[str]) -> None:
        """Leave empty files of these names out of the snapshots, also in later processes."""
        known = self.tree.memory.get("leaves", [])
        if missing := [pattern for pattern in patterns if pattern not in known]:
            self.tree.remember(leaves=[*known, *missing])

    @property
    def stops_at_edits(self) -> bool:
        """Whether an edit from outside is a question to a person."""
        return self._kind == "here"

    async def open(self, begun: Json = None) -> str:
        """Open it, and return a question to answer before anything changes, or ""."""
        question = await asyncio.to_thread(self._open, begun)
        if self._taken_over and self.settings.setup:
            # Snapshots have no ignored files, such as installed packages.
            await self._run_command("setup", self.settings.setup)
        return question

    def _open(self, begun: Json) -> str:
        if problem := problem_with_git():
            raise GitError(f"workspace: {problem}")
        # The snapshots are objects on that machine; only the journal is shared.
        if begun is not None and begun["host"] != socket.gethostname():
            raise GitError(
                f"workspace: the files of this run are on {begun['host']}; resume it there"
            )
        remove_left_scratch()
        origin = None if begun is None else self._origin(begun)
        self._source = WorkspaceSource.of(
            Path(self.settings.path) if origin is None else origin.source
        )
        self._kind = self.settings.kind
        if self._kind in ("copy", "worktree") and not self._source.git:
            if self._kind == "worktree":
                raise GitError(
                    f"workspace: {self._source.root} is not a git repository; use kind: copy or snapshot"
                )
            self._kind = "snapshot"
        try:
            store = GitStore(Path(self.settings.home)) if origin is None else origin.tree.store
            # Before anything is written into it.
            Home(store.home).make(required=True)
        except (ConfigurationError, OSError) as error:
            raise GitError(f"workspace: {error}") from error
        trees = store.home / "trees" / slug_of(self.run_id)
        folder = self._source.root if self._kind == "here" else trees / self.slug
        included = [f":(glob){pattern}" for pattern in self.settings.include]
        self._tree = FileTree(
            store,
            folder,
            trees / ".state" / self.slug,
            f"refs/runs/{slug_of(self.run_id)}/{self.slug}/",
            max_file=bytes_of(self.settings.max_file),
            include=included and [*included, *(f":(exclude,literal){name}" for name in self._own)],
        )
        # Before any file is read: two processes would capture each other's half-written files.
        self._tree.lock()
        # After the lock: `files prune` holds the store, and then deletes nothing if a folder is locked.
        store.make(self._source.root if self._source.git else None)
        if begun is not None:
            # The recorded base, because the user's folder may have changed since the run began.
            self.base, self.submodules = begun["commit"], begun.get("submodules", {})
            self.head, self.stored = begun.get("head", ""), begun.get("stored", "")
            self.filtered = begun.get("filtered", [])
            if self._kind != "here" and "run" not in self._tree.memory:
                self._take_over(begun)
            elif self._tree.memory.get("folder") != str(folder):
                self._follow_move()
            return ""
        if self._kind == "here" and (changed := self._uncommitted()):
            return (
                f"{folder} has {len(changed)} uncommitted changes, such as {changed[0]}, and the loop edits "
                "this folder itself; answer anything to continue, or cancel the run"
            )
        return ""

    def _origin(self, begun: Json) -> SavedWorkspace:
        """Return the workspace of a record, in a folder that is known."""
        try:
            home = home_of({"home": self.settings.home, **begun}, self.run_id, self.journal)
            # A journal from elsewhere may name any folder and any commit.
            found = origin_of(home, begun, self.run_id) if Home(home).known else None
        except (ConfigurationError, OSError) as error:
            raise GitError(f"workspace: {error}") from error
        if found is None:
            raise GitError(
                f"workspace: the files of this run are on another machine, or were deleted from {begun['folder']}; "
                "start a new run"
            )
        return found

    @property
    def _own(self) -> list[str]:
        """The files of the journal inside the user's folder."""
        inside = (file for file in self._journal_files if file.is_relative_to(self.source))
        return [str(file.relative_to(self.source)) for file in inside]

    def _uncommitted(self) -> list[str]:
        """Return the changed and new files that the user has not committed."""
        if not self.place.git:
            return []
        # Not by `git status`, which runs the filters of the repository.
        self._base_tree(self.place)
        before = committed_tree(self.tree.store, self.head)
        return sorted(self.tree.store.changes(before, self.stored))

    async def begin(self) -> Json:
        """Make the folder, and return the snapshot of its beginning."""
        snapshot = await asyncio.to_thread(self._begin)
        if self.settings.setup and self._kind != "here":
            await self._run_command("setup", self.settings.setup)
            snapshot |= await asyncio.to_thread(
                self.tree.capture, "base", snapshot["commit"], "after setup"
            )
            # What the setup creates does not count as work of the loop.
            snapshot |= {"files": 0, "added": 0, "removed": 0}
        self.base = snapshot["commit"]
        return snapshot

    def _begin(self) -> dict[str, Json]:
        source, tree = self.place, self.tree
        base_tree = self._base_tree(source)
        base = tree.store.commit(base_tree, source.head, "base")
        tree.store.point(f"{tree.refs}base", base)
        if source.git and self.stored != committed_tree(tree.store, source.head):
            stored = tree.store.commit(self.stored, source.head, "stored")
            tree.store.point(f"{tree.refs}stored", stored)
        if self._kind != "here":
            self._make_folder(base, self.user_tree())
        self._describe(base, busy=False)
        return {
            "commit": base,
            "tree": base_tree,
            "files": 0,
            "added": 0,
            "removed": 0,
            "kind": self._kind,
            "head": source.head,
            "stored": self.stored,
            "source": str(source.path),
            "folder": str(tree.folder),
            "home": str(tree.store.home),
            "host": socket.gethostname(),
            **({"submodules": self.submodules} if self.submodules else {}),
            **({"filtered": self.filtered} if self.filtered else {}),
        }

    def _take_over(self, begun: Json) -> None:
        """Make the folder of a run that was forked, with the snapshots of the run that began."""
        take_over(self.tree, begun, self.origin)
        self._make_folder(self.base, None)
        # Changes by the setup are not edits of a person, so the recorded files replace them.
        # The beginning on record is that of the first run, which may be of before a move.
        known = {name: begun[name] for name in ("source", "home") if name in begun}
        self._describe(self.base, busy=True, **known)
        self._taken_over = True

    def _follow_move(self) -> None:
        """Make the links of the folder lead to the present places, after a move or a copy by the user."""
        self._link(self.place)
        if self._kind == "worktree":
            file, name = self.root / ".git", "gitdir"
            common = self.source / Git(cwd=self.source).text("rev-parse", "--git-common-dir")
            own = common.resolve() / "worktrees" / Path(file.read_text().strip()).name
            (own / name).write_text(f"{file}\n")
            file.write_text(f"{name}: {own}\n")

    def _make_folder(self, base: str, like: FileTree | None) -> None:
        """Make the folder with the files of a commit."""
        source, tree = self.place, self.tree
        if self._kind == "worktree":
            make_worktree(source, tree.folder)
        else:
            history = "base" if self._kind == "snapshot" else self.settings.history
            place = source
            if self._kind != "copy":
                place = WorkspaceSource(source.root, source.path, "", git=False)
            make_copy(tree.store, place, tree.folder, base, history=history)
        tree.fill(base, like)
        self._refresh_inner(tree.store.tree_of(base))
        self._link(source)

    def _describe(self, base: str, *, busy: bool, **known: Json) -> None:
        """Save what later processes and `loopwright files` need to know."""
        places = {"source": str(self.place.path), "home": str(self.tree.store.home), **known}
        self.tree.remember(
            commit=base,
            tree=self.tree.store.tree_of(base),
            busy=busy,
            kind=self._kind,
            run=self.run_id,
            path=self.path,
            base=base,
            folder=str(self.tree.folder),
            retain=self.settings.retain,
            max_file=self.tree.max_file,
            submodules=self.submodules,
            head=self.head,
            stored=self.stored,
            filtered=self.filtered,
            **places,
        )

    def _base_tree(self, source: WorkspaceSource) -> str:
        """Capture the user's folder, and return its tree."""
        tree, options = self.tree, self.settings
        self.head = source.head
        if source.head:
            tree.store.fetch(source.root, source.head)
        user = self.user_tree()
        self.submodules = prepare(user, source, options.exclude, options.link, self._own)
        committed = user.indexed() if source.head else ""
        present, _ = user.scan()
        keep_index(user, source)
        for name in ("rules", "always"):
            # Both trees must apply the same rules, or the first scan of the copy would show changes.
            if user.private != tree.private:
                shutil.copy(user.private / name, tree.private / name)
        base = committed if options.dirty == "leave" and committed else present
        if not source.git:
            return base
        self.stored, self.filtered = stored_start(
            tree.store, source, base, source.head, self.submodules, untouched=True
        )
        clean = committed_tree(tree.store, source.head)
        if options.dirty == "refuse" and source.head and self.stored != clean:
            changed = sorted(tree.store.changes(clean, self.stored))
            raise GitError(
                f"workspace: {source.root} has uncommitted changes, such as {changed[0]}; commit them, or "
                "use dirty: include"
            )
        return base

    def user_tree(self) -> FileTree:
        """Return the user's folder, to capture it with an index that is not his."""
        tree = self.tree
        if self._kind == "here":
            return tree
        if self._user is None:
            private = tree.private / "source"
            private.mkdir(parents=True, exist_ok=True)
            self._user = FileTree(
                tree.store,
                self.place.root,
                private,
                f"{tree.refs}source/",
                max_file=tree.max_file,
                include=tree.include,
            )
        return self._user

    def _refresh_inner(self, base_tree: str) -> None:
        """Make `git status` inside the folder show what differs from its commit."""
        if not (self.tree.folder / ".git").exists():
            return
        git = Git(cwd=self.tree.folder)
        words = ("rev-parse", "--git-path", "index", "HEAD^{tree}")
        index, _, committed = git.text(*words, ok=(0, 128)).partition("\n")
        # Our index has the times of the files; without it git would read each file.
        shutil.copy2(self.tree.index, self.tree.folder / index)
        if committed not in ("", base_tree):
            # By the store: whoever writes an index compares files that are as new as it, by the filters of
            # the repository.
            inner = replace(self.tree.git, index=self.tree.folder / index)
            inner("read-tree", "--reset", committed)

    def _link(self, source: WorkspaceSource) -> None:
        for link in self.settings.link:
            target, place = source.root / link, self.tree.folder / link
            if place.is_symlink():
                place.unlink()
            if target.is_dir() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(target, target_is_directory=True)

    async def _run_command(self, name: str, command: Sequence[str] | str) -> None:
        result = await run_command(
            command, cwd=self.folder, env=self.variables, timeout=SETUP_TIMEOUT
        )
        if result.exit_code or result.timed_out:
            raise GitError(f"workspace: {name} {result.ending}: {result.last_output}")

    async def capture(self, name: str, parent: str) -> Json:
        """Return a snapshot of the present files under a name."""
        ref = self.tree.ref_name(name, self.path)
        return await asyncio.to_thread(self.tree.capture, ref, parent, name)

    async def restore(self, commit: str, *, busy: bool, edits: Edits = "adopt") -> Json:
        """Put a snapshot in place, as `LoopState.restore` describes."""
        edit = await asyncio.to_thread(self._restore, commit, busy, edits)
        # With an edit that a person must decide on, nothing was put in place.
        if busy and self.settings.reset and not (edit and edits == "report"):
            await self._run_command("reset", self.settings.reset)
        return edit

    def _restore(self, commit: str, busy: bool, edits: Edits) -> Json:
        tree = self.tree
        memory = tree.memory
        present, left_out = tree.scan()
        # While a step was busy, the changes are its own; between steps they come from outside.
        if edits != "discard" and not memory.get("busy") and present != memory.get("tree"):
            if edits == "report":
                return {"paths": sorted(tree.store.changes(memory["tree"], present))}
            # The edit stays in place.
            changed = tree.store.changes(memory["tree"], present)
            adopted = tree.keep(present)
            tree.remember(commit=adopted, tree=present, busy=busy)
            return {
                "commit": adopted,
                "tree": present,
                "files": len(changed),
                "added": sum(added for added, _ in changed.values()),
                "removed": sum(removed for _, removed in changed.values()),
                "paths": sorted(changed),
            }
        kept = tree.keep(present)
        assert kept
        if not memory.get("busy"):
            # Killed while it puts files in place, it leaves a mixture that is nobody's edit.
            tree.remember(busy=True)
        tree.put(commit, present, left_out)
        tree.remember(busy=busy)
        return None

    async def find(self, name: str) -> str:
        """Return the commit of the snapshot of that name, or ""."""
        ref = self.tree.refs + self.tree.ref_name(name, self.path)
        return await asyncio.to_thread(self.tree.store.find, ref)

    async def changes(self, commit: str, since: str = "") -> str:
        """Return the difference of a snapshot from another or the beginning, as a patch without binary contents."""
        before = since or self.base
        words = ("diff-tree", "-r", "-p", "--no-ext-diff", "--no-textconv", before, commit)
        data = await asyncio.to_thread(self.tree.store.git, *words)
        return data.decode("utf-8", "replace")

    async def end(self, result: Result, snapshot: Json) -> Json:
        """Hand over the chosen snapshot; return the branch, patch or conflicts."""
        return await asyncio.to_thread(self._end, result, snapshot)

    def _end(self, result: Result, snapshot: Json) -> dict[str, Json]:
        self.tree.remember(ended=result.status.value, result=snapshot["commit"])
        # Those of candidates that a killed process left.
        for folder in (self._beside, self.tree.private / "beside"):
            shutil.rmtree(folder, ignore_errors=True)
        self.tree.pack()
        return handed_over(self, result, snapshot)

    @property
    def merge(self) -> str:
        """How the result is handed over."""
        merge = self.settings.merge or ("none" if self._kind == "here" else "branch")
        # A folder without git cannot have a branch.
        return "patch" if merge == "branch" and not self.place.git else merge

    async def branch(self, name: str, commit: str) -> LoopState:
        """Return a workspace beside this one; with a commit, its folder is made with the files of it."""
        other = copy.copy(self)
        other.slug, other._user = f"{self.slug}.{name}", None
        # A work tree would be one more in the user's repository.
        other._kind = "copy" if self._kind == "worktree" else self._kind
        other.__dict__.pop("_repositories", None)
        tree, place = self.tree, self._beside
        other._tree = FileTree(
            tree.store,
            place / name / other.slug,
            tree.private / "beside" / name,
            tree.refs,
            max_file=tree.max_file,
            include=tree.include,
        )
        if commit:
            await asyncio.to_thread(other._branch, self, commit)
            if self.settings.setup:
                # Snapshots have no ignored files, such as installed packages.
                await other._run_command("setup", self.settings.setup)
            await other.restore(commit, busy=True, edits="discard")
        return other

    def _branch(self, like: Files, commit: str) -> None:
        self.remove()
        self.tree.lock()
        for name in ("rules", "always"):
            shutil.copy(like.tree.private / name, self.tree.private / name)
        self._make_folder(commit, like.tree)
        self._describe(commit, busy=True)
        self.tree.remember(leaves=like.tree.memory.get("leaves", []))

    @property
    def _beside(self) -> Path:
        """The folder of the workspaces beside this one."""
        return self.tree.folder.with_name(f"{self.slug}.beside")

    def remove(self) -> None:
        """Remove a workspace that `branch` made; its snapshots stay."""
        self.tree.unlock()
        for folder in (self.tree.folder.parent, self.tree.private):
            shutil.rmtree(folder, ignore_errors=True)

    async def aclose(self) -> None:
        """Release the folder."""
        if self._tree is not None:
            self._tree.unlock()
