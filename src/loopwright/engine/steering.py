"""Hints of people for a run that goes on, and holds: requests in its inbox, as new limits are.

1. A hint is a text. Each loop that it is for reads it at the beginning of its next iteration, and records that as
   `steered`. What had begun before reads only what is recorded there, so that a replay is the same.
2. A hold is a question of the kind `hold`, asked before the next effect of each branch. Calls in flight end first.
3. With `now` both interrupt the calls in flight that can be continued. Such a call looks itself whether a request
   concerns it, and has the hints that it was told in its record. They are added to `steered` of the iteration.
4. What is in force follows from the inbox alone. A rewind leaves the inbox as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, RunLocked
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.open import using
from ..journal.protocol import Posted
from ..journal.questions import answer, pending, user_name
from ..journal.replay import UNASKED, RecordedRun, applies
from ..records import Reason, Stop
from ..records.codec import Json
from ..records.typed import Value
from .change_limits import ENDED, expect_loop

if TYPE_CHECKING:
    from .run_state import Run

__all__ = ["Hint", "Steering", "continue_run", "hold", "steer"]

LONGEST = 4000  # characters of a hint
MOST = 50  # hints of a run
_PREFIX = "steer/"
_HOLD = "hold "  # before its number: the path of the question of a hold


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hint(Value):
    """A text of a person for later iterations.

    Args:
        number: its number in the run, from 1.
        text: the text.
        id: its place in the inbox. Clocks of two machines can change the number, and not the ID.
        loop: the name or path of the loop that reads it; "" is every loop.
        once: whether each loop reads it for one iteration only.
        who: the name of the person.
        at: when it was given, in seconds since the epoch.
        read: the paths of the iterations that have read it.
    """

    number: int
    text: str
    id: str = ""
    loop: str = ""
    once: bool = False
    who: str = ""
    at: float = 0.0
    read: tuple[str, ...] = ()


class Steering:
    """The hints and the hold that are in force, from the inbox of a run.

    Attributes:
        hints: the hints that were not dropped.
        held: the number of the hold that is in force; 0 is none.
        who: who asked for it.
        asked: whether this process has asked for its end.
    """

    def __init__(
        self, inbox: Sequence[Posted] = (), steered: Mapping[str, Json] | None = None
    ) -> None:
        self.hints: list[Hint] = []
        self.held = 0
        self.who = ""
        self.asked = False
        # Where each hint for one iteration was read: once in each loop.
        self._read: dict[tuple[str, str], str] = {}
        for path, hints in (steered or {}).items():
            for hint in hints:
                self._read[path.rpartition("/")[0], hint["id"]] = path
        self.take(inbox)

    def take(self, inbox: Sequence[Posted]) -> None:
        """Follow the inbox, which only grows."""
        hints: dict[str, Hint] = {}
        dropped: set[str] = set()
        holds, released, who = 0, 0, ""
        # The loops of the requests to interrupt; None is a hold.
        self._urgent: list[str | None] = []
        for posted in inbox:
            value = posted.value
            if posted.path.startswith(_HOLD):  # the answer to the question
                released = max(released, int(posted.path.removeprefix(_HOLD)))
                continue
            if posted.asked != UNASKED or not posted.path.startswith(_PREFIX):
                continue
            if value.get("now"):
                self._urgent.append(value.get("loop"))
            if "hint" in value:
                hints[posted.path] = Hint(
                    len(hints) + 1,
                    value["hint"],
                    posted.path,
                    value["loop"],
                    value["once"],
                    posted.who,
                    posted.at,
                )
            elif "drop" in value:
                dropped.add(value["drop"])
            elif "hold" in value:
                holds, who = holds + 1, posted.who
            elif "continue" in value:
                released = max(released, value["continue"])
        self.hints = [hint for hint in hints.values() if hint.id not in dropped]
        held = holds if holds > released else 0
        self.asked = self.asked and held == self.held
        self.held, self.who = held, who

    @property
    def question(self) -> str:
        """The path of the question that ends the hold."""
        return f"{_HOLD}{self.held}"

    def urgent(self, loop: str) -> int:
        """Return the number of requests to interrupt a call whose loop has a path; "" is none."""
        return sum(_concerns(wanted, loop) for wanted in self._urgent)

    def read(self, loop: str, path: str, before: Sequence[Json], step: str = "") -> list[Json]:
        """Return the hints that the iteration of a loop at a path reads, given those that it knows.

        Args:
            loop: the path of the loop.
            path: the path of the iteration.
            before: the hints that the iteration before has read, or this one for a step in it.
            step: the path below the iteration of a step that is interrupted. To others of the iteration its hints are
                new. In the next iteration they are new, and `told` names the steps that know them.
        """
        known = {hint["id"] for hint in before if hint.get("step", step) == step}
        found: list[Json] = []
        for hint in self.hints:
            place = (loop, hint.id)
            past = hint.once and self._read.get(place, path) != path
            if past or not _concerns(hint.loop, loop):
                continue
            self._read[place] = path
            shown: dict[str, Json] = {
                "id": hint.id,
                "number": hint.number,
                "text": hint.text,
                "who": hint.who,
                "at": hint.at,
                "new": hint.id not in known,
            }
            steps = [one["step"] for one in before if one["id"] == hint.id and "step" in one]
            found.append(shown | ({"step": step} if step else {"told": steps}))
        return found


def _concerns(wanted: str | None, loop: str) -> bool:
    """Return whether a request for a loop ("" is every loop, None is all of the run) is for what is in one at a path."""
    return wanted is None or (bool(loop) and (not wanted or applies(wanted, loop)))


def steering_of(inbox: Sequence[Posted], recorded: Sequence[Entry]) -> tuple[Hint, ...]:
    """Return the hints of a run that are in force, with the iterations that read them."""
    places: dict[str, list[str]] = {}
    for path, hints in RecordedRun(recorded).steered.items():
        for hint in hints:
            places.setdefault(hint["id"], []).append(path)
    hints = Steering(inbox).hints
    return tuple(
        replace(hint, read=tuple(dict.fromkeys(places.get(hint.id, ())))) for hint in hints
    )


def in_flight(info: RunInfo, recorded: Sequence[Entry], loop: str | None) -> str:
    """Return a sentence on the calls in flight: those that a request with `now` interrupts, and the others.

    Args:
        info: the row of the run.
        recorded: its entries.
        loop: the name or path of the loop that a hint is for; "" is every loop, and None a hold.
    """
    open_calls = RecordedRun(surviving(recorded)).unsettled if info.status == "running" else {}
    calls = {path: entry.value for path, entry in open_calls.items() if entry.kind == "started"}
    agents = {
        path: asked
        for path, asked in calls.items()
        if isinstance(asked, Mapping)
        and asked.get("hints_of") is not None
        and _concerns(loop, asked["hints_of"])
    }
    cut = [f"{asked['agent']} at {path.rpartition('/')[0]}" for path, asked in agents.items()]
    # A function that waits for such a call is not named.
    left = [
        path
        for path in calls.keys() - agents.keys()
        if not any(p.startswith(f"{path}/") for p in calls)
    ]
    alone = f"; left alone: {', '.join(sorted(left))}" if left else ""
    return f"interrupts {', '.join(cut) or 'nothing'}{alone}"


async def steer(
    run_id: str,
    text: str = "",
    *,
    journal: Journal | str,
    loop: str = "",
    once: bool = False,
    now: bool = False,
    drop: int = 0,
    who: str = "",
) -> tuple[Hint, ...]:
    """Give a run a hint that its loops read at the beginning of their next iterations.

    Templates have the texts as `loop.hints`, functions as `ctx.hints`. A template of `execute` that does not use the
    name gets them after its text.

    Args:
        run_id: the run, or a unique prefix of its ID.
        text: the hint, at most 4,000 characters. Without one nothing is added.
        journal: the journal of the run, or its URL.
        loop: the name or path of the loop that reads it. Default: every loop.
        once: whether each loop reads it for one iteration only. Default: until the end of the loop.
        now: whether it interrupts the coding agents that work in `execute` of these loops. Each goes on in its session,
            with the hint. Default: False; other calls are left alone.
        drop: the number of a hint that later iterations do not read any more. Default: none.
        who: the name of the person. Default: the user of this process.

    Returns:
        The hints that are in force, the latest last.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: for an ended run, one without such a loop, or a text that is too long.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, run, steer
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2), approve="iteration")
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).status.value
        'suspended'
        >>> asyncio.run(steer("r", "Use the asyncio API.", journal=journal))[-1].number
        1
    """
    async with using(journal) as store:
        info, entries, inbox = await _state(store, run_id)
        hints = steering_of(inbox, entries)
        if not text and not drop:
            return hints
        if info.status in ENDED:
            raise ConfigurationError(
                f"{info.run_id}: it is {info.status}, so no loop reads a hint any more"
            )
        wanted = next((hint.id for hint in hints if hint.number == drop), "")
        if drop and not wanted:
            known = ", ".join(str(hint.number) for hint in hints) or "none"
            raise ConfigurationError(f"{info.run_id} has no hint {drop}; in force: {known}")
        if text:
            if not isinstance(text, str):
                raise ConfigurationError(f"a hint is a text, not {text!r:.40}")
            if len(text) > LONGEST or not text.strip():
                raise ConfigurationError(
                    f"a hint has 1 to {LONGEST:,} characters; this one has {len(text):,}"
                )
            if len(hints) >= MOST:
                raise ConfigurationError(
                    f"{info.run_id} has {MOST} hints; drop one first, with drop"
                )
            expect_loop(info, entries, loop)
            await _post(store, info, {"hint": text, "loop": loop, "once": once, "now": now}, who)
        if drop:
            await _post(store, info, {"drop": wanted}, who)
        return steering_of(await store.inbox(info.run_id), entries)


async def hold(run_id: str, *, journal: Journal | str, now: bool = False, who: str = "") -> RunInfo:
    """Stop a run before its next effects, until `continue_run` or the answer to its question.

    Calls in flight end. A run that is suspended already is held at once; a queued or interrupted one before its next
    effect.

    Args:
        run_id: the run, or a unique prefix of its ID.
        journal: the journal of the run, or its URL.
        now: whether it interrupts coding agents, which go on in their sessions after the hold. Default: calls end.
        who: the name of the person. Default: the user of this process.

    Returns:
        The row of the run.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: for a run that has ended, or is held already and has no call to interrupt.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, hold, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2), approve="iteration")
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).reason.value
        'approval'
        >>> asyncio.run(hold("r", journal=journal)).reason
        'held'
    """
    async with using(journal) as store:
        info, _, inbox = await _state(store, run_id)
        if info.status in ENDED:
            raise ConfigurationError(
                f"{info.run_id}: it is {info.status}, so there is nothing to hold"
            )
        if (held := Steering(inbox).held) and not (now and info.status == "running"):
            raise ConfigurationError(f"{info.run_id} is held already; to end that, use continue")
        await _post(store, info, {**({} if held else {"hold": True}), "now": now}, who)
        if info.status == "suspended":
            await _held(store, info)
        return await store.find(info.run_id)


async def continue_run(run_id: str, *, journal: Journal | str, who: str = "") -> RunInfo:
    """End the hold of a run. One without a process then continues when it is resumed.

    Args:
        run_id: the run, or a unique prefix of its ID.
        journal: the journal of the run, or its URL.
        who: the name of the person. Default: the user of this process.

    Returns:
        The row of the run.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: for a run that is not held.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, continue_run, hold, resume, run
        >>> async def example() -> None:
        ...     journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(1), approve="limit")
        ...     await run(loop, 1, journal=journal, run_id="r")
        ...     await hold("r", journal=journal)
        ...     await continue_run("r", journal=journal)
        ...     print((await resume(loop, "r", journal=journal)).reason)
        >>> asyncio.run(example())
        approval
    """
    async with using(journal) as store:
        info, _, inbox = await _state(store, run_id)
        steering = Steering(inbox)
        if info.status in ENDED or not steering.held:
            hint = ", and goes on when you resume it" if info.status == "suspended" else ""
            raise ConfigurationError(f"{info.run_id} is not held; it is {info.status}{hint}")
        if any(one.path == steering.question for one in await pending(store, info.run_id)):
            await answer(store, info.run_id, steering.question, {"approve": True}, who=who)
        else:  # it has not come to its next effect
            await _post(store, info, {"continue": steering.held}, who)
        return await store.find(info.run_id)


async def take_hints(run: Run, path: str, event: str) -> None:
    """Put the events that came for a loop into the inbox of the run, as hints."""
    from ..journal.events import NONE_TAKEN, OpenWait

    store, key = run.store, (event, run.run_id)
    if store is None or run.silent:
        return
    run.begin_wait()
    while True:
        after, later = run.taken.get(key, NONE_TAKEN)
        since = run.log.info.created
        place = OpenWait(run.run_id, f"{path}/hints", *key, since=since, after=after, later=later)
        _, [found] = await store.look_for([place])
        if found is None:
            return
        if isinstance(found.value, str) and 0 < len(found.value.strip()) <= LONGEST:
            value: Json = {"hint": found.value, "loop": "", "once": False}
            # One path for one event, so that a crash gives no hint twice.
            name = f"{_PREFIX}{found.at:018.6f}-{found.number}"
            await store.post(run.run_id, Posted(name, UNASKED, value, found.who, found.at))
            run.steer(await store.inbox(run.run_id))
        else:
            run.warn(
                f"event {event} {found.number} is no hint: its value is not a text",
                path,
                code="event_refused",
            )
        run.take_event(found, path)
        await store.end_wait(run.run_id, place.path, [found.number])


async def _state(journal: Journal, run_id: str) -> tuple[RunInfo, list[Entry], list[Posted]]:
    info = await journal.find(run_id)
    return info, surviving(await journal.entries(info.run_id)), await journal.inbox(info.run_id)


async def _post(journal: Journal, info: RunInfo, value: Json, who: str) -> None:
    now = time.time()
    # The time first, because an inbox is read in the order of its paths.
    path = f"{_PREFIX}{now:018.6f}-{os.urandom(4).hex()}"
    await journal.post(info.run_id, Posted(path, UNASKED, value, who or user_name(), now))


async def _held(journal: Journal, info: RunInfo) -> None:
    """Record the hold of a suspended run, which no process can do."""
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:  # a process has just continued it, and reads its inbox
        return
    row = replace(log.info, status=info.status)
    try:
        steering = Steering(await journal.inbox(info.run_id))
        last = next((e.value for e in reversed(log.recorded) if e.kind == "suspended"), None)
        if last is not None and steering.held:
            stop, asked = hold_of(steering)
            asked["since"] = time.time()
            log.append(Entry("asked", steering.question, log.info.active, asked))
            request = {"path": steering.question, **asked["request"]}
            value = {**last, "stop": stop.to_json(), "request": request}
            log.append(Entry("suspended", "", log.info.active, value))
            if (written := log.sync()) is not None:
                await written
            row = replace(row, reason=stop.reason.value, detail=stop.detail, updated=time.time())
    finally:
        await log.close(row)


def hold_of(steering: Steering) -> tuple[Stop, dict[str, Json]]:
    """Return the stop of a held run, and its question."""
    stop = Stop(Reason.HELD, f"held by {steering.who} until somebody continues it")
    return stop, {"request": {"kind": "hold"}, "detail": stop.detail}
