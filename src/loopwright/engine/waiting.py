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
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ConfigurationError, StepError, StepTimeout, Suspended, listed, nearest
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

__all__ = [
    "Probe", "Probed", "Wait", "WaitForm", "seconds", "signal", "signal_sync", "stop_waiting", "wait", "waited",
]  # fmt: skip

TIMEOUT = 7 * 86_400.0  # seconds, where nothing else is set
LONGEST = 3600.0  # seconds of one sleep
PROBE = 60.0  # seconds after which a run that left its process looks at a file again
MOMENT = 0.001  # seconds of the shortest sleep
POLL = 0.2  # seconds between two looks at a store, which another process may change
FIRST, MOST = 2.0, 60.0  # seconds: the pause after the first probe, and the longest one
TRIES = 3  # probes in a row that cannot be made, after which the wait fails
# The name of the event that ends a wait as its time limit does; users cannot send it.
STOP = "!stop"
PROBE_TIMEOUT = 60.0  # seconds for a command, where nothing else is set
_FORMS = ("for", "at", "event", "command", "file", "url", "first_of")
_PROBES = ("command", "url")
_FIELDS = {
    "event": ("key", "since", "schema"), "command": ("failed", "every"), "file": ("is",), "url": ("every",),
}  # fmt: skip
_STATES = ("there", "gone", "changed")


@dataclass(frozen=True, slots=True)
class Probed:
    """What one look at a condition found.

    Args:
        true: whether it is true.
        value: the value of the wait, if this look ends it.
        exit: the exit code of a command.
        digest: what is compared with the first look, for a condition that something changes.
    """

    true: bool
    value: Json = None
    exit: int | None = None
    digest: str = ""


class Probe(Protocol):
    """A condition that is looked at from time to time: a command, or the answer of a URL."""

    @property
    def words(self) -> str:
        """What is looked at."""

    @property
    def fingerprint(self) -> str:
        """The identity of the condition for replays."""

    @property
    def changes(self) -> bool:
        """Whether it is true when something differs from the first look."""

    async def look(self, ctx: Context, before: str) -> Probed:
        """Look once. `before` is the digest of the first look, "" in it.

        Raises:
            StepError: if it cannot be looked at.
        """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Member(Value):
    """One condition of a wait.

    Args:
        kind: `for`, `at`, `event`, `command`, `file` or `url`.
        value: the seconds, the time in seconds since the epoch, the name of the event, the path of the file, or the Probe.
        key: the key of the event; "" is the ID of the run.
        since: `run` or `wait`: from when events count.
        schema: the JSON Schema of the value of the event.
        state: `there`, `gone` or `changed`: how the file must be.
        failed: the exit codes of a command with which the wait fails.
        every: seconds after the first probe, and at most between two of them.
    """

    kind: str
    value: Any
    key: str = ""
    since: str = "run"
    schema: Json = None
    state: str = "there"
    failed: tuple[int, ...] = ()
    every: tuple[float, float] = (FIRST, MOST)

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
                if one not in _FIELDS.get(kind, ()) and more.get(one) is not None:
                    raise ConfigurationError(f"{where}: {one} belongs to {name}, not to {kind}")
        if kind == "for":
            return cls(kind, seconds(where, "for", value))
        if kind == "at":
            return cls(kind, _time(where, value))
        if kind in _PROBES:
            if not hasattr(value, "look"):
                how = "shell([...])" if kind == "command" else "UrlProbe(...)"
                raise ConfigurationError(
                    f"{where}: {kind}: {value!r:.80} is not a probe; use {how}"
                )
            codes = more.get("failed") or ()
            if isinstance(codes, str) or not all(type(code) is int and code for code in codes):
                raise ConfigurationError(
                    f"{where}: failed: {codes!r:.80} are not exit codes other than 0; write a list such as [2]"
                )
            return cls(kind, value, failed=tuple(codes), every=_pauses(where, more.get("every")))
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
        schema = more.get("schema")
        try:
            checked_event(Event(value, key))
            if isinstance(schema, Mapping):
                from ..records.json_schema import check_schema  # slow to load, and few have one

                check_schema(schema)
            elif schema is not None:
                raise ConfigurationError(f"schema: {schema!r:.80} is not a JSON Schema")
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from None
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
        if self.kind == "command":
            return f"the command {self.value.words} to succeed"
        if self.kind == "url":
            return str(self.value.words)
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
        fields = dict.fromkeys(one for of in _FIELDS.values() for one in of)
        known = (*_FORMS, "timeout", "default", *fields)
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
            timeout = math.inf if limit == "none" else seconds(where, "timeout", limit)
        return cls(members, timeout, (options["default"],) if "default" in options else ())

    def words(self) -> str:
        """Return what it waits for."""
        return ", or ".join(member.words() for member in self.members.values())


