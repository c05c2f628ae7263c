"""One effect: look in the journal, ask the gates, reserve, record the intent, act, settle, record."""

from __future__ import annotations

from typing import Any

from loopwright import (
    Budget,
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Usage,
    Workflow,
    parallel,
    step,
)
from loopwright.errors import StepError
from loopwright.journal import Entry

from .support import (
    DyingJournal,
    KeepingJournal,
    Script,
    SlowJournal,
    crashed_after,
    echo,
    entries_of,
    inline,
    kinds,
    play,
)

# What is recorded.


def test_an_effect_is_an_intent_and_an_outcome() -> None:
    """Nothing acts before its "started" entry; its "finished" has value, time and fingerprint."""
    journal = KeepingJournal()
    play(Loop(Script(["x"], seconds=2), name="refine", until=MaxIterations(1)), "in",
         journal=journal, run_id="r")  # fmt: skip
    entries = entries_of(journal, "r")
    assert kinds(entries) == [
        ("started", "refine/1/execute"), ("finished", "refine/1/execute"), ("iteration", "refine"),
        ("ended", "refine"), ("ended", ""),
    ]  # fmt: skip
    started, finished = entries[:2]
    assert (started.at, finished.at, finished.seconds, finished.value) == (0, 0, 2, "x")
    assert started.fingerprint == finished.fingerprint
    assert started.fingerprint.endswith(":'in'")
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]


def test_nothing_acts_before_its_intent_is_durable() -> None:
    """Rule 1: the step is called only after the store has acknowledged the intent."""
    journal = SlowJournal()
    seen: list[int] = []

    async def act(value: Any) -> str:
        seen.append(journal.log.durable)
        return "x"

    play(act, journal=journal, run_id="r")
    assert seen == [1]


def test_a_failure_is_recorded_and_raised_again() -> None:
    """A finished effect that failed fails the same way when it is replayed, and is not tried again."""
    execute = Script([StepError("no", kind="transient", retryable=False, retry_after=3.0)])
    journal = MemoryJournal()
    first = play(Loop(execute, name="l"), journal=journal, run_id="r")
    entry = entries_of(journal, "r")[1]
    assert entry.error is not None
    assert (entry.error.kind, entry.error.retryable, entry.error.retry_after) == (
        "transient", False, 3.0,
    )  # fmt: skip
    assert first.history[0].error is not None
    assert first.history[0].error.retry_after == 3.0


def test_a_step_says_what_it_spent() -> None:
    """I32: what a context is told is settled in every account, also when the step then fails."""

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1, usd=0.1))
        ctx.spend(Usage(calls=1))
        if value == "fail":
            raise ValueError
        return "x"

    for value in ("go", "fail"):
        journal = MemoryJournal()
        result = play(Loop(spends, name="l", until=MaxIterations(1)), value,
                      journal=journal, run_id="r")  # fmt: skip
        assert result.usage == result.history[0].usage == Usage(calls=2, usd=0.1)
        assert entries_of(journal, "r")[1].usage == Usage(calls=2, usd=0.1)


def test_a_step_that_cannot_say_what_it_spent_settles_at_what_it_promised() -> None:
    """I32: a call that was reserved and made is never free because nobody could count it."""
    result = play(
        Loop(step(echo, reserve=Usage(calls=1)), until=MaxIterations(9) | Budget(calls=3))
    )
    assert (result.reason, result.iterations, result.usage) == (Reason.BUDGET, 3, Usage(calls=3))


def test_a_step_that_can_say_it_spent_nothing_spends_nothing() -> None:
    """A step with a context that spends nothing, from a cache say, gives its promise back."""

    async def cached(value: Any, ctx: Context) -> str:
        return "x"

    made = step(cached, reserve=lambda value: Usage(calls=1))
    result = play(Loop(made, until=MaxIterations(9) | Budget(calls=3)))
    assert (result.reason, result.usage) == (Reason.MAX_ITERATIONS, Usage())


def test_a_promise_that_cannot_be_made_is_a_failure_of_the_step() -> None:
    """What `reserve` raises is recorded like any other error, not thrown at the caller."""

    def reserve(value: Any) -> Usage:
        raise KeyError("length")

    result = play(Loop(step(echo, reserve=reserve), until=MaxIterations(1)))
    assert result.history[0].error is not None
    assert result.history[0].error.kind == "KeyError"


