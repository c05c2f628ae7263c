"""Requests, messages and replies: what they refuse, and that they go to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models import (
    KINDS,
    Message,
    ModelError,
    Reply,
    Request,
    Timers,
    ToolCall,
    ToolDefinition,
)
from loopwright.models.errors import error_from_json
from loopwright.records import Usage

ASK = (Message("user", "hello"),)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
texts = st.text(
    alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)
calls = st.builds(ToolCall, texts, texts, st.dictionaries(texts, values, max_size=2))
usages = st.builds(
    Usage, calls=st.integers(0, 5), input_tokens=st.integers(0, 999), estimated=st.integers(0, 2)
)


@given(
    st.builds(
        Message,
        st.just("assistant"),
        texts,
        st.lists(calls, max_size=2).map(tuple),
        parts=values.filter(bool),
    )
)
def test_a_message_goes_to_json_and_back(message: Message) -> None:
    """load(dump(message)) is the message."""
    assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message


@given(
    st.builds(
        Reply, texts, values.filter(lambda v: v is not None), usages, st.sampled_from(["stop", "length"]),
        texts, texts, st.lists(calls, max_size=2).map(tuple), values.filter(lambda v: v is not None),
        st.lists(texts, max_size=2).map(tuple),
    )
)  # fmt: skip
def test_a_reply_goes_to_json_and_back(reply: Reply) -> None:
    """load(dump(reply)) is the reply."""
    assert Reply.from_json(json.loads(json.dumps(reply.to_json()))) == reply


@given(
    st.sampled_from(KINDS), texts, texts, st.none() | st.floats(0, 1e6), usages,
    st.sampled_from(["no", "maybe", "yes"]), texts,
)  # fmt: skip
def test_a_fault_goes_to_json_and_back(
    kind: str,
    message: str,
    reason: str,
    told: float | None,
    usage: Usage,
    billed: Any,
    partial: str,
) -> None:
    """load(dump(fault)) says the same, field by field."""
    fault = ModelError(
        message, kind=kind, reason=reason, retry_after=told, usage=usage, billed=billed,
        partial=partial, fields=("messages",),
    )  # fmt: skip
    again = error_from_json(json.loads(json.dumps(fault.to_json())))
    assert (str(again), again.to_json(), again.retryable) == (
        message,
        fault.to_json(),
        fault.retryable,
    )


def test_what_may_help_when_tried_again_follows_the_kind() -> None:
    """Only what may pass by itself is retryable."""
    again = {kind for kind in KINDS if ModelError("x", kind=kind).retryable}
    assert again == {"transient", "throttled", "unknown_outcome"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Message("asistant", "x"), "message: role: 'asistant' is unknown; did you mean 'assistant'?"),  # type: ignore[arg-type]
        (lambda: Message("user", 3), "message: content: 3 is not text"),  # type: ignore[arg-type]
        (lambda: Message("tool", "x"), "message: call_id: is missing; name the call that this tool message answers"),
        (lambda: Request((), "m", "p"), "request: messages: give at least one message of a user"),
        (lambda: Request((Message("system", "x"),), "m", "p"),
         "request: messages: give at least one message of a user"),
        (lambda: Request(ASK, "", "p"), "request: model: is empty; name one"),
        (lambda: Request(ASK, "m", ""), "request: provider: is empty; name one"),
        (lambda: Request(ASK, "m", "p", temperature=3),
         "request: temperature: 3 is out of range; give a number at least 0 and at most 2"),
        (lambda: Request(ASK, "m", "p", max_tokens=0), "request: max_tokens: 0 is too small; give at least 1"),
        (lambda: Request(ASK, "m", "p", schema="x"), "request: schema: give a JSON Schema, an object"),  # type: ignore[arg-type]
        (lambda: Timers(idle=0), "timeouts: idle: 0 is out of range; give a number above 0"),
        (lambda: Timers(whole=float("nan")), "timeouts: whole: nan is not finite"),
        (lambda: ToolDefinition(""), "tool: name: is empty; give the name that the model calls"),
        (lambda: ToolDefinition("t", schema=[]), "tool 't': schema: give a JSON Schema, an object"),  # type: ignore[arg-type]
        (lambda: ModelError("x", kind="transent"), "model error: kind: 'transent' is unknown; did you mean 'transient'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_made(make: Any, message: str) -> None:
    """A request that could not mean anything says where, what and what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == message


def test_text_is_cleaned_where_it_comes_in() -> None:
    """A lone surrogate becomes U+FFFD and NUL is dropped: stores refuse them."""
    assert Message("user", "a\ud800b\0c").content == "a\ufffdbc"


def test_where_a_call_is_made_is_not_part_of_the_question() -> None:
    """Path, run and timeouts change nothing of what is sent, so nothing of its digest."""
    plain = Request(ASK, "m", "p")
    placed = Request(ASK, "m", "p", path="a/1", run_id="r", timeouts=Timers(1, 1, 1))
    assert plain.to_json() == placed.to_json()


def test_a_reply_is_the_next_message() -> None:
    """A conversation goes on with the reply's text, its calls and the provider's own form of it."""
    call = ToolCall("1", "search", {"q": "x"})
    message = Reply("text", tool_calls=(call,), parts={"library": "x"}).message()
    assert message == Message("assistant", "text", (call,), parts={"library": "x"})
