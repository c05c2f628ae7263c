"""Limits of a recorded run: those in force, and requests to change them.

A request goes to the inbox of the run, as answers of people do. The process of a live run takes it within a
second; a run without a process takes it when it is resumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

from ..conditions import CEILING, UNITS, Deadline
from ..errors import ConfigurationError, nearest
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.open import using
from ..journal.questions import user_name
from ..journal.replay import RecordedRun, request, tuned_entries
from ..records import codec
from ..records.codec import Json
from .functions import wait_shortly
from .loop_options import MOST_CANDIDATES

__all__ = [
    "CLEAR",
    "ENDED",
    "LimitChange",
    "LimitInForce",
    "Tuned",
    "change_limits",
    "change_limits_sync",
    "expect_loop",
    "limits_in_force",
]

CLEAR = "clear"  # the word that removes a limit
Clear = Literal["clear"]
_COUNTS = (
    "max_iterations",
    "at_once",
    "candidates",
    "max_calls",
    "max_total_tokens",
    "max_effects",
)
_OF_LOOPS = ("max_iterations", "timeout", "deadline", "candidates")
_MOST = {"max_iterations": CEILING, "candidates": MOST_CANDIDATES}
ENDED = ("satisfied", "exhausted", "failed", "impossible", "cancelled")
# The field of a recorded condition that holds each limit.
_FIELDS = {
    "max_iterations": ("max_iterations", "limit"),
    "phase_limit": ("max_iterations", "limit"),
    "timeout": ("timeout", "seconds"),
    "deadline": ("deadline", "at"),
}


@dataclass(frozen=True, slots=True)
class LimitInForce:
    """A limit of a run that is in force.

    Args:
        loop: the name of the loop; "" is the run.
        key: `max_iterations`, `max_usd`, `max_calls`, `max_total_tokens`, `max_effects`, `timeout` (seconds),
            `deadline` (ISO 8601), `at_once` or `candidates`.
        limit: its value.
        used: how much of it is used; None where that has no meaning.
        tuned: the name of the person who set it, or "".
    """

    loop: str
    key: str
    limit: Json
    used: float | None = None
    tuned: str = ""

    @property
    def left(self) -> float | None:
        """What is left of it, at least 0."""
        return None if self.used is None else max(0, self.limit - self.used)

    def to_json(self) -> dict[str, Json]:
        """Return the limit as a JSON object."""
        return {
            "loop": self.loop,
            "key": self.key,
            "limit": self.limit,
            "used": self.used,
            "left": self.left,
            "tuned": self.tuned,
        }


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A requested change of a limit.

    Args:
        loop: the name or path of the loop; "" is the run.
        key: the limit, as in `LimitInForce`.
        old: the value in force at the request; None is no limit.
        new: the requested value; None removes the limit.
    """

    loop: str
    key: str
    old: Json
    new: Json

    def to_json(self) -> dict[str, Json]:
        """Return the change as a JSON object."""
        return {"loop": self.loop, "key": self.key, "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True)
class Tuned:
    """The limits of a run, and the requested changes.

    Args:
        run_id: the run.
        status: its status at the request: a `running` run takes the changes within a second.
        limits: the limits in force before the changes.
        changes: the requested changes.
        requested: whether they were requested; False for a dry run.
    """

    run_id: str
    status: str
    limits: Sequence[LimitInForce]
    changes: Sequence[LimitChange] = ()
    requested: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the limits and changes as a JSON object, as `loopwright limits --json` prints it."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "limits": [limit.to_json() for limit in self.limits],
            "changes": [change.to_json() for change in self.changes],
            "requested": self.requested,
        }


class LimitOptions(TypedDict, total=False):
    """The options of `change_limits`, which explains them."""

    loop: str
    max_iterations: int | Clear | None
    max_usd: float | Clear | None
    max_calls: int | Clear | None
    max_total_tokens: int | Clear | None
    max_effects: int | Clear | None
    timeout: float | Clear | None
    deadline: str | None
    at_once: int | Clear | None
    candidates: int | Clear | None
    reason: str
    who: str
    dry_run: bool


