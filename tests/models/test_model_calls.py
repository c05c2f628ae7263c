"""Model calls in a run: attempts in the journal, waits, budgets, failover."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from model_steps import Ask, DurableJournal, World

from loopwright import (
    Budget,
    Loop,
    MaxIterations,
    MemoryJournal,
    Status,
    Timeout,
    run,
    with_timeout,
)
from loopwright.engine.budgets import account_name
from loopwright.errors import ConfigurationError, StepError
from loopwright.models import KINDS, ModelError, Models, Reply, Request, Target, Timers
from loopwright.testing import run_virtual

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
OTHER = Target("anthropic", "other")


def kinds(world: World) -> list[str]:
    return [entry.error.kind if entry.error else "ok" for entry in world.attempts]


def test_an_attempt_ends_with_the_time_for_the_answer() -> None:
    """The timers of an attempt are no longer than the rest of the time for the answer, and no other attempt follows."""
    world = World([{"replies": [{"text": "late", "after": 50}]}])
    result = world.run(Ask({"timeouts": Timers(60, 60, 60, answer=10)}))
    assert kinds(world) == ["unknown_outcome"]
    assert (result.status, round(result.seconds)) == (Status.FAILED, 10)


@pytest.mark.parametrize(
    ("replies", "request_options", "outcomes"),
    [
        (["fine"], {}, ["ok"]),
        ([{"error": "transient"}], {}, ["transient"] * 5),
        ([{"error": "throttled"}], {}, ["throttled"] * 5),
        ([{"error": "unknown_outcome"}], {}, ["unknown_outcome"] * 5),
        ([{"error": "stream_incomplete"}], {}, ["transient"] * 5),
        ([{"error": "permanent"}], {}, ["permanent"]),
        ([{"error": "context_too_long"}], {}, ["permanent"]),
        ([{"error": "cancelled"}], {}, ["cancelled"]),
        ([{"error": "refused"}], {}, ["refused"]),
        ([{"error": "truncated"}], {}, ["truncated"] * 2),
        ([{"error": "malformed"}], {}, ["malformed"] * 3),
        ([{"error": "empty_output"}], {}, ["empty_output"] * 2),
        ([{"error": "transient"}, {"error": "throttled"}, "ok"], {}, ["transient", "throttled", "ok"]),
        ([{"error": "transient"}] * 4 + ["ok"], {}, ["transient"] * 4 + ["ok"]),
        ([{"error": "transient", "reason": "format_unsupported"}] * 3 + ["ok"], {}, ["transient"] * 3 + ["ok"]),
        (["prose", "more prose", '{"a": 1}'], {"schema": SCHEMA}, ["malformed", "malformed", "ok"]),
        (["prose"], {"schema": SCHEMA}, ["malformed"] * 3),
        ([{"text": "half", "finish": "length"}, "whole"], {}, ["truncated", "ok"]),
        ([{"text": "half", "finish": "length"}, "whole"], {"max_tokens": 10}, ["truncated"]),
        (
            [{"text": "half", "finish": "length"}, "whole"],
            {"max_tokens": 10, "on_cutoff": "retry"},
            ["truncated", "ok"],
        ),
        (["", "second"], {}, ["empty_output", "ok"]),
    ],
)  # fmt: skip
def test_attempts_follow_the_policy_and_are_in_the_journal(
    replies: list[Any], request_options: dict[str, Any], outcomes: list[str]
) -> None:
    """Each attempt is an effect with its error; how many there are follows the kind alone."""
    world = World([{"replies": replies}])
    result = world.run(Ask(request_options))
    assert kinds(world) == outcomes
    assert [entry.path for entry in world.attempts] == [
        f"ask/call/attempt-{n}" for n in range(1, len(outcomes) + 1)
    ]
    assert (result.status is Status.SATISFIED) is (outcomes[-1] == "ok")
    assert [record["attempt"] for record in world.records] == list(range(1, len(outcomes) + 1))


def test_what_fails_says_how_often_it_was_tried() -> None:
    """The run's sentence has the path, the model, what was wrong and the number of attempts."""
    world = World([{"replies": [{"error": "transient", "message": "the server is on fire"}]}])
    assert world.run(Ask()).detail == "ask/call: openai/gpt-4o: the server is on fire (5 attempts)"


