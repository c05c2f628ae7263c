"""Keys in the files that a loop changed: they are reported, or left out, before the files are handed over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ...records.redaction import Redactor
from .git import Git
from .store import GitStore

__all__ = ["paths_with_secrets", "without_changes"]

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
