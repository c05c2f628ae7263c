"""The files beside the database: contents above 1 MiB, and their permissions.

Rules:

1. New files have mode 0600, new folders 0700. The modes of existing ones are not changed.
2. A content file or database is complete before its name exists: write, sync, rename, sync the
   folder. So a crash never leaves a file that looks like a lost one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ...errors import JournalDamaged, JournalUnavailable
from ..recorded.encoding import content_digest

FILE = 1 << 20  # bytes; a larger content becomes a file
_PRIVATE = 0o600
_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600, and its folder of mode 0700, if they do not exist."""
    _private_folder(path.parent)
    # An existing file is not opened: closing it would drop the locks that SQLite holds on it in this
    # process, and another process could then remove the WAL under its connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE))


def publish(draft: Path, path: Path) -> None:
    """Rename a complete file durably, with the side lock held. An existing file stays as it is."""
    # A link fails if the name exists, a rename would replace the journal of another process.
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            draft.replace(path)
    draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def refuse_lost(path: Path) -> None:
    """Refuse to create a database whose log exists: its runs would be lost silently.

    Raises:
        JournalDamaged: if the log exists and is not empty.
    """
    wal = path.with_name(f"{path.name}-wal")
    try:
        size = wal.stat().st_size
    except OSError:
        return
    # A new database would overwrite this log, which may hold the only copy of recent runs.
    if size:
        raise JournalDamaged(
            f"{path}: the database was deleted or moved, but its log {wal.name} still exists; put the "
            f"database back, or delete {wal.name} and {path.name}-shm to start a new journal"
        )


def _private_folder(folder: Path) -> None:
    if not folder.exists():
        _private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse a journal on a network file system, where locks and shared memory are unreliable.

    Raises:
        JournalUnavailable: naming the file system, on systems that list their mounts.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return
    folder = f"{path.parent.resolve()}/"
    point, kind = "", ""
    for fields in (line.split(" ") for line in lines):
        mounted = fields[1].replace("\\040", " ").rstrip("/")
        if folder.startswith(f"{mounted}/") and len(mounted) >= len(point):
            # The deepest mount that contains the folder is its file system.
            point, kind = mounted, fields[2]
    if kind in _NETWORK:
        raise JournalUnavailable(
            f"{path}: it is on a network file system ({kind}), where SQLite's locks are unreliable; "
            "use a path on a local disk"
        )


def _content_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()[:2] / digest.hex()


def write_content(folder: Path, digest: bytes, body: bytes) -> None:
    """Write a content as a durable file, unless the same one exists."""
    # Read and compared: a damaged file of that name is written again.
    if read_content(folder, digest) is not None:
        return
    path = _content_path(folder, digest)
    _private_folder(path.parent)
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    # All levels: a name is durable only after its folder is synced, and each of them may be new.
    for changed in (path.parent, folder, folder.parent):
        _sync_folder(changed)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there; a rename is durable without it
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_content(folder: Path, digest: bytes) -> bytes | None:
    """Return a content stored as a file; None if it is missing or does not match its digest."""
    try:
        body = _content_path(folder, digest).read_bytes()
    except OSError:
        return None
    return body if content_digest(body) == digest else None
