"""What a reply means for its request, whichever model gave it: its own words and its data, or a fault.

Rules:

1. Thinking is kept apart; it is no part of a text, of data or of a later message.
2. A reply with nothing to see in it is no output, nor is one that was cut off, unless the request
   accepts a text that was.
3. Reading a reply twice changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from ...records import codec
from ..errors import ModelError
from ..protocol import Reply, Request
from .own_words import is_blank, words_of
from .values import read_value

__all__ = ["cut_off", "received"]


def received(reply: Reply, request: Request) -> Reply:
    """Return a reply as steps read it: own words as text, data that fits the schema.

    Raises:
        ModelError: `truncated`, `malformed` or `empty_output`, with what the model wrote.
    """
    words = words_of(reply.text)
    text = words.text
    repairs = tuple(dict.fromkeys((*reply.repairs, *words.repairs)))
    read = replace(
        reply, text=codec.normalise(text), thinking=reply.thinking + words.thinking, repairs=repairs
    )
    if reply.finish == "length":
        if request.cutoff != "accept" or is_blank(text):
            raise cut_off(read, request)
        return read
    if request.schema is not None and reply.data is None and not is_blank(reply.text):
        if reply.tool_calls:
            return read
        reading = read_value(reply.text, request.schema, strict=request.strict)
        if reading.problem:
            detail = f"did not answer in the format: {reading.fault}"
            raise _fault("malformed", detail, read, request, problem=reading.complaint)
        repairs = tuple(dict.fromkeys((*repairs, *reading.repairs)))
        read = replace(read, data=codec.normalise(reading.value), repairs=repairs)
    if is_blank(text) and not reply.tool_calls and read.data is None:
        what = "wrote thinking only" if words.unclosed or read.thinking else "wrote nothing"
        raise _fault("empty_output", what, read, request)
    if is_blank(text) and read.data is not None:
        return replace(read, text=codec.encode(read.data))
    return read


def cut_off(reply: Reply, request: Request) -> ModelError:
    """Return the fault of a reply that was cut off at its limit of tokens."""
    limit = f" of {request.max_tokens:,} tokens" if request.max_tokens else ""
    inside = " inside its thinking" if is_blank(reply.text) and reply.thinking else ""
    detail = (
        f"was cut off at its limit{limit}{inside}; raise max_tokens, or set on_cutoff: fail, retry "
        "(once more with a larger limit) or, for texts only, accept (the cut text is the output)"
    )
    return _fault("truncated", detail, reply, request, fields=("max_tokens", "on_cutoff"),
                  reason="thinking" if inside else "")  # fmt: skip


def _fault(
    kind: str,
    detail: str,
    reply: Reply,
    request: Request,
    *,
    problem: str = "",
    reason: str = "",
    fields: tuple[str, ...] = (),
) -> ModelError:
    return ModelError(
        f"{request.provider}/{request.model} {detail}", kind=kind, path=request.path,
        usage=reply.usage, partial=reply.text, problem=problem, reason=reason, fields=fields,
    )  # fmt: skip
