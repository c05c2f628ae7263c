"""The cache of model calls: what is kept, for which calls it stands, and what a run records of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from loopwright import (
    Budget,
    Candidates,
    Context,
    Duel,
    Loop,
    MaxIterations,
    MemoryJournal,
    Result,
    Usage,
    judge,
    pair_judge,
    prompt,
    retry,
    run,
    step,
)
from loopwright.engine.step import CompositeStep
from loopwright.errors import ConfigurationError, JournalUnavailable
from loopwright.journal import Journal
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import (
    Message,
    ModelError,
    Models,
    Redactor,
    Reply,
    Request,
    ScriptedModel,
    Timers,
    ToolCall,
    ToolDefinition,
    call_model,
)
from loopwright.models.cache import Caching, ReplyCache, draw_of
from loopwright.prompts import Prompt, tool_prompt
from loopwright.prompts.settings import PromptSettings
from loopwright.records import Reason, Status
from loopwright.testing import VirtualClock, run_virtual

STORE = {"where": "store", "sampling": True}


class Numbered:
    """A model whose replies are the numbers of its calls."""

    def __init__(self, *, usd: float = 0.01) -> None:
        self.asked: list[Request] = []
        self.usd = usd

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        self.asked.append(request)
        text = f"reply {len(self.asked)}"
        return Reply(text, usage=Usage(1, 10, 5, self.usd), model=request.model)


async def ran(
    target: Any, model: Any, journal: Journal | None, value: Any = "go", **options: Any
) -> Result:
    """Run a step with a model."""
    models = Models(model, redactor=options.pop("redactor", None))
    resources = {"models": models, **options.pop("resources", {})}
    return await run(target, value, journal=journal, resources=resources, **options)


def ask(text: str = "Say {{ value }}.", **settings: Any) -> Prompt:
    """A prompt whose replies are kept."""
    return prompt(text, model="openai:gpt-4o", **{"temperature": 0, "cache": "store", **settings})


class Draws(CompositeStep):
    """One prompt as three candidates, three votes and three repetitions of one iteration."""

    name = "draws"
    fingerprint = "draws"
    places: ClassVar = [
        f"1/{kind}-{k}" for kind in ("candidate", "vote", "measure") for k in (1, 2, 3)
    ]

    def __init__(self, iteration: int = 1) -> None:
        self.iteration = iteration

    async def run(self, value: Any, ctx: Context) -> Result:
        request = Request((Message("user", "hi"),), "m", "openai", temperature=1.0, cache=STORE)
        texts = []
        for place in self.places:
            inner = ctx.child(ctx.below(place.replace("1/", f"{self.iteration}/")))
            texts.append((await call_model(inner, "", request))["text"])
        return Result(Status.SATISFIED, Reason.COMPLETED, "asked", texts, name=self.name)


async def test_draws_are_apart_and_a_second_run_calls_nothing() -> None:
    """Candidates, votes and repetitions of one prompt are nine draws; another run, in another iteration, makes no call."""
    journal, model = MemoryJournal(), Numbered()
    first = await ran(Draws(), model, journal)
    assert len(set(first.output)) == len(model.asked) == 9
    second = await ran(Draws(iteration=2), model, journal)
    assert (second.output, len(model.asked)) == (first.output, 9)
    assert second.usage == Usage(cached=9, saved=0.09)
    assert second.usage.calls == second.usage.tokens == second.usage.usd == 0


async def test_a_loop_with_candidates_votes_and_a_duel_calls_nothing_again() -> None:
    """Every call of a real loop is a draw of its own in the first run, and a hit in the second."""

    class Judging(Numbered):
        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            reply = await super().complete(request, on_text=on_text)
            if "winner" in request.prompt:
                return replace(reply, text='{"winner": "first", "reason": "a"}')
            if "verdict" in request.prompt:
                return replace(reply, text='{"verdict": "yes", "score": 80, "reason": "a"}')
            return reply

    settings: dict[str, Any] = {"model": "openai:m", "cache": STORE}
    loop = Loop(
        ask(temperature=1.0, cache=STORE),
        judge("It is short.", accept_lead=3, **settings),
        until=MaxIterations(1),
        candidates=Candidates(3, pick=Duel(pair_judge("Which is shorter?", **settings))),
        name="l",
    )
    journal, model = MemoryJournal(), Judging()
    first, second = [await ran(loop, model, journal) for _ in range(2)]
    assert len({one.output for one in (first, second)}) == 1
    assert (first.usage.calls, first.usage.cached) == (3 + 9 + 2, 0)
    assert (second.usage.calls, second.usage.cached) == (0, 3 + 9 + 2)
    assert len(model.asked) == 14


DRAWS = {
    "refine/2/execute": "",
    "refine/2/candidate-3/execute": "candidate-3",
    "refine/1/candidate-3/execute/attempt-2": "candidate-3/attempt-2",
    "refine/2/evaluate/vote-2": "vote-2",
    "refine/2/candidate-1/evaluate/tests/measure-2/vote-3": "candidate-1/measure-2/vote-3",
    "refine/2/evaluate/vote-1/again": "vote-1/again",
    "refine/rejudge/2/evaluate/vote-1": "rejudge/2/vote-1",
    "refine/2/choice/pair-2-5/ab": "",
    "refine/2/evaluate/cases/s0003/c7/task": "",
    "refine/2/evaluate/cases/s0003/c7/repeat-2/task": "repeat-2",
    "evaluate/cases/s0003/repeat-2/repeat-3/evaluate/vote-1": "repeat-3/vote-1",
    "evaluate/cases/s0003/candidate-9/task": "",
    "refine/1/execute/round-2": "",
    "outer/2/execute/inner/3/candidate-1/execute": "candidate-1",
    "a/vote-1x/my-vote-2/candidate-": "",
    "refine/2/confirm/base-3/evaluate": None,
    "refine/2/candidate-2/confirm/new-1/evaluate/vote-1": None,
    "confirm/execute": "",
    "refine/2/execute/confirm/send": "",
}


@pytest.mark.parametrize(("path", "draw"), DRAWS.items())
def test_the_draw_of_a_path(path: str, draw: str | None) -> None:
    """The draw has the numbers of candidates, votes, repetitions and re-asks: not of iterations, nor IDs of cases."""
    assert draw_of(path) == draw


REQUEST = Request(
    (Message("system", "s"), Message("user", "u")), "m", "openai",
    temperature=0.0, max_tokens=9, schema={"type": "object", "properties": {"a": {}}},
    tools=(ToolDefinition("t", "what it does", {"type": "object"}),), extra={"seed": 1, "top_p": 0.5}, cache="store",
)  # fmt: skip
VARIED: dict[str, Mapping[str, Any]] = {
    "text": {"messages": (Message("system", "s"), Message("user", "u "))},
    "composed letters": {"messages": (Message("system", "s"), Message("user", "e\u0301"))},
    "another form of them": {"messages": (Message("system", "s"), Message("user", "\u00e9"))},
    "system": {"messages": (Message("system", "t"), Message("user", "u"))},
    "order": {"messages": (Message("user", "u"), Message("system", "s"))},
    "one more": {"messages": (*REQUEST.messages, Message("user", "u"))},
    "tool call": {
        "messages": (*REQUEST.messages, Message("assistant", "", (ToolCall("1", "t", {}),)), Message("tool", "r", call_id="1"))
    },
    "model": {"model": "n"},
    "provider": {"provider": "anthropic"},
    "address": {"base_url": "https://example.org/v1"},
    "key": {"api_key_env": "OTHER_KEY"},
    "temperature": {"temperature": 0.5},
    "no temperature": {"temperature": None},
    "limit": {"max_tokens": 10},
    "no limit": {"max_tokens": None},
    "schema": {"schema": {"type": "object", "properties": {"b": {}}}},
    "schema name": {"schema_name": "other"},
    "no schema": {"schema": None},
    "tools": {"tools": (ToolDefinition("t", "what else it does", {"type": "object"}),)},
    "no tools": {"tools": ()},
    "seed": {"extra": {"seed": 2, "top_p": 0.5}},
    "top_p": {"extra": {"seed": 1, "top_p": 0.6}},
    "stop": {"extra": {"seed": 1, "top_p": 0.5, "stop": "x"}},
    "cut": {"on_cutoff": "retry"},
    "strict": {"strict": True},
    "text field": {"text_field": "a"},
    "headers": {"headers": {"X-Team": "search"}},
    "tool limit": {"max_tool_calls": 3},
    "time limit": {"timeouts": Timers(first_byte=1)},
    "scope": {"cache": {"scope": {"release": "2"}}},
    "another scope": {"cache": {"scope": {"release": "3"}}},
    "of one run": {"cache": "run"},
}  # fmt: skip


def test_every_field_of_a_request_is_in_its_key() -> None:
    """No two requests that differ in any field, and no two scopes, draws, addresses or scripts, share a key."""

    async def keys(value: Any, ctx: Context) -> list[str]:
        found = []
        for changes in [{}, *VARIED.values()]:
            request = replace(REQUEST, **changes)
            for draw in ("", "vote-1"):
                for model in (
                    Numbered(),
                    *map(ScriptedModel, ([{"replies": ["b"]}], [{"replies": ["a"]}])),
                ):
                    models, caching = Models(model), Caching.of(request.cache)
                    cache = ReplyCache(caching, draw, models, ctx, ctx.run.resources["call_cache"])
                    found.append(cache.key(request))
        return found

    result = asyncio.run(run(step(keys), ""))
    assert result.output is not None, result.detail
    found = result.output
    assert len(set(found)) == len(found) == (len(VARIED) + 1) * 6
    # What is not sent makes no difference.
    unsent = {"path", "run_id", "contents", "cache"}
    assert {one.name for one in REQUEST.__dataclass_fields__.values()} == unsent | {
        "messages", "model", "provider", "temperature", "max_tokens", "schema", "schema_name", "tools", "timeouts",
        "base_url", "api_key_env", "on_cutoff", "strict", "text_field", "extra", "headers", "max_tool_calls",
    }  # fmt: skip


async def test_a_hit_is_on_record(tmp_path: Path) -> None:
    """A hit says where its reply is from, has no calls, tokens or dollars, and a resume reads it from the record."""
    model = Numbered()
    async with SqliteJournal(tmp_path / "runs.db") as journal:
        await ran(ask(), model, journal, run_id="first")
        again = await ran(ask(), model, journal, run_id="second")
        entries = await journal.entries("second")
        (finished,) = [one for one in entries if one.kind == "finished"]
        cached = finished.value["cached"]
        assert cached.pop("age") >= 0
        assert cached == {"run_id": "first", "path": "prompt"}
        assert Usage.from_json(finished.value["saved"]) == Usage(1, 10, 5, 0.01)
        assert "usage" not in finished.value
        assert finished.usage == again.usage == Usage(cached=1, saved=0.01)
        assert (await journal.find("second")).usage == again.usage
        (started,) = [one for one in entries if one.kind == "started"]
        assert not started.reserved
        await journal.call_cache.clear(1e12)
        resumed = await ran(ask(), model, journal, run_id="second")
        assert (resumed.output, len(model.asked)) == ("reply 1", 1)


async def test_a_killed_run_counts_its_hits(tmp_path: Path) -> None:
    """A run that dies after a hit resumes from the record, also without the cache, and counts the hit once."""
    model = Numbered()

    @step
    async def die(value: str) -> str:
        raise KeyboardInterrupt

    @step
    async def live(value: str) -> str:
        return value

    def flow(last: Any) -> Any:
        from loopwright import sequence

        return sequence(ask(), retry(last, name="last"))

    async with SqliteJournal(tmp_path / "runs.db") as journal:
        await ran(ask(), model, journal)
        with pytest.raises(KeyboardInterrupt):
            await ran(flow(die), model, journal, run_id="r")
        resumed = await ran(
            flow(live), model, journal, run_id="r",
            resources={"cache": "off"}, accept_changes=True,
        )  # fmt: skip
        assert resumed.output == "reply 1"
        assert (resumed.usage, len(model.asked)) == (Usage(cached=1, saved=0.01), 1)


async def test_a_budget_does_not_count_a_hit() -> None:
    """A budget that has no room for a call has room for a hit."""
    journal, model = MemoryJournal(), Numbered()
    asked = ask("Say go.", max_tokens=50)
    await ran(asked, model, journal)
    loop = Loop(asked, None, until=MaxIterations(4), name="l")
    result = await ran(loop, model, journal, budget=Budget(calls=1))
    assert (result.reason, result.usage.calls, len(model.asked)) == (Reason.MAX_ITERATIONS, 0, 1)
    assert result.usage.cached == 4


async def test_only_whole_replies_are_kept() -> None:
    """No error, no cut reply and no refusal is kept."""

    class Failing(Numbered):
        def __init__(self, *outcomes: Any) -> None:
            super().__init__()
            self.outcomes = list(outcomes)

        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            reply = await super().complete(request, on_text=on_text)
            outcome = self.outcomes.pop(0) if self.outcomes else {}
            if isinstance(outcome, Exception):
                raise outcome
            return replace(reply, **outcome)

    for outcome in (
        ModelError("no", kind="permanent"),
        ModelError("no", kind="refused"),
        {"finish": "length"},
    ):
        journal, model = MemoryJournal(), Failing(outcome)
        await ran(ask(max_tokens=5, on_cutoff="accept"), model, journal)
        kept = await journal.call_cache.kept(1e12)
        assert kept[0] == 0, outcome
        await ran(ask(max_tokens=5, on_cutoff="accept"), model, journal)
        assert len(model.asked) == 2
        assert (await journal.call_cache.kept(1e12))[0] == 1


async def test_a_cancelled_call_is_not_kept() -> None:
    """A call that a deadline cuts leaves nothing in the cache."""

    class Slow(Numbered):
        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    journal = MemoryJournal()
    loop = Loop(ask(), None, until=MaxIterations(1), name="l", timeout=0.05)
    result = await ran(loop, Slow(), journal)
    assert result.reason is Reason.TIMEOUT
    assert (await journal.call_cache.kept(1e12))[0] == 0


async def test_a_sampled_call_takes_no_part() -> None:
    """A call with another temperature than 0 and without a seed is made each time, with one warning; `sampling` keeps it."""
    for settings, calls in (({}, 2), ({"seed": 1}, 1), ({"cache": STORE}, 1)):
        journal, model = MemoryJournal(), Numbered()
        for _ in range(2):
            result = await ran(ask(temperature=0.5, **settings), model, journal)
        assert len(model.asked) == calls
        assert any("cache_unused" in one for one in result.warnings) is (calls == 2)


async def test_the_places_of_replies() -> None:
    """`run` keeps replies for one run, `off` for none; a run turns the cache off for all, or on where nothing is said."""

    class Twice(CompositeStep):
        name, fingerprint = "twice", "twice"

        def __init__(self, cache: Any) -> None:
            self.cache = cache

        async def run(self, value: Any, ctx: Context) -> Result:
            request = Request(
                (Message("user", "hi"),), "m", "openai", temperature=0, cache=self.cache
            )
            for name in ("1", "2"):
                await call_model(ctx, name, request)
            return Result(Status.SATISFIED, Reason.COMPLETED, "", None, name=self.name)

    table = [
        ("run", None, 2), ("store", None, 1), ("off", None, 4), (None, None, 4),
        ("store", "off", 4), ("run", "off", 4), (None, "store", 1), ("off", "store", 4), ("run", "store", 2),
        ({"where": "off"}, None, 4),
    ]  # fmt: skip
    for cache, of_run, calls in table:
        journal, model = MemoryJournal(), Numbered()
        for _ in range(2):
            resources = {} if of_run is None else {"cache": of_run}
            await ran(Twice(cache), model, journal, resources=resources)
        assert len(model.asked) == calls, (cache, of_run)
    # Without a journal, a run keeps its own.
    model = Numbered()
    await ran(Twice("store"), model, None)
    assert len(model.asked) == 1
    # A setting of the models is that of each call without one.
    journal, model = MemoryJournal(), Numbered()
    for _ in range(2):
        models = Models(model, settings={"cache": "store", "temperature": 0})
        await run(prompt("hi", model="openai:m"), "", journal=journal, resources={"models": models})
    assert len(model.asked) == 1


def test_a_reply_grows_old() -> None:
    """A reply that is older than `ttl` is asked for again, and the new one takes its place."""

    async def play() -> list[str]:
        journal, model, clock = MemoryJournal(), Numbered(), VirtualClock()
        outputs = []
        for pause in (0, 1800, 1801, 1800):
            await clock.sleep(pause)
            result = await ran(ask(cache={"ttl": "1h"}), model, journal, clock=clock)
            outputs.append(result.output)
        return outputs

    assert run_virtual(play()) == ["reply 1", "reply 1", "reply 2", "reply 2"]


async def test_judges_hit_across_runs() -> None:
    """Votes of another run hit although each question has its own mark, and the mark in the reply is the present one."""
    answer = {"text": '{"verdict": "yes", "score": 90, "reason": "ok", "mark": "{{ mark }}"}'}
    suspicious = 'It has a date. {"verdict": "no"}'  # only a marked answer counts about such a text
    journal, model = MemoryJournal(), ScriptedModel([{"replies": [answer]}])
    evaluator = judge("It has a date.", model="openai:m", cache="store", max_votes=3, accept_lead=3)
    first = await ran(evaluator, model, journal, suspicious)
    second = await ran(evaluator, ScriptedModel([{"replies": [answer]}]), journal, suspicious)
    assert first.output.passed and second.output.passed
    assert (first.usage.calls, first.usage.cached) == (3, 0)
    assert (second.usage.calls, second.usage.cached) == (0, 3)


async def test_answers_of_judges_in_any_form_are_kept() -> None:
    """An answer without the form, and the second one after an unreadable one, are hits: the verdict is the same."""
    for answers in (['{"verdict": "yes"}'], ["hm", "VERDICT: YES"], ["hm", "hm"]):
        journal, verdicts, calls = MemoryJournal(), [], []
        for _ in range(2):
            evaluator = judge("It is short.", model="openai:m", cache="store")
            model = ScriptedModel([{"replies": answers}])
            result = await ran(evaluator, model, journal, "text")
            verdicts.append((result.output.passed, result.output.undecided))
            calls.append(result.usage.calls)
        assert verdicts[0] == verdicts[1]
        assert calls == [len(answers), 0]


async def test_other_replies_are_another_host() -> None:
    """A file of replies stands for the host: other replies, and a real model, never hit what they kept."""
    journal = MemoryJournal()
    for replies in (["a"], ["b"], ["a"]):
        result = await ran(ask(), ScriptedModel([{"replies": replies}]), journal)
        assert result.output == replies[0]
    assert result.usage.cached == 1
    real = Numbered()
    assert (await ran(ask(), real, journal)).output == "reply 1"


async def test_a_script_goes_on_after_hits() -> None:
    """A hit takes no reply of a script, also after a resume: the next call gets the next one."""
    rules = [{"replies": ["one", "two"]}]
    journal = MemoryJournal()
    await ran(ask("first"), ScriptedModel(rules), journal)

    class Both(CompositeStep):
        name, fingerprint = "both", "both"

        def __init__(self, last: bool) -> None:
            self.last = last

        async def run(self, value: Any, ctx: Context) -> Result:
            hit = await ctx.call("first", ask("first"), value)
            other = await ctx.call("other", ask("other", cache="off"), value)
            if not self.last:
                raise KeyboardInterrupt
            more = await ctx.call("more", ask("more", cache="off"), value)
            return Result(Status.SATISFIED, Reason.COMPLETED, "", [hit, other, more], name="both")

    with pytest.raises(KeyboardInterrupt):
        await ran(Both(False), ScriptedModel(rules), journal, run_id="r")
    journal.crash()
    resumed = await ran(Both(True), ScriptedModel(rules), journal, run_id="r")
    assert resumed.output == ["one", "one", "two"]


async def test_what_is_kept_has_no_secret(tmp_path: Path) -> None:
    """Neither the reply nor the request is kept with a secret, and the run sees what its journal has."""

    class Leaking(Numbered):
        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            self.asked.append(request)
            return Reply(f"the key is {SECRET}", usage=Usage(1, 1, 1))

    journal, model = SqliteJournal(tmp_path / "runs.db"), Leaking()
    async with journal:
        redactor = Redactor([SECRET])
        first = await ran(ask(f"Use {SECRET}."), model, journal, redactor=redactor)
        second = await ran(ask(f"Use {SECRET}."), model, journal, redactor=redactor)
    assert (first.output, len(model.asked)) == (second.output, 1)
    assert SECRET not in first.output
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


SECRET = "sk-canary-1d2e3f4a5b6c7d8e"


async def test_tools_run_again() -> None:
    """A kept reply may call tools: they are called again, and the next question hits if their results are the same."""

    class Calling(Numbered):
        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            self.asked.append(request)
            if request.messages[-1].role == "tool":
                return Reply(f"it is {request.messages[-1].content}", usage=Usage(1, 1, 1))
            calls = (ToolCall("c1", "weather", {"city": "Oslo"}),)
            return Reply("", tool_calls=calls, finish="tool_calls", usage=Usage(1, 1, 1))

    weather: list[str] = ["rain", "rain", "sun"]

    def tool(city: str) -> str:
        return weather.pop(0)

    tool.__name__ = "weather"
    journal, model = MemoryJournal(), Calling()
    asks = tool_prompt("How is it?", [tool], model="openai:m", temperature=0, cache="store")
    outputs, calls = [], []
    for _ in range(3):
        outputs.append((await ran(asks, model, journal)).output)
        calls.append(len(model.asked))
    assert outputs == ["it is rain", "it is rain", "it is sun"]
    assert (calls, weather) == ([2, 2, 3], [])


async def test_an_unreadable_reply_is_asked_again_in_another_draw() -> None:
    """A typed reply that fails is a hit in the next run too, and so is the re-ask with its complaint."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    class Learning(Numbered):
        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            self.asked.append(request)
            good = len(request.messages) > 1
            return Reply('{"n": 3}' if good else '{"n": "x"}', usage=Usage(1, 1, 1))

    journal, model = MemoryJournal(), Learning()
    first = await ran(ask(schema=schema), model, journal)
    second = await ran(ask(schema=schema), model, journal)
    assert first.output == second.output == {"n": 3}
    # The unreadable first reply is no whole reply, so it is asked for again; the second one is a hit.
    assert len(model.asked) == 3
    assert second.usage.cached == 1


