"""The clean copy, a folder that no agent saw, in which a check runs, and the protected files while it runs.

The copy is used again as long as nothing in it has changed: what a check writes must not reach the next one.

Protected files are read-only where a sandbox works, and compared afterwards. What the check itself writes on the base
is left out: it is the user's own code.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..._platform import temporary_folder
from ...tools.process import run_command
from ...tools.sandbox import Sandbox
from ..workspace.store import Git, GitError, GitStore
from ..workspace.tree import ALWAYS, fill
from .protected import Protection, TreeEntry, digest_of, folders_above

__all__ = [
    "MAX_FILES",
    "ChangedFiles",
    "CleanCopy",
    "ProtectedWatch",
    "blob",
    "entries_of",
    "entry_of",
    "environment",
    "protected_files",
    "tree_with",
]

SETUP_TIMEOUT = 1800.0  # seconds of a setup command
# Folders in HOME with the programs and downloads of tools, and the variables that name them.
_TOOL_FOLDERS = {
    "UV_CACHE_DIR": ".cache/uv",
    "PIP_CACHE_DIR": ".cache/pip",
    "PYENV_ROOT": ".pyenv",
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "GOMODCACHE": "go/pkg/mod",
    "GOCACHE": ".cache/go-build",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "npm_config_cache": ".npm",
}
_State = dict[str, tuple[int, ...]]


class CleanCopy:
    """A folder with the files of a tree. It is closed with the run.

    Args:
        store: the store of the trees.
        setup: a command that prepares a new copy, or "".
        links: folders of the user that the copy contains as links.
        source: the user's folder.
    """

    def __init__(
        self, store: GitStore, setup: Sequence[str] | str, links: Sequence[str], source: Path
    ) -> None:
        self.store, self.setup, self.links, self.source = store, setup, tuple(links), source
        self._place: Path | None = None
        self._made = ExitStack()
        self._home = source
        self.paths: tuple[str, ...] | None = None  # the first ones on the import path, once known
        self._state: _State = {}
        self._installed = ""

    @property
    def folder(self) -> Path:
        """The folder, once it is made."""
        assert self._place is not None
        return self._place / "copy"

    @property
    def index(self) -> Path:
        """The index of the folder, outside of it."""
        assert self._place is not None
        return self._place / "index"

    async def put(
        self, tree: str, base: str, installed: str = "", sandbox: Sandbox | None = None
    ) -> Path:
        """Return the folder with the files of a tree; a new one is prepared with those of the base.

        Args:
            tree: the tree.
            base: the base, from which a new folder is prepared.
            installed: stands for what the tree installs, if that is not what the base does; then a new folder
                is prepared from the tree.
            sandbox: that of the setup, if it installs what the tree says.

        Raises:
            GitError: if the setup command fails.
        """
        if self._place is None or installed != self._installed or not self._cleaned():
            self._make(tree if installed else base)
            self._installed = installed
            if self.setup:
                prefix: list[str] = []
                if installed and sandbox is not None:
                    inside = sandbox.within(readable=(self.source,))
                    prefix = await inside.prefix(self.folder, None, name="setup")
                result = await run_command(
                    self.setup, prefix=prefix, cwd=self.folder, timeout=SETUP_TIMEOUT
                )
                if result.exit_code or result.timed_out:
                    raise GitError(
                        f"the setup of the clean copy {result.ending}: {result.last_output}; correct setup"
                    )
        self.git("read-tree", "--reset", "-u", tree)
        self._state = _state_of(self.folder)
        return self.folder

    def _cleaned(self) -> bool:
        """Remove what a check added; return whether everything else is as it was."""
        present = _state_of(self.folder)
        if any(present.get(path) != state for path, state in self._state.items()):
            return False
        # Folders after their content.
        for path in sorted(set(present) - set(self._state), reverse=True):
            place = self.folder / path
            try:
                place.rmdir() if stat.S_ISDIR(present[path][0]) else place.unlink()
            except OSError:
                return False
        return True

    @property
    def git(self) -> Git:
        """Calls of git for the folder."""
        return Git(self.store.folder, work_tree=self.folder, index=self.index, cwd=self.store.home)

    @property
    def writable(self) -> tuple[Path, ...]:
        """What a check may change: the copy, its HOME and its cache, and not the index."""
        assert self._place is not None
        self.cache.mkdir(exist_ok=True)
        return (self.folder, self.cache, self._home)

    @property
    def cache(self) -> Path:
        """A folder for what a compiler keeps between two checks."""
        return self.index.with_name("cache")

    def home(self) -> Path:
        """Return a new empty folder for HOME."""
        assert self._place is not None
        self._home = self._place / secrets.token_hex(8)
        self._home.mkdir()
        return self._home

    def _make(self, base: str) -> None:
        self.close()
        # A random name that only this user can list: nothing is waiting there.
        self._place = self._made.enter_context(temporary_folder("check"))
        self.folder.mkdir()
        fill(self.store, self.folder, self._place, base, self.source)
        for link in self.links:
            target, place = self.source / link, self.folder / link
            if target.is_dir() and not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(target, target_is_directory=True)

    def close(self) -> None:
        """Remove the folder."""
        if self._place is not None:
            self._made.close()
            self._place = None

    async def aclose(self) -> None:
        """Remove the folder."""
        self.close()


def environment(copy: CleanCopy, *, isolated: bool, paths: Sequence[str]) -> dict[str, str]:
    """Return the variables of a check: an empty HOME, and no module of the user's own folders.

    Args:
        copy: the clean copy.
        isolated: whether Python may not import from the working directory.
        paths: folders of the copy that come first on the import path.
    """
    user = Path.home()
    tools = {name: str(user / place) for name, place in _TOOL_FOLDERS.items()}
    kept = {name: place for name, place in tools.items() if Path(place).is_dir()}
    kept |= {name: os.environ[name] for name in _TOOL_FOLDERS if name in os.environ}
    variables = {
        **kept,
        "HOME": str(copy.home()),
        # Without a cache each check would compile the standard library of Go.
        "GOCACHE": kept.get("GOCACHE", str(copy.cache)),
        "LOOPWRIGHT_WORKSPACE": str(copy.folder),
        "PYTHONNOUSERSITE": "1",
        # The copy has no bytecode, so there is none to be stale; that of installed packages saves seconds.
        "PYTHONPYCACHEPREFIX": "",
    }
    if isolated:
        variables["PYTHONSAFEPATH"] = "1"
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(str(copy.folder / path) for path in paths)
    return variables


def _state_of(folder: Path) -> _State:
    """Return what identifies each file of a folder without reading it."""
    state, root = _State(), len(str(folder)) + 1
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as rows:
                for row in rows:
                    status = row.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(row.path)
                        state[row.path[root:]] = (status.st_mode,)
                        continue
                    # The time of the last change of a file cannot be set, unlike that of its content.
                    state[row.path[root:]] = (
                        status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
                    )  # fmt: skip
        except OSError:
            state["?"] = (0,)  # a folder that cannot be read is a change
    return state


MAX_FILES = 50_000  # in a folder without git, which may be a home folder


def entries_of(store: GitStore, commit: str) -> dict[str, TreeEntry]:
    """Return the files and links of a commit or tree by path."""
    rows = store.git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
    entries = {}
    for row in rows:
        head, _, path = row.partition(b"\t")
        if path:
            mode, _, digest = head.decode().split()
            entries[os.fsdecode(path)] = TreeEntry(mode, digest)
    return entries


def blob(store: GitStore, digest: str) -> bytes:
    """Return the content of a file."""
    return store.git("cat-file", "blob", digest)


def tree_with(store: GitStore, commit: str, entries: Mapping[str, TreeEntry]) -> str:
    """Return the tree that has exactly these entries; `commit` is one that shares most of them."""
    present = entries_of(store, commit)
    if present == entries:
        return store.tree_of(commit)
    zero = "0" * len(store.tree_of(commit))
    # Removals first: a file may take the place of a folder, and the other way round.
    rows = [f"0 {zero}\t{path}" for path in present if path not in entries]
    rows += [
        f"{entry.mode} {entry.digest}\t{path}"
        for path, entry in entries.items()
        if present.get(path) != entry
    ]
    with temporary_folder("tree") as folder:
        git = replace(store.git, index=folder / "index")
        git("read-tree", commit)
        data = b"".join(os.fsencode(row) + b"\0" for row in rows)
        git("update-index", "-z", "--index-info", stdin=data)
        return git.text("write-tree")


def protected_files(folder: Path, rules: Protection) -> list[str]:
    """Return the protected files of a folder by their present names; nothing is written."""

    def read(path: str) -> bytes:
        try:
            return (folder / path).read_bytes()
        except OSError:
            return b""  # it may be gone, or a link to nothing

    return sorted(rules.listed({path: TreeEntry("", path) for path in _files(folder)}, read))


def _files(folder: Path) -> list[str]:
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    with contextlib.suppress(GitError):
        return [os.fsdecode(path) for path in Git(cwd=folder)(*words).split(b"\0") if path]
    ignored = {name.rstrip("/") for name in ALWAYS}
    files: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ignored]
        inside = Path(place).relative_to(folder)
        files += [str(inside / name) for name in names]
        if len(files) > MAX_FILES:
            break
    return files


MOST_PLACES = 1000  # mounts of one sandbox, each of which takes time
_MODE = "100644"
SHA1 = 40  # digits


class ChangedFiles(Exception):
    """Protected files that changed while a check ran. Its argument is their paths."""


@dataclass
class ProtectedWatch:
    """The protected files of one run of a check.

    Args:
        folder: the copy in which it runs.
        files: the protected entries by path.
        written: what the check writes on the base: paths, and folders with a slash at the end.
    """

    folder: Path
    files: Mapping[str, TreeEntry]
    written: frozenset[str] = frozenset()
    _before: dict[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {path: entry for path, entry in self.files.items() if path not in self.written}
        self._before = {path: self._state(path) for path in [*self.files, *self._folders]}

    @property
    def _folders(self) -> list[str]:
        """The folders of the files, each with a slash at its end."""
        return [f"{folder}/" for folder in folders_above(self.files)]

    def places(self, others: Iterable[str]) -> list[Path]:
        """Return what is mounted read-only: folders in which nothing else is, and single files.

        Args:
            others: the other paths of the copy, and those that may be made.
        """
        mixed = folders_above([*others, *(f"{name}x" for name in self.written)])
        found = dict[str, None]()
        for path in sorted(self.files):
            above = sorted(folders_above([path]), key=len)
            found[next((folder for folder in above if folder not in mixed), path)] = None
        places = (self.folder / place for place in found)
        # What a link leads to is outside of the copy, or a file of its own.
        return [place for place in places if place.exists() and not place.is_symlink()][
            :MOST_PLACES
        ]

    def changed(self) -> list[str]:
        """Return the files whose content is another one."""
        return [
            path
            for path, entry in self.files.items()
            if self._state(path) != self._before[path] and self._digest(path, entry) != entry.digest
        ]

    def written_now(self) -> frozenset[str]:
        """Return the files and folders that a run changed."""
        return frozenset(
            path for path, before in self._before.items() if self._state(path) != before
        )

    def _state(self, path: str) -> tuple[int, ...]:
        try:
            status = os.lstat(self.folder / path)
        except OSError:
            return ()
        # The time of the last change of a file cannot be set, unlike that of its content.
        return (
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        )

    def _digest(self, path: str, entry: TreeEntry) -> str:
        """Return the digest of the present content, as git computes it; "" for what is no file."""
        place = self.folder / path
        try:
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode) != (entry.mode == "120000"):
                return ""
            content = os.fsencode(place.readlink()) if stat.S_ISLNK(mode) else place.read_bytes()
        except OSError:
            return ""
        return digest_of(content, len(entry.digest))


def entry_of(content: bytes) -> TreeEntry:
    """Return the entry of a file that is in no tree."""
    return TreeEntry(_MODE, digest_of(content, SHA1))