def seconds(where: str, name: str, value: Json) -> float:
    """Return the seconds of a number or a text such as `2h`. Raises ConfigurationError."""
    try:
        number = seconds_of(value) if isinstance(value, str) else value
        return float(codec.number(name, number, minimum=0))
    except (ValueError, ConfigurationError) as error:
        raise ConfigurationError(
            f"{where}: {name}: {value!r:.80} is not a duration; write seconds, or text like 30s or 2h"
        ) from error


def _pauses(where: str, every: Json) -> tuple[float, float]:
    if every is None:
        return FIRST, MOST
    if not isinstance(every, Mapping) or not every.keys() <= {"first", "most"}:
        raise ConfigurationError(
            f"{where}: every: {every!r:.80} is not valid; write {{first: 2s, most: 1m}}"
        )
    first = seconds(where, "every: first", every.get("first", FIRST))
    most = seconds(where, "every: most", every.get("most", max(first, MOST)))
    if not 0 < first <= most:
        raise ConfigurationError(f"{where}: every: first must be above 0 and at most {most:g} s")
    return first, most


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
        return digest_of("wait", codec.canonical(_meaning(dict(self.options))))

    def parts(self) -> Sequence[Any]:
        return ()

    async def run(self, value: Json, ctx: Context) -> Result:
        """Wait, and return `{ended, which, value, seconds}`."""
        options = self.options if self.fill is None else self.fill(ctx, value)
        output = await waited(ctx, ctx.path, options)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} completed", output, name=self.name
        )


def _meaning(options: Any) -> Json:
    """Return options as JSON: probes by their fingerprints."""
    if isinstance(options, Mapping):
        return {key: _meaning(value) for key, value in options.items()}
    return options.fingerprint if hasattr(options, "look") else options