async def change_limits(
    run_id: str,
    *,
    journal: Journal | str,
    loop: str = "",
    max_iterations: int | Clear | None = None,
    max_usd: float | Clear | None = None,
    max_calls: int | Clear | None = None,
    max_total_tokens: int | Clear | None = None,
    max_effects: int | Clear | None = None,
    timeout: float | Clear | None = None,
    deadline: str | None = None,
    at_once: int | Clear | None = None,
    candidates: int | Clear | None = None,
    reason: str = "",
    who: str = "",
    dry_run: bool = False,
) -> Tuned:
    """Raise, lower or remove limits of a run that has not ended, also while another process runs it.

    A live run takes the new limits within a second and records them; its next decision uses them. Below
    the used amount, that decision ends the loop. Only a limit of time cuts a call in flight. A run without a
    process takes them when it is resumed. Without a limit, only the limits in force are returned.

    Args:
        run_id: the run, or a unique prefix of its ID.
        journal: the Journal or the URL in which it is recorded.
        loop: the path or name of the loop. Default: the owner of the limit in force, outermost first; else
            the run for costs and effects, and the outermost loop for the others.
        max_iterations: iterations of the loop, from 1 to 1000. Each limit can be `"clear"`.
        max_usd: US dollars, above 0.
        max_calls: model calls, at least 1.
        max_total_tokens: input and output tokens together, at least 1.
        max_effects: effects, at least 1: functions, commands, tool calls and attempts of model calls.
        timeout: active seconds of the loop, above 0.
        deadline: an ISO 8601 date and time with an offset.
        at_once: items of a list, steps of `parallel` or steps of a workflow that run at a time, at least 1.
        candidates: candidates of each iteration from the next one on, of a loop that declares them; 1 to 1024.
        reason: why, for the record.
        who: the name of the person. Default: the user of this process.
        dry_run: return the changes without requesting them.

    Returns:
        The limits in force before the changes, and the changes.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: for an ended run, an unknown loop, an invalid value, or `"clear"` without a
            limit in force.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run, change_limits
        >>> journal = MemoryJournal()
        >>> loop = Loop(lambda n: n, name="l", until=MaxIterations(3), approve="iteration")
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).status.value
        'suspended'
        >>> asyncio.run(change_limits("r", journal=journal, max_iterations=5)).changes
        (LimitChange(loop='l', key='max_iterations', old=3, new=5),)
    """
    wanted: dict[str, Any] = {
        "max_iterations": max_iterations, "max_usd": max_usd, "max_calls": max_calls,
        "max_total_tokens": max_total_tokens, "max_effects": max_effects, "timeout": timeout,
        "deadline": deadline, "at_once": at_once, "candidates": candidates,
    }  # fmt: skip
    wanted = {key: _checked(key, value) for key, value in wanted.items() if value is not None}
    async with using(journal) as store:
        info = await store.find(run_id)
        entries = surviving(await store.entries(info.run_id))
        # Those that its requests will become count too.
        entries += tuned_entries(entries, await store.inbox(info.run_id), info.active)
        recorded = _RecordedLimits(info, entries)
        if loop:
            recorded.expect(loop)
        changes = tuple(recorded.change(key, value, loop) for key, value in wanted.items())
        if changes and info.status in ENDED:
            ended = f"{info.run_id}: it is {info.status}, so its limits have no effect"
            if info.status != "exhausted":
                raise ConfigurationError(ended)
            raise ConfigurationError(
                f"{ended}; to continue it, resume it with a higher limit", advice="raise_limit"
            )
        if changes and not dry_run:
            values = [change.to_json() for change in changes]
            person = who or user_name()
            await store.post(
                info.run_id, request(values, reason=reason, who=person, at=time.time())
            )
        limits = tuple(recorded.limits())
        return Tuned(info.run_id, info.status, limits, changes, bool(changes) and not dry_run)


