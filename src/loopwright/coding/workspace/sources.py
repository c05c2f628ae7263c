"""The user's folder, and how a tree is made from it. Nothing here writes into the user's folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .git import Git, GitError
from .rules import exclude_file, tracked_although_ignored
from .store import GitStore
from .tree import FileTree

__all__ = ["WorkspaceSource", "make_copy", "make_worktree", "prepare"]


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
        if not self.git:
            return ""
        place = Git(cwd=self.root).text("rev-parse", "--git-path", "info/exclude", ok=(0, 128))
        file = self.root / place
        return file.read_text(errors="replace") if place and file.is_file() else ""


def prepare(
    tree: FileTree, source: WorkspaceSource, exclude: tuple[str, ...], links: tuple[str, ...]
) -> dict[str, str]:
    """Set the index and the rules of a tree to the checked-out commit; return its submodules."""
    rules_tree, submodules = "", {}
    if source.head:
        tree.git("read-tree", "--reset", source.head)
        rows = tree.git("ls-files", "-s", "-z").split(b"\0")
        entries = [row.split(b"\t", 1) for row in rows if row.startswith(b"160000 ")]
        submodules = {os.fsdecode(path): meta.split()[1].decode() for meta, path in entries}
        if submodules:
            # Their files are captured instead of their commits; a merge puts the commits back.
            names = b"\0".join(map(os.fsencode, submodules)) + b"\0"
            tree.git("update-index", "--force-remove", "-z", "--stdin", stdin=names)
        rules_tree = tree.git.text("write-tree")
    else:
        tree.index.unlink(missing_ok=True)
        rules_tree = tree.git.text("write-tree")
    rules_tree = _with_present_rules(tree, source, rules_tree)
    text = exclude_file(tree.store.git, rules_tree, exclude, links, source.local_rules())
    tree.rules.write_text(text)
    always = tracked_although_ignored(tree.git, str(tree.rules))
    (tree.private / "always").write_bytes(b"".join(path + b"\0" for path in always))
    return submodules


def _with_present_rules(tree: FileTree, source: WorkspaceSource, commit: str) -> str:
    """Return a tree with the `.gitignore` files as they are in the folder, committed or not."""
    listing = ("ls-files", "-z", "-c", "-o", "--", ":(glob)**/.gitignore")
    listed = tree.git(*listing).split(b"\0")
    paths = [path for path in set(listed) if path and not path.endswith(b"/")]
    if not paths:
        return commit
    index = tree.private / "rules.index"
    git = Git(tree.store.folder, work_tree=source.root, index=index, cwd=tree.store.home)
    try:
        present = [p for p in paths if (source.root / os.fsdecode(p)).is_file()]
        words = ("update-index", "--add", "--remove", "-z", "--stdin")
        git(*words, stdin=b"".join(path + b"\0" for path in present))
        return git.text("write-tree")
    finally:
        index.unlink(missing_ok=True)


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
        inner("config", "--remove-section", "remote.origin", ok=(0, 128))
        # Branches of the removed remote would be stale at once.
        for ref in inner.text("for-each-ref", "--format=%(refname)", "refs/remotes").split():
            inner("update-ref", "-d", "--no-deref", ref)
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
