"""Values of declared types: what each reader of a step receives, live, replayed and after a crash."""

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import typing
import uuid
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, NamedTuple

import pydantic
import pytest

from loopwright import (
    Condition,
    Context,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Workflow,
    fallback,
    parallel,
    resume_sync,
    retry,
    run_sync,
    sequence,
    step,
    with_timeout,
)
from loopwright.errors import ReplayMismatch
from loopwright.journal import Entry, MemoryLog, RunInfo
from loopwright.records.redaction import Redactor

from .support import DyingJournal, crashed_after, entries_of, play


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Row(typing.TypedDict):
    day: dt.date
    count: typing.NotRequired[int]


class Point(NamedTuple):
    x: int
    y: decimal.Decimal


@dataclasses.dataclass
class Draft:
    title: str
    at: dt.datetime
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class LongDraft(Draft):
    pages: int = 1


@dataclasses.dataclass
class Number:
    value: float
    text: str = ""


class Note(pydantic.BaseModel):
    body: str
    colour: Colour = Colour.RED


class LongNote(Note):
    pages: int = 2


class Secretive(pydantic.BaseModel):
    body: str
    hidden: str = pydantic.Field(exclude=True)


NOON = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)
VALUES: list[tuple[Any, Any]] = [
    (Draft, Draft("a", NOON, {"x", "y"})),
    (Note, Note(body="b", colour=Colour.ONE)),
    (Row, {"day": dt.date(2026, 1, 2)}),
    (list[Row], [{"day": dt.date(2026, 1, 2), "count": 3}]),
    (dict[str, Draft], {"k": Draft("a", NOON)}),
    (set[int], {1, 2}),
    (tuple[int, Draft], (1, Draft("a", NOON))),
    (Point, Point(1, decimal.Decimal("0.10"))),
    (Draft | None, Draft("a", NOON)),
    (Draft | Note, Note(body="b")),
    (Colour, Colour.RED),
    (Colour, Colour.ONE),
    (dt.datetime, NOON),
    (dt.timedelta, dt.timedelta(seconds=90)),
    (decimal.Decimal, decimal.Decimal("12.50")),
    (uuid.UUID, uuid.UUID(int=7)),
    (pathlib.Path, pathlib.Path("a/b")),
    (bytes, b"\xff\x00a"),
    (list[bytes], [b"\xff"]),
    (dict[int, str], {1: "a"}),
    (frozenset[str], frozenset({"a"})),
]
NAMES = [str(declared).replace("typing.", "") for declared, _ in VALUES]


def same(one: Any, other: Any) -> None:
    assert one == other
    assert type(one) is type(other)


def typed(declared: Any, result: Any) -> Any:
    """Return a function from nothing in particular to a value of a declared type."""

    def write(value: Any) -> Any:
        return result

    write.__annotations__["return"] = declared
    return write


class Watching(Condition):
    """A user's condition, which keeps the output that it reads."""

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept

    def field_values(self) -> dict[str, Any]:
        return {}

    def check(self, history: Any) -> None:
        self.kept.append(history.last.output)


def readers(declared: Any, value: Any) -> tuple[Any, list[Any]]:
    """Return a workflow whose readers keep each value that they receive, and the list of these."""
    kept: list[Any] = []

    async def evaluate(output: Any, ctx: Context) -> float:
        kept.append(output)
        if ctx.last is not None:
            kept.extend([ctx.last.output, ctx.history[0].output])
        kept.append(await ctx.call("again", step(keep, inline=True), output))
        return 0.5

    def keep(output: Any) -> Any:
        kept.append(output)
        return output

    keep.__annotations__ = {"output": declared, "return": declared}

    def adapt(last: Iteration) -> int:
        kept.append(last.output)
        return last.number

    inner = Loop(
        step(typed(declared, value), inline=True),
        evaluate,
        step(adapt, inline=True),
        until=MaxIterations(2) | Watching(kept),
        name="inner",
        on_iteration=lambda item: kept.append(item.output),
        on_terminate=lambda result: kept.extend([result.output, result.best.output]),
    )

    def after(output: Any, ctx: Context) -> str:
        kept.extend([output, ctx.outputs["draft"], ctx.output_of(inner)])
        return "done"

    steps = {"draft": inner, "after": step(after, inline=True)}
    return Workflow("flow", steps, needs={"after": ["draft"]}), kept


