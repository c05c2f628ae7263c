"""The processes that own runs, and whether they are alive.

Each opened store is an owner, and one beat renews the lease of all its runs. Safety does not depend
on leases, because every write compares the epoch of its run. A lease decides only how soon another
process may take a run without `takeover`. On one machine a live process keeps its runs whatever its
clock shows.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..._platform import exists
from ...errors import JournalDamaged
from ...records.codec import Json
from ..recorded.ownership import OwnerState
from ..recorded.rows import Value, as_damage, seal

LEASE = 10.0  # seconds that a lease lasts without a beat
UNSEEN = "alive"  # in place of the start time of a process whose start time is not visible
CLOSED = 0.0  # the end of the lease of a store that was closed


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a store: `wall` (seconds since the epoch) for leases, `steady` for durations."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """An opened store: its process, the end of its lease, its age in seconds."""

    key: int
    place: str
    host: str
    pid: int
    started: str
    until: float
    seconds: float

    def at(self, now: float) -> OwnerState:
        """Return its state at a time; the end of its lease shows when its latest beat was."""
        return OwnerState(
            self.key,
            self.host,
            self.pid,
            seconds=self.seconds,
            seen=self.until - LEASE,
            until=self.until,
            alive=self.alive(now),
        )

    def alive(self, now: float) -> bool:
        """Whether it still holds its runs: until it is closed, and while its process is alive.

        For a process that is not visible from here, the lease and the clock decide.
        """
        if self.until == CLOSED:
            return False
        # On this machine the process table is certain, and a clock that was set is not.
        if self.place == place():
            same = started(self.pid) == self.started
            return same and (self.started != UNSEEN or self.until > now)
        return self.until > now


_PROC = Path("/proc")


@cache
def place(proc: Path = _PROC) -> str:
    """Return a name for the scope in which a process number is unique: host, boot and namespace."""
    boot, namespace = proc / "sys/kernel/random/boot_id", proc / "self/ns/pid"
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()} {namespace.readlink()}"
    except OSError:
        return socket.gethostname()


def started(pid: int, proc: Path = _PROC) -> str:
    """Return the start time of a process in the system's own unit; "" if it has ended."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return "" if (proc / "self/stat").exists() else _started_by_ps(pid)
    # After the last parenthesis: the name of a process may contain spaces and parentheses.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]  # ended, or waiting to be reaped


def _started_by_ps(pid: int) -> str:
    """Return the start time of a process from `ps`, on systems without /proc."""
    if not exists(pid):
        return ""
    if (ps := shutil.which("ps")) is None:
        return UNSEEN
    command = [ps, "-o", "stat=,lstart=", "-p", str(pid)]
    # The time must be the same text in every process that compares it.
    env = {"LC_ALL": "C", "TZ": "UTC"}
    output = subprocess.run(command, capture_output=True, text=True, check=False, env=env).stdout
    state, _, start = output.strip().partition(" ")
    return "" if state.startswith("Z") else start.strip() or UNSEEN


_TEXTS = (0, 1, 3)  # positions of the text among the values of an owner


def _sealed(owner: LeaseOwner) -> list[Value]:
    return [owner.place, owner.host, owner.pid, owner.started, owner.until, owner.seconds]


def register(db: sqlite3.Connection, now: float, lease: float = LEASE) -> LeaseOwner:
    """Insert a row for this store in a transaction, and delete dead owners without runs."""
    idle = db.execute(
        "SELECT id, place, pid, started, until FROM owners WHERE until<? AND "
        "id<(SELECT max(id) FROM owners) AND NOT EXISTS("
        "SELECT 1 FROM runs WHERE status='running' AND owner=owners.id)",
        (now - LEASE,),
    ).fetchall()
    # At this moment, because a program that opens many journals would otherwise leave a row for each. The
    # highest id stays, so that no id is used twice.
    for key, where, pid, start, until in idle:
        owner = LeaseOwner(
            key=key,
            place=_text(where),
            host="",
            pid=pid,
            started=_text(start),
            until=until,
            seconds=0.0,
        )
        if not owner.alive(now):
            db.execute("DELETE FROM owners WHERE id=?", (key,))
    pid, host = os.getpid(), socket.gethostname()
    owner = LeaseOwner(
        key=0,
        place=place(),
        host=host,
        pid=pid,
        started=started(pid),
        until=now + lease,
        seconds=0.0,
    )
    values = _sealed(owner)
    cursor = db.execute("INSERT INTO owners VALUES(NULL,?,?,?,?,?,?,?)", [*values, seal(values)])
    return replace(owner, key=cursor.lastrowid or 0)


def _text(value: Json) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def renew(db: sqlite3.Connection, owner: LeaseOwner, until: float, seconds: float) -> LeaseOwner:
    """Write the end of a store's lease and its age, in a transaction."""
    owner = replace(owner, until=until, seconds=seconds)
    db.execute(
        "UPDATE owners SET until=?, seconds=?, seal=? WHERE id=?",
        (until, seconds, seal(_sealed(owner)), owner.key),
    )
    return owner


def read_owners(db: sqlite3.Connection) -> dict[int, LeaseOwner]:
    """Return every owner by its key. Raises JournalDamaged if one fails its checksum."""
    owners = {}
    for key, *values, checksum in db.execute("SELECT * FROM owners").fetchall():
        for i in _TEXTS:
            with as_damage(f"owner {key}"):
                # A seal that does not match is reported, a decoding error would hide which row is
                # damaged.
                values[i] = values[i].decode("utf-8", "replace")
        owner = LeaseOwner(key, *values)
        if seal(_sealed(owner)) != checksum:
            raise JournalDamaged(
                f"owner {key}: this row does not match its checksum; "
                "restore the journal from a backup"
            )
        owners[key] = owner
    return owners


def owners_at(db: sqlite3.Connection, now: float) -> dict[int, OwnerState]:
    """Return the state of every owner at a time, by its key."""
    return {key: owner.at(now) for key, owner in read_owners(db).items()}


def owner_at(db: sqlite3.Connection, key: int | None, now: float) -> OwnerState | None:
    """Return the state of one owner at a time; None if there is none."""
    # Only this one is asked whether it is alive, which reads the process table.
    owner = read_owners(db).get(key or 0)
    return None if owner is None else owner.at(now)
