"""Which process holds a run: owners, and whether they still live.

A run is owned by an opened store, not by a process: one beat renews the lease of all its runs. Safety never rests on
this (the epoch of a run is checked with every write); it decides only how soon a run may be taken without asking.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import JournalDamaged, RunLocked
from .rows import seal

__all__ = ["BEAT", "LEASE", "Clocks", "Owner", "locked", "read_owners", "register", "renew"]

LEASE = 10.0  # seconds that a lease lasts without a beat
BEAT = 1.0  # seconds between beats


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a store: `wall` since the epoch for leases, `steady` for what never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Owner:
    """A store that was opened: its process, until when it holds its runs, how long it has been alive."""

    key: int
    place: str
    host: str
    pid: int
    started: str
    until: float
    seconds: float

    def alive(self, now: float) -> bool:
        """Whether its lease holds and its process, if it can be seen from here, is still the same one."""
        if self.until <= now:
            return False
        return self.place != place() or _started(self.pid) == self.started


@cache
def place() -> str:
    """Return a name for where process numbers mean the same: host, boot and process namespace."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            parts.append(os.readlink(path) if path.endswith("pid") else Path(path).read_text().strip())
        except OSError:
            parts.append("")
    return " ".join(parts)


def _started(pid: int) -> str:
    """Return when a process started, as its system counts; "" if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _probe(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]  # a zombie holds nothing any more


def _probe(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"


def _sealed(owner: Owner) -> list[Any]:
    return [owner.place, owner.host, owner.pid, owner.started, owner.until, owner.seconds]


def register(db: sqlite3.Connection, now: float) -> Owner:
    """Make a row for this store, in a transaction, and drop those of dead ones that hold nothing."""
    db.execute(
        "DELETE FROM owners WHERE until<? AND id<(SELECT max(id) FROM owners) AND NOT EXISTS("
        "SELECT 1 FROM runs WHERE status='running' AND owner=owners.id)",
        (now - LEASE,),
    )
    owner = Owner(0, place(), socket.gethostname(), os.getpid(), _started(os.getpid()), now + LEASE, 0.0)
    values = _sealed(owner)
    cursor = db.execute(
        "INSERT INTO owners(place,host,pid,started,until,seconds,seal) VALUES(?,?,?,?,?,?,?)",
        [*values, seal(values)],
    )
    return Owner(cursor.lastrowid or 0, *values)


def renew(db: sqlite3.Connection, owner: Owner, until: float, seconds: float) -> Owner:
    """Write, in a transaction, until when a store holds its runs and how long it has been alive."""
    owner = Owner(owner.key, owner.place, owner.host, owner.pid, owner.started, until, seconds)
    db.execute(
        "UPDATE owners SET until=?, seconds=?, seal=? WHERE id=?",
        (until, seconds, seal(_sealed(owner)), owner.key),
    )
    return owner


def read_owners(db: sqlite3.Connection) -> dict[int, Owner]:
    """Return every owner by its key. Raises JournalDamaged for one that does not match its checksum."""
    found = {}
    rows = db.execute("SELECT id, place, host, pid, started, until, seconds, seal FROM owners")
    for key, where, host, pid, started, until, seconds, checksum in rows.fetchall():
        texts = [t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in (where, host, started)]
        owner = Owner(key, texts[0], texts[1], pid, texts[2], until, seconds)
        if seal(_sealed(owner)) != checksum:
            raise JournalDamaged(
                f"owner {key}: this row does not match its checksum; restore the journal from a backup"
            )
        found[key] = owner
    return found


def locked(run_id: str, owner: Owner) -> RunLocked:
    """Return the error for a run that a live process owns."""
    return RunLocked(
        f"{run_id}: process {owner.pid} on {owner.host} is running it; wait for it, "
        f"or stop it with: loopwright cancel {run_id}"
    )
