"""A copy of the files of one folder: bytes from the folder, and an index that knows the copies.

Git would read each file from the store, decompress it and hash it again: 0.5 s for 10,000 files. The index
of a folder that was just scanned has the hash of each file, so the copies only need their own times in it.
A file that changed since the scan is left to git.

The module is also a program, without imports of the package: half of a large folder is copied by a second
process, because threads of Python do not copy small files faster than one thread.

    copying.py SOURCE TARGET INDEX FIRST STEP      prints the times of the copies, 40 bytes each
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["copied", "index_entries", "same_file"]

# The format of an index is in git's Documentation/gitformat-index.txt: 40 bytes of times and sizes, the
# hash, the flags and the path.
_STAT = struct.Struct(">10I")
_UNKNOWN = bytes(_STAT.size)
_HEADER = 12
_MANY = 2_000  # files from which a second process is worth its start
_MASK = 0xFFFFFFFF
_SECOND = 10**9  # nanoseconds


def copied(
    source: Path,
    target: Path,
    index: Path,
    new_index: Path,
    *,
    hash_bytes: int,
    keep_open: Sequence[int] = (),
) -> int | None:
    """Copy the files of an index from one folder to an empty one, and write the index of the copy.

    Args:
        source: the folder that was just scanned.
        target: the empty folder.
        index: the index of the source.
        new_index: the index of the target. Files that could not be copied have no times in it.
        hash_bytes: the length of an object ID: 20 or 32.
        keep_open: descriptors that a second process inherits, such as that of the lock of the target.

    Returns:
        The number of files that git has to write; None if the index has a format that this cannot read,
        and nothing was copied.
    """
    data = index.read_bytes()
    if not _is_readable(data):
        return None
    places = list(_places(data, hash_bytes))
    # A change within the resolution of the clock has the same time as the scan.
    newest = int(index.stat().st_mtime) - 1
    parts = list[subprocess.Popen[bytes]]()
    if len(places) > _MANY:
        command = [sys.executable, "-I", "-S", __file__, str(source), str(target), str(index)]
        command.append(str(hash_bytes))
        # A copy that outlives our process keeps the lock, so no other process makes the folder meanwhile.
        parts.append(subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=keep_open))
    step = len(parts) + 1
    times = {0: _copy(data, places[::step], source, target, newest)}
    for first, process in enumerate(parts, 1):
        out, _ = process.communicate()
        # Without an answer its files count as not copied.
        times[first] = out if process.returncode == 0 else b""
    changed, missing = bytearray(data[:-hash_bytes]), 0
    for first, packed in times.items():
        for number, (offset, _) in enumerate(places[first::step]):
            one = packed[number * _STAT.size : (number + 1) * _STAT.size]
            if one in (b"", _UNKNOWN):
                missing += 1
                mode = data[offset + 24 : offset + 28]  # is not one of the times
                one = bytes(24) + mode + bytes(12)
            changed[offset : offset + _STAT.size] = one
    checksum = hashlib.sha1 if hash_bytes == 20 else hashlib.sha256
    temporary = new_index.with_name(f"{new_index.name}.new")
    temporary.write_bytes(changed + checksum(changed).digest())
    temporary.replace(new_index)
    return missing


def index_entries(data: bytes, hash_bytes: int) -> Iterator[tuple[bytes, bytes, str]]:
    """Iterate over the paths of an index, each with the times and the hash; none of an unknown format."""
    for offset, path in _places(data, hash_bytes) if _is_readable(data) else ():
        times, end = data[offset : offset + _STAT.size], offset + _STAT.size + hash_bytes
        yield path, times, data[offset + _STAT.size : end].hex()


def same_file(place: Path, known: bytes) -> bool:
    """Return whether a file is as an index knows it, by its time, its number and its size."""
    try:
        now, then = _STAT.unpack(_times(place.lstat())), _STAT.unpack(known)
    except OSError:
        return False
    # Git writes no size if the file may have changed in the second of the index, and some no parts of seconds.
    return (
        now[2] == then[2]
        and then[3] in (0, now[3])
        and now[5] == then[5]
        and then[9] in (0, now[9])
    )


def _is_readable(data: bytes) -> bool:
    return data[:4] == b"DIRC" and 2 <= int.from_bytes(data[4:8], "big") <= 3


def _places(data: bytes, hash_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the offsets and paths of the entries."""
    offset, fixed = _HEADER, _STAT.size + hash_bytes + 2
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = data[offset + fixed - 2]
        start = offset + fixed + (2 if flags & 0x40 else 0)
        end = data.index(b"\0", start)
        yield offset, data[start:end]
        # Entries are padded with 1 to 8 zeros to a multiple of 8 bytes.
        offset += (end - offset + 8) // 8 * 8


def _copy(
    data: bytes, places: list[tuple[int, bytes]], source: Path, target: Path, newest: int
) -> bytes:
    """Copy files, and return the times of the copies; zeros for a file that git has to write."""
    root, to = os.fsencode(source) + b"/", os.fsencode(target) + b"/"
    made: set[bytes] = set()
    times = bytearray()
    for offset, path in places:
        folder = path.rpartition(b"/")[0]
        if folder not in made:
            Path(os.fsdecode(to + folder)).mkdir(parents=True, exist_ok=True)
            made.add(folder)
        known = data[offset : offset + _STAT.size]
        packed = _UNKNOWN
        with contextlib.suppress(OSError):
            packed = _one(root + path, to + path, known, newest) or _UNKNOWN
        times += packed
    return bytes(times)


def _one(place: bytes, copy: bytes, known: bytes, newest: int) -> bytes:
    """Copy one file if it is as the index knows it; return the times of the copy, else b""."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        latest = max(status.st_ctime_ns, status.st_mtime_ns) // _SECOND
        if _times(status) != known or latest >= newest:
            return b""
        mode = 0o777 if status.st_mode & stat.S_IXUSR else 0o666
        made = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            left = status.st_size
            while left and (part := os.read(descriptor, min(left, 1 << 20))):
                left -= os.write(made, part)
            if left or os.fstat(descriptor).st_ctime_ns != status.st_ctime_ns:
                return b""
            # The time of the source: a copy as new as its index would be compared again by each scan.
            os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
            return _times(os.fstat(made))
        finally:
            os.close(made)
    finally:
        os.close(descriptor)


def _times(status: os.stat_result) -> bytes:
    """Return the times and the size of a file as an index has them."""
    mode = 0o100755 if status.st_mode & stat.S_IXUSR else 0o100644
    changed, modified = status.st_ctime_ns, status.st_mtime_ns
    values = (
        changed // _SECOND & _MASK, changed % _SECOND, modified // _SECOND & _MASK, modified % _SECOND,
        status.st_dev & _MASK, status.st_ino & _MASK, mode, status.st_uid & _MASK, status.st_gid & _MASK,
        status.st_size & _MASK,
    )  # fmt: skip
    return _STAT.pack(*values)


def main() -> None:
    """Copy every second file, and print the times of the copies."""
    source, target, index = (Path(word) for word in sys.argv[1:4])
    data = index.read_bytes()
    places = list(_places(data, int(sys.argv[4])))[1::2]
    newest = int(index.stat().st_mtime) - 1
    sys.stdout.buffer.write(_copy(data, places, source, target, newest))


if __name__ == "__main__":
    main()
