"""Questions to people: what a suspended run waits for, who may answer what, and what goes on then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Status,
    Workflow,
    parallel,
    run,
    step,
)
from loopwright.errors import ConfigurationError
from loopwright.journal import RunInfo, open_journal
from loopwright.journal.questions import Question, answer, checked, pending

from .support import interrupted_from_outside


@step
async def publish(value: Any, ctx: Context) -> Any:
    who = ctx.ask("who", {"question": "who signs?"}, "who signs?")
    when = ctx.ask("when", {"question": "when?"}, "when?")
    return [value, who, when]


def asks(name: str, kind: str = "free") -> Any:
    """Return a step that returns what a person answers."""

    async def act(value: Any, ctx: Context) -> Any:
        return ctx.ask("q", {"kind": kind}, f"{name}?")

    return step(act, name=name)


def says(name: str, done: list[str]) -> Any:
    """Return a step that takes a while and notes that it ran to its end."""

    async def act(value: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append(name)
        return name

    return step(act, name=name)


async def test_a_step_that_asks_twice_is_answered_twice() -> None:
    """Each question is open until its own answer; the run goes on with both and is then finished."""
    journal = MemoryJournal()
    result = await run(publish, "text", journal=journal, run_id="r")
    assert result.status is Status.SUSPENDED
    (question,) = await pending(journal, "r")
    assert (question.path, question.kind, question.detail) == ("publish/who", "free", "who signs?")
    assert question.since > 0
    await answer(journal, "r", "publish/who", "Ann")
    assert await pending(journal, "r") == []
    await run(publish, journal=journal, run_id="r")
    assert [q.path for q in await pending(journal, "r")] == ["publish/when"]
    await answer(journal, "r", "publish/when", {"day": 1})
    last = await run(publish, journal=journal, run_id="r")
    assert (last.status, last.output) == (Status.SATISFIED, ["text", "Ann", {"day": 1}])
    assert await pending(journal, "r") == []


async def test_an_answer_survives_restarts_and_keeps_the_row(tmp_path: Path) -> None:
    """The answer is in the file; the row stays suspended, with its reason, until a resume."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    store = open_journal(url)
    await run(publish, "text", journal=store, run_id="r")
    before = await store.find("r")
    await store.close()
    store = open_journal(url)
    await answer(store, "r", "publish/who", "Ann")
    after = await store.find("r")
    await store.close()
    assert (after.status, after.reason, after.detail, after.active) == (
        "suspended", "approval", "who signs?", before.active,
    )  # fmt: skip
    store = open_journal(url)
    await run(publish, journal=store, run_id="r")
    assert [q.path for q in await pending(store, "r")] == ["publish/when"]
    await store.close()


@pytest.mark.parametrize(
    ("path", "said"),
    [("publish/whom", "did you mean 'publish/who'?"), ("x", "questions are open at 'publish/who'")],
)
async def test_an_unknown_question_is_refused_with_the_nearest(path: str, said: str) -> None:
    """Nothing is recorded for a path at which nothing is asked; the sentence names what is."""
    journal = MemoryJournal()
    await run(publish, "text", journal=journal, run_id="r")
    count = len(await journal.entries("r"))
    with pytest.raises(ConfigurationError, match="no question is open at") as error:
        await answer(journal, "r", path, "Ann")
    assert said in str(error.value)
    assert len(await journal.entries("r")) == count


async def test_a_question_is_answered_once_and_only_while_it_is_open() -> None:
    """A second answer is refused, one to a finished run too; one to a run that is running waits in its inbox."""
    journal = MemoryJournal()
    await run(publish, "text", journal=journal, run_id="r")
    await answer(journal, "r", "publish/who", "Ann")
    with pytest.raises(ConfigurationError, match="answered already"):
        await answer(journal, "r", "publish/who", "Bob")
    await run(publish, journal=journal, run_id="r")
    log = await journal.open(RunInfo("r", "publish"), resume=True)
    await answer(journal, "r", "publish/when", "now")
    with pytest.raises(ConfigurationError, match="answered already"):
        await answer(journal, "r", "publish/when", "then")
    await log.close(log.info)
    done = await run(publish, journal=journal, run_id="r")
    assert done.output == ["text", "Ann", "now"]
    with pytest.raises(
        ConfigurationError, match="no question of this run is open|answered already"
    ):
        await answer(journal, "r", "publish/when", "later")