@pytest.mark.parametrize("kind", ["transient", "throttled"])
def test_waits_are_full_jitter_and_never_before_retry_after(kind: str) -> None:
    """After failure k the wait is uniform(0, min(30, 0.5·2^(k-1))), or what was told if that is longer."""
    plain = World([{"replies": [{"error": kind}] * 4 + ["ok"]}], chance=lambda: 1.0)
    plain.run(Ask())
    assert _gaps(plain) == [0.5, 1.0, 2.0, 4.0]
    told = World(
        [{"replies": [{"error": kind, "retry_after": 3}] * 4 + ["ok"]}], chance=lambda: 1.0
    )
    told.run(Ask())
    assert _gaps(told) == [3.0, 3.0, 3.0, 4.0]
    eager = World([{"replies": [{"error": kind}] * 4 + ["ok"]}], chance=lambda: 0.0)
    eager.run(Ask())
    assert _gaps(eager) == [0.0] * 4


def _gaps(world: World) -> list[float]:
    starts = [e.at for e in world.entries if e.kind == "started" and "/attempt-" in e.path]
    return [round(b - a, 6) for a, b in itertools.pairwise(starts)]


def test_a_call_never_waits_more_than_its_share() -> None:
    """All waits of one call together are at most 300 s."""
    world = World([{"replies": [{"error": "transient", "retry_after": 110}]}])
    result = world.run(Ask())
    assert len(world.attempts) == 3
    assert result.seconds == 220
    assert result.status is Status.SUSPENDED


@pytest.mark.parametrize(
    ("reply", "reason"),
    [({"error": "throttled", "retry_after": 121}, "throttled"), ({"error": "quota"}, "quota")],
)
def test_a_wait_that_is_too_long_suspends_a_durable_run(reply: Any, reason: str) -> None:
    """A long Retry-After, or a quota, suspends the run if its journal outlives the process."""
    durable = World([{"replies": [reply]}])
    result = durable.run(Ask())
    assert (result.status, result.reason.value) == (Status.SUSPENDED, reason)
    assert len(durable.attempts) == 1
    assert result.request is not None
    assert result.request["path"] == "ask/call"
    if reason == "throttled":
        assert result.request["until"] == durable.clock.start + 121
    passing = World([{"replies": [reply]}], journal=MemoryJournal())
    result = passing.run(Ask())
    assert (result.status, len(passing.attempts)) == (Status.FAILED, 1)


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    """What the endpoint wants is compared with the time that the run still has."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 50}, "ok"]}])
    loop = Loop(Ask(), until=MaxIterations(1), guards=Timeout(40), name="loop")
    result = world.run(loop)
    assert result.status is Status.SUSPENDED
    assert result.seconds == 0


def test_a_deadline_cuts_a_wait() -> None:
    """A back-off that would run over the deadline ends there, as the deadline's stop."""
    world = World([{"replies": [{"error": "transient"}]}], chance=lambda: 1.0)
    loop = Loop(Ask(), until=MaxIterations(1), guards=Timeout(2.0), name="loop")
    result = world.run(loop)
    assert (result.reason.value, result.seconds) == ("timeout", 2.0)
    assert len(world.attempts) == 3


def test_a_deadline_cuts_a_call_and_what_it_may_have_cost_is_settled() -> None:
    """A call cut by the deadline costs what was reserved, and the transcript says that it was cut."""
    world = World([{"replies": [{"text": "late", "after": 50}]}])
    result = world.run(with_timeout(Ask({"max_tokens": 100}), 1.0))
    assert (result.status, result.seconds) == (Status.FAILED, 1.0)
    assert result.usage.output_tokens == 100
    assert [record["error"]["kind"] for record in world.records] == ["cancelled"]


def test_failover_goes_on_elsewhere_when_attempts_are_used_up() -> None:
    """After 5 attempts at the first endpoint the second gets its own 5."""
    rules = [{"replies": [{"error": "transient"}] * 6 + ["from the other"]}]
    world = World(rules)
    result = world.run(Ask(failover=[OTHER]))
    assert result.output["text"] == "from the other"
    assert [r["provider"] for r in world.records] == ["openai"] * 5 + ["anthropic"] * 2


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("quota", True), ("refused", True), ("permanent", True), ("truncated", False),
        ("malformed", False), ("empty_output", False), ("cancelled", False),
    ],
)  # fmt: skip
def test_failover_is_for_what_another_model_may_do(kind: str, moves: bool) -> None:
    """Quota and any refusal that another endpoint could serve go on elsewhere at once; other errors never do."""
    world = World([{"replies": [{"error": kind}]}])
    world.run(Ask(failover=[OTHER]))
    assert any(r["provider"] == "anthropic" for r in world.records) is moves


