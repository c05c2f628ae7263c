"""One attempt of a model call, as an effect of the journal.

A failed attempt is an error there, like that of any other effect. What the next decision needs of
it (the wait that was asked for, the text received so far) does not fit into an error, so it is
recorded as an effect of its own, `fault-1` beside `attempt-1`, before the attempt itself is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..engine.context import Context
from ..engine.step import Leaf, digest_of
from ..errors import StepError
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from .errors import ModelError, error_from_json, fault_of, too_many_calls
from .prices import input_at_most, tokens_at_most
from .protocol import Reply, Request
from .registry import Models
from .replies.received import received
from .scripted import ScriptedModel

__all__ = ["ModelAttempt", "RecordedFault", "attempt_name", "recorded_fault", "recorded_target"]

_ATTEMPT = digest_of("model call", "1")
_FAULT = "note.model_fault/1"


class _Facts(Leaf):
    """A leaf that hands on what is known of a fault, so that the journal has it."""

    name = "fault"
    wants_context = False
    fingerprint = _FAULT

    def __init__(self, facts: Json) -> None:
        self.facts = facts

    async def act(self, value: Json, ctx: Any) -> Json:
        del value, ctx
        return self.facts


class ModelAttempt(Leaf):
    """A leaf that makes one request; `fault` is how it failed, if it was made and did.

    It may be repeated if the process dies during it.
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
        self._reserved: Usage | None = None  # found once: it reads the whole conversation

    def reserve(self, value: Json) -> Usage:
        """Return the most that it may cost."""
        del value
        if self._reserved is None:
            self._reserved = self.models.worst_case(self.request)
        return self._reserved

    def asks(self) -> Json:
        """Return the question for the journal, without secrets: the model, and each message's role
        and text.

        Each text is a field of its own, so that the turns of a conversation are stored once.
        """
        request = self.request
        told: dict[str, Json] = {"model": f"{request.provider}:{request.model}"}
        told["roles"] = [message.role for message in request.messages]
        for number, message in enumerate(request.messages, start=1):
            told[f"text-{number}"] = message.content
            if message.tool_calls:
                told[f"calls-{number}"] = [call.to_json() for call in message.tool_calls]
        return self.models.redactor.clean(told)

    async def act(self, value: Json, ctx: Context) -> Json:
        """Make the request, settle what it cost and write the transcript."""
        reserved = self.reserve(value)
        try:
            given = await self.models.model.complete(self.request, on_text=self.on_text)
            reply = received(given, self.request)
        except asyncio.CancelledError:
            cut = ModelError("cut off by a deadline or a cancel", kind="cancelled")
            self._tell(ctx, reserved.at_most(), fault=cut)
            raise
        except Exception as error:  # what a model of the user's own raises is its own choice
            fault = fault_of(error) if isinstance(error, StepError) else None
            ctx.spend(reserved.at_most() if fault is None else self._spent(fault, reserved))
            if fault is None:
                raise
            self._tell(ctx, ctx.spent, fault=fault)
            self.fault = await self._keep(fault, ctx)
            raise fault from None
        spent = self.models.charged(self.request, self._reported(reply, ctx))
        ctx.spend(spent)
        if (
            len(reply.tool_calls) > self.request.max_tool_calls
        ):  # of a script, or a model of one's own
            fault = too_many_calls(self.request, len(reply.tool_calls))
            fault.usage, fault.parts = spent, reply.parts
            self._tell(ctx, spent, fault=fault)
            self.fault = await self._keep(fault, ctx)
            raise fault
        data = {**reply.to_json(), "usage": spent.to_json(), "request": self._asked()}
        if self.target:
            data["target"] = self.target
        self._tell(ctx, spent, reply=data)
        return data

    def _reported(self, reply: Reply, ctx: Context) -> Usage:
        """Return what a reply says that it cost: one call at least, and where it says nothing of its
        tokens the most that they can be, so that every budget can bind."""
        usage = reply.usage
        if usage.tokens or usage.usd or isinstance(self.models.model, ScriptedModel):
            return usage if usage.calls else replace(usage, calls=1)
        if ctx.account.capped:
            ctx.warn(
                "unreported_usage: the model reports no tokens; each call counts at the most that it "
                "can have used"
            )
        written = codec.encode(
            [reply.text, reply.thinking, [call.to_json() for call in reply.tool_calls]]
        )
        tokens = (input_at_most(self.request), tokens_at_most(written))
        return Usage(max(1, usage.calls), *tokens, estimated=1)

    def _asked(self) -> Json:
        """Return which model was asked and how, for whoever reads the record; not the question."""
        request = self.request
        told: dict[str, Json] = {"provider": request.provider, "model": request.model}
        names = ("temperature", "max_tokens")
        told |= {n: value for n in names if (value := getattr(request, n)) is not None}
        return told | ({"extra": dict(request.extra)} if request.extra else {})

    def _spent(self, fault: ModelError, reserved: Usage) -> Usage:
        """Return what a failed request cost: all that was promised, where nobody knows."""
        seen = self.models.charged(self.request, fault.usage or NOTHING)
        if fault.billed == "maybe":
            return seen.settled_at(reserved)
        if fault.billed == "yes":
            return seen or reserved.at_most()
        return NOTHING

    async def _keep(self, fault: ModelError, ctx: Context) -> RecordedFault:
        """Record what the next decision needs, before the attempt itself is recorded."""
        facts = {**fault.to_json(), "request": self._asked()}
        facts["message"] = ctx.run.error_text(str(facts.get("message", "")))
        policy = self.models.policy
        if self.target:
            facts["target"] = self.target
        if fault.retry_after is not None:
            facts["retry_at"] = ctx.run.clock.wall() + fault.retry_after
            most = min(policy.longest_told, ctx.remaining(), policy.whole - self.waited)
            facts["too_long"] = fault.retry_after > most
        number = len(_facts_of(self.outer, self.name, self.number))
        again = f"-{number + 1}" if number else ""  # a try died before the attempt was recorded
        await self.outer.call(f"{_fault(self.name, self.number)}{again}", _Facts(facts))
        return RecordedFault(fault, facts.get("retry_at"), facts.get("too_long", False))

    def _tell(
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
        self.models.tell(ctx, record)


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A fault as it is on record.

    `retry_at` is the wall-clock second before which the endpoint wants no other request, `too_long`
    that this was longer than the call could wait when it failed.
    """

    fault: ModelError
    retry_at: float | None = None
    too_long: bool = False


def recorded_fault(ctx: Context, name: str, number: int) -> RecordedFault | None:
    """Return the fault of a call's recorded attempt, if the journal has its facts."""
    found = _facts_of(ctx, name, number)
    if not found:
        return None
    facts = found[-1]
    fault = error_from_json(facts, path=ctx.below(name) if name else ctx.path)
    return RecordedFault(fault, facts.get("retry_at"), facts.get("too_long", False))


def recorded_target(ctx: Context, name: str, number: int) -> int | None:
    """Return which endpoint a finished attempt went to, 0 the first; None if none is on record."""
    replay = ctx.run.replay
    entry = replay.finished.get(ctx.below(attempt_name(name, number))) if replay else None
    if entry is None:
        return None
    facts = _facts_of(ctx, name, number)
    value = facts[-1] if entry.error is not None and facts else entry.value
    return int(value.get("target", 0)) if isinstance(value, dict) else 0


def attempt_name(name: str, number: int) -> str:
    """Return what an attempt of a call is called in the journal."""
    return f"{name}/attempt-{number}" if name else f"attempt-{number}"


def _fault(name: str, number: int) -> str:
    return f"{name}/fault-{number}" if name else f"fault-{number}"


def _facts_of(ctx: Context, name: str, number: int) -> list[Json]:
    """Return what is on record of the fault of an attempt, the latest try last."""
    replay = ctx.run.replay
    path = ctx.below(_fault(name, number))
    found: list[Json] = []
    while replay is not None:
        entry = replay.finished.get(f"{path}-{len(found) + 1}" if found else path)
        if entry is None:
            break
        found.append(entry.value)
    return found
