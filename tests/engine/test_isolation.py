"""What is on record is nobody's to change: every reader gets copies, and records refuse assignment (issue 11, section 1).

The callables of these tests change everything that they can reach. The run, its journal, a replay and a resume must be
those of the same callables that change nothing.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Criterion,
    Evaluation,
    Failure,
    History,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
    Workflow,
    fallback,
    parallel,
    run,
    step,
)
from loopwright.conditions import Condition
from loopwright.journal import Entry, RunInfo
from loopwright.journal.sqlite import SqliteJournal
from loopwright.records import ItemOutcome, StepOutcome
from loopwright.testing import run_virtual

from .support import examples, play

Touch = Callable[[str, Any], None]

RECORDS = (Iteration, Evaluation, Result, Stop, Usage, Failure, Criterion, RunInfo)


def wreck(place: str, value: Any, depth: int = 0) -> None:
    """Change whatever can be reached from a value; what refuses must do so by an AttributeError."""
    if depth > 8 or value is None or isinstance(value, str | int | float):
        return
    if isinstance(value, dict):
        for item in list(value.values()):
            wreck(place, item, depth + 1)
        value["wrecked"] = place
        del value[next(iter(value))]
    elif isinstance(value, list):
        for item in list(value):
            wreck(place, item, depth + 1)
        value.append(place)
        value.reverse()
    elif isinstance(value, tuple):
        for item in value:
            wreck(place, item, depth + 1)
    elif isinstance(value, History):
        wreck(place, [*value, *value[:], value.last, value.best, value.latest_eligible], depth + 1)
        value.with_iteration(Iteration(99, "wrecked"), 0.0, Usage())
        value.at_time(elapsed=0.0, usage=Usage(), now=0.0).with_iteration(
            Iteration(98), 0.0, Usage()
        )
        wreck(place, list(value.at_time(elapsed=0.0, usage=Usage(), now=0.0)), depth + 1)
        with pytest.raises(AttributeError):
            value.elapsed = 1e9
        with pytest.raises(AttributeError):
            del value.usage
    elif isinstance(value, RECORDS):
        for item in dataclasses.fields(value):
            wreck(place, getattr(value, item.name), depth + 1)
            with pytest.raises(AttributeError):
                setattr(value, item.name, place)
            with pytest.raises(AttributeError):
                delattr(value, item.name)
    elif isinstance(value, Entry):
        wreck(place, [value.value, value.error, value.usage, value.reserved], depth + 1)
        value.kind, value.value, value.usage = "wrecked", place, Usage(calls=99)


def look(place: str, value: Any, depth: int = 0) -> None:
    """Read nothing and change nothing: what every callable does in the run to compare with."""


class Watching(Condition):
    """A condition of a user's, which looks at the history."""

    def __init__(self, touch: Touch) -> None:
        self._touch = touch

    def check(self, history: History) -> Stop | None:
        """Return a stop when the third iteration is there, as its output says."""
        last = history.last
        done = last is not None and last.output["round"] == 3
        self._touch("condition", history)
        return Stop(Reason.CONDITION_MET, "three rounds") if done else None