@pytest.mark.parametrize(
    ("reason", "moves"),
    [("unauthorised", True), ("not_found", True), ("configuration", True), ("context_too_long", False), ("", False)],
)  # fmt: skip
def test_a_judge_moves_only_from_an_endpoint_that_refuses_every_question(
    reason: str, moves: bool
) -> None:
    """A wrong key or an unknown model fails every question there, so all scores are the next one's."""

    class Refusing:
        """A model whose first endpoint refuses."""

        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            del on_text
            if request.provider == "openai":
                raise ModelError("no", kind="permanent", reason=reason)
            return Reply("fine")

    step = Ask(failover=[OTHER], judge=True)
    result = run_virtual(
        run(step, "x", resources={"models": Models(Refusing(), known_prices=False)})
    )
    assert (result.status == Status.SATISFIED) is moves


def test_a_long_wait_moves_on_before_it_suspends() -> None:
    """A Retry-After that is too long uses another endpoint if there is one."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 500}, "other"]}])
    result = world.run(Ask(failover=[OTHER]))
    assert (result.output["text"], result.output["provider"]) == ("other", "anthropic")


@pytest.mark.parametrize("kind", KINDS)
def test_a_judge_never_moves_to_another_model(kind: str) -> None:
    """The scores of two models cannot be compared, so a judge stays where it is."""
    world = World([{"replies": [{"error": kind, "retry_after": 500}]}])
    world.run(Ask(failover=[OTHER], judge=True))
    assert {r["provider"] for r in world.records} == {"openai"}


def test_a_cut_reply_gets_double_the_cap_once() -> None:
    """With `on_cutoff: retry` the second attempt has twice the tokens; without a cap, twice what was
    written."""
    world = World([{"replies": [{"text": "x" * 400, "finish": "length"}]}])
    world.run(Ask({"max_tokens": 50, "on_cutoff": "retry"}))
    reserved = [
        e.reserved.output_tokens
        for e in world.entries
        if e.kind == "started" and "/attempt-" in e.path
    ]
    assert reserved == [50, 100]
    free = World([{"replies": [{"text": "x" * 40_000, "finish": "length"}]}])
    free.run(Ask())
    reserved = [
        e.reserved.output_tokens
        for e in free.entries
        if e.kind == "started" and "/attempt-" in e.path
    ]
    assert reserved == [4096, 20_000]


def test_a_cut_reply_is_not_escalated_beyond_the_budget() -> None:
    """If double the cap does not fit into the budget, the call fails as truncated; nothing is cut."""
    world = World([{"replies": [{"text": "half", "finish": "length"}]}])
    result = world.run(Ask({"max_tokens": 100}), budget=Budget(tokens=200))
    assert result.status is Status.FAILED
    assert kinds(world) == ["truncated"]


def test_a_cap_that_is_refused_reports_the_cut_reply() -> None:
    """If the larger cap is refused, what is reported is that the reply was cut off."""
    world = World([{"replies": [{"text": "half", "finish": "length"}, {"error": "permanent"}]}])
    assert "was cut off at its limit" in world.run(Ask()).detail


def test_a_re_ask_quotes_the_answer_and_the_problem() -> None:
    """The conversation goes on with the bad answer and what was wrong with it."""
    world = World([{"replies": ["prose", '{"a": "one"}', '{"a": 1}']}])
    world.run(Ask({"schema": SCHEMA}))
    last = world.records[-1]["messages"]
    assert [m["role"] for m in last] == ["user", "assistant", "user", "assistant", "user"]
    assert (last[1]["content"], last[3]["content"]) == ("prose", '{"a": "one"}')
    assert last[2]["content"].startswith("Your reply has no JSON value. Reply with one JSON value ")
    assert last[4]["content"] == (
        "$.a: 'one' is not of type 'integer'. "
        "Reply with the whole corrected JSON value and nothing else."
    )


def test_the_pause_of_an_endpoint_is_everyones() -> None:
    """While a throttled model cools down, a call of another run waits too, and then makes one request."""
    world = World(
        [
            {"step": "first*", "replies": [{"error": "throttled", "retry_after": 20}, "ok"]},
            {"replies": ["ok"]},
        ]
    )

    async def main() -> tuple[float, int]:
        import asyncio

        first = asyncio.ensure_future(_named(world, "first"))
        await asyncio.sleep(1)
        second = await _named(world, "second")
        await first
        return second, len([r for r in world.records if r["path"].startswith("second")])

    seconds, made = run_virtual(main())
    assert 19 <= seconds <= 2 * 19 + 1
    assert made == 1


class Pauses:
    """The permits of two workers: no limits, and the pauses of accounts in virtual time."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}

    async def take(self, step: Any) -> list[str]:
        return []

    async def give_back(self, names: Any, spent: Any) -> None:
        return None

    async def pause(self, account: Any, seconds: float) -> None:
        self.until[account_name(account)] = asyncio.get_running_loop().time() + seconds

    async def paused(self, account: Any) -> float:
        left = self.until.get(account_name(account), 0.0) - asyncio.get_running_loop().time()
        return max(0.0, left)


