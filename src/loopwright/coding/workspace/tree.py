"""One folder: its files are captured as a tree of the store, and a tree is put in place in it.

1. The index is private, so what happens to `.git` in the folder changes nothing.
2. A repository inside the folder is captured by its files, never by its commit.
3. Every path of a snapshot is put back, and nothing that the rules ignore is touched.
4. The rules of the beginning say which files are ignored, in all iterations. A step may rewrite `.gitignore`. If its
   rules counted from then on, a file could be part of one snapshot and be ignored by the next, and putting a snapshot
   back would neither restore nor remove it.
5. Files are put in place and removed by their open folders, never through a link. A process that an agent left can
   exchange a folder for a link at any moment. Git checks a path before it writes, and would write behind the link.
6. A first tree is made from the user's folder, into which nothing here writes.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from ..._platform import take_lock
from ...records.codec import Json
from .copying import copied
from .store import POLL_SECONDS, Git, GitError, GitStore, changes_in, slug_of

__all__ = [
    "ALWAYS",
    "FileTree",
    "Placing",
    "WorkspaceSource",
    "exclude_file",
    "fill",
    "keep_index",
    "make_copy",
    "make_worktree",
    "prepare",
]

# Windows has none of these flags, and no descriptors of folders: a workspace does not work there.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)


class Placing:
    """A folder whose files are replaced, as a context.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened: list[tuple[bytes, int]] = []  # the folders on the way to the last file

    def __enter__(self) -> Placing:
        self._opened = [(b"", os.open(self._root, _FOLDER & ~_NOFOLLOW))]
        return self

    def __exit__(self, *_: object) -> None:
        self._close(0)

    def remove(self, paths: Iterable[bytes], *, folders: bool = False) -> None:
        """Remove files and links, with the folders that become empty; also whole folders if `folders`."""
        emptied: set[bytes] = set()
        for path in paths:
            place, _, name = path.rpartition(b"/")
            with suppress(OSError):
                at = self._folder(place, make=False)
                if folders and stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
                    shutil.rmtree(os.fsdecode(name), dir_fd=at)
                else:
                    os.unlink(name, dir_fd=at)
            while place:
                emptied.add(place)
                place = place.rpartition(b"/")[0]
        # Inner folders first.
        for place in sorted(emptied, reverse=True):
            around, _, name = place.rpartition(b"/")
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._folder(around, make=False))

    def put(self, paths: Iterable[bytes], staged: Path) -> None:
        """Put files and links in place, from a folder that has them at the same paths."""
        for path in paths:
            place, _, name = path.rpartition(b"/")
            at, source = self._folder(place, make=True), staged / os.fsdecode(path)
            self._clear(name, at)
            if source.is_symlink():
                os.symlink(source.readlink(), os.fsdecode(name), dir_fd=at)
                continue
            mode = 0o777 if source.stat().st_mode & stat.S_IXUSR else 0o666
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=at)
            with os.fdopen(made, "wb") as copy, source.open("rb") as content:
                shutil.copyfileobj(content, copy)

    @staticmethod
    def _clear(name: bytes, at: int) -> None:
        """Remove what is in the way, such as a folder of ignored files."""
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(os.fsdecode(name), dir_fd=at)

    def _folder(self, path: bytes, *, make: bool) -> int:
        """Return the open folder at a path; a link or a file in its place is replaced if `make`.

        Raises:
            OSError: if it is not there, and not made.
        """
        parts = path.split(b"/") if path else []
        known = 0
        while (
            known < min(len(parts), len(self._opened) - 1)
            and self._opened[known + 1][0] == parts[known]
        ):
            known += 1
        self._close(known + 1)
        for part in parts[known:]:
            at = self._opened[-1][1]
            try:
                opened = os.open(part, _FOLDER, dir_fd=at)
            except OSError:
                if not make:
                    raise
                self._clear(part, at)
                os.mkdir(part, dir_fd=at)
                opened = os.open(part, _FOLDER, dir_fd=at)
            self._opened.append((part, opened))
        return self._opened[-1][1]

    def _close(self, kept: int) -> None:
        while len(self._opened) > kept:
            os.close(self._opened.pop()[1])


# Folders of tools: most of them are ignored by a file that the tool puts into them.
ALWAYS = (
    ".loopwright/", ".venv/", "node_modules/", "__pycache__/", "*.py[cod]", ".pytest_cache/", ".mypy_cache/",
    ".ruff_cache/", ".tox/", ".nox/", ".hypothesis/", "*.egg-info/", ".coverage", ".coverage.*", ".DS_Store",
    ".aider*",
)  # fmt: skip
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