def flow(touch: Touch, data: Any, kept: list[Any]) -> Workflow:
    """Return a workflow with a callable in every position; each keeps what it returned and touches it later."""

    def fresh() -> Any:
        return copy.deepcopy(data)

    def hold(value: Any) -> Any:
        for old in kept:
            touch("kept", old)
        kept.append(value)
        return value

    async def sub(value: Any, ctx: Any) -> Any:
        found = {"of": [value["round"]], "data": fresh()}
        touch("sub", value)
        touch("sub.initial", ctx.initial)
        return hold(found)

    async def execute(value: Any, ctx: Any) -> Any:
        seen = [item.output["round"] for item in ctx.history]
        before = ctx.last.output["sub"]["of"] if ctx.last else []
        asked = {"round": len(seen) + 1, "seen": [list(seen)]}
        called = await ctx.call("sub", step(sub, name="sub"), asked)
        found = {
            "round": asked["round"], "seen": seen, "before": before, "sub": copy.deepcopy(called), "data": fresh(),
            "task": ctx.initial["task"], "first": ctx.outputs.get("first"), "input": ctx.input,
        }  # fmt: skip
        readers = [asked, called, value, ctx.last, ctx.history, ctx.outputs, ctx.initial, ctx.input]
        for reader in readers:
            touch("execute", reader)
        return hold(found)

    async def evaluate(output: Any, ctx: Any) -> Evaluation:
        score = output["round"] / 10
        touch("evaluate", output)
        touch("evaluate.ctx", [ctx.last, ctx.history, ctx.input])
        votes = [{"who": ["judge", fresh()]}]
        return hold(Evaluation(score, votes=tuple(votes), details={"notes": [fresh()]}))

    async def adapt(last: Iteration, ctx: Any) -> Any:
        found = {
            "task": ctx.initial["task"],
            "after": last.number,
            "said": copy.deepcopy([last.output["data"]]),
        }
        touch("adapt", last)
        return hold(found)

    async def first(value: Any) -> Any:
        found = {"given": copy.deepcopy(value["task"]), "data": [fresh()]}
        touch("first", value)
        return hold(found)

    async def member(value: Any, ctx: Any) -> Any:
        found = {"of": value["round"], "first": ctx.outputs["first"]["data"]}
        touch("member", value)
        touch("member.outputs", ctx.outputs)
        return hold(found)

    async def broken(value: Any) -> Any:
        touch("broken", value)
        raise ValueError("this one never works")

    def plain(value: Any) -> Any:
        found = copy.deepcopy({"all": value, "n": 1})
        touch("plain", value)
        return hold(found)

    loop = Loop(
        step(execute), step(evaluate), step(adapt), Watching(touch) | MaxIterations(5), name="refine",
        on_iteration=lambda item: touch("on_iteration", item),
        on_terminate=lambda result: touch("on_terminate", result),
    )  # fmt: skip
    return Workflow(
        "flow",
        {
            "first": step(first),
            "refine": loop,
            "both": parallel(step(member, name="a"), step(member, name="b"), name="both", at_once=1),
            "either": fallback(step(broken), step(member, name="works"), name="either"),
            "last": step(plain, inline=True),
        },
        needs={"both": ["refine"], "either": ["refine"], "last": ["first", "both", "either"]},
    )  # fmt: skip


TASK = {"task": {"words": ["a", {"b": 1}]}}


def facts(result: Result) -> Any:
    """Return what a result says, without how long it took."""
    return _timeless(result.to_json())


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in ("seconds", "at", "run_id")}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


async def recorded(journal: Any) -> Any:
    """Return the entries of the run as JSON, without when they were made."""
    return [_timeless(entry.to_json()) for entry in await journal.entries("r")]


async def journey(journal: Any, touch: Touch, data: Any) -> list[Any]:
    """Run, replay, go back and go on; return what each of these and the journal say."""
    kept: list[Any] = []
    entries: list[Any] = []

    def listen(entry: Entry) -> None:
        entries.append(_timeless(entry.to_json()))
        touch("listener", entry)

    async def go() -> Result:
        made = flow(touch, data, kept)
        return await run(made, TASK, journal=journal, run_id="r", listeners=[listen])

    result = await go()
    assert result.satisfied, result.detail
    found = [facts(result), result.status, await recorded(journal)]
    touch("result", result)
    touch("rows", await journal.iterations("r"))
    touch("entries", await journal.entries("r"))
    touch("info", await journal.find("r"))
    found += [facts(await go()), await recorded(journal)]
    await journal.rewind("r", "flow/refine/2/evaluate")
    found += [facts(await go()), await recorded(journal), entries]
    await journal.close()
    return found


