"""The end of a workspace: the chosen snapshot becomes a branch, a patch, or changes in the user's folder.

Keys in the files that a loop changed are reported, or left out, before the files are handed over.

Contents are handed over as the user's git would store them, with line ends and encodings by his attributes and
configuration. The private store has the bytes that are on the disk. His settings are read as text, and used in a
repository of ours beside the objects of the store. It has no configuration of his, so no filter driver runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..._platform import temporary_folder
from ...records import Iteration, Result, Status
from ...records.codec import Json
from ...records.display import idea_of
from ...records.redaction import Redactor
from .copying import index_entries, same_file
from .store import Git, GitError, GitStore, slug_of
from .tree import FileTree, WorkspaceSource

if TYPE_CHECKING:
    from .workspace import Files

__all__ = [
    "Branch",
    "HandOver",
    "Stored",
    "applied",
    "as_stored",
    "committed_tree",
    "handed_over",
    "make_branch",
    "paths_with_secrets",
    "stored_start",
    "without_changes",
    "write_patch",
]

# The settings that decide how git reads a file of the disk.
_SETTINGS = ("autocrlf", "eol", "filemode", "symlinks", "attributesfile")
_NO_FILTER = (b"unspecified", b"unset", b"set")


class Stored(NamedTuple):
    """A tree, and the changed files in it whose filter did not run."""

    tree: str
    filtered: list[str]


class _Change(NamedTuple):
    path: bytes
    before: str  # the blob
    removed: bool


def as_stored(
    store: GitStore,
    source: WorkspaceSource,
    before: str,
    after: str,
    onto: str,
    submodules: Iterable[str] = (),
    *,
    untouched: bool = False,
) -> Stored:
    """Return the tree that git would store if the files of one tree were changed to those of another.

    Args:
        store: the store of the trees.
        source: the user's folder.
        before: the tree of the files before, as bytes.
        after: the tree of the files after, as bytes.
        onto: the tree of the files before, as git stores them.
        submodules: folders that are left as they are.
        untouched: whether a file that is as it was checked out, by the times in the user's index, counts as
            unchanged. Without its filter, its content does not show that.
    """
    kept = tuple(os.fsencode(f"{path}/") for path in submodules)
    rows = store.git("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")
    changes = [
        _Change(path, head.split()[2].decode(), head.endswith(b"D"))
        for head, path in zip(rows[::2], rows[1::2], strict=False)
        if not (path + b"/").startswith(kept)
    ]
    if not changes:
        return Stored(onto, [])
    with temporary_folder("stored") as folder:
        return _stored(store, source, changes, (after, onto), folder, untouched=untouched)


def _stored(
    store: GitStore,
    source: WorkspaceSource,
    changes: list[_Change],
    trees: tuple[str, str],
    scratch: Path,
    *,
    untouched: bool,
) -> Stored:
    after, onto = trees
    files, folder = scratch / "files", scratch / "git"
    files.mkdir()
    form = "sha256" if len(after) == 64 else "sha1"
    Git(cwd=scratch)("init", "--quiet", "--bare", f"--object-format={form}", "--", str(folder))
    attributes = folder / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_bytes(source.local_file("info/attributes"))
    git = Git(
        folder,
        work_tree=files,
        index=scratch / "index",
        objects=store.folder / "objects",
        cwd=files,
        settings={**_settings_of_user(source), "core.safecrlf": "false"},
    )
    present = [change for change in changes if not change.removed]
    names = b"".join(change.path + b"\0" for change in present)
    bytes_of = replace(store.git, work_tree=files, index=scratch / "bytes", cwd=files)
    bytes_of("read-tree", after)
    bytes_of("checkout-index", "--force", "--quiet", "-z", "--stdin", stdin=names)
    git("read-tree", onto)
    gone = b"".join(change.path + b"\0" for change in changes if change.removed)
    git("update-index", "--force-remove", "-z", "--stdin", stdin=gone)
    # First the rules, which decide on the other files.
    rules = [path for path in names.split(b"\0") if path.rpartition(b"/")[2] == b".gitattributes"]
    for stdin in (b"".join(path + b"\0" for path in rules), names):
        git("update-index", "--add", "--replace", "-z", "--stdin", stdin=stdin)
    rows = git("check-attr", "-z", "--stdin", "filter", stdin=names).split(b"\0")
    drivers = zip(rows[::3], rows[2::3], strict=False)
    filtered = {path for path, driver in drivers if driver not in _NO_FILTER}
    if filtered and untouched:
        clean = _as_checked_out(source, [c for c in present if c.path in filtered], git)
        git("update-index", "-z", "--index-info", stdin=b"".join(clean.values()))
        filtered -= clean.keys()
    return Stored(git.text("write-tree", "--missing-ok"), sorted(map(os.fsdecode, filtered)))


def _as_checked_out(
    source: WorkspaceSource, changes: list[_Change], git: Git
) -> dict[bytes, bytes]:
    """Return the rows for the index of those files that are as git checked them out, by the user's index."""
    assert git.index is not None
    copy = git.index.with_name("checked-out")
    copy.write_bytes(source.local_file("index"))
    # The form that the entries are read from.
    replace(git, index=copy)("update-index", "--index-version", "2", ok=(0, 128))
    data = copy.read_bytes()
    wanted, rows = {change.path: change.before for change in changes}, {}
    for path, known, blob in index_entries(data, len(changes[0].before) // 2):
        if wanted.get(path) == blob and same_file(source.root / os.fsdecode(path), known):
            mode = int.from_bytes(known[24:28], "big")
            rows[path] = f"{mode:o} {blob}\t".encode() + path + b"\0"
    return rows


def _settings_of_user(source: WorkspaceSource) -> dict[str, str]:
    """Return the settings that decide on contents, from the files of the system, the user and the repository."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git"
    files = [Path("/etc/gitconfig"), home / "config", Path.home() / ".gitconfig"]
    if own := os.environ.get("GIT_CONFIG_GLOBAL"):
        files[1:] = [Path(own)]
    places = [("--file", str(file)) for file in files if file.is_file()]
    found = {"core.attributesfile": str(home / "attributes")}
    for place in (*places, ("--local",)) if source.git else places:
        words = ("-z", "--includes", "--get-regexp", f"^core\\.({'|'.join(_SETTINGS)})$")
        rows = Git(cwd=source.root)("config", *place, *words, ok=(0, 1))
        for row in os.fsdecode(rows).split("\0"):
            name, _, value = row.partition("\n")
            if name:
                found[name.lower()] = value or "true"
    found["core.attributesfile"] = str(Path(found["core.attributesfile"]).expanduser())
    return found


@dataclass(frozen=True)
class HandOver:
    """A snapshot and where it comes from.

    Args:
        base: the commit of the files at the start of the run.
        commit: the commit of the chosen snapshot.
        message: the message of the commit.
        head: the user's commit at the start of the run, or "".
        stored: the tree of the files at the start as the user's git stores them; "" if it is not recorded.
        filtered: the files that differ from the user's commit at the start, and whose filter did not run.
        submodules: the commits of the submodules at the start, by path.
        chain: the commits between the base and the snapshot, oldest first, with their messages; empty
            for one commit.
    """

    base: str
    commit: str
    message: str
    head: str = ""
    stored: str = ""
    filtered: tuple[str, ...] = ()
    submodules: dict[str, str] = field(default_factory=dict)
    chain: tuple[tuple[str, str], ...] = ()


class Branch(NamedTuple):
    """A branch.

    Args:
        name: its name.
        filtered: the changed files in it whose filter did not run.
        uncommitted: the files in it that the user had not committed at the start; git does not merge it over them.
    """

    name: str
    filtered: list[str]
    uncommitted: list[str]


def make_branch(store: GitStore, source: WorkspaceSource, work: HandOver, name: str) -> Branch:
    """Create a branch in the user's repository.

    An existing branch of that name stays, and the new one gets a number. The commit is the same each time,
    so a repeated call finds the branch that it made.
    """
    parent = work.head
    stored = Stored(work.stored, list(work.filtered))
    if not work.stored:
        stored = stored_start(store, source, store.tree_of(work.base), work.head, work.submodules)
    uncommitted = sorted(store.changes(committed_tree(store, parent), stored.tree))
    if not parent or stored.tree != store.tree_of(parent):
        message = "Uncommitted changes at the start of the run\n"
        parent = store.commit(stored.tree, parent, message)
    filtered = set(stored.filtered)
    for commit, message in work.chain or ((work.commit, work.message),):
        after = as_stored(
            store, source, work.base, commit, onto=stored.tree, submodules=work.submodules
        )
        filtered |= set(after.filtered)
        parent = store.commit(after.tree, parent, message)
    git = Git(cwd=source.root)
    for number in range(1, 1000):
        branch = name if number == 1 else f"{name}-{number}"
        known = git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1))
        if known == parent:
            break
        if not known:
            # Not by a fetch or a push: the configuration of the user's repository names programs for both.
            wanted = f"{parent}\n^{work.head}\n" if work.head else f"{parent}\n"
            words = ("pack-objects", "--revs", "--stdout", "--quiet")
            git("unpack-objects", "-q", stdin=store.git(*words, stdin=wanted.encode()))
            git("update-ref", f"refs/heads/{branch}", parent, "0" * len(parent))
            break
    return Branch(branch, sorted(filtered), uncommitted)


def committed_tree(store: GitStore, head: str) -> str:
    """Return the tree of the user's commit; without one the empty tree."""
    return store.tree_of(head) if head else store.git.text("mktree")


def stored_start(
    store: GitStore,
    source: WorkspaceSource,
    tree: str,
    head: str,
    submodules: Mapping[str, str],
    *,
    untouched: bool = False,
) -> Stored:
    """Return the tree of the files at the start as the user's git stores them: that of his commit, if they are clean.

    Args:
        store: the store of the trees.
        source: the user's folder.
        tree: the tree of the files as bytes.
        head: the user's commit, or "".
        submodules: the commits of the submodules, by path.
        untouched: as in `as_stored`.
    """
    onto = committed_tree(store, head)
    return as_stored(store, source, onto, tree, onto, submodules, untouched=untouched)


def write_patch(store: GitStore, work: HandOver, file: Path) -> None:
    """Write the changes since the start as a file that `git apply` takes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = store.diff(work.base, work.commit)
    # A patch may contain text in any encoding, and `git apply` needs its exact bytes.
    file.write_bytes(text.encode("utf-8", "surrogateescape"))


class Applied(NamedTuple):
    """The changed paths of a folder, or those that both sides changed so that nothing was changed."""

    changed: list[str]
    conflicts: list[str]


def applied(user: FileTree, work: HandOver, *, write: bool = True) -> Applied:
    """Apply the changes since the start to the user's folder: all of them, or none.

    Args:
        user: the user's folder.
        work: the snapshot.
        write: false to change nothing and only return what would change.

    Raises:
        GitError: if git is older than 2.38, which merges trees without a folder.
    """
    store = user.store
    present, _ = user.scan()
    ours = store.commit(present, work.base, "present")
    theirs = store.commit(store.tree_of(work.commit), work.base, "chosen")
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
    # 1 is a conflict, 129 an unknown option: git before 2.38 has no --write-tree.
    done = store.git.run(*words, ours, theirs, ok=(0, 1, 129))
    if done.returncode == 129:
        raise GitError("apply needs git 2.38 or newer; use merge: branch or merge: patch")
    tree, *names = [part for part in done.stdout.decode(errors="replace").split("\0") if part]
    if done.returncode == 1:
        return Applied([], sorted(set(names)))
    if write:
        # Every file has its time in the index since the scan, except those that a scan never touched.
        user.git("update-index", "-q", "--refresh")
        user.git("read-tree", "-m", "-u", present, tree)
    return Applied(list(store.changes(present, tree)), [])


LARGEST = 5_000_000  # bytes of a file that is searched; a larger one is data
# The documented forms of keys: OpenAI and Anthropic, GitHub, GitLab, AWS, Google, Slack, and PEM (RFC 7468).
_FORMS = re.compile(
    rb"\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{40,}"
    rb"|\bglpat-[A-Za-z0-9_-]{20}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{35}"
    rb"|\bxox[abprs]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def paths_with_secrets(
    store: GitStore, base: str, commit: str, redactor: Redactor | None
) -> list[str]:
    """Return the paths whose content has a key that it did not have at the base.

    Args:
        store: the store of both commits.
        base: the commit of the start.
        commit: the commit of the result.
        redactor: the filter with the values of the keys of this process.

    Raises:
        GitError: if a file cannot be read: a file that was not searched may have a key.
    """
    found = []
    words = ("diff-tree", "-r", "-z", "--no-renames", base, commit)
    rows = store.git(*words).split(b"\0")
    for head, path in zip(rows[::2], rows[1::2], strict=False):
        former, mode, before, after, _ = head.split()
        if not mode.startswith(b"100"):
            continue
        new = _keys(_blob(store, after), redactor)
        # There was no file, or a repository in its place.
        old = _blob(store, before) if former.startswith((b":100", b":120")) else b""
        if new and new - _keys(old, redactor):
            found.append(os.fsdecode(path))
    return sorted(found)


def _blob(store: GitStore, digest: bytes) -> bytes:
    return store.git("cat-file", "blob", digest.decode())[:LARGEST]


def _keys(content: bytes, redactor: Redactor | None) -> set[bytes]:
    """Return the keys in a content; the lines with those that only the filter knows."""
    keys = set(_FORMS.findall(content))
    if redactor is not None:
        text = content.decode("utf-8", "replace")
        if redactor.clean(text) != text:
            lines = (line for line in text.splitlines() if redactor.clean(line) != line)
            # A key over several lines is in none of them.
            keys |= {line.encode() for line in lines} or {content}
    return keys


def without_changes(store: GitStore, base: str, commit: str, paths: Iterable[str]) -> str:
    """Return a commit whose files at some paths are those of the base."""
    index = store.home / f"secrets-{commit[:12]}-{os.getpid()}.index"
    git = Git(store.folder, index=index, cwd=store.home)
    tree = store.tree_of(commit)
    try:
        git("read-tree", tree)
        rows = b""
        for path in paths:
            name = os.fsencode(path)
            rows += b"0 " + b"0" * len(tree) + b"\t" + name + b"\0"
            words = ("ls-tree", "-z", "--full-tree", base, "--", f":(literal){path}")
            rows += git(*words)
        git("update-index", "-z", "--index-info", stdin=rows)
        cleaned = git.text("write-tree")
    finally:
        index.unlink(missing_ok=True)
    return store.commit(cleaned, base, "without files that have a key")


def handed_over(files: Files, result: Result, snapshot: Json) -> dict[str, Json]:
    """Hand over a snapshot; return the branch, patch or conflicts, and the files that have a key.

    Args:
        files: the workspace.
        result: the result of its loop or workflow.
        snapshot: the chosen snapshot, with its iteration.
    """
    store, base, commit = files.tree.store, files.base, snapshot["commit"]
    # A failed or cancelled run keeps its snapshots, but hands nothing over.
    ended = result.status in (Status.SATISFIED, Status.EXHAUSTED, Status.IMPOSSIBLE)
    if files.merge == "none" or not ended or store.tree_of(base) == snapshot["tree"]:
        return {}
    found = paths_with_secrets(store, base, commit, files.redactor)
    chain: tuple[tuple[str, str], ...] = ()
    if files.settings.commits == "iterations":
        span = f"{base}..{commit}"
        commits = store.git.text("rev-list", "--reverse", "--first-parent", span).split()
        items = {item.files["commit"]: item for item in _iterations(result) if item.files}
        chain = tuple((one, _message_of(files, one, items.get(one))) for one in commits)
    work = HandOver(
        base, commit, _message(files, result, snapshot),
        head=files.head, stored=files.stored, filtered=tuple(files.filtered), submodules=files.submodules, chain=chain,
    )  # fmt: skip
    if found and files.settings.secrets == "drop":
        # One commit: those of the iterations have the key too.
        work = replace(work, commit=without_changes(store, base, commit, found), chain=())
    return {**_made(files, result, work), **({"secrets": found} if found else {})}


def _made(files: Files, result: Result, work: HandOver) -> dict[str, Json]:
    """Make the branch or the patch, or change the user's files."""
    store, run = files.tree.store, slug_of(files.run_id)
    if files.merge == "branch":
        made = make_branch(store, files.place, work, files.settings.branch.replace("{run}", run))
        # A project without a commit may have thousands of uncommitted files.
        names = {"filtered": made.filtered, "uncommitted": made.uncommitted[:10]}
        return {"branch": made.name, **{key: value for key, value in names.items() if value}}
    patch = store.home / "patches" / f"{run}-{files.slug}.patch"
    outcome: dict[str, Json] = {}
    # Only a satisfied result may change the user's files; another one becomes a patch.
    if files.merge == "apply" and result.status is Status.SATISFIED:
        changed, conflicts = applied(files.user_tree(), work)
        if not conflicts:
            return {"applied": len(changed)}
        outcome = {"conflicts": conflicts}
    write_patch(store, work, patch)
    return {**outcome, "patch": str(patch)}


def _message(files: Files, result: Result, snapshot: Json) -> str:
    """Return the message of the commit, with the run as trailers."""
    number, history = snapshot.get("iteration", 0), result.history
    chosen = next((item for item in history if item.number == number), None)
    if not number:
        # Of the workspace of a document: the iteration of a loop whose files are there at the end.
        same = [
            item
            for item in _iterations(result)
            if (item.files or {}).get("tree") == snapshot["tree"]
        ]
        chosen = same[-1] if same else None
        loops = (one.history for one in result.loops.values())
        history = next((one for one in loops if any(item is chosen for item in one)), history)
    title = f"{result.name or files.path}: {result.status.value}"
    if chosen is not None:
        title += f" in iteration {chosen.number} of {len(history)}"
    return _with_trailers(title, files, chosen)


def _iterations(result: Result) -> list[Iteration]:
    """Return the iterations of a result and of its loops."""
    return [*result.history, *(item for one in result.loops.values() for item in one.history)]


def _message_of(files: Files, commit: str, item: Iteration | None) -> str:
    """Return the message for the commit of one iteration, or of an edit from outside."""
    if item is None:
        title = files.tree.store.git.text("show", "-s", "--format=%s", commit)
    else:
        title = idea_of(item) if item.accepted is not None else ""
        title = title or f"{files.path}: iteration {item.number}"
    return _with_trailers(title, files, item)


def _with_trailers(title: str, files: Files, item: Iteration | None) -> str:
    """Return a message with the run, the iteration, and its objective or score as trailers."""
    trailers = [f"Loopwright-Run: {files.run_id}"]
    if item is not None:
        trailers.append(f"Loopwright-Iteration: {item.number}")
        if item.objective is not None:
            trailers.append(f"Loopwright-Metric: {item.objective.name} {item.objective.text}")
        elif item.score is not None:
            trailers.append(f"Loopwright-Score: {item.score:g}")
    return "\n".join([title, "", *trailers, ""])
