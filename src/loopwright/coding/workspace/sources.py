"""The user's folder, and how a tree is made from it. Nothing here writes into the user's folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .git import Git, GitError
from .rules import exclude_file
from .store import GitStore, slug_of
from .tree import FileTree

__all__ = ["WorkspaceSource", "fill", "keep_index", "make_copy", "make_worktree", "prepare"]


@dataclass(frozen=True)
class WorkspaceSource:
    """The user's folder.

    Args:
        root: the top of its repository, or the folder itself without one.
        path: the folder that was named, inside the root.
        head: the commit that is checked out; "" without a repository or a commit.
        git: whether it is a repository.
    """

    root: Path
    path: Path
    head: str
    git: bool

    @classmethod
    def of(cls, path: Path) -> WorkspaceSource:
        """Return the source of a folder.

        Raises:
            GitError: if the folder does not exist, or cannot be copied completely.
        """
        path = path.expanduser().resolve()
        if not path.is_dir():
            raise GitError(f"workspace: path: {path} is not a folder")
        git = Git(cwd=path)
        if git.text("rev-parse", "--is-bare-repository", ok=(0, 128)) == "true":
            raise GitError(
                f"workspace: {path} is a bare repository and has no files; use a clone of it"
            )
        top = git.text("rev-parse", "--show-toplevel", ok=(0, 128))
        if not top:
            return cls(path, path, "", git=False)
        root = Path(top).resolve()
        if not path.is_relative_to(root):
            raise GitError(
                f"workspace: core.worktree of the repository of {path} names another folder, {root}; use that one"
            )
        if git.text("config", "--bool", "core.sparseCheckout", ok=(0, 1)) == "true":
            raise GitError(
                f"workspace: {root} is a sparse checkout, and a copy would have other files; "
                "run git sparse-checkout disable, or use kind: here"
            )
        head = git.text("rev-parse", "--verify", "--quiet", "HEAD^{commit}", ok=(0, 1, 128))
        return cls(root, path, head, git=True)

    @property
    def inside(self) -> Path:
        """The named folder relative to the root."""
        return self.path.relative_to(self.root)

    def local_rules(self) -> str:
        """Return the rules of `.git/info/exclude`."""
        return self.local_file("info/exclude").decode(errors="replace")

    def local_file(self, name: str) -> bytes:
        """Return the content of a file of the repository, such as `info/exclude`; b"" without it."""
        if not self.git:
            return b""
        place = Git(cwd=self.root).text("rev-parse", "--git-path", name, ok=(0, 128))
        file = self.root / place
        return file.read_bytes() if place and file.is_file() else b""


def prepare(
    tree: FileTree, source: WorkspaceSource, exclude: tuple[str, ...], links: tuple[str, ...]
) -> dict[str, str]:
    """Set the index and the rules of a tree to the checked-out commit; return its submodules."""
    kept = _kept_index(tree, source)
    if kept.exists():
        # Its times, or git would read each file again in each run. The time of the file itself tells
        # git which of them are too new to be sure.
        shutil.copy2(kept, tree.index)
    else:
        tree.index.unlink(missing_ok=True)
    tree.index_from(source.head)
    submodules = _without_submodules(tree) if source.head else {}
    if source.head and not kept.exists():
        # A scan compares files without times, and does not save what it learns.
        tree.git("update-index", "-q", "--refresh", ok=(0, 1))
    words = ("ls-files", "-z", "-c", "-o", "--", ":(glob)**/.gitignore")
    files = {path for path in tree.git(*words).split(b"\0") if not path.endswith(b"/")}
    text = exclude_file(source.root, files - {b""}, exclude, links, source.local_rules())
    tree.rules.write_text(text)
    # Tracked paths that the rules ignore stay part of every snapshot.
    words = ("ls-files", "-z", "-c", "-i", "-X", str(tree.rules))
    always = tree.git(*words)
    (tree.private / "always").write_bytes(always)
    return submodules


def _without_submodules(tree: FileTree) -> dict[str, str]:
    """Remove the submodules from the index; return their commits by path."""
    rows = tree.git("ls-files", "-s", "-z").split(b"\0")
    entries = [row.split(b"\t", 1) for row in rows if row.startswith(b"160000 ")]
    submodules = {os.fsdecode(path): meta.split()[1].decode() for meta, path in entries}
    if submodules:
        # Their files are captured instead of their commits; a merge puts the commits back.
        tree.drop(map(os.fsencode, submodules))
    return submodules


def keep_index(tree: FileTree, source: WorkspaceSource) -> None:
    """Keep the index of a source that was just scanned, for the next run of the same folder."""
    kept = _kept_index(tree, source)
    kept.parent.mkdir(exist_ok=True)
    # In the folder of this run: several may keep the same index at once.
    temporary = tree.private / "kept"
    shutil.copy2(tree.index, temporary)
    temporary.replace(kept)


def _kept_index(tree: FileTree, source: WorkspaceSource) -> Path:
    return tree.store.home / "sources" / slug_of(str(source.root))


def fill(store: GitStore, folder: Path, private: Path, commit: str, source: Path) -> None:
    """Put the files of a commit into an empty folder, as copies of the user's files where these are the same.

    Args:
        store: the store of the commit.
        folder: the empty folder.
        private: the folder of its index.
        commit: the commit.
        source: the user's folder.
    """
    kept, seed = store.home / "sources" / slug_of(str(source)), private / "source"
    like = None
    if kept.exists():
        seed.mkdir()
        # A copy: another run may replace the kept index meanwhile.
        shutil.copy2(kept, seed / "index")
        like = FileTree(store, source, seed, "", max_file=0)
    FileTree(store, folder, private, "", max_file=0).fill(commit, like)


def make_copy(
    store: GitStore, source: WorkspaceSource, folder: Path, base: str, *, history: str
) -> None:
    """Make the repository of a copy, without its files: they are put in place from the store."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.new")
    for old in (temporary, folder):
        if old.exists():
            shutil.rmtree(old)
    git = Git(cwd=folder.parent)
    if not source.git:
        temporary.mkdir()
    elif history == "full" and source.head:
        words = [
            "clone",
            "--local",
            "--quiet",
            "--no-checkout",
            "--",
            str(source.root),
            str(temporary),
        ]
        git(*words)
        inner = Git(temporary / ".git", cwd=temporary)
        # No remote: nothing that runs in the copy reaches the user's repository by a push.
        inner("remote", "remove", "origin")
    else:
        git("init", "--quiet", "--", str(temporary))
        inner = Git(temporary / ".git", cwd=temporary)
        root = store.commit(store.tree_of(base), "", "Files at the start")
        store.point(f"refs/base/roots/{root}", root)
        options = ("--quiet", "--no-write-fetch-head")
        inner("fetch", *options, "--", str(store.folder), f"+{root}:refs/heads/base")
        inner("symbolic-ref", "HEAD", "refs/heads/base")
    # A crash before this leaves `.new`, which the next attempt removes.
    temporary.rename(folder)


def make_worktree(source: WorkspaceSource, folder: Path) -> None:
    """Add a work tree of the user's repository, without its files."""
    if not source.head:
        raise GitError(f"workspace: {source.root} has no commit; make one, or use kind: copy")
    git = Git(cwd=source.root)
    if folder.exists():
        git("worktree", "remove", "--force", "--", str(folder), ok=(0, 128))
        shutil.rmtree(folder, ignore_errors=True)
    # A folder that was deleted by hand is still registered, and git refuses to add it again.
    git("worktree", "prune")
    folder.parent.mkdir(parents=True, exist_ok=True)
    options = ("--detach", "--no-checkout", "--quiet")
    git("worktree", "add", *options, "--", str(folder), source.head)
