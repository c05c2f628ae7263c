"""What the engine's tests share: scripted steps, hand-made histories and journals that die on cue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from loopwright import (
    Context,
    Evaluation,
    Failure,
    History,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    ScoreAtLeast,
    Usage,
    run,
    step,
)
from loopwright.errors import OwnershipLost, StepError
from loopwright.journal import Entry, MemoryLog, RunInfo
from loopwright.testing import run_virtual

UNDECIDED = "undecided"
ERROR = "error"
NAN = float("nan")


def examples(share: float) -> settings:
    """Return settings that try `share` of the profile's examples, for properties that cost more."""
    return settings(max_examples=max(5, int(settings().max_examples * share)))


def play(made: Any, value: Any = None, *, seed: int | None = None, **options: Any) -> Result:
    """Run a step to its end in virtual time."""
    return run_virtual(run(made, value, **options), seed=seed)


# Histories by hand.


def judged(mark: Any) -> Evaluation | None:
    """Return the evaluation that a mark stands for: a score, True, False, undecided or None."""
    if mark is None or mark == ERROR:
        return None
    if mark == UNDECIDED:
        return Evaluation(undecided=True)
    if isinstance(mark, Evaluation):
        return mark
    return Evaluation(passed=mark) if isinstance(mark, bool) else Evaluation(mark)


def history(
    *marks: Any,
    outputs: Sequence[Any] | None = None,
    inputs: Sequence[Any] | None = None,
    elapsed: float = 0.0,
    usage: Usage | None = None,
    now: float = 0.0,
) -> History:
    """Return a history of one iteration per mark: score, True, False, None, ERROR or UNDECIDED."""
    items = []
    for number, mark in enumerate(marks, start=1):
        error = Failure("execute", "error", "it broke") if mark == ERROR else None
        output = None if error else f"output {number}" if outputs is None else outputs[number - 1]
        given = f"input {number}" if inputs is None else inputs[number - 1]
        items.append(Iteration(number, given, output, judged(mark), error))
    return History(items, elapsed=elapsed, usage=usage or Usage(), now=now)


# Steps that follow a script.


@dataclass(repr=False)
class Script:
    """An async step that answers from a list and counts its calls; the last answer repeats.

    An answer that is an exception is raised, one that is callable is called with the input.
    `seconds` is how long each call takes.
    """

    answers: Sequence[Any]
    seconds: float = 0.0
    calls: list[Any] = field(default_factory=list)

    async def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer(value) if callable(answer) else answer


def verdict(mark: Any) -> Any:
    """Return what an evaluator answers for a mark; ERROR is raised."""
    if mark == ERROR:
        return StepError("the judge broke")
    return judged(mark) if mark == UNDECIDED else mark


def scripted(marks: Sequence[Any], **fields: Any) -> Loop:
    """Return a loop whose rounds are judged by the marks, in order; ERROR fails in execute."""
    execute = Script([StepError("it broke") if m == ERROR else f"output {m}" for m in marks])
    whole = [verdict(m) for m in marks if m != ERROR] or [None]
    fields.setdefault("name", "refine")
    fields.setdefault("execute", execute)
    fields.setdefault("evaluate", Script(whole))
    return Loop(**fields)


def inline(function: Callable[..., Any], **options: Any) -> Any:
    """Return a plain function as a step that is called on the event loop itself."""
    return step(function, inline=True, **options)


async def spend_one(value: Any, ctx: Context) -> str:
    """Spend a call and say the same as always."""
    ctx.spend(Usage(calls=1))
    return "always the same"


async def echo(value: Any) -> Any:
    """Return the input."""
    return value


# Journals that die.


class KeepingLog(MemoryLog):
    """A memory log that records fingerprints, as a store that outlives its process does."""

    keeps_values = True


class KeepingJournal(MemoryJournal):
    """A memory journal that records fingerprints."""

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> MemoryLog:
        log = await super().open(info, resume=resume, takeover=takeover)
        log.__class__ = KeepingLog
        return log


class DyingJournal(KeepingJournal):
    """A memory journal whose process dies at the append number `at` of each opening, from 1.

    `before` says whether that entry is lost or was just written. 0 never dies.
    """

    def __init__(self, at: int = 0, *, before: bool = False) -> None:
        super().__init__()
        self.at = at
        self.before = before
        self.appended = 0

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> MemoryLog:
        log = await super().open(info, resume=resume, takeover=takeover)
        self.appended = 0
        write = log.append

        def append(entry: Entry) -> None:
            self.appended += 1
            dies = self.appended == self.at
            if dies and self.before:
                self.die()
            else:
                write(entry)
                if dies:
                    self.die()

        log.append = append
        return log

    def die(self) -> None:
        """Let go of every run and stop the task that writes, as a dying process would."""
        self.crash()
        task = asyncio.current_task()
        assert task is not None
        for other in asyncio.all_tasks():
            other.cancel()


def crashed_after(journal: DyingJournal, made: Any, at: int, value: Any = None) -> None:
    """Run until the process dies at an append, and leave the journal ready for a resume."""
    journal.at = at
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(made, value, journal=journal, run_id="r")
    journal.at = 0


def kinds(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """Return what happened where, in order."""
    return [(entry.kind, entry.path) for entry in entries]


def entries_of(journal: MemoryJournal, run_id: str) -> list[Entry]:
    """Return the entries of a run."""
    return run_virtual(journal.entries(run_id))


# Values.


def named(name: str, *answers: Any, seconds: float = 0.0) -> Any:
    """Return a scripted step of a name."""
    return step(Script(answers, seconds=seconds), name=name)


def exhausted(name: str, score: float = 0.1, **fields: Any) -> Loop:
    """Return a loop that is not satisfied after one round."""
    return scripted([score], name=name, until=ScoreAtLeast(1) | MaxIterations(1), **fields)


def satisfied(name: str) -> Loop:
    """Return a loop that is satisfied after one round."""
    return scripted([1.0], name=name, until=ScoreAtLeast(1))


texts = st.text(max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
scores = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(min_value=0, max_value=1)
)
usages = st.builds(
    Usage,
    calls=st.integers(0, 50),
    input_tokens=st.integers(0, 5000),
    output_tokens=st.integers(0, 5000),
    usd=st.integers(0, 10**9).map(lambda n: n / 10**6),
)


class SlowLog(KeepingLog):
    """A memory log whose entries are durable a second after they were appended."""

    durable = 0
    delay = 1.0

    def sync(self) -> Any:
        super().sync()
        return self._written(len(self._run.entries))

    async def _written(self, count: int) -> None:
        await asyncio.sleep(self.delay)
        self.durable = max(self.durable, count)


class SlowJournal(MemoryJournal):
    """A memory journal in which durability takes a second, as on a slow disk."""

    log: SlowLog

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> MemoryLog:
        log = await super().open(info, resume=resume, takeover=takeover)
        log.__class__ = SlowLog
        assert isinstance(log, SlowLog)
        self.log = log
        return log


async def interrupted_from_outside() -> None:
    """Be cancelled where this is awaited, as by whoever runs the run."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