@pytest.mark.parametrize(("declared", "value"), VALUES, ids=NAMES)
def test_each_reader_receives_the_declared_type(declared: Any, value: Any) -> None:
    """Evaluate, adapt, hooks, conditions, ctx and the result have equal values of the same class."""
    flow, kept = readers(declared, value)
    journal = MemoryJournal()
    live = run_sync(flow, 1, journal=journal, run_id="r")
    assert live.status.value == "exhausted", live.detail
    assert len(kept) > 12
    for item in kept:
        same(item, value)
    same(live.of(flow.steps["draft"]), value)
    same(live.loops["inner"].output, value)
    seen = len(kept)
    replayed = run_sync(flow, 1, journal=journal, run_id="r")
    assert len(kept) == seen
    same(replayed.of(flow.steps["draft"]), value)
    same(replayed.loops["inner"].history[0].output, value)
    assert json.dumps(replayed.to_json()) == json.dumps({**live.to_json()})


class JsonJournal(DyingJournal):
    """A journal whose entries are JSON text, as those of a file are."""

    async def open(self, info: RunInfo, **options: Any) -> MemoryLog:
        log = await super().open(info, **options)
        write = log.append
        log.append = lambda entry: write(Entry.from_json(json.loads(json.dumps(entry.to_json()))))
        return log


@pytest.mark.parametrize(("declared", "value"), VALUES, ids=NAMES)
def test_a_value_survives_a_crash_at_any_entry(declared: Any, value: Any) -> None:
    """Whatever entry the process dies after, the resumed run passes on the same types."""
    flow, _ = readers(declared, value)
    whole = JsonJournal()
    play(flow, 1, journal=whole, run_id="r")
    for at in range(2, len(entries_of(whole, "r")), 3):
        flow, kept = readers(declared, value)
        journal = JsonJournal()
        crashed_after(journal, flow, at, 1)
        result = play(flow, journal=journal, run_id="r")
        for item in kept:
            same(item, value)
        same(result.loops["inner"].output, value)
        same(result.loops["inner"].history[1].output, value)
        same(result.of(flow.steps["draft"]), value)


def test_inputs_arrive_in_the_declared_type() -> None:
    """A run's input, as an object or as JSON, arrives as the class of the first parameter."""
    journal = MemoryJournal()

    async def shout(draft: Draft) -> str:
        assert type(draft) is Draft
        return draft.title.upper()

    given = Draft("a", NOON, {"x"})
    assert run_sync(shout, given, journal=journal, run_id="r").output == "A"
    assert run_sync(shout, given, journal=journal, run_id="r").output == "A"
    assert run_sync(shout, {"title": "b", "at": "2026-11-22T12:00:00Z"}).output == "B"


def test_an_input_that_the_reader_cannot_take_is_bad_input() -> None:
    """The error names both steps and the place; it is not retried."""
    calls = []

    def write(value: int) -> Note:
        return Note(body="b")

    def judge(draft: Draft) -> float:
        calls.append(draft)
        return 1.0

    result = run_sync(Loop(write, judge, on_failure="retry", retry_delay=0), 1)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, calls) == ("bad_input", False, [])
    for word in ("judge", "write", "title", "at"):
        assert word in result.error.message


