"""One attempt of a model call, as an effect of the journal.

The error of an effect has no room for the facts that the next decision needs, such as the requested wait
and the received text. They are recorded as another effect, `fault-1` beside `attempt-1`, before the
attempt itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..engine.context import Context
from ..engine.step import Leaf, digest_of
from ..errors import StepError
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from .errors import ModelError, error_from_json, fault_of, too_many_calls
from .prices import input_at_most, tokens_at_most
from .protocol import Reply, Request
from .registry import Models
from .replies.values import received
from .scripted import ScriptedModel

__all__ = ["ModelAttempt", "RecordedFault", "attempt_name", "recorded_fault", "recorded_target"]

_ATTEMPT = digest_of("model call", "1")
_FAULT = "note.model_fault/1"


class _Facts(Leaf):
    """An effect whose result is the facts of a failed attempt, so that the journal has them."""

    name = "fault"
    wants_context = False
    fingerprint = _FAULT

    def __init__(self, facts: Json) -> None:
        self.facts = facts

    async def act(self, value: Json, ctx: Context | None) -> Json:
        del value, ctx
        return self.facts


class ModelAttempt(Leaf):
    """An effect that makes one request; `fault` describes its failure.

    After a crash during the call it may be repeated.
    """

    fingerprint = _ATTEMPT

    def __init__(
        self,
        models: Models,
        request: Request,
        outer: Context,
        *,
        name: str,
        number: int,
        target: int,
        waited: float,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self.models = models
        self.request = request
        self.outer = outer
        self.name = name
        self.number = number
        self.target = target
        self.waited = waited
        self.on_text = on_text
        self.fault: RecordedFault | None = None
        self._reserved: Usage | None = (
            None  # computed once, because it reads the entire conversation
        )

    def reserve(self, value: Json) -> Usage:
        """Return the highest possible cost."""
        del value
        if self._reserved is None:
            self._reserved = self.models.worst_case(self.request)
        return self._reserved

    def asks(self) -> Json:
        """Return the request for the journal, without secrets: the model, and the role and text of each
        message.

        Each text is a separate field, so that the turns of a conversation are stored once.
        """
        request = self.request
        question: dict[str, Json] = {"model": f"{request.provider}:{request.model}"}
        question["roles"] = [message.role for message in request.messages]
        for number, message in enumerate(request.messages, start=1):
            question[f"text-{number}"] = message.content
            if message.files:
                question[f"files-{number}"] = [file.to_json() for file in message.files]
            if message.tool_calls:
                question[f"calls-{number}"] = [call.to_json() for call in message.tool_calls]
        return self.models.redactor.clean(question)

    async def act(self, value: Json, ctx: Context) -> Json:
        """Make the request, settle its cost and write the transcript."""
        reserved = self.reserve(value)
        try:
            answer = await self.models.model.complete(self.request, on_text=self.on_text)
            reply = received(answer, self.request)
        except asyncio.CancelledError:
            error = ModelError("cut off by a deadline or a cancel", kind="cancelled")
            self._write_transcript(ctx, reserved.at_most(), fault=error)
            raise
        except Exception as error:  # a user's own model may raise anything
            fault = fault_of(error) if isinstance(error, StepError) else None
            ctx.spend(reserved.at_most() if fault is None else self._spent(fault, reserved))
            if fault is None:
                raise
            self._write_transcript(ctx, ctx.spent, fault=fault)
            self.fault = await self._keep(fault, ctx)
            raise fault from None
        spent = self.models.charged(self.request, self._reported(reply, ctx))
        ctx.spend(spent)
        if len(reply.tool_calls) > self.request.max_tool_calls:  # of a script or a user's own model
            fault = too_many_calls(self.request, len(reply.tool_calls))
            fault.usage, fault.parts = spent, reply.parts
            self._write_transcript(ctx, spent, fault=fault)
            self.fault = await self._keep(fault, ctx)
            raise fault
        data = {**reply.to_json(), "usage": spent.to_json(), "request": self._settings()}
        if self.target:
            data["target"] = self.target
        self._write_transcript(ctx, spent, reply=data)
        return data

    def _reported(self, reply: Reply, ctx: Context) -> Usage:
        """Return the usage of a reply: at least one call. Unreported tokens count at their upper bound,
        so that every budget holds."""
        usage = reply.usage
        if usage.tokens or usage.usd or isinstance(self.models.model, ScriptedModel):
            return usage if usage.calls else replace(usage, calls=1)
        if ctx.account.capped:
            ctx.warn(
                "the model reports no tokens; each call counts at its upper bound",
                code="unreported_usage",
            )
        written = codec.encode(
            [reply.text, reply.thinking, [call.to_json() for call in reply.tool_calls]]
        )
        tokens = (input_at_most(self.request), tokens_at_most(written))
        return Usage(max(1, usage.calls), *tokens, estimated=1)

    def _settings(self) -> Json:
        """Return the model and its settings for readers of the record, without the messages."""
        request = self.request
        settings: dict[str, Json] = {"provider": request.provider, "model": request.model}
        names = ("temperature", "max_tokens")
        settings |= {n: value for n in names if (value := getattr(request, n)) is not None}
        return settings | ({"extra": dict(request.extra)} if request.extra else {})

    def _spent(self, fault: ModelError, reserved: Usage) -> Usage:
        """Return the cost of a failed request; the reserved amount where the cost is unknown."""
        reported = self.models.charged(self.request, fault.usage or NOTHING)
        if fault.billed == "maybe":
            return reported.settled_at(reserved)
        if fault.billed == "yes":
            return reported or reserved.at_most()
        return NOTHING

    async def _keep(self, fault: ModelError, ctx: Context) -> RecordedFault:
        """Record the facts for the next decision, before the attempt itself is recorded."""
        facts = {**fault.to_json(), "request": self._settings()}
        facts["message"] = ctx.run.error_text(str(facts.get("message", "")))
        policy = self.models.policy
        if self.target:
            facts["target"] = self.target
        if fault.retry_after is not None:
            facts["retry_at"] = ctx.run.clock.wall() + fault.retry_after
            longest = min(policy.longest_told, ctx.remaining(), policy.whole - self.waited)
            facts["too_long"] = fault.retry_after > longest
        number = len(_facts_of(self.outer, self.name, self.number))
        again = (
            f"-{number + 1}" if number else ""
        )  # an earlier process ended before it recorded the attempt
        await self.outer.call(f"{_fault(self.name, self.number)}{again}", _Facts(facts))
        return RecordedFault(fault, facts.get("retry_at"), facts.get("too_long", False))

    def _write_transcript(
        self, ctx: Context, spent: Usage, *, reply: Json = None, fault: ModelError | None = None
    ) -> None:
        request = self.request
        record = {
            "path": request.path,
            "attempt": self.number,
            "provider": request.provider,
            "model": request.model,
            "temperature": request.temperature,
            "messages": [message.to_json() for message in request.messages],
            "reply": reply,
            "usage": spent.to_json(),
            "error": fault.to_json() if fault is not None else None,
        }
        self.models.write_transcript(ctx, record)


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A recorded failure of an attempt.

    `retry_at` is the wall-clock time in seconds before which the endpoint accepts no request. `too_long`
    means that the call could not wait so long when it failed.
    """

    fault: ModelError
    retry_at: float | None = None
    too_long: bool = False


