"""What a run's entries become: spans, events and measurements, before any library sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loopwright import (
    Evaluation,
    Loop,
    MaxIterations,
    Metric,
    Passed,
    ScoreAtLeast,
    Usage,
    Workflow,
    resume,
    run,
    sequence,
)
from loopwright.agents import call_with_tools
from loopwright.engine.step import CompositeStep
from loopwright.journal import Entry, MemoryJournal, RunInfo
from loopwright.models import Message, Models, Request, ScriptedModel
from loopwright.prompts import prompt
from loopwright.records import Reason, Result, Status
from loopwright.telemetry import LogLines, trace_id
from loopwright.telemetry import trace as names
from loopwright.telemetry.trace import MetricPoint, Signal, Span, SpanEvent, Trace, span_id
from loopwright.testing import run_virtual

REPLIES = """
- step: "*/execute"
  replies: ["a first draft", "a second draft"]
- step: "*"
  replies: [{error: refused, message: "I would rather not"}]
"""


class Heard:
    """A listener that keeps what is told."""

    def __init__(self, *, capture: bool = False, at: float = 1_000.0) -> None:
        self.signals: list[Signal] = []
        self.traces: list[Trace] = []
        self.capture = capture
        self.at = at

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Trace:
        made = Trace(
            info, recorded, self.signals.append, capture=self.capture, wall=lambda: self.at
        )
        self.traces.append(made)
        return made

    @property
    def spans(self) -> dict[str, Span]:
        return {
            str(s.attributes.get(names.PATH, "")): s for s in self.signals if isinstance(s, Span)
        }

    @property
    def events(self) -> list[SpanEvent]:
        return [s for s in self.signals if isinstance(s, SpanEvent)]

    def measured(self, name: str) -> list[float]:
        return [s.value for s in self.signals if isinstance(s, MetricPoint) and s.name == name]


async def draft(value: Any, ctx: Any) -> str:
    await ctx.sleep(2.0)
    ctx.spend(Usage(1, 100, 10, 0.25))
    return f"draft {ctx.iteration} of {value}"


async def judge(output: Any, ctx: Any) -> Evaluation:
    await ctx.sleep(0.5)
    number = ctx.iteration
    return Evaluation([0.25, 0.9][number - 1], number == 2, f"too long: {output}")


refine = Loop(draft, judge, until=Passed() | MaxIterations(4), name="refine")


def test_the_tree_of_a_run_has_its_loop_its_iterations_and_their_effects() -> None:
    """Run, loop, iteration and effect are nested spans, and each lies inside the one around it."""
    heard = Heard()
    run_virtual(run(refine, "a note", listeners=[heard]))
    spans = heard.spans
    assert set(spans) == {
        "", "refine", "refine/1", "refine/1/execute", "refine/1/evaluate", "refine/2",
        "refine/2/execute", "refine/2/evaluate",
    }  # fmt: skip
    assert spans[""].name == "invoke_workflow refine"
    assert spans["refine"].name == "loop refine"
    assert spans["refine/2"].name == "iteration 2"
    assert spans[""].parent_id == 0
    for path, span in spans.items():
        if path:
            outer = spans[path.rpartition("/")[0]]
            assert span.parent_id == outer.span_id
            assert outer.start <= span.start <= span.end <= outer.end + 1e-9


def test_spans_have_the_times_of_the_entries_on_the_clock_of_the_process() -> None:
    """A step that took 2 s has a span of 2 s, and the run begins when it was opened."""
    heard = Heard(at=5_000.0)
    run_virtual(run(refine, "a note", listeners=[heard]))
    first, second = heard.spans["refine/1/execute"], heard.spans["refine/2/execute"]
    assert first.start == pytest.approx(5_000.0, abs=0.01)
    assert first.end - first.start == pytest.approx(2.0, abs=0.01)
    assert second.start == pytest.approx(5_002.5, abs=0.01)
    assert heard.spans[""].end == pytest.approx(5_005.0, abs=0.02)


def test_a_workflow_is_the_run_itself_and_needs_no_span_of_its_own() -> None:
    """The steps of the outermost workflow are right inside the run's span."""
    heard = Heard()
    both = Workflow(
        "both", {"first": lambda value: value, "second": refine}, needs={"second": ["first"]}
    )
    run_virtual(run(both, "a note", listeners=[heard]))
    assert "both" not in heard.spans
    assert heard.spans["both/first"].parent_id == heard.spans[""].span_id
    assert heard.spans[
        "both/second/refine" if "both/second/refine" in heard.spans else "both/second"
    ]