def test_a_pause_applies_to_the_models_of_another_worker() -> None:
    """Workers share the pause of an account: the models of another process wait before their first request."""
    first = World([{"replies": [{"error": "throttled", "retry_after": 20}, "ok"]}])
    second = World([{"replies": ["ok"]}])
    pauses = Pauses()

    async def main() -> float:
        running = asyncio.ensure_future(first.go(Ask(), permits=pauses))
        await asyncio.sleep(1)
        result = await second.go(Ask(), permits=pauses)
        await running
        return float(result.seconds)

    assert 19 <= run_virtual(main()) <= 2 * 19 + 1
    assert len(second.records) == 1


async def _named(world: World, name: str) -> float:
    step = Ask()
    step.name = name
    return (await world.go(step, run_id=name)).seconds


def test_a_model_of_ones_own_may_raise_plain_errors() -> None:
    """An error of the vocabulary gets its policy; any other is the step's own and is not retried."""

    class Odd:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def complete(self, request: Any, *, on_text: Any = None) -> Any:
            raise self.error

    plain = World(Odd(StepError("busy", kind="throttled")))
    plain.run(Ask())
    assert kinds(plain) == ["throttled"] * 5
    bug = World(Odd(ValueError("bug")))
    assert "ValueError: bug" in bug.run(Ask()).detail
    assert kinds(bug) == ["ValueError"]
    assert bug.attempts[0].usage.output_tokens == 4096


def test_models_that_are_something_else_are_refused() -> None:
    """The message tells how to give models to a run."""
    with pytest.raises(ConfigurationError) as caught:
        run_virtual(run(Ask(), "x", resources={"models": "gpt-4o"}))
    assert str(caught.value) == (
        "ask: 'gpt-4o' is not a Models; start the run with models=Models(…)"
    )


def test_the_transcript_has_one_record_per_attempt() -> None:
    """Each record has path, attempt, provider, model, temperature, messages, reply, usage and error."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 1}, "ok"]}])
    world.run(Ask({"temperature": 0.5}))
    first, second = world.records
    assert list(first) == [
        "path", "attempt", "provider", "model", "temperature", "messages", "reply", "usage", "error",
    ]  # fmt: skip
    assert (first["path"], first["attempt"], first["temperature"]) == ("ask/call", 1, 0.5)
    assert (first["reply"], first["error"]["kind"]) == (None, "throttled")
    assert (second["reply"]["text"], second["error"]) == ("ok", None)
    assert second["messages"] == [{"role": "user", "content": "hello"}]


def test_a_transcript_that_fails_is_a_warning() -> None:
    """Nothing that watches steers: a transcript that cannot be written changes no result."""

    def broken(record: Any) -> None:
        raise OSError("disk full")

    world = World([{"replies": ["ok"]}])
    world.models.transcript = broken
    result = world.run(Ask())
    assert result.status is Status.SATISFIED
    assert result.warnings == (
        "transcript_failed: ask/call/attempt-1: the transcript could not be written: disk full",
    )


def test_text_is_heard_as_it_comes() -> None:
    """The listener hears the text of each attempt that is made."""
    heard: list[str] = []
    world = World([{"replies": [{"text": "half", "finish": "length"}, "whole"]}])
    world.run(Ask(on_text=heard.append))
    assert heard == ["half", "whole"]


def test_a_durable_journal_is_what_it_says() -> None:
    """The journal of these tests keeps values, as a store on disk does."""
    assert (
        World([{"replies": ["x"]}], journal=DurableJournal()).run(Ask()).status is Status.SATISFIED
    )