def test_an_untyped_dataclass_arrives_as_a_dict_with_one_warning() -> None:
    """Without a return annotation the next step receives JSON, live and replayed."""
    kept = []
    loop = Loop(
        lambda value: Number(value),
        lambda output: kept.append(output) or 0.5,
        until=MaxIterations(2),
        name="l",
    )
    journal = MemoryJournal()
    live = run_sync(loop, 1, journal=journal, run_id="r")
    assert kept == [{"value": 1, "text": ""}] * 2
    assert [w.partition(":")[0] for w in live.warnings] == ["untyped_output", "no_goal"]
    replayed = run_sync(loop, 1, journal=journal, run_id="r")
    assert (replayed.output, replayed.warnings) == (live.output, live.warnings)


def test_an_adapter_without_annotation_makes_the_input_of_execute() -> None:
    """The output of adapt has the input type of execute; no warning is needed."""
    inputs = []

    def write(draft: Draft) -> int:
        inputs.append(draft)
        return 1

    loop = Loop(
        write,
        adapt=lambda last: dataclasses.replace(last.input, title=last.input.title + "b"),
        until=MaxIterations(2),
    )
    result = run_sync(loop, Draft("a", NOON))
    assert [draft.title for draft in inputs] == ["a", "ab"]
    assert result.warnings == ()


def test_an_annotation_that_cannot_be_read_is_a_warning() -> None:
    """The step then has JSON."""

    def write(value: int) -> "Missing":  # noqa: F821
        return {"a": value}

    result = run_sync(write, 1)
    assert result.output == {"a": 1}
    assert [w.partition(":")[0] for w in result.warnings] == ["annotation_unreadable"]


class Plain:
    """A class that has no JSON form."""


def test_a_type_without_a_json_form_is_a_warning() -> None:
    """A class that pydantic does not know counts as no annotation."""

    def write(value: int) -> Plain:
        return value

    result = run_sync(write, 1)
    assert result.output == 1
    assert [w.partition(":")[0] for w in result.warnings] == ["annotation_unreadable"]


HAZARDS: list[tuple[str, Any, Any, str]] = [
    ("NaN in a field", Number, Number(float("nan")), "not_json"),
    ("infinity in a field", Number, Number(float("inf")), "not_json"),
    ("a subclass of the dataclass", Draft, LongDraft("a", NOON), "bad_output"),
    ("a subclass of the model", Note, LongNote(body="a"), "bad_output"),
    ("a subclass in a list", list[Note], [LongNote(body="a")], "bad_output"),
    ("another class", Draft, Note(body="b"), "bad_output"),
    ("a required field that is excluded", Secretive, Secretive(body="a", hidden="b"), "bad_output"),
]


@pytest.mark.parametrize(
    ("name", "declared", "value", "kind"), HAZARDS, ids=[h[0] for h in HAZARDS]
)
def test_values_that_would_be_lost_are_refused(
    name: str, declared: Any, value: Any, kind: str
) -> None:
    """A value that a replay could not return fails in the first iteration."""
    result = run_sync(Loop(typed(declared, value), name="l"), 1)
    assert result.error is not None
    assert (result.error.kind, result.error.stage, result.iterations) == (kind, "execute", 1)


def test_the_refusal_of_a_subclass_names_the_union_to_declare() -> None:
    """And with that union the value arrives."""
    value = LongDraft("a", NOON, set(), 4)
    refused = run_sync(typed(Draft, value), 1)
    assert "Draft | LongDraft" in refused.detail
    same(run_sync(typed(LongDraft | Draft, value), 1).output, value)


@pytest.mark.parametrize(("text", "clean"), [("a\0b", "ab"), ("a\ud800b", "a\ufffdb")])
def test_text_in_typed_values_is_cleaned(text: str, clean: str) -> None:
    """NUL and lone surrogates, which stores refuse, are removed as from any text."""
    assert run_sync(typed(Number, Number(1.0, text)), 1).output == Number(1.0, clean)


def test_values_nested_too_deeply_are_refused() -> None:
    """The limit of depth holds for typed values too."""
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    assert run_sync(typed(Nested, Nested(deep)), 1).error.kind == "not_json"