def test_every_span_has_its_parent_in_the_trace() -> None:
    """No span names a parent that is never told, whatever is nested in what."""
    heard = Heard()

    async def late(value: Any, ctx: Any) -> Any:
        await asyncio.sleep(0.5)
        return value

    inner = Loop(sequence(late, refine), lambda output: 0.5, until=MaxIterations(2), name="inner")
    outer = Loop(inner, lambda output: 0.5, until=MaxIterations(2), name="outer")
    run_virtual(run(Workflow("w", {"a": outer, "1": lambda v: v}), "x", listeners=[heard]))
    known = {span.span_id for span in heard.spans.values()} | {0}
    assert all(span.parent_id in known for span in heard.spans.values())
    assert len(known) == len(heard.spans) + 1
    by_id = {span.span_id: span for span in heard.spans.values()}
    for span in heard.spans.values():
        if span.parent_id:
            outer = by_id[span.parent_id]
            assert outer.start <= span.start <= span.end <= outer.end + 1e-9, span.name


def test_content_is_told_only_where_it_is_asked_for() -> None:
    """Neither an input nor an output nor feedback is anywhere, unless the switch is on."""
    quiet, open_ = Heard(), Heard(capture=True)
    run_virtual(run(refine, "a secret note", listeners=[quiet, open_]))
    assert "secret note" not in repr(quiet.signals)
    assert "too long" not in repr(quiet.signals)
    spans = open_.spans
    assert spans["refine/1"].attributes[names.OUTPUT] == "draft 1 of a secret note"
    assert spans[""].attributes[names.INPUT] == "a secret note"
    explained = [event.attributes.get(names.EVALUATION_EXPLANATION) for event in open_.events]
    assert explained[0] == "too long: draft 1 of a secret note"


def test_evaluations_are_events_of_what_they_judge() -> None:
    """Each iteration that was judged has an event with its score and its verdict as a word."""
    heard = Heard()
    run_virtual(run(refine, "x", listeners=[heard]))
    assert [event.name for event in heard.events] == ["gen_ai.evaluation.result"] * 2
    told = [dict(event.attributes) for event in heard.events]
    assert told == [
        {names.EVALUATION_NAME: "refine", names.EVALUATION_SCORE: 0.25, names.EVALUATION_LABEL: "fail"},
        {names.EVALUATION_NAME: "refine", names.EVALUATION_SCORE: 0.9, names.EVALUATION_LABEL: "pass"},
    ]  # fmt: skip


def test_what_is_measured_adds_up_to_what_the_run_says() -> None:
    """Cost, iterations, scores and durations are the figures of the result."""
    heard = Heard()
    result = run_virtual(run(refine, "x", listeners=[heard]))
    assert sum(heard.measured(names.COST)) == pytest.approx(result.usage.usd) == 0.5
    assert heard.measured(names.ITERATION_COUNT) == [1, 1]
    assert heard.measured(names.SCORES) == [0.25, 0.9]
    assert heard.measured(names.RUN_DURATION) == [pytest.approx(result.seconds, abs=0.01)]
    assert heard.measured(names.RUNS) == [1]


def test_each_declared_metric_is_a_gauge() -> None:
    """The gauge has the name, the unit and the values of the metric; undeclared metrics have none."""
    heard = Heard()
    values = iter([{"val loss": 2.0, "ms": 7}, {"val loss": 1.5, "ms": 8}])
    metrics = {"val loss": Metric("minimise", unit="nat")}
    loop = Loop(str, lambda _: {"metrics": next(values)}, metrics=metrics, max_iterations=2)
    run_virtual(run(loop, "x", listeners=[heard]))
    assert heard.measured(names.metric("val loss")) == [2.0, 1.5]
    assert {s.unit for s in heard.signals if isinstance(s, MetricPoint) and s.unit} == {"nat"}
    assert heard.measured(names.metric("ms")) == []