ANSWERS = [
    ("tool", True, {"approve": True}),
    ("tool", {"approve": True, "arguments": {"a": 1}}, None),
    ("tool", {"approve": False, "reason": "no"}, None),
    ("tool", {"approve": True, "reason": "no"}, "has no meaning with approve: true"),
    ("tool", {"approve": False, "arguments": {}}, "has no meaning with approve: false"),
    ("tool", {"approve": True, "arguments": []}, "is not an object"),
    ("tool", {"approve": "yes"}, "is not an answer"),
    ("tool", {"approve": True, "argument": {}}, "did you mean 'arguments'"),
    ("tool", "yes", "is not an answer"),
    ("iteration", False, {"approve": False}),
    ("iteration", {"approve": True, "output": None, "feedback": "shorter"}, None),
    ("iteration", {"approve": False, "accept": True, "output": "mine"}, None),
    ("iteration", {"approve": True, "accept": True}, "has no meaning with"),
    ("iteration", {"approve": True, "feedback": 3}, "is not text"),
    ("limit", {"approve": True, "more": 3}, None),
    ("limit", {"approve": True, "more": 0}, "is not an integer from 1"),
    ("limit", {"approve": True, "more": True}, "is not an integer"),
    ("limit", {"approve": True, "more": 5000}, "is not an integer from 1"),
    ("doubt", "rerun", None),
    ("doubt", "fail", None),
    ("doubt", {"output": None}, None),
    ("doubt", True, "is not an answer"),
    ("doubt", {"output": 1, "x": 2}, "is not an answer"),
    ("free", {"any": ["thing"]}, None),
    ("free", None, None),
    ("free", float("nan"), "answer"),
]


@pytest.mark.parametrize(("kind", "given", "expected"), ANSWERS)
def test_answers_are_checked_against_the_kind_of_question(
    kind: str, given: Any, expected: Any
) -> None:
    """What fits is kept as it is (True and False in their long form); what does not is refused."""
    question = Question("a/b", kind, "?")
    if isinstance(expected, str):
        with pytest.raises(ConfigurationError, match="^a/b: ") as error:
            checked(question, given)
        assert expected in str(error.value)
    else:
        assert checked(question, given) == (given if expected is None else expected)


