"""The sessions of coding agents in one run: which conversation a call continues, and what it cost so far.

Rules:

1. A session belongs to a key: the chain of a loop, the step in the run, or a name that several steps share.
2. Where the program lets us choose the ID, it is chosen before the start and recorded with it.
3. The state is rebuilt from the recorded calls when a run resumes; nothing else is stored.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import dataclass, field

from ...engine.context import Context
from ...engine.run_state import Run
from ...errors import ConfigurationError
from ...records import NOTHING, Usage

__all__ = ["MODES", "Session", "Sessions", "checked_mode", "new_id", "session_key", "sessions_of"]

MODES = ("fresh", "loop", "run")
_OWNED = "coding sessions"
_NUMBER = re.compile(r"(?<=/)[0-9]+(?=/)")
_CALL = re.compile(r"/call-[0-9]+$")
_KEY = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation that a later call may continue.

    Args:
        id: the ID that the program uses; "" before the first call.
        usage: what the program reported for the session, for a program that counts per session.
    """

    id: str = ""
    usage: Usage = NOTHING


@dataclass
class Sessions:
    """The sessions of one run by key."""

    by_key: dict[str, Session] = field(default_factory=dict)
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # by program, asked once in a run

    def get(self, key: str) -> Session:
        """Return the session of a key; a new one has no ID."""
        return self.by_key.get(key, Session()) if key else Session()

    def put(self, key: str, session: Session) -> None:
        """Keep the session of a key for its next call."""
        if key:
            self.by_key[key] = session

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key: two calls of one session must not run at the same time."""
        return self.locks.setdefault(key, asyncio.Lock())

    async def aclose(self) -> None:
        """Forget the sessions at the end of the run."""
        self.by_key.clear()


def sessions_of(run: Run) -> Sessions:
    """Return the sessions of a run; those of its earlier processes are read from the journal."""
    sessions = run.owned.get(_OWNED)
    if sessions is None:
        sessions = run.owned[_OWNED] = Sessions()
        # A recorded iteration is not run again, so its calls cannot keep their sessions themselves.
        for entry in run.replay.finished.values() if run.replay is not None else ():
            record = entry.value
            if _CALL.search(entry.path) and isinstance(record, dict) and "session_key" in record:
                usage = Usage.from_json(record["session_usage"])
                sessions.put(record["session_key"], Session(record["session"], usage))
    assert isinstance(sessions, Sessions)
    return sessions


def session_key(mode: str, ctx: Context, owner: str) -> str:
    """Return the key of the session that a call continues, "" for a fresh one.

    Args:
        mode: `fresh`, `loop`, `run`, or a name that several steps share.
        ctx: the context of the step.
        owner: the program and its working folder; steps of others never share a session.
    """
    if mode == "fresh":
        return ""
    if mode == "run":
        return f"{_NUMBER.sub('*', f'/{ctx.path}/')} {owner}".lstrip("/")
    if mode != "loop":
        return f"key:{mode} {owner}"
    # The number of the nearest loop only: each iteration of an outer loop has its own chain.
    number = f"/{ctx.iteration}/"
    head, found, tail = f"{ctx.path}/".rpartition(number)
    # A conversation must not remember files that were put back, nor an approach that stalled.
    chain = ctx.scope.chain + ctx.scope.restarts if ctx.scope is not None else 0
    after = f" {chain}" if chain else ""
    return f"{head}/*/{tail} {owner}{after}" if found else f"{ctx.path} {owner}"


def new_id(run: Run) -> str:
    """Return the ID of a new session.

    It is random: programs refuse an ID that an attempt before a crash or a rewind already used.
    """
    bits = "".join(f"{int(run.random() * 65536):04x}" for _ in range(8))
    return str(uuid.UUID(hex=bits, version=4))


def checked_mode(name: str, mode: str) -> str:
    """Return a session mode, checked."""
    if not isinstance(mode, str) or not _KEY.fullmatch(mode):
        raise ConfigurationError(
            f"{name}: session: {mode!r:.60} is not valid. Use fresh, loop, run, or a name of letters, digits, - and _."
        )
    return mode
