"""Waits whose process dies, leaves or stays, with events early, late and twice: what ends each wait, and when.

A run lives in tasks that read a clock of the test. A killed one stops for ever inside a call of its journal or while it
sleeps, and the next one takes the run over, as after kill -9.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loopwright import Context, Result, Status, run, signal, step, wait
from loopwright.journal import Entry
from loopwright.journal.events import Event, events_in_memory
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.ownership import Clocks

from .support import KeepingJournal, examples

START = 1_900_000_000.0  # after the time of any machine, so that every event is later than the run
WORK = 1.0  # seconds of the effect before each wait


@dataclass
class World:
    """The time, the events, and where the next process dies."""

    now: float = 0.0
    sent: int = 0
    deadly: int = 0  # the calls of a journal until the process dies; 0 is never
    frozen: bool = False
    asleep: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)
    still: asyncio.Event = field(default_factory=asyncio.Event)

    def wall(self) -> float:
        return START + self.now

    def monotonic(self) -> float:
        return self.now

    def version(self) -> int:
        return self.sent

    def close(self) -> None:
        """Nothing is open: it is the watch of a journal in memory too."""

    async def sleep(self, seconds: float) -> None:
        waker = asyncio.get_running_loop().create_future()
        self.asleep.append((self.now + seconds, waker))
        self.still.set()
        await waker

    async def pass_point(self) -> None:
        if self.deadly == 1:
            self.frozen = True
            self.still.set()
            await asyncio.get_running_loop().create_future()
        self.deadly = max(0, self.deadly - 1)


class Points:
    """A journal of whose calls some are the last of their process."""

    world: World

    async def look_for(self, waits: Any) -> Any:
        await self.world.pass_point()
        found = await super().look_for(waits)  # type: ignore[misc]
        await self.world.pass_point()
        return found

    async def end_wait(self, *arguments: Any) -> int:
        await self.world.pass_point()
        left: int = await super().end_wait(*arguments)  # type: ignore[misc]
        await self.world.pass_point()
        return left


class Memory(KeepingJournal):
    """A journal in memory, whose events have the time of the test."""

    world: World

    @functools.cached_property
    def _events(self) -> Any:
        return events_in_memory(lambda: self.world.wall())

    def watch(self) -> Any:
        return self.world


class DyingMemory(Points, Memory):
    """The one journal of all processes."""


class DyingFile(Points, SqliteJournal):
    """The journal of one process."""


class Story:
    """One run through all its processes."""

    def __init__(self, forms: list[dict[str, Any]], file: Path | None) -> None:
        self.world, self.forms, self.file = World(), forms, file
        self.memory = DyingMemory()
        self.memory.world = self.world
        self.opened: list[Any] = []
        self.dead: list[asyncio.Task[Result]] = []
        self.task: asyncio.Task[Result] | None = None
        self.events: list[Event] = []

    def journal(self) -> Any:
        """Return the journal of a new process."""
        if self.file is None:
            return self.memory
        made = DyingFile(self.file, synchronous="normal", clocks=Clocks(wall=self.world.wall))
        made.world = self.world
        self.opened.append(made)
        return made

    async def flow(self, value: Any, ctx: Context) -> Any:
        async def work(_: Any) -> None:
            await self.world.sleep(WORK)

        outputs = []
        for number, form in enumerate(self.forms):
            await ctx.call(f"work-{number}", work)
            woken = await ctx.wait(f"wait-{number}", **form)
            outputs.append([woken["ended"], woken["which"], woken["value"]])
        return outputs

    def start(self, on_wait: str) -> None:
        made = step(self.flow, name="flow", fingerprint="flow/1", idempotent=True)
        work = run(
            made,
            journal=self.journal(),
            run_id="r",
            clock=self.world,
            on_wait=on_wait,
            takeover=True,
        )
        self.task = asyncio.ensure_future(work)

    async def quiet(self) -> None:
        """Return once the process sleeps, is dead or has ended."""
        assert self.task is not None
        while not (self.world.asleep or self.world.frozen or self.task.done()):
            self.world.still.clear()
            still = asyncio.ensure_future(self.world.still.wait())
            await asyncio.wait({self.task, still}, return_when=asyncio.FIRST_COMPLETED)
            still.cancel()
        if self.world.frozen:
            self.kill()

    def kill(self) -> None:
        """Let the process never continue."""
        if self.task is not None and not self.task.done():
            self.dead.append(self.task)
        self.world.asleep.clear()
        self.world.deadly, self.world.frozen, self.task = 0, False, None

    async def wait(self, seconds: float) -> None:
        """Let time pass: the process wakes whenever it wants to."""
        until = self.world.now + seconds
        while self.task is not None:
            await self.quiet()
            if not self.world.asleep or self.world.asleep[0][0] > until:
                break
            self.world.now, waker = self.world.asleep.pop(0)
            waker.set_result(None)
            await asyncio.sleep(0)
        self.world.now = until

    async def act(self, kind: str, what: Any) -> None:
        over = self.task is None or self.task.done()
        if kind == "signal":
            name, key, id_ = what, "k", f"{what}-{len(self.events) // 3}"
            told = await signal(name, len(self.events), key=key, id=id_, journal=self.sender)
            self.world.sent += 1
            if not told.repeated:
                self.events.append(told.event)
        elif kind == "kill":
            self.kill()
        elif kind == "die":
            self.world.deadly = what
        elif over:
            self.start(what)

    async def tell(self, acts: list[tuple[float, tuple[str, Any]]]) -> tuple[Result, list[Entry]]:
        """Do what happens, then let a process stay until the run has ended."""
        self.sender = self.journal()
        self.start("leave")
        await self.quiet()
        for pause, (kind, what) in acts:
            await self.wait(pause)
            await self.act(kind, what)
        self.world.deadly = 0
        await self.wait(100.0)
        if self.task is None or self.task.result().status is Status.SUSPENDED:
            self.start("stay")
            await self.wait(100.0)
        result = await self.task
        self.start("stay")  # a replay
        assert self.task is not None
        assert (await self.task).to_json() == result.to_json()
        entries = await self.sender.entries("r")
        assert await self.sender.waits() == []
        for task in self.dead:
            task.cancel()
        await asyncio.gather(*self.dead, return_exceptions=True)
        for journal in self.opened:
            await journal.close()
        return result, entries


def expected(story: Story, entries: list[Entry]) -> list[list[Any]]:
    """Return what must have ended each wait, from its recorded times and all events."""
    taken: dict[str, int] = {}
    outputs: list[list[Any]] = []
    for number, form in enumerate(story.forms):
        [waiting] = [
            e.value for e in entries if (e.kind, e.path) == ("waiting", f"flow/wait-{number}")
        ]
        since, due = waiting["since"], waiting["due"]
        members = form.get("first_of") or {"": {k.removesuffix("_"): v for k, v in form.items()}}
        found = []
        for which, member in members.items():
            if (name := member.get("event")) is not None:
                first = since if member.get("since") == "wait" else 0.0
                found += [
                    ((max(event.at, since), event.at >= since), which, event) for event in story.events
                    if event.name == name and event.number > taken.get(name, 0) and first <= event.at <= due
                ][:1]  # fmt: skip
        if found:
            _, which, event = min(found, key=lambda one: one[0])  # on a tie, the one declared first
            taken[event.name] = event.number
            outputs.append(["event", which, event.value])
        elif timed := [which for which, member in members.items() if "for" in member]:
            outputs.append(["time", timed[0], None])
        else:
            outputs.append(["timeout", "", None])
    return outputs


LIMITED = {"timeout": 4, "default": None}
# The event comes in the moment in which the time limit ends, after the process has looked.
MOMENT = [
    (1.0, ("resume", "stay")), (0.5, ("signal", "b")), (3.0, ("signal", "b")), (0.5, ("signal", "a")),
]  # fmt: skip
TIMED = {"first_of": {"soon": {"for": 3}, "a": {"event": "a", "key": "k"}}}
BOTH = {"first_of": {"b": {"event": "b", "key": "k"}, "a": {"event": "a", "key": "k"}}, **LIMITED}
FORMS = st.sampled_from(
    [
        {"event": "a", "key": "k", **LIMITED},
        {"event": "b", "key": "k", "since": "wait", **LIMITED},
        {"for_": 3},
        TIMED,
        BOTH,
    ]
)
ACTS = st.one_of(
    st.tuples(st.just("signal"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("die"), st.integers(1, 5)),
    st.just(("kill", None)),
    st.tuples(st.just("resume"), st.sampled_from(["stay", "leave"])),
)
TOLD = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]), ACTS), max_size=12)


@pytest.mark.parametrize(("kind", "share"), [("memory", 1.0), ("sqlite", 0.15)])
def test_what_ends_a_wait_does_not_depend_on_who_looks(kind: str, share: float) -> None:
    """An event that came by the due time ends its wait (W3), also if nobody looked (W9); it is decided once and replayed
    the same (W2), each event is taken once (W1), and the time of the run stands (W5).
    """

    @examples(share)
    @example([TIMED], [(2.0, ("signal", "a")), (9.0, ("resume", "stay"))])
    @example([BOTH], [(2.0, ("signal", "a")), (1.0, ("signal", "b"))])
    @example([BOTH], [(0.0, ("signal", "a")), (1.0, ("signal", "b"))])
    @example([{"event": "a", "key": "k", **LIMITED}], MOMENT)
    @given(st.lists(FORMS, min_size=1, max_size=3), TOLD)
    def holds(forms: list[dict[str, Any]], acts: list[tuple[float, tuple[str, Any]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            story = Story(forms, Path(folder, "j.db") if kind == "sqlite" else None)
            result, entries = asyncio.run(story.tell(acts))
        assert result.output == expected(story, entries)
        times: dict[str, list[tuple[str, float]]] = {}
        for entry in entries:
            if entry.kind in ("waiting", "woken"):
                times.setdefault(entry.path, []).append((entry.kind, entry.at))
        for written in times.values():
            assert [name for name, _ in written] == ["waiting", "woken"]
            assert written[0][1] == pytest.approx(written[1][1])
        numbers = [entry.value["number"] for entry in entries if entry.kind == "taken"]
        assert len(numbers) == len(set(numbers))

    holds()


@pytest.mark.parametrize("kind", [KeepingJournal, SqliteJournal])
async def test_a_signal_between_the_look_and_the_leaving_makes_the_run_due(
    kind: Any, tmp_path: Path
) -> None:
    """Whoever continues runs finds it (W6): a look never takes back what a signal has set."""

    class Signalled(kind):  # type: ignore[misc]
        sent = 0

        async def look_for(self, waits: Any) -> Any:
            found = await super().look_for(waits)
            if waits and not self.sent:
                self.sent = (await signal("go", key="r", journal=self)).waiting
            return found

    journal = Signalled() if kind is KeepingJournal else Signalled(tmp_path / "j.db")
    left = await run(wait("w", event="go"), journal=journal, run_id="r", on_wait="leave")
    assert journal.sent == 1
    due = [row.run for row in await journal.waits(due=time.time() + 1)]
    assert due == (["r"] if left.status is Status.SUSPENDED else [])
    await journal.close()
