"""Thinking is never sent as text, however a stream is cut (`python.md` 2.5)."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from faulty_server import FaultyServer, delta, streamed, usage
from hypothesis import given
from hypothesis import strategies as st
from model_worlds import KEYS

from loopwright import run
from loopwright.models import Models, ProviderModel, own_words
from loopwright.models.reply_text import SpokenText
from loopwright.prompts import prompt

PLAN = "first I PLAN it"
REPLIES = [
    f"<think>{PLAN}</think>\n\nThe answer is 4.",
    f"  <thinking type='a'>{PLAN} <b>\n</thinking> 4 < 5 and a[0] > 3 ",
    f"[THINK]{PLAN}[/THINK]4",
    f"\u25c1think\u25b7{PLAN}\u25c1/think\u25b7 4",
    f"<think>{PLAN}<think>{PLAN}</think>{PLAN}</think>4",
    f"<|channel|>analysis<|message|>{PLAN}<|end|><|start|>assistant<|channel|>final<|message|>4",
    f"<|im_start|>assistant\n<think>{PLAN}</think>4",
    f"<think>{PLAN} and never stop",
    "The answer is 4.\n<think> and </think> are tags\n<thinking>so",
    "<analysis>Sales fell.</analysis>\n<advice>Cut.</advice>",
    f"<think>{PLAN}</think>re.sub('<think>.*?</think>', '', text)",
    "a plain answer, `</think>` is a tag and <b>this</b> [THIS] too\n",
    '{"tag": "<think>", "list": [1, 2]}',
    "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nmore",
    "<start_of_turn>model\nHello <b>you</b> < 3<end_of_turn>\n",
    "[/INST] Hello</s>",
    "<s>Hello<|eot_id|>",
    "Hello</s><s>",
    f"<think>{PLAN}</think>Hello<|end|><|start|>user",
    "a <s>struck</s> word and `<|im_end|>` quoted",
    '{"mark": "<|im_end|>", "n": 1}',
]


def heard(pieces: list[str]) -> str:
    """Return what a listener gets of pieces."""
    got: list[str] = []
    spoken = SpokenText(got.append)
    for piece in pieces:
        spoken(piece)
    spoken.end()
    return "".join(got)


@pytest.mark.parametrize("reply", REPLIES)
def test_no_cut_of_a_stream_sends_thinking(reply: str) -> None:
    """Whole, by characters, and cut in two or three anywhere: the listener gets the own words."""
    assert heard([reply]) == own_words(reply)
    assert heard(list(reply)) == own_words(reply)
    for one, other in itertools.combinations(range(0, len(reply) + 1, 2), 2):
        assert heard([reply[:one], reply[one:other], reply[other:]]) == own_words(reply)


parts = st.sampled_from(
    ["<|im_end|>", "</s>", "<s>", "{", "<think>", "</think>", "<thinking>", "`", "\n", " ", "a", "<", "[THINK]", "[/THINK]", "word", "<|im_start|>",
     "<|channel|>analysis", "<|channel|>final<|message|>", "assistant"]
)  # fmt: skip


@given(st.lists(parts, max_size=12).map("".join), st.data())
def test_what_is_sent_does_not_depend_on_the_cuts(reply: str, data: st.DataObject) -> None:
    """Rule 1: any text in any pieces gives what it gives whole."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=6)))
    pieces = [reply[a:b] for a, b in itertools.pairwise([0, *cuts, len(reply)])]
    assert heard(pieces) == heard([reply])


def _keeps(got: list[str], path: str, text: str) -> None:
    assert path
    got.append(text)


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
async def test_a_stream_over_http_sends_no_thinking(size: int) -> None:
    """A run's listener gets the own words of each reply, in whatever pieces a server streams it."""
    for reply in REPLIES[:7]:
        pieces = [delta(reply[at : at + size]) for at in range(0, len(reply), size)]
        got: list[str] = []
        async with (
            FaultyServer(streamed(*pieces, delta(finish="stop"), usage())) as server,
            ProviderModel(KEYS) as model,
        ):
            step = prompt("Go", model="openai_compatible:m", base_url=server.url)
            resources = {"models": Models(model), "on_text": partial(_keeps, got)}
            result = await run(step, None, resources=resources)
        assert result.satisfied, result.detail
        assert "PLAN" not in "".join(got)
        assert "".join(got).strip() == str(result.output).strip()
