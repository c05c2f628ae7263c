"""The store of snapshots: one private bare repository, which the user's own repository never touches."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..._platform import locks
from .git import Git

__all__ = ["HOME", "POLL_SECONDS", "GitStore", "changes_in", "slug_of"]

YOUNG = 60  # seconds in which an object without a ref is not deleted
POLL_SECONDS = 0.02  # between two attempts to take a lock
# The message of a snapshot without the changes of protected files, on top of the one with them.
PUT_BACK = "Protected files put back"
HOME = ".loopwright"  # the folder of journals, stores and trees
# Whatever the attributes in a tree say: no filter runs, and bytes stay as they are.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding -eol\n"
_SAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def slug_of(name: str) -> str:
    """Return a name as one part of a path and of a ref, unique for different names."""
    slug = _SAFE.sub("-", name).strip("-.")[:60].replace("..", "-").removesuffix(".lock")
    return slug if slug == name else f"{slug or 'x'}-{sha256(name.encode()).hexdigest()[:8]}"


class Capture(NamedTuple):
    """A commit of the store: its first parent, and the name under which the files were captured."""

    commit: str
    parent: str
    name: str

    @classmethod
    def of(cls, row: str) -> Capture:
        """Return the capture of a row of git."""
        commit, parents, name = row.split("\t", 2)
        return cls(commit, parents.partition(" ")[0], name)


class GitStore:
    """A private bare repository in the folder `.loopwright`.

    Args:
        home: the folder `.loopwright`. It is made at the first use, with a `.gitignore` for itself.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "store.git"
        self.git = Git(self.folder, cwd=home)
        self._trees: dict[str, str] = {}  # by commit

    def make(self, source: Path | None) -> None:
        """Make the store if it does not exist, with hard links to the objects of a repository."""
        self.home.mkdir(parents=True, exist_ok=True)
        ignore = self.home / ".gitignore"
        if not ignore.exists():
            # `.loopwright` may stand in the user's repository, and must not appear in his `git status`.
            ignore.write_text("*\n")
        with self.locked():
            if (self.folder / "complete").exists():
                return
            self._create(source)

    def _create(self, source: Path | None) -> None:
        temporary = self.home / "store.new"
        _remove(temporary)
        _remove(self.folder)
        git = Git(cwd=self.home)
        if source is not None:
            options = ("--bare", "--local", "--quiet")
            git("clone", *options, "--", str(source), str(temporary))
        else:
            git("init", "--bare", "--quiet", "--", str(temporary))
        fresh = Git(temporary, cwd=self.home)
        # Refs of the user would keep growing stale, and a remote would name his folder.
        for ref in fresh.text("for-each-ref", "--format=%(refname)").split():
            fresh("update-ref", f"refs/base/{ref.removeprefix('refs/')}", ref)
            fresh("update-ref", "-d", ref)
        fresh("config", "--remove-section", "remote.origin", ok=(0, 128))
        info = temporary / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_ATTRIBUTES)
        # Only the rules of the workspace decide; the template of git may bring rules of its own.
        (info / "exclude").write_text("")
        (temporary / "complete").touch()
        temporary.rename(self.folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the store: several runs may make it at once."""
        with (self.home / "store.lock").open("w") as file:
            while not locks.take(file.fileno()):
                time.sleep(POLL_SECONDS)
            yield

    def fetch(self, source: Path, commit: str) -> None:
        """Fetch a commit of another repository, unless the store has it."""
        if self.has(commit):
            return
        words = ["fetch", "--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head"]
        self.git(*words, "--", str(source), f"+{commit}:refs/base/commits/{commit}")

    def has(self, commit: str) -> bool:
        """Whether the store has a commit and everything in it."""
        return self.git.run("cat-file", "-e", f"{commit}^{{tree}}", ok=(0, 1, 128)).returncode == 0

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Return the commit of a tree; equal arguments make the same commit."""
        parents = ["-p", parent] if parent else []
        commit = self.git.text("commit-tree", tree, *parents, "-m", message)
        self._trees[commit] = tree
        return commit

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit."""
        # A commit never changes, and a restore would start git once more for each.
        if commit not in self._trees:
            self._trees[commit] = self.git.text("rev-parse", "--verify", f"{commit}^{{tree}}")
        return self._trees[commit]

    def find(self, ref: str) -> str:
        """Return the commit of a ref, or ""."""
        return self.git.text("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", ok=(0, 1))

    def point(self, ref: str, commit: str) -> None:
        """Set a ref, so that the commit is kept."""
        # A commit without a ref is garbage for any `git gc` that a person runs in the store.
        self.git("update-ref", ref, commit)

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the commits of the refs under a prefix, by the rest of their names."""
        lines = self.git.text("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        pairs = (line.split() for line in lines.splitlines())
        return {name.removeprefix(prefix): commit for name, commit in pairs}

    def captures(self, prefix: str) -> list[Capture]:
        """Return the commits of the refs under a prefix, each with the name of its capture."""
        words = "--format=%(objectname)%09%(parent)%09%(contents:subject)"
        rows = self.git.text("for-each-ref", words, prefix).splitlines()
        return [Capture.of(row) for row in rows]

    def parent_of(self, commit: str) -> str:
        """Return the commit from which an iteration continued, or ""."""
        row = self.git.text("log", "-1", "--format=%H%x09%P%x09%s", commit)
        capture = Capture.of(row)
        return self.find(f"{commit}^^") if capture.name == PUT_BACK else capture.parent

    def pack(self, prefix: str, without: str, old: Sequence[str] = ()) -> str:
        """Put the snapshots of refs under a prefix into one pack; return its name, or "".

        A loose object takes a block of the disk even if it is a small change of another one.

        Args:
            prefix: the beginning of the refs.
            without: a commit whose objects are left where they are, or "".
            old: the packs of the same refs, which the new one replaces.
        """
        commits = list(self.refs(prefix).values())
        wanted = "\n".join([*commits, *([f"^{without}"] if without else [])]) + "\n"
        words = ["pack-objects", "--revs", "--quiet", "--non-empty", "--delta-base-offset"]
        place = str(self.folder / "objects" / "pack" / "pack")
        name = self.git(*words, place, stdin=wanted.encode()).decode().strip()
        for other in old:
            # The index first: git does not use a pack without it.
            for suffix in ("idx", "rev", "pack") if other != name else ():
                Path(f"{place}-{other}.{suffix}").unlink(missing_ok=True)
        if name:
            # Not `prune-packed`: it removes empty folders, in which another run may create an object.
            rows = self.git("show-index", stdin=Path(f"{place}-{name}.idx").read_bytes())
            for row in rows.decode().splitlines():
                digest = row.split()[1]
                (self.folder / "objects" / digest[:2] / digest[2:]).unlink(missing_ok=True)
        return name

    def collect(self) -> int:
        """Delete the objects that no ref reaches; return the bytes that this frees.

        No run may work in the store: a capture writes its objects before its ref.
        """
        before = self._size()
        for name in self.refs("refs/merged/"):
            # A branch of the user was fetched by it.
            self.git("update-ref", "-d", f"refs/merged/{name}")
        packs = (self.folder / "objects" / "pack").glob("*.pack")
        # A link to a pack of the user takes no space, and a new pack of the same objects would.
        kept = [f"--keep-pack={pack.name}" for pack in packs if pack.stat().st_nlink > 1]
        self.git("repack", "-a", "-d", "--quiet", *kept)
        # A command such as `workspace branch` has no lock, and its newest objects no ref yet.
        self.git("prune", f"--expire={YOUNG}.seconds.ago")
        return before - self._size()

    def _size(self) -> int:
        files = (self.folder / "objects").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    def changes(self, before: str, after: str) -> dict[str, list[int]]:
        """Return the changed paths between two trees or commits, each with lines added and removed."""
        return changes_in(self.git(*self.words_of_changes(before, after)))

    @staticmethod
    def words_of_changes(before: str, after: str) -> tuple[str, ...]:
        """Return the call of git whose output `changes_in` reads."""
        return ("diff-tree", "-r", "-z", "--no-renames", "--numstat", before, after)

    def diff(self, before: str, after: str, *options: str) -> str:
        """Return the difference of two trees or commits as a patch that `git apply` takes."""
        words = ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", *options]
        data = self.git(*words, "--no-ext-diff", "--no-textconv", before, after)
        return data.decode("utf-8", "surrogateescape")

    def export(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder."""
        folder.mkdir(parents=True, exist_ok=True)
        index = folder.parent / f"{folder.name}.index"
        git = Git(self.folder, work_tree=folder, index=index)
        try:
            git("read-tree", "--reset", "-u", commit)
        finally:
            index.unlink(missing_ok=True)


def changes_in(rows: bytes) -> dict[str, list[int]]:
    """Return the paths of a listing by `--numstat -z`, each with lines added and removed."""
    changed: dict[str, list[int]] = {}
    for row in rows.split(b"\0"):
        if row.count(b"\t") >= 2:
            added, removed, path = row.split(b"\t", 2)
            # Git prints "-" for a binary file.
            numbers = [int(n) if n.isdigit() else 0 for n in (added, removed)]
            changed[path.decode(errors="replace")] = numbers
    return changed


def _remove(folder: Path) -> None:
    """Remove a folder and its content, with those parts that are not writable."""

    def writable(function: object, path: str, _: object) -> None:
        Path(path).parent.chmod(0o700)
        Path(path).unlink(missing_ok=True)

    if folder.exists():
        shutil.rmtree(folder, onerror=writable)
