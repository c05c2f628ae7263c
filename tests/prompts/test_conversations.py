"""Conversations within limits: what is sent again, what is summarised, and the same after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal
from loopwright import Budget, Loop, MaxIterations, MemoryJournal, OnStall, Result, retry, run
from loopwright.documents import Settings, load
from loopwright.errors import ConfigurationError, DocumentError, OwnershipLost
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import Conversation, prompt
from loopwright.testing import run_virtual

RULES = [
    {"step": "*/summary", "replies": ["S1", "S2", "S3", "S4"]},
    {"replies": ["a", "b", "c", "d", "e"]},
]
ASK = "q{{ loop.iteration }}"


class World:
    """The calls of a run, each as the texts of its messages, and its journal."""

    def __init__(self, rules: Any = RULES, journal: MemoryJournal | None = None) -> None:
        self.rules = rules
        self.journal = journal or MemoryJournal()
        self.calls: list[tuple[str, list[str]]] = []

    def run(self, step: Any, **options: Any) -> Result:
        models = Models(ScriptedModel(self.rules), transcript=self._note)
        resources = {"models": models, "model": "openai:gpt-4o"}
        return run_virtual(
            run(step, "in", journal=self.journal, run_id="r", resources=resources, **options)
        )

    def _note(self, record: dict[str, Any]) -> None:
        kind = "summary" if "/summary" in record["path"] else "ask"
        self.calls.append((kind, [message["content"] for message in record["messages"]]))

    @property
    def asked(self) -> list[list[str]]:
        return [texts for kind, texts in self.calls if kind == "ask"]


def loop(conversation: Conversation | None, count: int = 4, **settings: Any) -> Loop:
    """A loop with a prompt in one conversation."""
    step = prompt(ASK, conversation=conversation, name="ask", **settings)
    return Loop(step, until=MaxIterations(count), name="talk")


def test_the_oldest_exchanges_are_left_out() -> None:
    """A question and its reply leave together, so the turns alternate."""
    for most in (4, 5):
        world = World()
        world.run(loop(Conversation(max_messages=most), 5, system="Be brief."))
        assert world.asked[-1] == ["Be brief.", "q3", "c", "q4", "d", "q5"]
        assert world.asked[2] == ["Be brief.", "q1", "a", "q2", "b", "q3"]


def test_tokens_are_counted_by_four_characters() -> None:
    """An exchange of one and three tokens needs four; one that is too long alone leaves too."""
    rules = [{"replies": ["a" * 12, "b" * 12, "c" * 40, "d"]}]
    for most, expected in (
        (8, ["q1", "a" * 12, "q2", "b" * 12, "q3"]),
        (7, ["q2", "b" * 12, "q3"]),
    ):
        world = World(rules)
        world.run(loop(Conversation(max_tokens=most)))
        assert world.asked[2] == expected
        assert world.asked[3] == ["q4"]


def test_what_is_left_out_is_summarised_once() -> None:
    """Each summary covers the one before and the newly left out exchange."""
    world = World()
    world.run(loop(Conversation(max_messages=2, summary=True)))
    before = "Summary of the earlier conversation:\n"
    assert world.asked[2] == [f"{before}S1\n\nq2", "b", "q3"]
    assert world.asked[3] == [f"{before}S2\n\nq3", "c", "q4"]
    summaries = [texts[0] for kind, texts in world.calls if kind == "summary"]
    assert [text.split("\n\n")[1:] for text in summaries] == [
        ["User:\nq1", "Assistant:\na"],
        [f"{before}S1", "User:\nq2", "Assistant:\nb"],
    ]


def test_a_summary_stands_before_the_question_if_nothing_else_is_sent() -> None:
    """User and assistant take turns, also without an earlier exchange."""
    world = World([RULES[0], {"replies": ["a" * 400]}])
    world.run(loop(Conversation(max_tokens=10, summary=True), 2))
    assert world.asked[1] == ["Summary of the earlier conversation:\nS1\n\nq2"]


def test_a_failed_iteration_needs_no_other_summary() -> None:
    """A summary that was paid for is used by the next iteration too."""
    rules = [RULES[0], {"replies": ["a", "b", {"error": "permanent"}, "d"]}]
    step = prompt(ASK, conversation=Conversation(max_messages=2, summary=True))
    world = World(rules)
    world.run(Loop(step, until=MaxIterations(4), name="talk", on_failure="continue"))
    assert [kind for kind, _ in world.calls] == ["ask", "ask", "summary", "ask", "ask"]
    assert world.asked[-1][0].endswith("S1\n\nq2")


async def crashed(journal: MemoryJournal, count: int) -> MemoryJournal:
    """Return the journal as it is after a crash with its first entries."""
    other = MemoryJournal()
    info = await journal.find("r")
    log = await other.open(replace(info, status="interrupted"))
    for entry in (await journal.entries("r"))[:count]:
        log.append(entry)
    other.crash()
    return other


def cases() -> Iterator[tuple[str, Any]]:
    """Loops with a bounded conversation, by name."""
    limits = Conversation(max_messages=2, summary=True)
    yield "summary", loop(limits)
    yield "messages", loop(Conversation(max_messages=2))
    yield "tokens", loop(Conversation(max_tokens=2))
    step = retry(prompt(ASK, conversation=limits, name="ask"), attempts=2, delay=0)
    yield "retried", Loop(step, until=MaxIterations(4), name="talk")
    failing = prompt(ASK, conversation=limits)
    yield "failing", Loop(failing, until=MaxIterations(4), name="talk", on_failure="continue")


@pytest.mark.parametrize("name", [name for name, _ in cases()])
def test_a_run_that_was_killed_goes_on_with_the_same_messages(name: str) -> None:
    """After a kill at each entry the result is the same, and nothing recorded is paid again."""
    step = dict(cases())[name]
    rules = (
        [RULES[0], {"replies": ["a", "b", {"error": "permanent"}, "d"]}]
        if name == "failing"
        else RULES
    )
    whole = World(rules)
    expected = whole.run(step)
    entries = asyncio.run(whole.journal.entries("r"))
    for count in range(1, len(entries)):
        world = World(rules, asyncio.run(crashed(whole.journal, count)))
        result = world.run(step)
        assert (result.output, result.reason) == (expected.output, expected.reason)
        assert world.calls == whole.calls[len(whole.calls) - len(world.calls) :]
        paid = [e for e in entries[:count] if e.kind == "finished" and is_call(e.path)]
        assert len(world.calls) == len(whole.calls) - len(paid)


def is_call(path: str) -> bool:
    """Whether an effect is a model call."""
    return path.rpartition("/")[2].startswith("attempt-")


def test_a_summary_is_paid_from_the_budget() -> None:
    """A call is a call: with a budget of three calls the summary is the third."""
    world = World()
    result = world.run(loop(Conversation(max_messages=2, summary=True)), budget=Budget(calls=3))
    assert [kind for kind, _ in world.calls] == ["ask", "ask", "summary"]
    assert (result.reason.value, result.usage.calls) == ("budget", 3)


def test_limits_are_part_of_the_fingerprint_and_no_limit_is_not() -> None:
    """A recorded run of `carried=True` resumes as before."""
    carried = prompt(ASK, carried=True)
    assert carried.fingerprint == prompt(ASK, conversation=Conversation()).fingerprint
    assert carried.fingerprint == prompt(ASK).fingerprint
    assert carried.fingerprint != prompt(ASK, conversation=Conversation(max_messages=2)).fingerprint


@pytest.mark.parametrize(
    "limits", [{"max_messages": 1}, {"max_tokens": 0}, {"summary": True}, {"max_messages": True}]
)
def test_wrong_limits_are_refused(limits: dict[str, Any]) -> None:
    """The message names the limit."""
    with pytest.raises(ConfigurationError, match=f"conversation: {next(iter(limits))}"):
        Conversation(**limits)


DOCUMENT = """\
schema: loopwright/1
name: doc
model: openai:gpt-4o
steps:
  - name: talk
    loop:
      execute: {{prompt: "q{{{{ loop.iteration }}}}", conversation: {conversation}}}
      until: {{max_iterations: 4}}