@pytest.mark.parametrize("kind", ["parallel", "workflow", "loop"])
async def test_branches_beside_a_question_run_to_their_end(kind: str) -> None:
    """A branch that waits for a person cuts nobody short: the others finish or ask too, and after
    the answers nothing is done twice."""
    done: list[str] = []
    left, right = asks("left"), asks("right")
    other, third = says("other", done), says("third", done)
    made = parallel(left, other, right, third, name="p", at_once=2)
    if kind == "workflow":
        steps = {"left": left, "other": other, "right": right, "third": third}
        made = Workflow(
            "p", {**steps, "all": says("all", done)}, needs={"all": [*steps]}, at_once=2
        )
    if kind == "loop":
        inner = Loop(left, name="l", until=MaxIterations(1))
        made = Loop(parallel(inner, other, right, third, name="p"), until=MaxIterations(1))
    journal = MemoryJournal()
    result = await run(made, "x", journal=journal, run_id="r")
    assert (result.status, result.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert sorted(done) == ["other", "third"]
    kinds = {e.kind for e in (await journal.entries("r")) if e.path.endswith("/other")}
    assert kinds - {"step"} == {"started", "finished"}
    questions = await pending(journal, "r")
    assert sorted(q.detail for q in questions) == ["left?", "right?"]
    for question in questions:
        await answer(journal, "r", question.path, question.detail.upper())
    result = await run(made, journal=journal, run_id="r")
    assert result.status is not Status.SUSPENDED
    assert sorted(d for d in done if d != "all") == ["other", "third"]


async def test_an_error_beside_a_question_ends_the_run() -> None:
    """A failed branch decides: nobody is asked for an answer that could change nothing."""

    async def breaks(value: Any) -> Any:
        raise ValueError("broken")

    journal = MemoryJournal()
    result = await run(parallel(asks("a"), step(breaks)), "x", journal=journal, run_id="r")
    assert result.status is Status.FAILED
    assert await pending(journal, "r") == []


async def in_doubt(tmp_path: Path) -> tuple[Any, Any, list[str]]:
    """Return a step that is not idempotent, a journal in which it is in doubt, what it did."""
    acts: list[str] = []
    journal = MemoryJournal()

    async def act(value: Any) -> Any:
        acts.append(value)
        if len(acts) < 2:
            journal.crash()
            await interrupted_from_outside()
        return len(acts)

    made = step(act, name="pay", idempotent=False)
    with pytest.raises(asyncio.CancelledError):
        await run(made, "x", journal=journal, run_id="r")
    return made, journal, acts


@pytest.mark.parametrize(
    ("given", "status", "output", "count"),
    [
        ("rerun", Status.SATISFIED, 2, 2),
        ({"output": "paid"}, Status.SATISFIED, "paid", 1),
        ({"output": None}, Status.SATISFIED, None, 1),
        ("fail", Status.FAILED, None, 1),
    ],
)
async def test_a_person_settles_what_is_in_doubt(
    tmp_path: Path, given: Any, status: Status, output: Any, count: int
) -> None:
    """Run again, take a value as its outcome, or take it as failed: the last two act no more."""
    made, journal, acts = await in_doubt(tmp_path)
    first = await run(made, journal=journal, run_id="r")
    assert first.reason is Reason.NEEDS_ATTENTION
    (question,) = await pending(journal, "r")
    assert (question.path, question.kind) == ("pay", "doubt")
    await answer(journal, "r", "pay", given)
    for _ in range(2):
        result = await run(made, journal=journal, run_id="r")
        assert (result.status, result.output, len(acts)) == (status, output, count)


async def test_an_answer_about_one_attempt_does_not_speak_for_the_next() -> None:
    """Run again, and in doubt again: the person is asked again."""
    journal, acts = MemoryJournal(), []

    async def act(value: Any) -> Any:
        acts.append(value)
        journal.crash()
        await interrupted_from_outside()

    made = step(act, name="pay", idempotent=False)
    with pytest.raises(asyncio.CancelledError):
        await run(made, "x", journal=journal, run_id="r")
    await run(made, journal=journal, run_id="r")
    await answer(journal, "r", "pay", "rerun")
    with pytest.raises(asyncio.CancelledError):
        await run(made, journal=journal, run_id="r")
    again = await run(made, journal=journal, run_id="r")
    assert again.reason is Reason.NEEDS_ATTENTION
    assert [q.path for q in await pending(journal, "r")] == ["pay"]
    assert len(acts) == 2


async def test_asking_leaves_no_doubt_behind() -> None:
    """A step that is not idempotent and asks before it acts goes on with the answer."""

    async def act(value: Any, ctx: Context) -> Any:
        return ctx.ask("sure", {"kind": "tool"}, "sure?")

    made, journal = step(act, name="pay", idempotent=False), MemoryJournal()
    await run(made, "x", journal=journal, run_id="r")
    await answer(journal, "r", "pay/sure", True)
    result = await run(made, journal=journal, run_id="r")
    assert (result.status, result.output) == (Status.SATISFIED, {"approve": True})