@dataclasses.dataclass
class Nested:
    """A dataclass with any JSON."""

    value: Any


async def _draft(value: Any) -> Draft:
    return Draft(str(value), NOON, {"t"})


async def _note(value: Any) -> Note:
    return Note(body=str(value))


async def _fails(value: Any) -> Note:
    raise ValueError("no")


COMPOSITES: list[tuple[str, Any, Any]] = [
    ("sequence", sequence(_note, _draft), Draft),
    ("fallback", fallback(_fails, _draft), Draft),
    ("retry", retry(_draft), Draft),
    ("with_timeout", with_timeout(_draft, 5), Draft),
    ("nested loop", Loop(_draft, until=MaxIterations(1), name="inner"), Draft),
    ("workflow", Workflow("w", {"a": _note, "b": _draft}, output=_draft), Draft),
]


@pytest.mark.parametrize(("name", "made", "kind"), COMPOSITES, ids=[c[0] for c in COMPOSITES])
def test_composites_keep_the_type_of_their_steps(name: str, made: Any, kind: type) -> None:
    """Inside a loop, live and replayed."""
    kept: list[Any] = []
    loop = Loop(
        made, lambda output: kept.append(output) or 1.0, until=Passed() | MaxIterations(2), name="l"
    )
    journal = MemoryJournal()
    live = run_sync(loop, 1, journal=journal, run_id="r")
    replayed = run_sync(loop, 1, journal=journal, run_id="r")
    for item in (*kept, live.output, replayed.output, replayed.history[0].output):
        assert type(item) is kind


def test_parallel_keeps_the_type_of_each_member() -> None:
    """Each member of the output has its own type, live and replayed."""
    loop = Loop(parallel(_draft, note=_note, plain=len), until=MaxIterations(1), name="l")
    journal = MemoryJournal()
    for _ in range(2):
        output = run_sync(loop, "abc", journal=journal, run_id="r").output
        assert [type(output[name]) for name in ("_draft", "note", "plain")] == [Draft, Note, int]


def test_a_recorded_value_that_no_longer_fits_is_a_mismatch() -> None:
    """The error names the path and the field; a new field with a default is compatible."""
    journal = MemoryJournal()

    def version(fields: dict[str, Any]) -> Any:
        kind = dataclasses.make_dataclass("Thing", fields)

        async def write(value: int) -> Any:
            return kind(1)

        write.__annotations__["return"] = kind
        return Loop(write, until=MaxIterations(1), name="l")

    run_sync(version([("a", int)]), 1, journal=journal, run_id="r")
    later = version([("a", int), ("b", int, dataclasses.field(default=2))])
    assert run_sync(later, 1, journal=journal, run_id="r").output.b == 2
    with pytest.raises(ReplayMismatch, match="b: Field required"):
        run_sync(version([("a", int), ("b", int)]), 1, journal=journal, run_id="r")


def test_awaitables_partials_methods_and_callable_objects_are_read() -> None:
    """The declared type is that of the value, however the function is wrapped."""

    class Writer:
        async def method(self, draft: Draft) -> Draft:
            assert type(draft) is Draft
            return draft

        def __call__(self, draft: Draft) -> Awaitable[Draft]:
            return self.method(draft)

    def lazily(draft: Draft) -> Coroutine[Any, Any, Draft]:
        return Writer().method(draft)

    def bound(prefix: str, draft: Draft) -> Draft:
        return dataclasses.replace(draft, title=prefix + draft.title)

    given = Draft("a", NOON)
    for function in (Writer().method, Writer(), lazily, functools.partial(bound, "")):
        same(run_sync(function, given).output, given)