def recorded_fault(ctx: Context, name: str, number: int) -> RecordedFault | None:
    """Return the failure of a recorded attempt, if the journal has its facts."""
    recorded = _facts_of(ctx, name, number)
    if not recorded:
        return None
    facts = recorded[-1]
    fault = error_from_json(facts, path=ctx.below(name) if name else ctx.path)
    return RecordedFault(fault, facts.get("retry_at"), facts.get("too_long", False))


def recorded_target(ctx: Context, name: str, number: int) -> int | None:
    """Return the number of the endpoint of a recorded attempt, 0 for the first; None without a record."""
    replay = ctx.run.replay
    entry = replay.finished.get(ctx.below(attempt_name(name, number))) if replay else None
    if entry is None:
        return None
    facts = _facts_of(ctx, name, number)
    value = facts[-1] if entry.error is not None and facts else entry.value
    return int(value.get("target", 0)) if isinstance(value, dict) else 0


def attempt_name(name: str, number: int) -> str:
    """Return the name of an attempt in the journal."""
    return f"{name}/attempt-{number}" if name else f"attempt-{number}"


def _fault(name: str, number: int) -> str:
    return f"{name}/fault-{number}" if name else f"fault-{number}"


def _facts_of(ctx: Context, name: str, number: int) -> list[Json]:
    """Return the recorded facts of a failed attempt, the latest last."""
    replay = ctx.run.replay
    path = ctx.below(_fault(name, number))
    facts: list[Json] = []
    while replay is not None:
        entry = replay.finished.get(f"{path}-{len(facts) + 1}" if facts else path)
        if entry is None:
            break
        facts.append(entry.value)
    return facts
