"""The files beside the database: the side lock, contents above 1 MiB, and who may read them.

Rules:

1. Files are made 0600, folders that we make 0700. What exists keeps its mode.
2. Whoever writes, checkpoints or closes the database holds the lock on `<db>-lock`. It is a side
   file because closing any descriptor of a database drops SQLite's own locks on it, and it keeps
   two connections from resetting the WAL at once, which SQLite before 3.51.3 can get wrong.
3. A content file, and a database, is whole before its name exists: written, synced, renamed, the
   folder synced. So no moment of a crash leaves a file that looks like a lost one.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from ...errors import JournalDamaged, JournalUnavailable
from .encoding import content_digest

__all__ = [
    "SideLock", "create_private", "file_number", "publish", "read_content", "refuse_lost",
    "refuse_network", "write_content",
]  # fmt: skip

PATIENCE = 30.0  # seconds to wait for another process to let go of the side lock
_PRIVATE = 0o600
_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)


def create_private(path: Path) -> None:
    """Make an empty file of mode 0600, and its folder of mode 0700, where they do not exist."""
    _private_folder(path.parent)
    # A file that is there is not touched: closing it would drop the locks that SQLite holds on it in
    # this process, and another process would take the WAL away under its connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))


def publish(draft: Path, path: Path) -> None:
    """Give a file that is whole its name, durably; to be called with the side lock held.

    What has the name already stays: then the draft is dropped.
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            draft.rename(path)
    draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def refuse_lost(path: Path) -> None:
    """Refuse to take a database for one that was never there, where its log is left of it.

    Raises:
        JournalDamaged: saying that it is lost, and what to do.
    """
    wal = path.with_name(f"{path.name}-wal")
    try:
        left = wal.stat().st_size
    except OSError:
        return
    if left:
        raise JournalDamaged(
            f"{path}: it is lost: its log {wal.name} is there, but the database itself was deleted or moved; "
            f"put it back beside its log, or delete {wal.name} and {path.name}-shm to begin anew"
        )


def file_number(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of the same name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _private_folder(folder: Path) -> None:
    if not folder.exists():
        _private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse a journal on a network file system, where locks and shared memory are not reliable.

    Raises:
        JournalUnavailable: naming the kind of file system, where the system tells it.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return
    place = f"{path.parent.resolve()}/"
    point, kind = "", ""
    for fields in (line.split(" ") for line in lines):
        mounted = fields[1].replace("\\040", " ").rstrip("/")
        if place.startswith(f"{mounted}/") and len(mounted) >= len(point):
            point, kind = mounted, fields[2]
    if kind in _NETWORK:
        raise JournalUnavailable(
            f"{path}: it lies on a network file system ({kind}), where SQLite's locks cannot be "
            "relied on; keep the journal on a local disk"
        )


class SideLock:
    """The lock that every writer of the database holds while it writes.

    Raises:
        JournalUnavailable: on entering, if another process keeps it for `patience` seconds.
    """

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)

    def __enter__(self) -> None:
        if not self.taken():
            self._wait()

    def taken(self) -> bool:
        """Take it, unless another process holds it; return whether it was taken."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self) -> None:
        # Polled rather than blocked on, so that a stopped process cannot stop us for ever.
        until, pause = time.monotonic() + self._patience, 0.0005
        while time.monotonic() < until:
            time.sleep(pause)
            pause = min(pause * 2, 0.01)
            if self.taken():
                return
        raise JournalUnavailable(
            f"{self._path}: another process has held this lock for {self._patience:g} seconds; "
            "end that process, or let it go on"
        )

    def free(self) -> None:
        """Let others have it."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def __exit__(self, *_: object) -> None:
        self.free()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def _place(folder: Path, digest: bytes) -> Path:
    name = digest.hex()
    return folder / name[:2] / name


def write_content(folder: Path, digest: bytes, body: bytes) -> None:
    """Keep a content as a file named by its digest, unless it is there and whole."""
    if read_content(folder, digest) is not None:
        return
    place = _place(folder, digest)
    _private_folder(place.parent)
    draft = place.with_suffix(f".{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(place)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    for changed in (place.parent, folder, folder.parent):
        _sync_folder(changed)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_content(folder: Path, digest: bytes) -> bytes | None:
    """Return a content kept as a file; None if it is missing or does not match its name."""
    try:
        body = _place(folder, digest).read_bytes()
    except OSError:
        return None
    return body if content_digest(body) == digest else None