def change_limits_sync(
    run_id: str, *, journal: Journal | str, **options: Unpack[LimitOptions]
) -> Tuned:
    """Change limits of a run from synchronous code; see `change_limits`.

    Args:
        run_id: the run, or a unique prefix of its ID.
        journal: the Journal or the URL in which it is recorded.
        options: the new limits and the other options of `change_limits`.

    Returns:
        The limits in force before the changes, and the changes.

    Raises:
        RunNotFound, ConfigurationError: as `change_limits` does.

    Example:
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run_sync, change_limits_sync
        >>> journal = MemoryJournal()
        >>> loop = Loop(lambda n: n, name="l", until=MaxIterations(3), approve="iteration")
        >>> run_sync(loop, 1, journal=journal, run_id="r").status.value
        'suspended'
        >>> change_limits_sync("r", journal=journal, max_iterations=5).changes
        (LimitChange(loop='l', key='max_iterations', old=3, new=5),)
    """
    return wait_shortly(lambda: change_limits(run_id, journal=journal, **options))


def limits_in_force(info: RunInfo, entries: Iterable[Entry]) -> list[LimitInForce]:
    """Return the limits of a run that are in force, those of the run first.

    Args:
        info: the row of the run.
        entries: its surviving entries.

    Returns:
        The limits of the run and of its loops, and the numbers of jobs at a time.
    """
    return list(_RecordedLimits(info, entries).limits())


def expect_loop(info: RunInfo, entries: Iterable[Entry], loop: str = "") -> None:
    """Raise ConfigurationError if a run has no such loop, or if all of its loops have ended ("" is any loop)."""
    recorded = _RecordedLimits(info, entries)
    if loop:
        recorded.expect(loop)
    bounds = info.source.get("bounds") or {}
    within = {one["name"]: one.get("within", "") for one in bounds.get("loops", ())}

    def goes_on(name: str) -> bool:
        paths = recorded.replay.loops_named(name)
        if not paths or any(path not in recorded.replay.ended for path in paths):
            return True
        # A loop inside another one begins again in its next iteration.
        return bool(within.get(name)) and goes_on(within[name])

    if not any(map(goes_on, [loop.rsplit("/", 1)[-1]] if loop else recorded.loops)):
        raise ConfigurationError(f"{info.run_id}: no loop of it reads a hint any more")


def _checked(key: str, value: Any) -> Json:
    """Return a valid limit; None removes it."""
    if value == CLEAR:
        return None
    if key in _COUNTS:
        codec.integer(key, value, minimum=1, maximum=_MOST.get(key))
    elif key == "deadline":
        Deadline(value)
    else:
        codec.number(key, value, minimum=0, above=True)
    return value