"""


def loaded(folder: Path, conversation: str) -> Any:
    """Load a document with a conversation."""
    file = folder / "doc.yaml"
    file.write_text(DOCUMENT.format(conversation=conversation))
    return load(file, Settings())


@pytest.mark.parametrize(
    ("conversation", "last"),
    [
        ("{carry: true, max_messages: 2}", ["q3", "c", "q4"]),
        ("{max_tokens: 4}", ["q2", "b", "q3", "c", "q4"]),
        ("{carry: true}", ["q1", "a", "q2", "b", "q3", "c", "q4"]),
        ("carried", ["q1", "a", "q2", "b", "q3", "c", "q4"]),
        ("{carry: false, max_messages: 2}", ["q4"]),
        (
            "{carry: true, max_messages: 2, summary: true}",
            ["Summary of the earlier conversation:\nS2\n\nq3", "c", "q4"],
        ),
    ],
)
def test_a_document_sets_the_limits(tmp_path: Path, conversation: str, last: list[str]) -> None:
    """The keys are those of Python."""
    world = World()
    world.run(loaded(tmp_path, conversation).step)
    assert world.asked[-1] == last


@pytest.mark.parametrize(
    ("conversation", "message"),
    [
        ("{max_messages: 1}", "max_messages"),
        ("{summary: true}", "summary needs a limit"),
        ("{max_mesages: 4}", "max_messages"),
        ("{max_tokens: many}", "max_tokens"),
    ],
)
def test_wrong_limits_of_a_document_have_a_place(
    tmp_path: Path, conversation: str, message: str
) -> None:
    """Line 7 has the conversation."""
    with pytest.raises(DocumentError) as raised:
        loaded(tmp_path, conversation)
    assert all(problem.line == 7 for problem in raised.value.problems)
    assert message in str(raised.value)


@pytest.mark.parametrize("at", [0, 21])
def test_a_new_chain_begins_a_conversation(at: int) -> None:
    """A chain has a conversation of its own, also after a kill in its middle."""
    world = World(journal=DyingJournal(at))
    talk = Loop(
        prompt(ASK, carried=True, name="ask"),
        lambda reply: 0.5,
        until=MaxIterations(5),
        on_stall=OnStall("fresh", patience=1),
        name="talk",
    )
    if at:
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            world.run(talk)
        world.journal.at = 0
    world.run(talk)
    expected = [["q1"], ["q1", "a", "q2"], ["q3"], ["q3", "c", "q4"], ["q5"]]
    assert [
        texts for number, texts in enumerate(world.asked) if texts not in world.asked[:number]
    ] == expected