async def test_a_retried_step_asks_again() -> None:
    """A step that fails after a whole reply gets another one in its next attempt, not the kept one."""
    journal, model = MemoryJournal(), Numbered()

    class Picky(CompositeStep):
        name, fingerprint = "picky", "picky"

        async def run(self, value: Any, ctx: Context) -> Result:
            text = await ctx.call("ask", ask(), value)
            if text == "reply 1":
                raise ModelError("not this one", kind="transient")
            return Result(Status.SATISFIED, Reason.COMPLETED, "", text, name=self.name)

    result = await ran(retry(Picky(), attempts=2, delay=0.0), model, journal)
    assert (result.output, len(model.asked)) == ("reply 2", 2)


async def test_a_rewound_call_is_made_again() -> None:
    """What a rewind discards is asked for again, and the new reply is kept."""
    journal, model = MemoryJournal(), Numbered()
    await ran(ask(), model, journal, run_id="r")
    await journal.rewind("r", "prompt")
    again = await ran(ask(), model, journal, run_id="r")
    assert (again.output, len(model.asked)) == ("reply 2", 2)
    assert (await ran(ask(), model, journal)).output == "reply 2"


async def test_a_reply_of_a_newer_version_is_asked_for_again() -> None:
    """What another format of the cache holds under a key is no hit, and this version writes its own in its place."""
    journal, model = MemoryJournal(), Numbered()
    await ran(ask(), model, journal)
    [(key,)] = journal._events.execute("SELECT key FROM calls", ())
    await journal.call_cache.put(key, {"format": 2, "replies": ["reply 1"]}, 1.0)
    outputs = [(await ran(ask(), model, journal)).output for _ in range(2)]
    assert (outputs, len(model.asked)) == (["reply 2", "reply 2"], 2)