class _RecordedLimits:
    """The limits of a run by loop and key, from its row and its entries."""

    def __init__(self, info: RunInfo, entries: Iterable[Entry]) -> None:
        self.info = info
        self.entries = list(entries)
        self.replay = RecordedRun(self.entries)
        bounds = info.source.get("bounds") or {}
        budget = (bounds.get("budget") or {}).items()
        self.by_loop: dict[str, dict[str, Json]] = {"": {}}
        units = {unit: name for name, unit in UNITS.items()}
        self.by_loop[""] = {units[unit]: cap for unit, cap in budget if cap is not None}
        for loop in bounds.get("loops", ()):
            several = {"candidates": n} if (n := loop.get("candidates")) else {}
            self.by_loop[loop["name"]] = _limits_of(loop["until"]) | several
        self.loops = [name for name in self.by_loop if name]
        self.at_once: dict[str, int] = bounds.get("at_once") or {}
        for name, most in self.at_once.items():
            self.by_loop.setdefault(name, {})["at_once"] = most
        self.tuned_by: dict[tuple[str, str], str] = {}
        for path, limits in self.replay.raised.items():
            own = self.by_loop.get(self._name(path), {})
            own.update({key: max(value, own.get(key) or 0) for key, value in limits.items()})
        for entry in self.entries:
            if entry.kind == "tuned":
                name, key = self._name(entry.value["loop"]), entry.value["key"]
                self.by_loop.setdefault(name, {})[key] = entry.value["new"]
                self.tuned_by[name, key] = entry.value["who"]

    @staticmethod
    def _name(loop: str) -> str:
        return loop.rsplit("/", 1)[-1]

    def limits(self) -> Iterable[LimitInForce]:
        """Iterate over the limits in force."""
        for loop, limits in self.by_loop.items():
            for key, limit in limits.items():
                if key == "max_iterations" and limit is None:
                    limit = CEILING
                if limit is not None:
                    who = self.tuned_by.get((loop, key), "")
                    yield LimitInForce(loop, key, limit, self._used(loop, key), who)

    def _used(self, loop: str, key: str) -> float | None:
        paths = self.replay.loops_named(loop) if loop else [""]
        path = paths[-1] if paths else None
        if key == "max_iterations":
            return len(self.replay.records.get(path or "", ()))
        if key == "max_effects":
            return 0 if path is None else self.replay.effects(path)
        if key in UNITS:
            used: float = 0 if path is None else getattr(self.replay.spent(path), UNITS[key])
            return used
        began = None if path is None else self.replay.began(path)
        if key == "timeout":
            return 0.0 if began is None else round(self.replay.active - began, 6)
        return None

    def expect(self, loop: str) -> None:
        """Raise ConfigurationError for a loop that the run does not have."""
        names = [name for name in self.by_loop if name]
        paths = [path for name in names for path in self.replay.loops_named(name)]
        if loop in names or loop in paths:
            return
        # The steps of `parallel` and of a workflow are recorded below its path.
        if self._name(loop) in self.at_once and self.replay.began(loop) is not None:
            return
        hint = nearest(loop, [*names, *paths]) or f"; its loops are: {', '.join(names) or 'none'}"
        raise ConfigurationError(f"{self.info.run_id} has no loop {loop!r}{hint}")

    def change(self, key: str, new: Json, loop: str) -> LimitChange:
        """Return the change of a limit of a loop, or of the owner of the limit in force."""
        owner = loop or self._owner(key)
        old = self.by_loop.get(self._name(owner), {}).get(key)
        where = owner or "the run"
        if key != "at_once" and owner and self._name(owner) not in self.loops:
            raise ConfigurationError(
                f"{key}: {where} is not a loop; of it, only at_once can be changed. Its run has the loops: "
                f"{', '.join(self.loops) or 'none'}"
            )
        if key == "at_once" and (new is None or old is None):
            several = ", ".join(self.at_once) or "none"
            why = "always has a limit" if old else "runs one item or step at a time"
            raise ConfigurationError(f"at_once: {where} {why}; it can be changed for: {several}")
        if key == "candidates" and (new is None or old is None):
            declared = [name for name, limits in self.by_loop.items() if "candidates" in limits]
            why = "always has a number" if old else "declares none"
            raise ConfigurationError(
                f"candidates: {where} {why}; it can be changed for: {', '.join(declared) or 'none'}"
            )
        if new is None and old is None:
            raise ConfigurationError(
                f"{key}: {where} has no such limit, so there is nothing to clear"
            )
        return LimitChange(owner, key, old, new)

    def _owner(self, key: str) -> str:
        """Return the run or the outermost loop with a limit in force, else the one that gets it."""
        if key == "at_once":
            return next(iter(self.at_once), "")
        for loop, limits in self.by_loop.items():
            if limits.get(key) is not None:
                return loop
        if key not in _OF_LOOPS:
            return ""
        if not self.loops:
            raise ConfigurationError(f"{key}: {self.info.run_id} has no loop")
        return self.loops[0]


def _limits_of(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Json]:
    """Return the limits in recorded conditions by key, the lowest of each."""
    limits: dict[str, Json] = {}

    def lower(key: str, value: Json) -> None:
        if value is not None and (key not in limits or value < limits[key]):
            limits[key] = value

    for condition in conditions:
        for tag, fields in condition.items():
            if tag in ("any_of", "all_of"):
                for key, value in _limits_of(fields).items():
                    lower(key, value)
            elif tag == "budget":
                for name, unit in UNITS.items():
                    lower(name, fields.get(unit))
            elif tag in _FIELDS:
                key, field = _FIELDS[tag]
                lower(key, fields[field])
    return limits