def exclude_file(
    root: Path,
    files: Iterable[bytes],
    exclude: Sequence[str],
    links: Sequence[str],
    local: str = "",
) -> str:
    """Return the rules of a folder as one file: the last rule that matches a path decides.

    Args:
        root: the folder.
        files: the paths of its `.gitignore` files.
        exclude: further rules.
        links: paths that are links to folders of the user, or belong to the journal.
        local: the rules of the user's `.git/info/exclude`.
    """
    lines = [*ALWAYS, *local.splitlines()]
    # The rules of a deeper folder come later, because they have precedence.
    for path in sorted(files, key=lambda path: (path.count(b"/"), path)):
        file = root / os.fsdecode(path)
        # Git ignores a link in this place.
        if file.is_file() and not file.is_symlink():
            text = file.read_text("utf-8", "replace")
            lines += _moved(text.splitlines(), os.fsdecode(path).rpartition("/")[0])
    lines += [*exclude, *(f"/{_escaped(link.strip('/'))}" for link in links)]
    return "\n".join(lines) + "\n"


def _escaped(name: str) -> str:
    return _SPECIAL.sub(r"\\\1", name)


def _moved(lines: Iterable[str], folder: str) -> Iterable[str]:
    """Iterate over the rules of a folder as rules of the root."""
    for line in lines:
        rule = line.rstrip("\r\n")
        if not rule.strip() or rule.startswith("#"):
            continue
        if not folder:
            yield rule
            continue
        negated = "!" if rule.startswith("!") else ""
        rule = rule.removeprefix("!")
        # A rule with a slash before its end belongs to its folder only.
        anchored = "/" in rule.rstrip().rstrip("/")
        middle = "/" if anchored else "/**/"
        yield f"{negated}/{_escaped(folder)}{middle}{rule.lstrip('/')}"


PACK_AFTER = 50  # snapshots
WAIT = 30.0  # seconds for the git of a killed process to end
_PROBE = b".loopwright-probe"


@dataclass
class _Listing:
    """What a scan found: paths to add and to remove, and files that are left out; `leaves` are no work of an agent."""

    leaves: Sequence[str] = ()
    add: list[bytes] = field(default_factory=list)
    remove: list[bytes] = field(default_factory=list)
    left_out: list[bytes] = field(default_factory=list)


