"""The clean copy: a folder that no agent saw, in which a check runs.

It is used again as long as nothing in it has changed: what a check writes must not reach the next one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...tools.process import run_command
from ...tools.sandbox import Sandbox
from ..workspace.git import Git, GitError
from ..workspace.sources import fill
from ..workspace.store import GitStore

__all__ = ["CleanCopy", "environment"]

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
                await self._set_up(sandbox if installed else None)
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
        self._place = Path(tempfile.mkdtemp(prefix="loopwright-check-"))
        self.folder.mkdir()
        fill(self.store, self.folder, self._place, base, self.source)
        for link in self.links:
            target, place = self.source / link, self.folder / link
            if target.is_dir() and not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(target, target_is_directory=True)

    async def _set_up(self, sandbox: Sandbox | None) -> None:
        prefix: list[str] = []
        if sandbox is not None:
            inside = sandbox.within(readable=(self.source,))
            prefix = await inside.prefix(self.folder, None, name="setup")
        result = await run_command(
            self.setup, prefix=prefix, cwd=self.folder, timeout=SETUP_TIMEOUT
        )
        if result.exit_code or result.timed_out:
            raise GitError(
                f"the setup of the clean copy {result.ending}: {result.last_output}; correct setup"
            )

    def close(self) -> None:
        """Remove the folder."""
        if self._place is not None:
            shutil.rmtree(self._place, onerror=_made_writable)
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


def _made_writable(function: object, path: str, _: object) -> None:
    """Remove what a check left without the right to do so."""
    try:
        Path(path).parent.chmod(0o700)
        if Path(path).is_dir() and not Path(path).is_symlink():
            Path(path).chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)
    except OSError:
        return  # the system removes temporary files