def wait(name: str = "wait", **options: Any) -> CompositeStep[Any, Any]:
    """Return a step that ends when something outside of the run is true; until then it costs nothing.

    Args:
        name: the name of the step.
        options: one of `for_` (seconds, or text such as "10m"), `at` (a time with an offset), `event` (a name, with
            `key`, `since` and `schema`), `command` (a `shell` step, with `failed`: the exit codes that end it as failed),
            `file` (a path, or a mapping with `path` and `is`: there, gone or changed), `url` (a `UrlProbe`) and
            `first_of` (several of them by name). `every`: the pauses between looks at a command or URL, a mapping with
            `first` (2 seconds) and `most` (60 seconds). `timeout`: seconds, text or "none" (default: 7 days).
            `default`: the value with which it then ends; without one it fails.

    Returns:
        The step. Its output is `{ended, which, value, seconds}`: `time`, `event`, `command`, `file`, `url` or `timeout`,
        the name in `first_of`, the value of the event, what the command or URL gave or the default, and how long it waited.

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


async def waited(
    ctx: Context, path: str, options: Mapping[str, Any], *, folder: Path | None = None
) -> Json:
    """Wait at a path and return the output, or the recorded one.

    Args:
        ctx: the context of the step that waits.
        path: the path of the wait.
        options: those of `wait`.
        folder: the folder of its files. Default: that of the workspace, else that of this process.

    Raises:
        StepError: of kind `wait_timeout`, `wait_failed` for a failed command, that of a probe that cannot be made, or
            `bad_wait` for options that are not valid.
        Suspended: if every branch waits, and the run leaves its process meanwhile.
    """
    run = ctx.run
    if run.replay is not None and (woken := run.replay.woken.get(path)) is not None:
        return _outcome(path, woken)
    try:
        form = WaitForm.of(options)
    except ConfigurationError as error:
        raise StepError(str(error), path=path, kind="bad_wait", retryable=False) from None
    if run.stubs is not None:
        return run.stubs.output(path, "wait")
    return _outcome(path, await _Waiting(ctx, path, form, folder).run())


def _outcome(path: str, woken: Mapping[str, Json]) -> Json:
    if failed := woken.get("failed"):
        kind = woken.get("kind", "wait_timeout")
        raise StepError(failed, path=path, kind=kind, retryable=False)
    return codec.normalise(woken["output"])


class _Waiting:
    """One wait, from its record to its decision."""

    def __init__(self, ctx: Context, path: str, form: WaitForm, folder: Path | None) -> None:
        self.ctx, self.path, self.form, self.state = ctx, path, form, ctx.run
        self.folder = folder
        self.kinds = {member.kind for member in form.members.values()}
        self.store = None if self.state.log.silent else self.state.store
        self.since = self.due = 0.0
        self.digests: dict[str, str] = {}
        self.set_aside: dict[str, int] = {}  # numbers of events whose value does not fit, by member
        self.probes = {
            name: _Probing(member)
            for name, member in form.members.items()
            if member.kind in _PROBES
        }

    async def run(self) -> Mapping[str, Json]:
        """Record the wait, wait, and record the decision."""
        state = self.state
        now = await self._begin()
        state.begin_wait()
        anchor = state.clock.monotonic()
        watch, seen = None, None
        state.count(-1)
        try:
            while True:
                # The end of a wait does not wake a run that a person holds; the event stays.
                state.check_hold()
                version = None if watch is None else watch.version()
                # While the process stays, durations follow the monotonic clock.
                for name, probing in self.probes.items():
                    if state.clock.monotonic() >= probing.next:
                        await probing.look(self.ctx, self.path, self.digests.get(name, ""))
                time = now + max(0.0, state.clock.monotonic() - anchor)
                leaving = state.leaves and not state.at_work and state.log.keeps_values
                # The last look before it leaves: another one would take back what a signal has set meanwhile.
                renewed = watch is None or version != seen or time >= self.due or leaving
                found = await self._look(time) if renewed else {}
                if watch is None and not state.silent:
                    # The first look has made the entry durable, so listeners can hear of the wait.
                    await state.settle()
                seen = version
                if (decision := self._decided(found, time)) is not None:
                    break
                if leaving and not state.at_work:
                    due = None if self.due == math.inf else self.due
                    words = self.form.words()
                    request = {"kind": "wait", "events": self._events(), "for": words, "due": due}
                    stop = Stop(Reason.WAITING, wait_text(self.path, words, due))
                    raise Suspended(stop, path=self.path, request=request)
                if watch is None and self.store is not None:
                    # Most events are there already, and it takes a connection. What came meanwhile is looked for again.
                    watch = self.store.watch()
                    continue
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
            for name in self.probes:
                if members[name].value.changes:
                    digests[name] = (await members[name].value.look(self.ctx, "")).digest
            known = {
                "for": self.form.words(),
                "since": now,
                "due": None if due == math.inf else due,
                "files": digests,
                "events": self._events(),
            }
            if not state.silent:
                state.append(Entry("waiting", self.path, state.now(), value=state.clean(known)))
                if self.probes or self.store is None:
                    await state.settle()  # else the first look makes it durable, in one transaction
        self.since = known["since"]
        self.due = math.inf if known["due"] is None else known["due"]
        self.digests = known["files"]
        return now

    def _rows(self) -> list[OpenWait]:
        from ..journal.events import NONE_TAKEN, OpenWait

        state, rows = self.state, []
        for name, member in self.form.members.items():
            if member.kind == "event":
                key = member.key or state.run_id
                after, later = state.taken.get((member.value, key), NONE_TAKEN)
                if name in self.set_aside:
                    after, later = self.set_aside[name], math.inf
                # The clock of the machine that created the run may be ahead of that of the store.
                created = min(state.log.info.created, self.since)
                since = self.since if member.since == "wait" else created
                # An event of the last moment counts: the limit is the recorded time, not that of a look.
                place = (state.run_id, self.path, member.value, key)
                rows.append(OpenWait(*place, self.due, since, after, later, until=self.due))
        # Others can end the wait; see `stop_waiting`.
        key = _stop_key(state.run_id, self.path)
        after, later = state.taken.get((STOP, key), NONE_TAKEN)
        place = (state.run_id, self.path, STOP, key)
        return [*rows, OpenWait(*place, self.due, self.since, after, later)]

    async def _look(self, time: float) -> Mapping[str, Event]:
        """Return the events that are there, by the names of their conditions; register what the run waits for."""
        if self.store is None:
            return {}
        rows = self._rows()
        if looks := self._looks():
            # No signal announces a file, so the run must be resumed from time to time to look at it.
            rows = [replace(row, due=min(row.due, time + looks)) for row in rows]
        _, found = await self.store.look_for(rows)
        names = [name for name, member in self.form.members.items() if member.kind == "event"]
        names.append(STOP)
        events = {
            name: event for name, event in zip(names, found, strict=False) if event is not None
        }
        for name, event in list(events.items()):
            schema = None if name == STOP else self.form.members[name].schema
            if schema is None:
                continue
            from ..records.json_schema import problem_with  # slow to load, and few have a schema

            if problem := problem_with(event.value, schema):
                del events[name]
                self.set_aside[name] = event.number
                self.state.warn(
                    f"event {event.name} {event.number} does not fit: {problem}",
                    self.path,
                    code="event_refused",
                )
                return {**await self._look(time), **events}
        return events

    def _decided(
        self, events: Mapping[str, Event], time: float
    ) -> tuple[dict[str, Json], Event | None] | None:
        """Return the value of the entry `woken` and the event that ends the wait, or None."""
        # The earliest event ends the wait, even if nobody looked at that time.
        first = min(map(self._moment, events.values()), default=(math.inf, True))
        if STOP in events and self._moment(events[STOP]) <= first:
            return self._timeout(time, f"{events[STOP].who} ended the wait"), events[STOP]
        for name, member in self.form.members.items():
            probing = self.probes.get(name)
            if probing is not None and probing.found is not None:
                woken = self._output(member.kind, name, self.state.clean(probing.found.value), time)
                if probing.failed:
                    woken["failed"] = self.state.redact(probing.failed)
                    woken["kind"] = probing.kind
                return woken, None
            if name in events and self._moment(events[name]) <= first:
                value = self.state.clean(events[name].value)
                return self._output("event", name, value, time), events[name]
            if member.kind == "file" and self._is_so(name, member):
                return self._output("file", name, None, time), None
            # Events came before any time.
            if self._is_over(member.ends(self.since), time) and not events:
                return self._output("time", name, None, time), None
        if not self._is_over(self.due, time):
            return None
        why = f"its time limit of {duration(self.due - self.since)} is over"
        return self._timeout(time, why), None

    def _moment(self, event: Event) -> tuple[float, bool]:
        """Return when an event counts: those before the wait at its beginning, and before one of that very moment.

        The first look may miss an event of the moment in which the wait begins; the decision must not depend on that.
        """
        return max(event.at, self.since), event.at >= self.since

    def _is_over(self, end: float, time: float) -> bool:
        # An event of the last moment counts, and may come in this moment.
        return time > end if "event" in self.kinds else time >= end

    def _timeout(self, time: float, why: str) -> dict[str, Json]:
        default = self.form.default
        if last := next((one.last for one in self.probes.values() if one.last), ""):
            why = f"{why}; its last look: {last}"
        woken = self._output("timeout", "", default[0] if default else None, time)
        if not default:
            woken["failed"] = self.state.redact(f"it waited for {self.form.words()}; {why}")
        return woken

    def _output(self, ended: str, which: str, value: Json, time: float) -> dict[str, Json]:
        seconds = round(max(0.0, time - self.since), 3)
        output = {"ended": ended, "which": which, "value": value, "seconds": seconds}
        return {"output": output}

    def _file(self, member: Member) -> Path:
        folder = self.folder or self.ctx.folder or Path.cwd()
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

    async def _sleep(self, watch: Any, version: int | None, time: float) -> None:
        """Sleep until something may have changed."""
        state, until = self.state, min(max(MOMENT, self.due - time), LONGEST)
        may_leave = state.leaves and state.log.keeps_values
        if self.ctx.gate is not None:
            self.ctx.gate.check(state)
            until = min(until, 1.0)  # a loop around it may end by a deadline
        for probing in self.probes.values():
            until = min(until, max(0.0, probing.next - state.clock.monotonic()))
        # For a time or a probe, only a person who ends the wait changes the store.
        quick = may_leave or not self.kinds.isdisjoint(("event", "file"))
        waited = 0.0
        while waited < until:
            pause = min(POLL if quick else 5 * POLL, until - waited)
            await state.clock.sleep(pause)
            waited += pause
            if (
                "file" in self.kinds
                or watch is None
                or watch.version() != version
                or (may_leave and not state.at_work)
                or (state.steering is not None and state.steering.held)
            ):
                return

    def _looks(self) -> float:
        """Return the seconds after which somebody must look again; 0 if a signal or the time ends it."""
        pauses = [probing.most for probing in self.probes.values()]
        return min([*pauses, PROBE] if "file" in self.kinds else pauses, default=0.0)

    def _events(self) -> list[Json]:
        events: list[Json] = []
        for member in self.form.members.values():
            if member.kind == "event":
                schema = {} if member.schema is None else {"schema": member.schema}
                key = member.key or self.state.run_id
                events.append({"name": member.value, "key": key, **schema})
        return events

    async def _end(self, woken: dict[str, Json], event: Event | None) -> Mapping[str, Json]:
        """Record the decision; the event is taken with it."""
        state = self.state
        if event is not None:
            state.take_event(event, self.path)
        if not state.silent:
            state.append(Entry("woken", self.path, state.now(), value=woken))
        if self.store is not None:
            # In one transaction with the entry.
            await self.store.end_wait(
                state.run_id, self.path, [] if event is None else [event.number]
            )
        if not state.silent:
            await state.settle()
        return woken


class _Probing:
    """The looks at one condition, each pause longer than the one before."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.pause, self.most = member.every
        self.next = 0.0
        self.problems = 0  # looks in a row that could not be made
        self.found: Probed | None = None  # what ends the wait
        self.failed = self.kind = self.last = ""

    async def look(self, ctx: Context, path: str, before: str) -> None:
        """Look once, and set what ends the wait."""
        member, clock = self.member, ctx.run.clock
        try:
            found = await member.value.look(ctx.child(path), before)
        except StepTimeout as error:
            found, self.last = Probed(False), str(error)
        except StepError as error:
            found, self.last = Probed(False), str(error)
            self.problems += 1
            if self.problems >= TRIES:
                self.found, self.failed, self.kind = found, str(error), error.kind
        else:
            self.problems = 0
            self.last = " ".join(codec.text_of(found.value).split())[-200:]
        if found.true or found.exit in member.failed:
            self.found = found
        if found.exit in member.failed:
            last = found.value["output"].strip()[-200:]
            self.failed = f"{member.value.words} ended with {found.exit}{last and f': {last}'}"
            self.kind = "wait_failed"
        # At different times, so that many runs do not look at once.
        self.next = clock.monotonic() + self.pause * (0.9 + 0.2 * ctx.run.random())
        self.pause = min(self.most, self.pause * 1.5)


def _stop_key(run_id: str, path: str) -> str:
    return f"{run_id} {path}"


async def stop_waiting(journal: Journal, run_id: str, path: str, *, who: str) -> Signalled:
    """End a wait as its time limit does.

    Args:
        journal: the journal of the run.
        run_id: the run.
        path: the path of the wait.
        who: who ends it.

    Returns:
        The stored event, and how many runs wait for it: 1, or 0 if the run does not wait there.
    """
    from ..journal.events import Event

    # Each time a new one: a run that is rewound waits at this path again.
    return await journal.signal(
        Event(STOP, _stop_key(run_id, path), id=os.urandom(16).hex(), who=who)
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


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
    from ..journal.open import using
    from ..journal.questions import user_name

    if not key:
        raise ConfigurationError(
            f"event {name}: it needs a key; that of a wait without one is the ID of its run"
        )
    event = checked_event(Event(name, key, value, id, who or user_name()))
    async with using(journal) as store:
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
