"""Contents as the user's git would store them: line ends and encodings by his attributes and configuration.

The private store has the bytes that are on the disk. His settings are read as text, and used in a repository of
ours beside the objects of the store. It has no configuration of his, so no filter driver runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .copying import index_entries, same_file
from .git import Git
from .sources import WorkspaceSource
from .store import GitStore

__all__ = ["Stored", "as_stored"]

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
    with tempfile.TemporaryDirectory(prefix="loopwright-") as scratch:
        return _stored(store, source, changes, (after, onto), Path(scratch), untouched=untouched)


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
    filtered = _filtered(git, names)
    if filtered and untouched:
        clean = _as_checked_out(source, [c for c in present if c.path in filtered], git)
        rows = b"".join(clean.values())
        git("update-index", "-z", "--index-info", stdin=rows)
        filtered -= clean.keys()
    tree = git.text("write-tree", "--missing-ok")
    return Stored(tree, sorted(map(os.fsdecode, filtered)))


def _filtered(git: Git, names: bytes) -> set[bytes]:
    """Return the paths that have a filter driver."""
    rows = git("check-attr", "-z", "--stdin", "filter", stdin=names).split(b"\0")
    found = zip(rows[::3], rows[2::3], strict=False)
    return {path for path, value in found if value not in _NO_FILTER}


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
