"""The store of snapshots: one private bare repository, which the user's own repository never touches.

Nothing else in the package starts git. No configuration of the user or the system reaches these calls. That of a
repository does, so no call of ours converts the files of a repository that is not ours, and every other key that
names a program is set here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..._home import Home
from ..._platform import take_lock
from ...errors import ConfigurationError, StepError

__all__ = [
    "GIT_VERSION",
    "POLL_SECONDS",
    "Git",
    "GitError",
    "GitStore",
    "changes_in",
    "checked_home",
    "hash_of",
    "is_branch_name",
    "problem_with_git",
    "refuse_tracked",
    "slug_of",
]

GIT_VERSION = (2, 32)  # the first with GIT_CONFIG_GLOBAL
_NO_BRANCH = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|(?:^|/)\.|\.lock(?:/|$)|^[-/]|[/.]$|^@$"
)
# Of every call: names of any form are allowed, and bytes and modes stay as they are.
_SETTINGS = {
    # A hook, a file monitor or another program of a repository would run without approval.
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "true",
    "core.sshCommand": "false",
    "core.pager": "cat",
    "log.showSignature": "false",
    # The default places of these files do not depend on the configuration.
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.untrackedCache": "false",
    # Conversion of line ends would make a restored file differ from the captured one.
    "core.autocrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.quotePath": "false",
    "core.checkStat": "default",
    # Garbage collection could delete objects of a capture before a ref names them.
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "protocol.allow": "never",
    "commit.gpgSign": "false",
    # In a container the folder often belongs to another user, which git refuses by default.
    "safe.directory": "*",
}
# Commands that read another repository, as a path of this machine. The program that serves it has no settings of
# ours, and must not fetch objects that the other repository lacks.
_TRANSFERS = ("clone", "fetch")
_SERVE = "GIT_ALLOW_PROTOCOL= git -c safe.directory='*' upload-pack"
_WHO = {
    # Fixed, so that equal trees with equal parents are equal commits.
    **{f"GIT_{role}_NAME": "Loopwright" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "loopwright@localhost" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": "2000-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")},
}


class GitError(StepError):
    """A call of git failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="workspace", retryable=False)


def is_branch_name(name: str) -> bool:
    """Return whether a branch can have a name, by the rules of git-check-ref-format(1).

    >>> is_branch_name("loopwright/run-1"), is_branch_name("a..b"), is_branch_name("-x")
    (True, False, False)
    """
    return bool(name) and name != "HEAD" and _NO_BRANCH.search(name) is None


def problem_with_git() -> str:
    """Return a sentence if git is missing or too old, or the system cannot open folders, else ""."""
    if os.open not in os.supports_dir_fd:
        return "This system cannot open folders. A workspace needs Linux, macOS or WSL."
    program = shutil.which("git")
    needed = ".".join(map(str, GIT_VERSION))
    if program is None:
        return f"git is not installed. A workspace needs git {needed} or newer."
    words = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout.split()
    version = words[2] if len(words) > 2 else ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= GIT_VERSION:
        return ""
    return f"git {version} is too old. A workspace needs git {needed} or newer."