def test_a_model_call_is_a_chat_span_with_its_tokens() -> None:
    """The request's model, why the reply ended and its tokens are said in the conventions' words."""
    heard = Heard()
    loop = Loop(prompt("Write {{ loop.iteration }}"), until=MaxIterations(2), name="refine")
    resources = {"models": Models(ScriptedModel(REPLIES)), "model": "gemini:gemini-2.5-flash"}
    run_virtual(run(loop, "x", listeners=[heard], resources=resources))
    calls = [span for span in heard.spans.values() if span.client]
    assert [span.name for span in calls] == ["chat gemini-2.5-flash"] * 2
    told = calls[0].attributes
    assert told[names.OPERATION] == "chat"
    assert told[names.PROVIDER] == "gcp.gemini"
    assert told[names.FINISH_REASONS] == ["stop"]
    used = sum(heard.measured(names.TOKEN_USAGE))
    assert used == sum(
        s.attributes[names.INPUT_TOKENS] + s.attributes[names.OUTPUT_TOKENS] for s in calls
    )
    assert len(heard.measured(names.OPERATION_DURATION)) == 2
    assert names.OUTPUT_MESSAGES not in told


class Calling(CompositeStep):
    """A step that lets a model call `add`."""

    name = fingerprint = "calling"

    async def run(self, value: Any, ctx: Any) -> Result:
        async def add(a: int, b: int) -> int:
            if b == 0:
                raise ValueError("nothing to add")
            return a + b

        request = Request((Message("user", str(value)),), model="gpt-4o", provider="openai")
        told = await call_with_tools(ctx, "agent", request, [add])
        return Result(Status.SATISFIED, Reason.COMPLETED, "", told["text"], name=self.name)


def test_a_call_of_a_tool_is_a_span_with_the_name_that_the_model_called() -> None:
    """What a reply asked for and what became of it are one span; an error as data is its type."""
    wants = [{"name": "add", "arguments": {"a": 1, "b": b}, "id": f"id-{b}"} for b in (2, 0)]
    for capture in (False, True):
        heard = Heard(capture=capture)
        models = Models(ScriptedModel([{"replies": [{"tool_calls": wants}, "it is 3"]}]))
        run_virtual(run(Calling(), "add", listeners=[heard], resources={"models": models}))
        calls = [s for s in heard.spans.values() if s.name == "execute_tool add"]
        assert [s.attributes[names.TOOL_CALL] for s in calls] == ["id-2", "id-0"]
        assert names.ERROR_TYPE not in calls[0].attributes
        assert calls[1].attributes[names.ERROR_TYPE] == "ValueError"
        assert (names.TOOL_ARGUMENTS in calls[0].attributes) == capture


def test_a_failed_model_call_says_which_model_and_what_kind_of_fault() -> None:
    """A refused call is a span with an error of the fault vocabulary, and the model that was asked."""
    heard = Heard()
    step = prompt("Do it", name="ask")
    resources = {"models": Models(ScriptedModel(REPLIES)), "model": "openai:gpt-4o"}
    result = run_virtual(run(step, "x", listeners=[heard], resources=resources))
    assert result.status == "failed"
    calls = [span for span in heard.spans.values() if span.client]
    assert [span.name for span in calls] == ["chat gpt-4o"]
    assert calls[0].attributes[names.ERROR_TYPE] == "refused"
    assert "I would rather not" in calls[0].error
    assert heard.spans[""].attributes[names.ERROR_TYPE] == "error"


def test_a_failed_iteration_is_an_error_and_an_exhausted_run_is_none() -> None:
    """Running out is a result: only what failed has an error."""

    def broken(value: Any) -> None:
        raise ValueError("no such thing")

    heard = Heard()
    loop = Loop(
        broken, until=ScoreAtLeast(0.9) | MaxIterations(2), on_failure="continue", name="tries"
    )
    result = run_virtual(run(loop, "x", listeners=[heard]))
    assert heard.spans["tries/1"].error == "ValueError: no such thing"
    assert heard.spans["tries/1"].attributes[names.OUTCOME] == "failed"
    assert bool(heard.spans[""].error) == (result.status == "failed")