class FileTree:
    """The files of one folder, with a private index.

    Args:
        store: the store of its snapshots.
        folder: the folder.
        private: the folder of its index, its rules and its lock.
        refs: the prefix of the refs of its snapshots, with a slash at the end.
        max_file: bytes of the largest file that is captured.
        include: pathspecs of files that are captured although they are ignored.
    """

    def __init__(
        self,
        store: GitStore,
        folder: Path,
        private: Path,
        refs: str,
        *,
        max_file: int,
        include: Sequence[str] = (),
    ) -> None:
        self.store, self.folder, self.private, self.refs = store, folder, private, refs
        self.max_file, self.include = max_file, tuple(include)
        self.index = private / "index"
        self.rules = private / "rules"
        self.git = Git(
            store.folder,
            work_tree=folder,
            index=self.index,
            # Git compares a file that changed in the second of the index again before it writes the index,
            # but not in each command that is started elsewhere.
            cwd=folder,
        )
        self._lock: int | None = None
        self._root = os.fsencode(folder) + b"/"
        # The tree of the index, as long as only this object changed it; "" if it is not known.
        self._indexed = ""
        self._unpacked = 0  # snapshots since the last pack

    # Its lock, and what it remembers across processes.

    def lock(self) -> None:
        """Take the lock of the folder; the git calls of a killed process hold it until they end.

        Raises:
            GitError: if another process works in the folder.
        """
        if self._lock is not None:
            return
        self.private.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.private / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        end = time.monotonic() + WAIT
        while not take_lock(descriptor):
            if time.monotonic() > end:
                os.close(descriptor)
                raise GitError(f"another process works in {self.folder}")
            time.sleep(POLL_SECONDS)
        self._lock = descriptor
        self.git = replace(self.git, keep_open=(descriptor,))
        for stale in self.private.glob("*.lock"):
            stale.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            self.git = replace(self.git, keep_open=())

    @property
    def memory(self) -> dict[str, Json]:
        """What earlier processes knew: the `commit` in place, whether it is `busy`, `nested` repositories."""
        try:
            value: dict[str, Json] = json.loads((self.private / "state.json").read_text())
        # Without a state the present files count as unknown, so they are kept before anything replaces them.
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return value

    def remember(self, **values: Json) -> None:
        """Change what later processes know."""
        # A crash while the file is written must not lose the commit in place.
        temporary = self.private / "state.new"
        temporary.write_text(json.dumps({**self.memory, **values}, indent=1))
        temporary.replace(self.private / "state.json")

    # Capture.

    def scan(self) -> tuple[str, list[str]]:
        """Return the tree of the present files, and the paths that are left out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        listing = self._listing()
        if listing.remove:
            self._indexed = ""
            gone = b"0 " + b"0" * len(self._empty) + b"\t"
            rows = b"".join(gone + path + b"\0" for path in listing.remove)
            self.git("update-index", "-z", "--index-info", stdin=rows)
        if listing.add:
            self._indexed = ""
            paths = b"\0".join(listing.add) + b"\0"
            # `--remove`, because a file can disappear between the listing and this call.
            words = ("--add", "--remove", "--replace", "-z", "--stdin")
            self.git("update-index", *words, stdin=paths)
        if not self._indexed:
            self._indexed = self.git.text("write-tree")
        return self._indexed, sorted(map(os.fsdecode, listing.left_out))

    def index_from(self, commit: str) -> None:
        """Set the index to a commit, and keep the times of the files that it has unchanged."""
        self._indexed = ""
        self.git("read-tree", "--reset" if commit else "--empty", *([commit] if commit else []))

    def drop(self, paths: Iterable[bytes]) -> None:
        """Remove paths from the index, also those of submodules."""
        self._indexed = ""
        names = b"".join(path + b"\0" for path in paths)
        self.git("update-index", "--force-remove", "-z", "--stdin", stdin=names)

    def fill(self, commit: str, like: FileTree | None = None) -> None:
        """Put the files of a commit into the folder, which has none of them.

        Args:
            commit: the commit.
            like: a folder that was just scanned; if it has the same files, they are copied from it.
        """
        tree = self.store.tree_of(commit)
        missing: int | None = None
        if like is not None and like.indexed() == tree:
            missing = copied(
                like.folder, self.folder, like.index, self.index,
                hash_bytes=len(tree) // 2, keep_open=self.git.keep_open,
            )  # fmt: skip
        if missing is None:
            # The folder has no files, whatever the index of an interrupted attempt says.
            self.git("read-tree", "--empty")
            self.git("read-tree", "--reset", "-u", commit)
        elif missing:
            self.git("checkout-index", "--all", "--force", "--index", "--quiet")
        self._indexed = tree

    def indexed(self) -> str:
        """Return the tree of the index."""
        self._indexed = self._indexed or self.git.text("write-tree")
        return self._indexed

    def capture(self, name: str, parent: str, message: str = "") -> dict[str, Json]:
        """Return a snapshot of the present files, kept under a name."""
        tree, left_out = self.scan()
        commit = self.store.commit(tree, parent, message or name)
        calls: list[Sequence[str]] = [("update-ref", self.refs + name, commit)]
        if parent:
            calls.append(self.store.words_of_changes(parent, tree))
        # The ref before the state: a crash between them leaves a snapshot too many, never one too few.
        outputs = self.store.git.together(*calls)
        # A resumed run has no result until its next end.
        self.remember(commit=commit, tree=tree, result="")
        self._unpacked += 1
        if self._unpacked >= PACK_AFTER:
            self.pack()
        changed = changes_in(outputs[1]) if parent else {}
        snapshot: dict[str, Json] = {
            "commit": commit,
            "tree": tree,
            "files": len(changed),
            "added": sum(added for added, _ in changed.values()),
            "removed": sum(removed for _, removed in changed.values()),
        }
        return {**snapshot, "left_out": left_out} if left_out else snapshot

    def _listing(self) -> _Listing:
        listed = self._listed()
        nested: set[bytes] = set()
        # Git names a repository inside the folder, and lists its files only if it has one of them already.
        while found := set(self._folders(listed)) - nested:
            self._indexed = ""
            rows = (b"100644 " + self._empty + b"\t" + path + _PROBE + b"\0" for path in found)
            self.git("update-index", "--replace", "-z", "--index-info", stdin=b"".join(rows))
            nested |= found
            listed = self._listed()
        if nested:
            known = {*self.memory.get("nested", ()), *map(os.fsdecode, nested)}
            self.remember(nested=sorted(known))
        listing, links = _Listing(leaves=self.memory.get("leaves", ())), dict[bytes, bool]()
        for path in dict.fromkeys(listed):
            # Git refuses a path with a part that is named like a repository.
            reserved = any(part.lower() == b".git" for part in path.split(b"/"))
            if not path.endswith(b"/") and not reserved:
                self._classify(path, listing, links)
        return listing

    @functools.cached_property
    def _empty(self) -> bytes:
        """The identity of an empty file, whose length depends on the format of the store."""
        return self.git.text("hash-object", "-w", "-t", "blob", "--stdin").encode()

    def _folders(self, listed: list[bytes]) -> Iterator[bytes]:
        """Iterate over the folders that git lists as one path: a repository, also in place of a file."""
        for path in listed:
            full = Path(os.fsdecode(self._root + path))
            if path.endswith(b"/"):
                yield path
            elif not full.is_symlink() and full.is_dir():
                yield path + b"/"

    def _listed(self) -> list[bytes]:
        """Return the changed, missing and new paths, in no particular order."""
        out = b"".join(
            self.git.together(
                ("ls-files", "-z", "-m", "-d"),
                ("ls-files", "-z", "-o", "-X", str(self.rules)),
            )
        )
        always = self.private / "always"
        if always.exists():
            # Tracked files stay in the snapshot although a rule ignores them, as in git itself.
            out += always.read_bytes()
        if self.include:
            out += self.git("ls-files", "-z", "-o", "--", *self.include)
        return [path for path in out.split(b"\0") if path]

    def _classify(self, path: bytes, listing: _Listing, links: dict[bytes, bool]) -> None:
        try:
            status = os.lstat(self._root + path)
        except OSError:  # also a circle of links on the way to it
            listing.remove.append(path)
            return
        regular, link = stat.S_ISREG(status.st_mode), stat.S_ISLNK(status.st_mode)
        if not (regular or link) or self._behind_link(path, links):
            listing.remove.append(path)
        elif regular and (
            status.st_size > self.max_file or not os.access(self._root + path, os.R_OK)
        ):
            listing.remove.append(path)
            listing.left_out.append(path)
        elif regular and not status.st_size and self._is_left(path, listing.leaves):
            listing.remove.append(path)
        else:
            listing.add.append(path)

    def _is_left(self, path: bytes, leaves: Sequence[str]) -> bool:
        """Whether an empty file is one that an agent leaves behind, and not one of the beginning."""
        name = PurePosixPath(os.fsdecode(path))
        if not any(name.match(pattern) for pattern in leaves):
            return False
        words = ("ls-tree", "-z", "--full-tree", f"{self.refs}base", "--", str(name))
        return not self.store.git(*words)

    def _behind_link(self, path: bytes, links: dict[bytes, bool]) -> bool:
        """Whether a folder of the path is a link, so that the path is not inside the tree."""
        end = path.rfind(b"/")
        if end < 0:
            return False
        folder = path[:end]
        if folder not in links:
            here = Path(os.fsdecode(self._root + folder))
            links[folder] = here.is_symlink() or self._behind_link(folder, links)
        return links[folder]

    # Restore.

    def restore(self, commit: str) -> None:
        """Put the files of a commit in place of the present ones, which are kept under `lost`."""
        present, left_out = self.scan()
        self.keep(present)
        self.put(commit, present, left_out)

    def keep(self, tree: str) -> str:
        """Keep a tree that no snapshot names under `lost`; return its commit."""
        memory = self.memory
        if tree == memory.get("tree"):
            return str(memory["commit"])
        # Such files, of a person or of a killed step, exist nowhere else.
        commit = self.store.commit(tree, memory.get("commit", ""), "unrecorded")
        self.store.point(f"{self.refs}lost/{tree[:12]}", commit)
        return commit

    def put(self, commit: str, present: str, left_out: Iterable[str] = ()) -> None:
        """Put the files of a commit in place, if those of another tree are there."""
        tree = self.store.tree_of(commit)
        try:
            with Placing(self.folder) as placing:
                # Such a file is not in any snapshot; left in place it would belong to another iteration.
                placing.remove(map(os.fsencode, left_out))
                if tree != present:
                    self._check_out(placing, present, tree)
                    placing.remove(self._nested_without(commit), folders=True)
        except OSError as error:
            raise GitError(f"the files of {self.folder} cannot be put in place: {error}") from error
        self.remember(commit=commit, tree=tree)

    def _check_out(self, placing: Placing, present: str, tree: str) -> None:
        """Change the folder, which was just scanned, to another tree."""
        words = ("diff-tree", "-r", "-z", "--no-renames", present, tree)
        rows = self.store.git(*words).split(b"\0")
        changes = [(path, head[-1:]) for head, path in zip(rows[::2], rows[1::2], strict=False)]
        placed = [path for path, status in changes if status != b"D"]
        # Git does not write into the folder itself, which another process may be changing.
        staged = self.private / "staged"
        shutil.rmtree(staged, ignore_errors=True)
        self.index_from(tree)
        names = b"".join(path + b"\0" for path in placed)
        words = ("checkout-index", "--force", "--quiet", "-z", "--stdin", f"--prefix={staged}/")
        self.git(*words, stdin=names)
        placing.remove(path for path, status in changes if status == b"D")
        placing.put(placed, staged)
        shutil.rmtree(staged, ignore_errors=True)
        self._indexed = tree

    def _nested_without(self, commit: str) -> Iterator[bytes]:
        """Iterate over the `.git` of repositories that the commit does not have."""
        for path in self.memory.get("nested", ()):
            if not self.store.git("ls-tree", "-z", "--full-tree", commit, "--", path):
                yield os.fsencode(path) + b".git"

    def pack(self) -> None:
        """Pack the snapshots since the last time."""
        memory = self.memory
        old = memory.get("packs", [])
        name = self.store.pack(self.refs, memory.get("head", ""), old)
        self.remember(packs=[name] if name else [])
        self._unpacked = 0

    def ref_name(self, name: str, path: str) -> str:
        """Return the name of a ref for a snapshot: a number, or a digest of the path of a step."""
        rest = name.removeprefix(f"{path}/")
        plain = rest.isdigit() or rest in ("base", "suspended", "placed")
        return rest if plain else f"steps/{sha256(name.encode()).hexdigest()[:16]}"


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
    tree: FileTree,
    source: WorkspaceSource,
    exclude: Sequence[str],
    links: Sequence[str],
    journal: Sequence[str],
) -> dict[str, str]:
    """Set the index and the rules of a tree to the checked-out commit; return what the result leaves as it is.

    Args:
        tree: the tree of the user's folder.
        source: the user's folder.
        exclude: rules of files that are never captured.
        links: paths that are links to folders of the user.
        journal: paths of the journal, which are no files of the folder.

    Returns:
        The commits of its submodules by path, and "" for a file of the journal.
    """
    kept = _kept_index(tree, source)
    if kept.exists():
        # Its times, or git would read each file again in each run. The time of the file itself tells
        # git which of them are too new to be sure.
        shutil.copy2(kept, tree.index)
    else:
        tree.index.unlink(missing_ok=True)
    tree.index_from(source.head)
    submodules: dict[str, str] = {}
    if source.head:
        rows = tree.git("ls-files", "-s", "-z").split(b"\0")
        entries = [row.split(b"\t", 1) for row in rows if row.startswith(b"160000 ")]
        submodules = {os.fsdecode(path): meta.split()[1].decode() for meta, path in entries}
        if submodules:
            # Their files are captured instead of their commits; a merge puts the commits back.
            tree.drop(map(os.fsencode, submodules))
    words = ("ls-files", "-z", "--", *(f":(literal){name}" for name in journal))
    if journal and (known := tree.git(*words).split(b"\0")[:-1]):
        # One that is committed: like a submodule it is not captured, and the result leaves it as it is.
        tree.drop(known)
        submodules |= dict.fromkeys(map(os.fsdecode, known), "")
    if source.head and not kept.exists():
        # A scan compares files without times, and does not save what it learns.
        tree.git("update-index", "-q", "--refresh", ok=(0, 1))
    words = ("ls-files", "-z", "-c", "-o", "--", ":(glob)**/.gitignore")
    files = {path for path in tree.git(*words).split(b"\0") if not path.endswith(b"/")}
    text = exclude_file(
        source.root, files - {b""}, exclude, (*links, *journal), source.local_rules()
    )
    tree.rules.write_text(text)
    # Tracked paths that the rules ignore stay part of every snapshot.
    words = ("ls-files", "-z", "-c", "-i", "-X", str(tree.rules))
    (tree.private / "always").write_bytes(tree.git(*words))
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