def test_a_composite_function_passes_typed_values_to_its_calls() -> None:
    """ctx.call takes and returns values of the declared types."""

    async def double(draft: Draft) -> Draft:
        return dataclasses.replace(draft, title=draft.title * 2)

    async def twice(draft: Draft, ctx: Context) -> Draft:
        once = await ctx.call("first", step(double), draft)
        assert type(once) is Draft
        return await ctx.call("second", step(double), once)

    journal = MemoryJournal()
    for _ in range(2):
        assert run_sync(twice, Draft("a", NOON), journal=journal, run_id="r").output.title == "aaaa"


def test_a_call_takes_a_function() -> None:
    """ctx.call and ctx.outcome take a function as Loop does, with its declared types."""

    def double(draft: Draft) -> Draft:
        return dataclasses.replace(draft, title=draft.title * 2)

    async def twice(draft: Draft, ctx: Context) -> Draft:
        once = await ctx.call("first", double, draft)
        assert type(once) is Draft
        return (await ctx.outcome("second", double, once)).unwrap()

    journal = MemoryJournal()
    for _ in range(2):
        assert run_sync(twice, Draft("a", NOON), journal=journal, run_id="r").output.title == "aaaa"


def test_a_call_of_a_step_and_of_its_function_are_the_same() -> None:
    """A recorded run resumes after `step(...)` around the function of a call was removed."""

    def double(value: int) -> int:
        return 2 * value

    wrapped = [step(double), double]

    @step(fingerprint="calling/1")
    async def calling(value: int, ctx: Context) -> int:
        first = await ctx.call("first", wrapped.pop(0), value)
        return first + ctx.ask("more", {}, "How many more?")

    journal = MemoryJournal()
    assert run_sync(calling, 3, journal=journal, run_id="r").status == "suspended"
    again = resume_sync(calling, "r", journal=journal)
    assert (again.status, again.error) == ("suspended", None)
    assert wrapped == []


def test_a_call_of_another_object_fails_as_bad_step() -> None:
    """The error names the object and is not tried again."""

    async def calling(value: int, ctx: Context) -> int:
        return await ctx.call("first", 3, value)  # type: ignore[arg-type]

    error = run_sync(calling, 3).error
    assert error is not None
    assert (error.kind, error.retryable) == ("bad_step", False)


def test_last_of_returns_the_iterations_of_another_loop() -> None:
    """Of an enclosing loop, and of one that has ended."""
    kept: list[Any] = []

    def look(value: Any, ctx: Context) -> Draft:
        kept.append(ctx.last_of(outer))
        kept.append(ctx.last_of(inner))
        return Draft("x", NOON)

    inner = Loop(_note, until=MaxIterations(1), name="inner")
    outer = Loop(sequence(inner, step(look)), until=MaxIterations(2), name="outer")
    run_sync(outer, 1)
    assert [item and type(item.output) for item in kept] == [None, Note, Draft, Note]


def test_secrets_are_removed_from_typed_values() -> None:
    """A typed value is redacted as JSON, before anyone reads it."""
    redactor = Redactor({"KEY": "sk-abcdefghijklmnop"})
    result = run_sync(
        typed(Number, Number(1.0, "sk-abcdefghijklmnop")), 1, resources={"redactor": redactor}
    )
    assert type(result.output) is Number
    assert "abcdefgh" not in result.output.text


def test_mapping_and_sequence_annotations_take_json() -> None:
    """Annotations of JSON types change neither the value nor the journal."""

    def write(value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, "b": [1, (2, 3)]}

    journals = [MemoryJournal(), MemoryJournal()]
    untyped = lambda value: {**value, "b": [1, (2, 3)]}
    for journal, function in zip(journals, (write, untyped), strict=True):
        run_sync(
            Loop(function, until=MaxIterations(1), name="l"), {"a": 1}, journal=journal, run_id="r"
        )
    one, two = (
        [entry.value for entry in entries_of(j, "r") if entry.kind == "finished"] for j in journals
    )
    assert one == two == [{"a": 1, "b": [1, [2, 3]]}]
