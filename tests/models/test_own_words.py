"""The own words of a reply: thinking and the marks of templates are no part of them."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_server import FaultyServer, delta, streamed, usage
from hypothesis import given
from hypothesis import strategies as st
from model_worlds import KEYS, ask, question

from loopwright import run_sync
from loopwright.evaluators import score
from loopwright.models import ModelError, Models, ProviderModel, Reply, ScriptedModel, own_words
from loopwright.models.reply_text import THINKING, Words, is_blank, words_of
from loopwright.prompts import prompt

THOUGHT = "<think>is it 3? no, 4</think>\n\nIt is 4."


@pytest.mark.parametrize(
    ("reply", "own"),
    [
        ("plain\n", "plain\n"),
        (THOUGHT, "It is 4."),
        ("no opening tag\n</think>\n\nIt is 4.", "It is 4."),
        ("<think>a</think> <think>b</think>c", "c"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<think>the tag <think> begins it</think>d", "d"),
        ("<|im_start|>assistant\n<think>a</think>b", "b"),
        ("<thinking lang='en'>a</thinking> b", "b"),
        ("\u25c1think\u25b7a\u25c1/think\u25b7b", "b"),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            "b",
        ),
        ("<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc", "b"),
        ("assistant\n\nb", "b"),
        ("b</s>", "b"),
        ("b\n\nUser: and now?\nAssistant: c", "b"),
        ("<think>never closed", ""),
        ("<|channel|>analysis<|message|>never closed", ""),
        ("the tag `</think>` closes it", "the tag `</think>` closes it"),
        ("<s>old</s> new", "<s>old</s> new"),
        ("Anna: hi\nUser: hello", "Anna: hi\nUser: hello"),
        ('{"text": "</think> is a tag"}', '{"text": "</think> is a tag"}'),
        ("assistant of the king", "assistant of the king"),
    ],
)
def test_own_words_have_no_thinking_and_no_template(reply: str, own: str) -> None:
    """What comes after thinking, up to the end of the turn."""
    assert own_words(reply) == own


CONTENT = [
    "</think> closes it",
    "a</think>b",
    "b\n<think>and what else",
    "TASK_COMPLETE: 42\n<think>\nchecked\n</think>",
    "<report><analysis>Sales fell.</analysis><advice>Cut.</advice></report>",
    "<analysis>Sales fell.</analysis>\n<advice>Cut.</advice>",
    "<reflection>a\n</reflection>\nb",
    "re.sub(r'<think>.*?</think>', '', text)",
    "The template ends it with\n```\n</think>\n```\nalone.",
    "<report>\n<think>\na\n</think>\n</report>",
]


@pytest.mark.parametrize("reply", CONTENT)
def test_a_tag_inside_a_reply_is_content(reply: str) -> None:
    """Only a block that opens the reply is thinking, and heading words never are in a text."""
    assert words_of(reply).repairs == ()
    assert own_words(reply) == reply


NAMES = ["think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad"]
TAGS = [
    *(f"<{name}>" for name in NAMES),
    *(f"</{name}>" for name in NAMES),
    *("\u25c1think\u25b7", "\u25c1/think\u25b7", "[THINK]", "[/THINK]"),
]
INSIDE = st.lists(
    st.sampled_from([*TAGS, "\n", " ", "a", "#", "`", "```\n", "def f():", "<p>"]), max_size=12
).map("".join)


@given(INSIDE)
def test_a_document_that_mentions_the_tags_keeps_every_character(body: str) -> None:
    """A reply that begins with words, and has an opening tag or text on the line of each tag, is whole."""
    reply = f"The tag <think> is described here. {body}."
    assert words_of(reply) == Words(reply)


@given(INSIDE, st.booleans())
def test_nothing_is_dropped_without_a_repair(reply: str, value: bool) -> None:
    """What is not in the own words is named, and thinking is kept beside them."""
    words = words_of(reply, value=value)
    if words.text != reply:
        assert words.repairs
        assert THINKING not in words.repairs or words.thinking


def test_a_reader_of_a_value_skips_an_opening_block_of_heading_words() -> None:
    """Where it is closed and text follows it; otherwise it is the answer."""
    assert own_words("<analysis>no: 1</analysis>\n2", value=True) == "2"
    assert own_words("<think>a</think><reflection>b</reflection>2", value=True) == "2"
    for reply in ("<analysis>2</analysis>", "<analysis>2", "so <analysis>1</analysis>2"):
        assert own_words(reply, value=True) == reply
    step = score("score", (0, 1))
    assert run_sync(step, "<analysis>Score: 0.1</analysis>\nScore: 0.9").unwrap().score == 0.9


def test_the_text_of_a_prompt_keeps_its_headings() -> None:
    """A report with the headings that models think under is the output of its step."""
    reply = CONTENT[5]
    models = Models(ScriptedModel([{"replies": [reply]}]))
    result = run_sync(prompt("Report", model="openai:m"), None, resources={"models": models})
    assert result.output == reply


PIECES = [
    "<think>", "</think>", "<|im_start|>", "<|im_end|>", "assistant\n", "User:", "\n", "{", "}", "a",
    "<|channel|>final<|message|>", "<|channel|>analysis<|message|>", "</s>", "<s>", "`", '"',
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text())
def test_own_words_of_own_words_are_the_same(text: str) -> None:
    """Reading a reply twice changes nothing, and what never closes has no words."""
    words = words_of(text)
    # An answer after thinking may mention a tag that would end the thinking of another reply.
    assert "</think>" in words.text or own_words(words.text) == words.text
    assert not (words.unclosed and words.text)


def test_what_cannot_be_seen_is_blank() -> None:
    """White space, zero-width and control characters are no output."""
    assert all(
        is_blank(text) for text in ("", " \n", "\u200b", "\ufeff\u2060", "\x00\x07", "\u2800")
    )
    assert not any(is_blank(text) for text in ("0", "\u00a0.", "\U0001f389"))


async def replied(*pieces: str, **more: Any) -> Reply | ModelError:
    """Return what a streamed reply of these pieces is read as."""
    answer = streamed(*map(delta, pieces), delta(finish="stop"), usage())
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        return await ask(model, question(server.url, **more))


CUTS = [
    [THOUGHT],
    ["<think>", "is it 3? no, 4", "</think>", "\n\nIt is 4."],
    ["<think>is it 3? no, 4</think>", "\n\nIt is 4."],
    ["<think>", "is it 3? no, 4</think>\n\nIt is 4."],
    ["<thi", "nk>is it 3? no, 4</th", "ink>\n\nIt is", " 4."],
    list(THOUGHT),
]


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("pieces", CUTS, ids=range(len(CUTS)))
async def test_the_answer_does_not_depend_on_how_the_stream_was_cut(pieces: list[str]) -> None:
    """The same text gives the same output and the same thinking, tag by tag or in one piece."""
    reply = await replied(*pieces)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.thinking) == ("It is 4.", "<think>is it 3? no, 4</think>")
    assert reply.repairs == ("thinking left out",)
    assert reply.message().content == "It is 4."


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize(
    "pieces", [["<think>", "4"], ["<think>4"], ["\u200b", " \n"], ["<think></think>"]]
)
async def test_thinking_alone_and_blank_text_are_no_output(pieces: list[str]) -> None:
    """Nothing to see is an empty output, however it was sent."""
    fault = await replied(*pieces)
    assert isinstance(fault, ModelError)
    assert fault.kind == "empty_output"


@pytest.mark.usefixtures("loopback")
async def test_a_key_twice_in_what_an_endpoint_sends_is_refused() -> None:
    """Nobody can tell which of the two holds, so the reply is none."""
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "a", "content": "b"}}]}\n\n'
    async with FaultyServer(_raw(event)) as server, ProviderModel(KEYS) as model:
        fault = await ask(model, question(server.url))
    assert isinstance(fault, ModelError)
    assert (fault.kind, fault.reason, fault.billed) == ("permanent", "bad_response", "maybe")
    assert "repeated key" in str(fault)


def _raw(event: bytes) -> Any:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

    async def answer(turn: Any) -> None:
        turn.writer.write(head + event + b"data: [DONE]\n\n")
        await turn.writer.drain()

    return answer