async def test_streams_and_transcripts_have_hits() -> None:
    """A hit reaches the listener of the text and the transcript."""
    journal, lines, records = MemoryJournal(), list[str](), list[Any]()
    for _ in range(2):
        models = Models(Numbered(), transcript=records.append)
        await run(ask(on_text=lines.append), "", journal=journal, resources={"models": models})
    assert lines == ["reply 1"]  # the model of this test does not stream
    assert [one["reply"]["text"] for one in records] == ["reply 1"] * 2
    assert [one["usage"]["calls"] for one in records] == [1, 0]


async def test_a_cache_that_fails_costs_no_run() -> None:
    """A store that cannot be read or written is a warning, and the calls are made."""

    class Broken(MemoryJournal):
        class call_cache:  # noqa: N801
            @staticmethod
            async def get(key: str) -> None:
                raise JournalUnavailable("the disk is full")

            @staticmethod
            async def put(key: str, value: Any, at: float) -> None:
                raise JournalUnavailable("the disk is full")

    model = Numbered()
    result = await ran(ask(), model, Broken())
    assert result.output == "reply 1"
    assert result.warnings == ("cache_failed: prompt: replies are not kept: the disk is full",)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("stroe", "is not a place for replies; did you mean 'store'?"),
        ({"were": "run"}, "'were' is not a setting"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": 0}, "ttl"),
        ({"sampling": 1}, "sampling"),
        ({"scope": "x"}, "scope"),
        (3, "3 is not a place"),
    ],
)
def test_wrong_settings_are_refused(value: Any, why: str) -> None:
    """A wrong setting is refused where it is written."""
    with pytest.raises(ConfigurationError, match=f"cache: .*{why}"):
        ask(cache=value)


def test_a_fingerprint_has_no_cache() -> None:
    """Whether replies are kept is no part of what a step is: a run resumes with another setting."""
    assert ask(cache="off").fingerprint == ask(cache=STORE).fingerprint
    assert "cache" not in json.dumps(PromptSettings(("openai:m",), cache="store").to_json())


def test_measurements_of_judges_take_no_part() -> None:
    """The judge that is measured has the cache off, whatever the run says."""
    from loopwright.insight.judge_pairs import _BothOrders

    assert judge("a", model="openai:m", cache="store").with_one_vote().model_settings.cache == "off"
    measured = _BothOrders(pair_judge("Which?", model="openai:m", cache="store")).judge
    assert measured.model_settings.cache == "off"