DATA = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.text("ab", max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(examples(0.3))
@given(data=DATA)
def test_what_callables_change_reaches_no_record_in_memory(data: Any) -> None:
    """Rule: result, journal, replay and resume equal those of callables that change nothing."""
    wrecked = run_virtual(journey(MemoryJournal(), wreck, data))
    assert wrecked == run_virtual(journey(MemoryJournal(), look, data))


@pytest.mark.parametrize("data", [7, [{"x": [1, 2]}], {"deep": {"er": [[], {}]}}])
def test_what_callables_change_reaches_no_record_in_sqlite(tmp_path: Path, data: Any) -> None:
    """Rule: the same for a journal in a file."""
    wrecked = asyncio.run(journey(SqliteJournal(tmp_path / "a.db"), wreck, data))
    assert wrecked == asyncio.run(journey(SqliteJournal(tmp_path / "b.db"), look, data))


def test_an_output_that_a_later_round_changes_keeps_its_score() -> None:
    """Findings 1: `d = ctx.last.output; d["v"] += 1` in execute returned an output that was never scored."""

    def improve(task: Any, ctx: Any) -> Any:
        draft = ctx.last.output if ctx.last else {"v": 0}
        draft["v"] += 1
        return draft

    rates = {1: 0.9, 2: 0.3, 3: 0.2}
    result = play(Loop(improve, lambda d: rates[d["v"]], until=MaxIterations(3)))
    assert result.best is not None and result.best.number == 1
    assert result.output == {"v": 1}
    assert [item.output for item in result.history] == [{"v": 1}, {"v": 2}, {"v": 3}]


def test_outputs_are_each_readers_own() -> None:
    """Findings 1: `ctx.outputs["a"]["n"] = 99` changed what the next step was given."""

    def spoil(value: Any, ctx: Any) -> Any:
        ctx.outputs["a"]["n"] = 99
        return ctx.outputs["a"]

    steps = {"a": lambda _: {"n": 1}, "b": spoil, "c": lambda _, ctx: ctx.outputs["a"]}
    assert play(Workflow("w", steps)).output == {"n": 1}


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (Result(Status.SATISFIED, Reason.COMPLETED, ""), "status"),
        (Result(Status.SATISFIED, Reason.COMPLETED, "", {"a": 1}).view(), "output"),
        (Iteration(1, {"a": 1}, {"b": 1}), "output"),
        (Iteration(1, {"a": 1}, {"b": 1}).view(), "output"),
        (Result(Status.SATISFIED, Reason.COMPLETED, ""), "best"),
        (Iteration(1, {"a": 1}, {"b": 1}), "score"),
        (Iteration(1), "no_such_name"),
        (Evaluation(0.5), "score"),
        (Evaluation(0.5, details={"a": 1}), "details"),
        (Stop(Reason.COMPLETED), "reason"),
        (Usage(1), "calls"),
        (RunInfo("r", "n"), "status"),
    ],
)
def test_records_refuse_assignment_and_deletion(record: Any, name: str) -> None:
    """Rule: Result, Iteration, Evaluation, Stop, Usage and RunInfo reject assignment and deletion."""
    before = record
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(record, name)
    assert record == before


def test_a_view_equals_its_record_and_shares_what_nobody_can_change() -> None:
    """Rule: a reader's view says the same; exact text, numbers, booleans and None are shared, others are copies."""
    record = Iteration(1, {"a": [1]}, "text", Evaluation(0.5, votes=({"v": [1]},)))
    view = record.view()
    assert view == record and view is not record
    view.input["a"].append(2)
    view.evaluation.votes[0]["v"].append(2)
    assert view.input == {"a": [1, 2]} and record.input == {"a": [1]}
    assert record.evaluation is not None and record.evaluation.votes == ({"v": [1]},)
    flat = Iteration(1, "in", "out", Evaluation(0.5))
    assert flat.view() is flat
    kept = Iteration(1, "in", "out", files={"commit": "c"})
    wreck("files", kept.view().files)
    assert kept.files == {"commit": "c"}
    assert dataclasses.replace(view, output=2) == dataclasses.replace(view, output=2)


VIEWED = [
    Iteration(1, {"a": [1]}, "text", Evaluation(0.5, votes=({"v": [1]},)), files={"commit": "c"}),
    Evaluation(0.5, details={"a": [1]}, metrics={"seconds": 2.0}),
    Result(Status.SATISFIED, Reason.COMPLETED, "", {"a": [1]}, steps={"s": {"b": [1]}}),
    ItemOutcome(0, {"a": [1]}, output={"b": [1]}),
    StepOutcome("s", output={"c": [1]}, items=(ItemOutcome(0, [1]),)),
    RunInfo("r", "n", {"a": [1]}, source={"document": "x.yaml"}),
]


