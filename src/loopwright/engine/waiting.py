"""Waits and signals: steps that end when something outside of the run is true, and that cost nothing until then.

1. The entry `waiting` has the form of a wait and the time at which it ends; it is durable before the first look. The
   entry `woken` is the decision: a replay returns its output, and looks at no clock and no store.
2. A wait is no effect: it calls nothing, is not counted, and is never in doubt.
3. While another branch of the run is at work, a wait stays in its process. When every branch waits, `on_wait` decides:
   the process stays, or the run is suspended and holds nothing. The active time of the run stands meanwhile.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, StepError, Suspended, listed, nearest
from ..journal import Entry
from ..records import Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.display import duration, seconds_of, wait_text, when
from ..records.typed import Value
from .functions import wait_shortly
from .step import CompositeStep, digest_of, fingerprinted

if TYPE_CHECKING:
    from ..journal import Journal
    from ..journal.events import Event, OpenWait, Signalled
    from .context import Context

__all__ = ["Wait", "WaitForm", "signal", "signal_sync", "wait"]

TIMEOUT = 7 * 86_400.0  # seconds, where nothing else is set
LONGEST = 3600.0  # seconds of one sleep
PROBE = 60.0  # seconds after which a run that left its process looks at a file again
POLL = 0.2  # seconds between two looks at a store, which another process may change
_FORMS = ("for", "at", "event", "file", "first_of")
_FIELDS = {"event": ("key", "since", "schema"), "file": ("is",)}
_STATES = ("there", "gone", "changed")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Member(Value):
    """One condition of a wait.

    Args:
        kind: `for`, `at`, `event` or `file`.
        value: the seconds, the time in seconds since the epoch, the name of the event, or the path of the file.
        key: the key of the event; "" is the ID of the run.
        since: `run` or `wait`: from when events count.
        schema: the JSON Schema of the value of the event.
        state: `there`, `gone` or `changed`: how the file must be.
    """

    kind: str
    value: Json
    key: str = ""
    since: str = "run"
    schema: Json = None
    state: str = "there"

    @classmethod
    def of(cls, options: Json, where: str) -> Member:
        """Return the condition of the options of a wait. Raises ConfigurationError."""
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"{where}: {options!r:.80} is not a wait")
        kinds = [kind for kind in _FORMS if options.get(kind) is not None]
        if len(kinds) != 1 or kinds == ["first_of"]:
            given = f"has {' and '.join(kinds)}" if kinds else "has none"
            raise ConfigurationError(
                f"{where}: it needs exactly one of {', '.join(_FORMS)}, but {given}"
            )
        [kind] = kinds
        value, more = options[kind], dict(options)
        if kind == "file" and isinstance(value, Mapping):
            more |= value
            value = value.get("path")
        for name, fields in _FIELDS.items():
            for one in fields:
                if name != kind and more.get(one) is not None:
                    raise ConfigurationError(f"{where}: {one} belongs to {name}, not to {kind}")
        if kind == "for":
            return cls(kind, _seconds(where, "for", value))
        if kind == "at":
            return cls(kind, _time(where, value))
        if not isinstance(value, str) or not value or len(value) > 1000:
            raise ConfigurationError(
                f"{where}: {kind}: {value!r:.80} is not a {'name' if kind == 'event' else 'path'}"
            )
        if kind == "file":
            state = more.get("is") or "there"
            if state not in _STATES:
                raise ConfigurationError(
                    f"{where}: is: {state!r} is not one of {', '.join(_STATES)}{nearest(str(state), _STATES)}"
                )
            return cls(kind, value, state=str(state))
        from ..journal.events import Event, checked_event

        since = more.get("since") or "run"
        if since not in ("run", "wait"):
            raise ConfigurationError(f"{where}: since: {since!r} is neither run nor wait")
        key = "" if more.get("key") is None else codec.text_of(more["key"])
        try:
            checked_event(Event(value, key))
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from None
        schema = more.get("schema")
        if isinstance(schema, Mapping):
            from ..records.json_schema import check_schema  # takes time to load, and few have one

            try:
                check_schema(schema)
            except ConfigurationError as error:
                raise ConfigurationError(f"{where}: {error}") from None
        elif schema is not None:
            raise ConfigurationError(f"{where}: schema: {schema!r:.80} is not a JSON Schema")
        return cls(kind, value, key=key, since=str(since), schema=schema)

    def ends(self, since: float) -> float:
        """Return the time at which it is true by itself, for a wait that began at `since`; infinity is never."""
        if self.kind == "for":
            return since + float(self.value)
        return float(self.value) if self.kind == "at" else math.inf

    def words(self) -> str:
        """Return what it waits for."""
        if self.kind == "for":
            return f"{duration(self.value)} to pass"
        if self.kind == "at":
            return when(self.value)
        if self.kind == "event":
            return f"the event {self.value}{f' (key {self.key})' if self.key else ''}"
        return f"the file {self.value} to be {self.state}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WaitForm(Value):
    """What a wait waits for, and for how long.

    Args:
        members: its conditions by name; the first one that is true ends it, in this order. One alone has the name "".
        timeout: seconds after which it ends without; infinity is never.
        default: a tuple with the value with which it then ends; () is a failure.
    """

    members: Mapping[str, Member]
    timeout: float = TIMEOUT
    default: tuple[Json, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Json], where: str = "wait") -> WaitForm:
        """Return the form of the options of a wait. Raises ConfigurationError with the place of what is wrong."""
        known = (*_FORMS, "timeout", "default", *(one for of in _FIELDS.values() for one in of))
        for name in options:
            if name not in known:
                hint = nearest(name, known) or listed(name, known, lead="it takes")
                raise ConfigurationError(f"{where}: {name}: unknown field{hint}")
        parts = options.get("first_of")
        if parts is None:
            members = {"": Member.of(options, where)}
        elif not isinstance(parts, Mapping) or len(parts) < 2:
            raise ConfigurationError(f"{where}: first_of needs two waits or more, by name")
        else:
            if others := [
                name for name in options if name not in ("first_of", "timeout", "default")
            ]:
                raise ConfigurationError(f"{where}: {others[0]} belongs into first_of")
            members = {
                str(name): Member.of(part, f"{where}: first_of: {name}")
                for name, part in parts.items()
            }
        limit = options.get("timeout")
        if limit is None:
            timed = any(member.ends(0.0) < math.inf for member in members.values())
            timeout = math.inf if timed else TIMEOUT  # a time ends it anyway
        else:
            timeout = math.inf if limit == "none" else _seconds(where, "timeout", limit)
        return cls(members, timeout, (options["default"],) if "default" in options else ())

    def words(self) -> str:
        """Return what it waits for."""
        return ", or ".join(member.words() for member in self.members.values())


def _seconds(where: str, name: str, value: Json) -> float:
    try:
        number = seconds_of(value) if isinstance(value, str) else value
        return float(codec.number(name, number, minimum=0))
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(
            f"{where}: {name}: {value!r:.80} is not a duration; write seconds, or text like 30s or 2h"
        ) from error


def _time(where: str, value: Json) -> float:
    try:
        at = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value)
        if at.tzinfo is not None:
            return at.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigurationError(
        f"{where}: at: {value!s:.80} is not a time with an offset; write one like 2026-12-01T08:00+01:00"
    )


@dataclass(frozen=True)
class Wait(CompositeStep[Any, Any]):
    """A wait as a step; see `wait`. `options` may have templates, which `fill` renders."""

    name: str
    options: Mapping[str, Json]
    fill: Any = field(default=None, compare=False)

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("wait", codec.canonical(dict(self.options)))

    def parts(self) -> Sequence[Any]:
        return ()

    async def run(self, value: Json, ctx: Context) -> Result:
        """Wait, and return `{ended, which, value, seconds}`."""
        options = self.options if self.fill is None else self.fill(ctx, value)
        output = await waited(ctx, ctx.path, options)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} completed", output, name=self.name
        )


def wait(name: str = "wait", **options: Json) -> CompositeStep[Any, Any]:
    """Return a step that ends when something outside of the run is true; until then it costs nothing.

    Args:
        name: the name of the step.
        options: one of `for_` (seconds, or text such as "10m"), `at` (a time with an offset), `event` (a name, with
            `key`, `since` and `schema`), `file` (a path, or a mapping with `path` and `is`: there, gone or changed)
            and `first_of` (several of them by name). `timeout`: seconds, text or "none" (default: 7 days). `default`:
            the value with which it then ends; without one it fails.

    Returns:
        The step. Its output is `{ended, which, value, seconds}`: `time`, `event`, `file` or `timeout`, the name in
        `first_of`, the value of the event or the default, and how long it waited.

    Raises:
        ConfigurationError: for options that are not valid.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(wait("pause", for_=0)).output["ended"]
        'time'
    """
    written = {key.removesuffix("_"): value for key, value in options.items()}
    WaitForm.of(written, name)
    return Wait(name, written)


async def waited(ctx: Context, path: str, options: Mapping[str, Json]) -> Json:
    """Wait at a path and return the output, or the recorded one.

    Raises:
        StepError: of kind `wait_timeout`, or `bad_wait` for options that are not valid.
        Suspended: if every branch waits, and the run leaves its process meanwhile.
    """
    run = ctx.run
    if run.replay is not None and (woken := run.replay.woken.get(path)) is not None:
        return _outcome(path, woken)
    try:
        form = WaitForm.of(options, path)
    except ConfigurationError as error:
        raise StepError(str(error), path=path, kind="bad_wait", retryable=False) from None
    if run.stubs is not None:
        return run.stubs.output(path, "wait")
    return _outcome(path, await _Waiting(ctx, path, form).run())


def _outcome(path: str, woken: Mapping[str, Json]) -> Json:
    if failed := woken.get("failed"):
        raise StepError(failed, path=path, kind="wait_timeout", retryable=False)
    return codec.normalise(woken["output"])


class _Waiting:
    """One wait, from its record to its decision."""

    def __init__(self, ctx: Context, path: str, form: WaitForm) -> None:
        self.ctx, self.path, self.form, self.state = ctx, path, form, ctx.run
        self.kinds = {member.kind for member in form.members.values()}
        self.store = None if self.state.log.silent else self.state.store
        self.since = self.due = 0.0
        self.digests: dict[str, str] = {}
        self.registered = False
        self.set_aside: dict[str, int] = {}  # numbers of events whose value does not fit, by member

    async def run(self) -> Mapping[str, Json]:
        """Record the wait, wait, and record the decision."""
        state = self.state
        now = await self._begin()
        state.begin_wait()
        anchor = state.clock.monotonic()
        watch = self.store.watch() if self.store is not None else None
        state.count(-1)
        try:
            while True:
                version = watch.version() if watch is not None else 0
                # While the process stays, durations follow the monotonic clock.
                time = now + max(0.0, state.clock.monotonic() - anchor)
                leaving = state.leaves and not state.at_work and state.log.keeps_values
                # The last look before it leaves: another one would take back what a signal has set meanwhile.
                found = await self._look(leaving=time if leaving else 0.0)
                if (decision := self._decided(found, time)) is not None:
                    break
                if leaving and not state.at_work:
                    raise Suspended(
                        Stop(Reason.WAITING, self._detail()),
                        path=self.path,
                        request=self._request(),
                    )
                await self._sleep(watch, version, time)
        finally:
            state.count(1)
            if watch is not None:
                watch.close()
        return await self._end(*decision)

    async def _begin(self) -> float:
        """Record the wait unless it is recorded, and return the time of the store."""
        state, members = self.state, self.form.members
        now = state.clock.wall() if self.store is None else (await self.store.look_for([]))[0]
        known = None if state.replay is None else state.replay.waiting.get(self.path)
        if known is None:
            due = min(now + self.form.timeout, *(member.ends(now) for member in members.values()))
            digests = {
                name: _digest(self._file(m)) for name, m in members.items() if m.state == "changed"
            }
            known = {
                "for": self.form.words(),
                "since": now,
                "due": None if due == math.inf else due,
                "files": digests,
            }
            if not state.silent:
                state.append(Entry("waiting", self.path, state.now(), value=state.clean(known)))
                await state.settle()
        self.since = known["since"]
        self.due = math.inf if known["due"] is None else known["due"]
        self.digests = known["files"]
        return now

    def _rows(self) -> list[OpenWait]:
        from ..journal.events import OpenWait

        state, rows = self.state, []
        for name, member in self.form.members.items():
            if member.kind == "event":
                key = member.key or state.run_id
                after = max(self.set_aside.get(name, 0), state.taken.get((member.value, key), 0))
                since = self.since if member.since == "wait" else state.log.info.created
                # An event of the last moment counts: the limit is the recorded time, not that of a look.
                rows.append(
                    OpenWait(
                        state.run_id, self.path, member.value, key, self.due, since, after, self.due
                    )
                )
        return rows or [OpenWait(state.run_id, self.path, due=self.due)]

    async def _look(self, leaving: float = 0.0) -> Mapping[str, Event]:
        """Return the events that are there, by the names of their conditions; register what the run waits for."""
        known = self.registered and "event" not in self.kinds
        if self.store is None or (known and not leaving):
            return {}
        self.registered = True
        rows = self._rows()
        if leaving and "file" in self.kinds:
            # No signal announces a file, so the run must be resumed from time to time to look at it.
            rows = [replace(row, due=min(row.due, leaving + PROBE)) for row in rows]
        _, found = await self.store.look_for(rows)
        names = [name for name, member in self.form.members.items() if member.kind == "event"]
        events = {
            name: event for name, event in zip(names, found, strict=False) if event is not None
        }
        for name, event in list(events.items()):
            schema = self.form.members[name].schema
            if schema is not None and (problem := _misfit(event.value, schema)):
                del events[name]
                self.set_aside[name] = event.number
                self.state.warn(
                    f"event {event.name} {event.number} does not fit: {problem}",
                    self.path,
                    code="event_refused",
                )
                return {**await self._look(), **events}
        return events

    def _decided(
        self, events: Mapping[str, Event], time: float
    ) -> tuple[dict[str, Json], Event | None] | None:
        """Return the value of the entry `woken` and the event that ends the wait, or None."""
        # What was true first ends it, also if nobody looked then; events of before the wait were true at once.
        first = min((max(event.at, self.since) for event in events.values()), default=math.inf)
        for name, member in self.form.members.items():
            if name in events and events[name].at <= first:
                value = self.state.clean(events[name].value)
                return self._output("event", name, value, time), events[name]
            if member.kind == "file" and self._is_so(name, member):
                return self._output("file", name, None, time), None
            if time >= member.ends(self.since) and not events:  # they came before any time
                return self._output("time", name, None, time), None
        if time < self.due:
            return None
        default = self.form.default
        woken = self._output("timeout", "", default[0] if default else None, time)
        if not default:
            waited_for = duration(self.due - self.since)
            failed = f"{self.path}: {self.form.words()} did not come within {waited_for}"
            woken["failed"] = self.state.redact(failed)
        return woken, None

    def _output(self, ended: str, which: str, value: Json, time: float) -> dict[str, Json]:
        seconds = round(max(0.0, time - self.since), 3)
        output = {"ended": ended, "which": which, "value": value, "seconds": seconds}
        return {"output": output}

    def _file(self, member: Member) -> Path:
        files = None if self.ctx.scope is None else self.ctx.scope.files
        folder = Path.cwd() if files is None else files.folder
        path: Path = folder / member.value
        if not path.resolve().is_relative_to(folder.resolve()):
            raise StepError(
                f"the file {member.value} is outside of {folder}; name one inside it",
                path=self.path, kind="bad_wait", retryable=False,
            )  # fmt: skip
        return path

    def _is_so(self, name: str, member: Member) -> bool:
        path = self._file(member)
        if member.state == "changed":
            return _digest(path) != self.digests.get(name)
        return path.exists() == (member.state == "there")

    async def _sleep(self, watch: Any, version: int, time: float) -> None:
        """Sleep until something may have changed."""
        state, until = self.state, min(max(0.0, self.due - time), LONGEST)
        may_leave = state.leaves and state.log.keeps_values
        if self.ctx.gate is not None:
            self.ctx.gate.check(state)
            until = min(until, 1.0)  # a loop around it may end by a deadline
        if self.kinds.isdisjoint(("event", "file")) and not may_leave:
            await state.clock.sleep(until)
            return
        waited = 0.0
        while waited < until:
            pause = min(POLL, until - waited)
            await state.clock.sleep(pause)
            waited += pause
            if (
                "file" in self.kinds
                or watch is None
                or watch.version() != version
                or (may_leave and not state.at_work)
            ):
                return

    def _detail(self) -> str:
        return wait_text(self.path, self.form.words(), None if self.due == math.inf else self.due)

    def _request(self) -> dict[str, Json]:
        events = [
            {"name": member.value, "key": member.key or self.state.run_id}
            for member in self.form.members.values()
            if member.kind == "event"
        ]
        return {
            "kind": "wait",
            "events": events,
            "for": self.form.words(),
            "due": None if self.due == math.inf else self.due,
        }

    async def _end(self, woken: dict[str, Json], event: Event | None) -> Mapping[str, Json]:
        """Record the decision; the event is taken with it."""
        state = self.state
        if event is not None:
            state.take_event(event.name, event.key, event.number, self.path)
        if not state.silent:
            state.append(Entry("woken", self.path, state.now(), value=woken))
            await state.settle()
        if self.store is not None:
            await self.store.end_wait(
                state.run_id, self.path, [] if event is None else [event.number]
            )
        return woken


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _misfit(value: Json, schema: Json) -> str:
    from ..records.json_schema import (
        problem_with,  # takes time to load, and few waits have a schema
    )

    return problem_with(value, schema)


async def signal(
    name: str,
    value: Json = None,
    *,
    key: str = "",
    journal: Journal | str,
    id: str = "",
    who: str = "",
) -> Signalled:
    """Send an event to the runs that wait for it, now or later.

    Args:
        name: the name of the event.
        value: a JSON value: the output of the wait.
        key: the key for which the runs wait; that of a wait without a key is the ID of its run.
        journal: the journal of the runs, or its URL.
        id: an ID that makes a repetition harmless. Default: each call is a new event.
        who: who sends it. Default: the user of this process.

    Returns:
        The stored event, whether it was there before, and how many runs wait for it.

    Raises:
        ConfigurationError: for a name, key, ID or value that no store takes.

    Example:
        >>> from loopwright import MemoryJournal, signal_sync
        >>> signal_sync("ci-finished", {"conclusion": "success"}, key="9f3c", journal=MemoryJournal()).waiting
        0
    """
    from ..journal.events import Event, checked_event
    from ..journal.open import open_journal
    from ..journal.questions import user_name

    event = checked_event(Event(name, key, value, id, who or user_name()))
    if not isinstance(journal, str):
        return await journal.signal(event)
    async with open_journal(journal) as store:
        return await store.signal(event)


def signal_sync(
    name: str,
    value: Json = None,
    *,
    key: str = "",
    journal: Journal | str,
    id: str = "",
    who: str = "",
) -> Signalled:
    """Send an event from code without an event loop.

    Args:
        name, value, key, journal, id, who: as for `signal`.

    Returns:
        The stored event, whether it was there before, and how many runs wait for it.

    Raises:
        ConfigurationError: as `signal` does.

    Example:
        >>> from loopwright import MemoryJournal, signal_sync
        >>> journal = MemoryJournal()
        >>> [signal_sync("go", key="k", id="1", journal=journal).repeated for _ in range(2)]
        [False, True]
    """
    return wait_shortly(lambda: signal(name, value, key=key, journal=journal, id=id, who=who))