async def test_a_resumed_run_goes_on_in_its_trace_with_spans_of_its_own() -> None:
    """The trace id is the run's, the spans of the second process are new, and they begin with it."""
    journal, first, second = MemoryJournal(), Heard(at=100.0), Heard(at=900.0)
    calls = []

    async def once(value: Any, ctx: Any) -> str:
        calls.append(ctx.iteration)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        return "done"

    loop = Loop(once, until=MaxIterations(3), name="refine")
    with pytest.raises(KeyboardInterrupt):
        await run(loop, "x", journal=journal, run_id="r", listeners=[first])
    first.traces[0].close()
    assert first.spans[""].attributes[names.STATUS] == "interrupted"
    assert first.spans["refine/2/execute"].attributes[names.INTERRUPTED] is True
    await resume(loop, "r", journal=journal, listeners=[second], in_doubt="rerun")
    assert second.spans[""].attributes[names.RUN_RESUMED] is True
    assert second.spans[""].attributes[names.STATUS] == "exhausted"
    assert "refine/1" not in second.spans
    assert {s.span_id for s in first.spans.values()}.isdisjoint(
        s.span_id for s in second.spans.values()
    )
    assert min(span.start for span in second.spans.values()) >= 900.0


async def test_loops_that_were_open_when_a_process_was_killed_have_spans_once_they_end() -> None:
    """A process that is killed tells no span of what encloses; who resumes tells each, under its own."""
    journal, first, second = MemoryJournal(), Heard(at=100.0), Heard(at=900.0)
    calls = []

    async def once(value: Any, ctx: Any) -> str:
        calls.append(ctx.iteration)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return "done"

    loop = Loop(Loop(once, until=MaxIterations(2)), until=MaxIterations(3), name="outer")
    with pytest.raises(KeyboardInterrupt):
        await run(loop, "x", journal=journal, run_id="r", listeners=[first])
    assert not {"", "outer", "outer/2"} & first.spans.keys()
    await resume(loop, "r", journal=journal, listeners=[second], in_doubt="rerun")
    spans = second.spans
    assert {"", "outer", "outer/2", "outer/2/execute"} <= spans.keys()
    known = {span.span_id for span in spans.values()}
    assert {span.parent_id for span in spans.values()} - known == {0}


async def test_a_run_that_had_ended_is_told_of_no_second_time() -> None:
    """Who asks for a finished run gets its result, and neither spans nor lines."""
    journal, heard, lines = MemoryJournal(), Heard(), []
    loop = Loop(lambda value: value, until=MaxIterations(1), name="refine")
    first = await run(loop, "x", journal=journal, run_id="r")
    log = LogLines(lines.append)
    again = await run(loop, "x", journal=journal, run_id="r", listeners=[heard, log])
    heard.traces[0].close()
    assert (again.status, again.output) == (first.status, first.output)
    assert heard.signals == lines == []


@pytest.mark.parametrize("run_id", ["r", "20261121-001406-db2c64", "x" * 64])
def test_ids_are_those_of_the_run_and_never_zero(run_id: str) -> None:
    """Ids are the same wherever they are made, fit their sizes, and differ by path and process."""
    assert 0 < trace_id(run_id) < 2**128
    made = {span_id(run_id, epoch, path) for epoch in (1, 2) for path in ("", "a", "a/1")}
    assert len(made) == 6
    assert all(0 < found < 2**64 for found in made)


def test_a_watcher_that_cannot_begin_is_a_warning_and_nothing_more() -> None:
    """A listener watches; it never steers."""

    class Broken:
        def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Any:
            raise OSError("no room")

    result = run_virtual(run(refine, "x", listeners=[Broken()]))
    assert result.status == "satisfied"
    assert result.warnings == ("listener_failed: a listener could not start: OSError: no room",)
