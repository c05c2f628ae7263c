"""Which process holds a run: owners, and whether they still live.

A run is owned by an opened store: one beat renews the lease of all its runs. Safety never rests on
that (the epoch of a run is checked with every write); it decides only how soon a run may be taken
without asking. On one machine a live process keeps its runs whatever its clock says.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import JournalDamaged, RunLocked
from .errors import as_damage
from .rows import seal

__all__ = [
    "BEAT", "CLOSED", "LEASE", "Clocks", "Owner", "locked", "place", "read_owners", "register", "renew",
    "started",
]  # fmt: skip

LEASE = 10.0  # seconds that a lease lasts without a beat
UNSEEN = "alive"  # when a process started, if only that it is there can be seen
CLOSED = 0.0  # until when a store that was closed holds its runs
BEAT = 0.5  # seconds between beats


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a store: `wall` since the epoch for leases, `steady` for what never jumps."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Owner:
    """A store that was opened: its process, until when it holds its runs, its age in seconds."""

    key: int
    place: str
    host: str
    pid: int
    started: str
    until: float
    seconds: float

    def alive(self, now: float) -> bool:
        """Whether it still holds its runs: here, while its process lives and has not closed it.

        Of a process that cannot be seen from here only its lease tells, and that by the clock.
        """
        if self.until == CLOSED:
            return False
        if self.place == place():
            same = started(self.pid) == self.started
            return same and (self.started != UNSEEN or self.until > now)
        return self.until > now


_PROC = Path("/proc")


@cache
def place(proc: Path = _PROC) -> str:
    """Return a name for where process numbers mean the same: host, boot and namespace."""
    boot, namespace = proc / "sys/kernel/random/boot_id", proc / "self/ns/pid"
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()} {namespace.readlink()}"
    except OSError:
        return socket.gethostname()


def started(pid: int, proc: Path = _PROC) -> str:
    """Return when a process started, as its system counts; "" if it is gone."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return "" if (proc / "self/stat").exists() else _probed(pid)
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]  # a dead one holds nothing any more


def _probed(pid: int) -> str:
    """Return when a process started, as `ps` says where the system does not list processes."""
    with suppress(PermissionError):  # it is somebody else's
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
    if (ps := shutil.which("ps")) is None:
        return UNSEEN
    wanted = [ps, "-o", "stat=,lstart=", "-p", str(pid)]
    env = {"LC_ALL": "C", "TZ": "UTC"}
    said = subprocess.run(wanted, capture_output=True, text=True, check=False, env=env).stdout
    state, _, when = said.strip().partition(" ")
    return "" if state.startswith("Z") else when.strip() or UNSEEN


_TEXTS = (0, 1, 3)  # where the values of an owner are text


def _sealed(owner: Owner) -> list[Any]:
    return [owner.place, owner.host, owner.pid, owner.started, owner.until, owner.seconds]


def register(db: sqlite3.Connection, now: float) -> Owner:
    """Make a row for this store in a transaction, and drop dead ones that hold nothing."""
    _drop_dead(db, now)
    pid = os.getpid()
    owner = Owner(
        key=0,
        place=place(),
        host=socket.gethostname(),
        pid=pid,
        started=started(pid),
        until=now + LEASE,
        seconds=0.0,
    )
    values = _sealed(owner)
    cursor = db.execute(
        "INSERT INTO owners VALUES(NULL,?,?,?,?,?,?,?)",
        [*values, seal(values)],
    )
    return replace(owner, key=cursor.lastrowid or 0)


def _drop_dead(db: sqlite3.Connection, now: float) -> None:
    """Drop the rows of stores that are gone; the highest id stays, so that none is given twice."""
    idle = db.execute(
        "SELECT id, place, pid, started, until FROM owners WHERE until<? AND "
        "id<(SELECT max(id) FROM owners) AND NOT EXISTS("
        "SELECT 1 FROM runs WHERE status='running' AND owner=owners.id)",
        (now - LEASE,),
    ).fetchall()
    for key, where, pid, began, until in idle:
        one = Owner(
            key=key,
            place=_plain(where),
            host="",
            pid=pid,
            started=_plain(began),
            until=until,
            seconds=0.0,
        )
        if not one.alive(now):
            db.execute("DELETE FROM owners WHERE id=?", (key,))


def _plain(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def renew(db: sqlite3.Connection, owner: Owner, until: float, seconds: float) -> Owner:
    """Write, in a transaction, until when a store holds its runs, and its age."""
    owner = replace(owner, until=until, seconds=seconds)
    db.execute(
        "UPDATE owners SET until=?, seconds=?, seal=? WHERE id=?",
        (until, seconds, seal(_sealed(owner)), owner.key),
    )
    return owner


def read_owners(db: sqlite3.Connection) -> dict[int, Owner]:
    """Return every owner by its key. Raises JournalDamaged if one fails its checksum."""
    found = {}
    for key, *values, checksum in db.execute("SELECT * FROM owners").fetchall():
        for i in _TEXTS:
            with as_damage(f"owner {key}"):
                values[i] = values[i].decode("utf-8", "replace")
        owner = Owner(key, *values)
        if seal(_sealed(owner)) != checksum:
            raise JournalDamaged(
                f"owner {key}: this row does not match its checksum; "
                "restore the journal from a backup"
            )
        found[key] = owner
    return found


def locked(run_id: str, owner: Owner) -> RunLocked:
    """Return the error for a run that a live process owns."""
    return RunLocked(
        f"{run_id}: process {owner.pid} on {owner.host} is running it; wait for it, "
        f"or stop it with: loopwright cancel {run_id}"
    )