def test_a_call_that_does_not_fit_is_refused_before_it_is_made() -> None:
    """H24, F20: the worst case is checked before the call, and nothing is recorded as started."""
    journal = MemoryJournal()
    execute = Script(["x"])
    made = Loop(step(execute, reserve=Usage(calls=2)), name="l", guards=Budget(calls=1))
    result = play(made, journal=journal, run_id="r")
    assert (result.reason, execute.calls) == (Reason.BUDGET, [])
    assert result.detail == (
        "0 of 1 calls spent; the call l/1/execute may take 2 calls and did not fit: "
        "a call starts only if its maximum cost fits"
    )
    assert kinds(entries_of(journal, "r")) == [("iteration", "l"), ("ended", "l"), ("ended", "")]


def test_outputs_are_normalised_before_anyone_sees_them() -> None:
    """Rule 2: a tuple is a list for the evaluator too, live as in a replay."""
    judge = Script([0.5])
    result = play(Loop(Script([("a", 1)]), judge, until=MaxIterations(1)))
    assert judge.calls == [["a", 1]]
    assert result.output == ["a", 1]


def test_an_evaluation_that_is_an_output_is_recorded_as_json() -> None:
    """A record's output and input are JSON values, also where a step returns an Evaluation."""
    result = play(Loop(Script([Evaluation(0.5)]), adapt=Script([Evaluation(0.25)]),
                       until=MaxIterations(2)))  # fmt: skip
    assert result.output == {"score": 0.5, "passed": None}
    assert result.history[1].input == {"score": 0.25, "passed": None}


# Listeners.


def test_listeners_hear_each_entry_once_it_is_durable() -> None:
    """Principle 8: entries are heard in order, each once, and never before the store has them."""
    journal = SlowJournal()
    heard: list[tuple[int, bool]] = []

    def listen(entry: Entry) -> None:
        entries = journal.log._run.entries
        number = [(e.kind, e.path) for e in entries].index((entry.kind, entry.path)) + 1
        heard.append((number, number <= journal.log.durable))

    many = parallel(*(step(Script(["x"], seconds=n / 3), name=f"s{n}") for n in range(6)))
    play(many, journal=journal, run_id="r", listeners=[listen])
    assert heard == [(n, True) for n in range(1, 14)]


def test_a_listener_that_fails_is_a_warning() -> None:
    """A listener watches; it never steers."""

    def broken(entry: Entry) -> None:
        raise RuntimeError("not listening")

    heard: list[str] = []
    result = play(echo, 1, listeners=[broken, lambda entry: heard.append(entry.kind)])
    assert result.output == 1
    assert [kind for kind in heard if kind != "warned"] == ["started", "finished", "ended"]
    assert (
        "listener_failed: a listener failed on echo: RuntimeError: not listening" in result.warnings
    )


def test_a_warning_is_kept_over_a_crash() -> None:
    """I35: what a step warned of before a crash is in the result of the resumed run."""

    async def warns(value: Any, ctx: Context) -> str:
        ctx.warn("careful")
        return "x"

    made = Workflow("w", {"a": warns, "b": inline(lambda value: "y")}, needs={"b": ["a"]})
    whole = play(made)
    assert whole.warnings == ("w/a: careful",)
    for at in range(2, 6):
        journal = DyingJournal()
        crashed_after(journal, made, at)
        assert play(made, journal=journal, run_id="r").warnings == whole.warnings


def test_a_promise_of_nothing_is_none() -> None:
    """A step whose worst case is nothing, for this input, needs no room in any account."""
    made = step(echo, reserve=lambda value: Usage(calls=1) if value == "dear" else None)
    assert play(made, "cheap", budget=Budget(calls=1)).usage == Usage()
    assert play(made, "dear", budget=Budget(calls=1)).usage == Usage(calls=1)


def test_a_warning_is_given_once() -> None:
    """The same sentence twice is one warning."""

    async def warns(value: Any, ctx: Context) -> None:
        ctx.warn("careful")
        ctx.warn("careful")

    assert play(warns).warnings == ("warns: careful",)


def test_a_number_cannot_be_spent() -> None:
    """`ctx.spend` takes a Usage; anything else has a sentence."""

    @step
    async def spends(value: Any, ctx: Context) -> Any:
        ctx.spend(5)  # type: ignore[arg-type]

    assert play(spends, "x").detail == "spends: 5 is not a usage; spend Usage(calls=…, usd=…)"