@dataclass(frozen=True)
class Git:
    """Calls of git with the same repository, folder and index.

    Args:
        folder: the repository (GIT_DIR), or None to let git find it from `cwd`.
        work_tree: the folder of the files.
        index: the private index file.
        objects: the folder of objects, if it is not that of the repository.
        cwd: the working directory.
        settings: further settings.
        keep_open: descriptors that the calls inherit, such as that of a lock.
    """

    folder: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    objects: Path | None = None
    cwd: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    keep_open: tuple[int, ...] = ()

    def __call__(self, *words: str, stdin: bytes | None = None, ok: Sequence[int] = (0,)) -> bytes:
        """Run git and return its output.

        Raises:
            GitError: if it exits with another code than those in `ok`.
        """
        return self.run(*words, stdin=stdin, ok=ok).stdout

    def text(self, *words: str, ok: Sequence[int] = (0,)) -> str:
        """Run git and return its output as text without white space around it."""
        return os.fsdecode(self(*words, ok=ok)).strip()

    def run(
        self, *words: str, stdin: bytes | None = None, ok: Sequence[int] = (0,)
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return the completed process."""
        return self._ended(self.start(*words), words, stdin, ok)

    def together(self, *calls: Sequence[str]) -> list[bytes]:
        """Run several calls at once and return their outputs, in the order of the calls.

        Two walks through a large folder take half the time. The calls must not depend on each other.
        """
        started = [(self.start(*words), words) for words in calls]
        return [self._ended(process, words, None, (0,)).stdout for process, words in started]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a call of git."""
        transfers = words[0] in _TRANSFERS
        served = [f"--upload-pack={_SERVE}"] if transfers else []
        command = ["git"]
        for name, value in {**_SETTINGS, **self.settings}.items():
            command += ["-c", f"{name}={value}"]
        try:
            return subprocess.Popen(
                [*command, words[0], *served, *words[1:]],
                # Also above the configuration of a repository, which may allow a protocol by its name.
                env={**self._environment(), "GIT_ALLOW_PROTOCOL": "file" if transfers else ""},
                cwd=self._working_directory,
                # Never our own standard input, for which a call could wait.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A call that outlives our process keeps the lock of its tree.
                pass_fds=self.keep_open,
            )
        except FileNotFoundError as error:
            raise GitError(problem_with_git() or f"git cannot be started: {error}") from None

    @staticmethod
    def _ended(
        process: subprocess.Popen[bytes],
        words: Sequence[str],
        stdin: bytes | None,
        ok: Sequence[int],
    ) -> subprocess.CompletedProcess[bytes]:
        """Wait for a call, and return it completed."""
        out, err = process.communicate(stdin or b"")
        if process.returncode not in ok:
            # The end has the cause; git prints hints and progress before it.
            text = err.decode(errors="replace").strip()[-500:]
            raise GitError(f"git {words[0]} failed with {process.returncode}: {text}")
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def _working_directory(self) -> Path | None:
        # `ls-files` lists nothing outside a working directory that is below the files, as the store is.
        if self.work_tree is not None and self.work_tree.is_dir():
            return self.work_tree
        return self.cwd or self.folder

    def _environment(self) -> dict[str, str]:
        # GIT_DIR or GIT_INDEX_FILE of a hook that started us would redirect every call.
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        env |= _WHO
        env |= {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            # A question for a password would block the run without a sign.
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            # Errors quote git, and must not depend on the user's language.
            "LC_ALL": "C",
        }
        places = {
            "GIT_DIR": self.folder,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
            "GIT_OBJECT_DIRECTORY": self.objects,
        }
        return env | {name: str(place) for name, place in places.items() if place is not None}


YOUNG = 60  # seconds in which an object without a ref is not deleted
POLL_SECONDS = 0.02  # between two attempts to take a lock
# The message of a snapshot without the changes of protected files, on top of the one with them.
PUT_BACK = "Protected files put back"
# Whatever the attributes in a tree say: no filter runs, and bytes stay as they are.
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding -eol\n"
_SAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# What git reads besides objects, refs and HEAD. It could name programs, other folders, or another history.
_STORE_SETTINGS = (
    "commondir",
    "config.worktree",
    "hooks",
    "modules",
    "worktrees",
    "objects/info/http-alternates",
)
_FORMATS = ("objectformat = sha256", "refstorage = reftable")


def slug_of(name: str) -> str:
    """Return a name as one part of a path and of a ref, unique for different names."""
    slug = _SAFE.sub("-", name).strip("-.")[:60].replace("..", "-").removesuffix(".lock")
    return slug if slug == name else f"{slug or 'x'}-{sha256(name.encode()).hexdigest()[:8]}"


def checked_home(home: Path) -> Home:
    """Return the folder of a store or of the default journal, which may not exist yet.

    Raises:
        ConfigurationError: if it has contents that this user did not make, or that git would replace.
    """
    refuse_tracked(home)
    checked = Home(home)
    checked.refuse_foreign()
    return checked


def refuse_tracked(home: Path) -> None:
    """Refuse a folder with contents that belong to a repository.

    Raises:
        ConfigurationError: with the command that takes them out of it.
    """
    for place in dict.fromkeys((home.absolute(), home.resolve())):
        names: list[bytes] = []
        # There may be no repository, or no git.
        with contextlib.suppress(GitError):
            asked = ("ls-files", "-z", "--", f":(literal){place.name}")
            names = Git(cwd=place.parent)(*asked).split(b"\0") if os.path.lexists(place) else []
        if any(names):
            elsewhere = [] if place.parent == Path.cwd() else ["-C", str(place.parent)]
            # -f: the index may have contents that are neither in the last commit nor on the disk.
            words = [*elsewhere, "rm", "-r", "--cached", "-f", place.name]
            raise ConfigurationError(
                f"{home} has files that git tracks, such as {os.fsdecode(names[0])}, so a checkout would replace them, and nothing in "
                f"it is used; take it out of the repository, and keep its files, with: git {shlex.join(words)}"
                + ("" if Home(home).known else f"; then {Home(home).ways_out}")
            )


def hash_of(text: object) -> str:
    """Return the hash of a commit or tree from a record, which becomes a word of a command.

    Raises:
        GitError: if it is none.
    """
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise GitError(f"{text!r} is not the hash of a commit")
    return text


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
        home: the folder `.loopwright`, which `make` creates.

    Raises:
        ConfigurationError: if the folder has contents that this user did not make.
        GitError: if the store is a link.
    """

    def __init__(self, home: Path) -> None:
        checked_home(home.expanduser())
        self.home = home.expanduser().resolve()
        self.folder = self.home / "store.git"
        self.git = Git(self.folder, cwd=self.home)
        self._trees: dict[str, str] = {}  # by commit
        if self.folder.is_symlink():
            raise GitError(
                f"{self.folder} is a link, and may lead to a repository of yours; remove it"
            )
        if (self.folder / "complete").exists():
            self._configure(self.folder)

    def make(self, source: Path | None) -> None:
        """Make the store if it does not exist, with hard links to the objects of a repository."""
        with self.locked():
            if (self.folder / "complete").exists():
                return
            temporary = self.home / "store.new"
            _remove(temporary)
            _remove(self.folder)
            git = Git(cwd=self.home)
            if source is not None:
                git("clone", "--bare", "--local", "--quiet", "--", str(source), str(temporary))
            else:
                git("init", "--bare", "--quiet", "--", str(temporary))
            fresh = Git(temporary, cwd=self.home)
            # Refs of the user would keep growing stale.
            for ref in fresh.text("for-each-ref", "--format=%(refname)").split():
                fresh("update-ref", f"refs/base/{ref.removeprefix('refs/')}", ref)
                fresh("update-ref", "-d", ref)
            self._configure(temporary)
            (temporary / "complete").touch()
            temporary.rename(self.folder)

    @staticmethod
    def _configure(folder: Path) -> None:
        """Write the configuration and the rules anew, whatever they were: nothing in them starts a program."""
        for name in _STORE_SETTINGS:
            _remove(folder / name)
        config, info = folder / "config", folder / "info"
        known = config.read_text(errors="replace").lower() if config.is_file() else ""
        formats = [line for line in _FORMATS if re.search(line.replace(" ", r"\s*"), known)]
        lines = [
            f"repositoryformatversion = {int(bool(formats))}",
            "bare = true",
            "filemode = true",
        ]
        lines = ["[core]", *lines, *(["[extensions]"] if formats else []), *formats, ""]
        _write(folder, "config", "\n".join(lines))
        if info.is_symlink():
            info.unlink()
        info.mkdir(exist_ok=True)
        # Only the rules of the workspace decide which files are ignored.
        files = {"attributes": _ATTRIBUTES, "exclude": ""}
        for place in info.iterdir():
            if place.name not in files:
                _remove(place)
        for name, text in files.items():
            _write(folder, f"info/{name}", text)
        if (alternates := folder / "objects" / "info" / "alternates").exists():
            # The objects of a repository that borrows them itself. Its lender is not ours.
            Git(folder, cwd=folder)("repack", "-a", "-d", "--quiet")
            alternates.unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the store: several runs may make it at once."""
        with (self.home / "store.lock").open("w") as file:
            while not take_lock(file.fileno()):
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
        words = ("cat-file", "-e", f"{hash_of(commit)}^{{tree}}")
        return self.git.run(*words, ok=(0, 1, 128)).returncode == 0

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
            name = f"{hash_of(commit)}^{{tree}}"
            self._trees[commit] = self.git.text("rev-parse", "--verify", name)
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
        capture = Capture.of(self.git.text("log", "-1", "--format=%H%x09%P%x09%s", commit))
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
        # A command such as `files branch` has no lock, and its newest objects no ref yet.
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
        words = ("diff-tree", "-r", "-z", "--no-renames", "--numstat")
        return (*words, hash_of(before), hash_of(after))

    def diff(self, before: str, after: str, *options: str) -> str:
        """Return the difference of two trees or commits as a patch that `git apply` takes."""
        words = ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", *options]
        names = (hash_of(before), hash_of(after))
        data = self.git(*words, "--no-ext-diff", "--no-textconv", *names)
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


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file of a repository if it has another content; another process may be reading it."""
    file = folder / name
    if file.is_symlink() or not file.is_file() or file.read_bytes() != text.encode():
        descriptor, draft = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        Path(draft).replace(file)


def _remove(place: Path) -> None:
    """Remove a file, a link, or a folder with its content, also parts of it that are not writable."""

    def writable(function: object, path: str, _: object) -> None:
        Path(path).parent.chmod(0o700)
        Path(path).unlink(missing_ok=True)

    # Another process may remove the same.
    with contextlib.suppress(FileNotFoundError):
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place, onerror=writable)