@pytest.mark.parametrize("record", VIEWED, ids=lambda record: type(record).__name__)
def test_a_view_is_a_record_of_its_class(record: Any) -> None:
    """Rule: a view is compared, printed and copied as its record, and has its errors."""
    view = record.view()
    assert view is not record
    assert view == record and record == view and repr(view) == repr(record)
    assert isinstance(view, type(record)) and view.view() == record
    copies = [dataclasses.replace(view), copy.copy(view)]
    if not isinstance(record, Result):  # the history of a reader cannot be pickled
        copies.append(pickle.loads(pickle.dumps(view)))
    assert all(type(made) is type(record) and made == record for made in copies)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = view.no_such_name


@pytest.mark.parametrize("record", VIEWED, ids=lambda record: type(record).__name__)
def test_the_json_of_a_view_is_that_of_its_record(record: Any) -> None:
    """Rule: a view writes the recorded values, whatever its reader changes; changes of the JSON reach no record."""
    before, view = json.dumps(record.to_json()), record.view()
    for item in dataclasses.fields(record):
        wreck("view", getattr(view, item.name))
    written = view.to_json()
    assert json.dumps(written) == before
    wreck("json", written)
    assert json.dumps(view.to_json()) == json.dumps(record.to_json()) == before


def test_an_evaluation_is_recorded_as_it_was_returned() -> None:
    """Rule: who keeps the evaluation that he returned cannot change it any more."""
    kept: list[Evaluation] = []

    def judge(output: Any) -> Evaluation:
        for old in kept:
            wreck("kept", old)
        kept.append(Evaluation(0.5, votes=({"by": ["me"]},), details={"notes": ["one"]}))
        return kept[-1]

    result = play(Loop(lambda _: "x", judge, until=MaxIterations(3)))
    for item in result.history:
        assert item.evaluation is not None
        assert item.evaluation.votes == ({"by": ["me"]},)
        assert item.evaluation.details == {"notes": ["one"]}


ROWS = """
schema: loopwright/1
name: rows
steps:
  - name: walk
    each:
      items: [{n: [1]}, {n: [2]}]
      execute: {set: {found: "{{ loop.current }}"}}
  - name: last
    set: {deep: {er: [1]}}
"""


def test_the_tables_of_items_and_steps_are_the_readers_own(tmp_path: Path) -> None:
    """Rule: rows of `Result.items` and `Result.outcomes` refuse assignment; what a reader changes in one
    reaches no other result of the run, and no record."""
    from loopwright.documents.load import load

    (tmp_path / "rows.yaml").write_text(ROWS, "utf-8")
    loaded = load(tmp_path / "rows.yaml")

    async def twice() -> list[Any]:
        journal, found = MemoryJournal(), []
        for _ in range(2):
            result = await run(loaded.step, None, journal=journal, run_id="r")
            found.append(json.dumps(result.to_json()["outcomes"]))
            for outcome in result.outcomes.values():
                for row in (outcome, *outcome.items, *result.items):
                    for name in ("status", "output", "reason"):
                        with pytest.raises(dataclasses.FrozenInstanceError):
                            setattr(row, name, None)
                    wreck("row", row.output)
                    wreck("item", getattr(row, "item", None))
            with pytest.raises((TypeError, AttributeError)):
                result.items += ()
            entries = await journal.entries("r")
            found.append(json.dumps([entry.to_json() for entry in entries]))
        return found

    first, entries, second, again = run_virtual(twice())
    assert (first, entries) == (second, again)
    assert "wrecked" not in first + entries
    assert json.loads(first)["walk"]["items"][1]["item"] == {"n": [2]}


def test_a_hook_that_changes_a_row_changes_no_result() -> None:
    """Rule: `on_terminate` gets a result of its own, its tables too."""
    rows = (ItemOutcome(0, {"a": [1]}, output={"b": [1]}),)
    outcome = StepOutcome("s", output={"c": [1]}, items=rows)
    result = Result(Status.SATISFIED, Reason.COMPLETED, "", items=rows, outcomes={"s": outcome})
    view = result.view()
    wreck("hook", [row.output for row in view.items] + [row.item for row in view.items])
    wreck("hook", [view.outcomes["s"].output, view.outcomes["s"].items[0].item])
    view.outcomes.pop("s", None) if isinstance(view.outcomes, dict) else None
    assert result.items[0].item == {"a": [1]} and result.items[0].output == {"b": [1]}
    assert result.outcomes["s"].output == {"c": [1]}
    assert result.outcomes["s"].items[0].output == {"b": [1]}
