"""One attempt of a model call, as an effect of the journal.

An entry of a failed effect has no fields for the requested wait and the received text, which the next
decision needs. They are recorded as another effect, `fault-1` beside `attempt-1`.
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
from .errors import ModelError, error_from_json, model_error_of, too_many_calls
from .protocol import Reply, Request, input_at_most, received, tokens_at_most
from .registry import Models
from .scripted import ScriptedModel

__all__ = ["ModelAttempt", "RecordedFailure", "attempt_name", "recorded_failure", "recorded_target"]

# Both fingerprints are in recorded journals: another value makes runs in progress refuse to resume.
_ATTEMPT = digest_of("model call", "1")
_FAULT = "note.model_fault/1"


class _FailureFacts(Leaf):
    """An effect whose output describes a failed attempt for the journal."""

    name = "fault"
    wants_context = False
    fingerprint = _FAULT
    counts = False  # a note

    def __init__(self, facts: Json) -> None:
        self.facts = facts

    async def act(self, value: Json, ctx: Context | None) -> Json:
        del value, ctx
        return self.facts


class ModelAttempt(Leaf):
    """An effect that makes one request; `failure` describes why it failed.

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
        self.failure: RecordedFailure | None = None
        # Computed once, because it reads the entire conversation.
        self._reserved: Usage | None = None

    def reserve(self, value: Json) -> Usage:
        """Return the highest possible cost."""
        del value
        if self._reserved is None:
            self._reserved = self.models.worst_case(self.request)
        return self._reserved

    @property
    def asks(self) -> Json:
        """The request for the journal, without secrets: the model, and the role and text of each
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
        redactor = self.models.redactor
        return question if redactor is None else redactor.clean(question)

    async def act(self, value: Json, ctx: Context) -> Json:
        """Make the request, settle its cost and write the transcript."""
        reserved = self.reserve(value)
        try:
            answer = await self.models.model.complete(self.request, on_text=self.on_text)
            reply = received(answer, self.request)
        except asyncio.CancelledError:
            error = ModelError("cut off by a deadline or a cancel", kind="cancelled")
            # A cancelled request may be billed; its real cost stays unknown.
            self._write_transcript(ctx, reserved.at_most(), failure=error)
            raise
        except Exception as error:  # a user's own model may raise anything
            failure = model_error_of(error) if isinstance(error, StepError) else None
            # The cost is settled before the error leaves, or a budget would have room that is spent already.
            ctx.spend(reserved.at_most() if failure is None else self._spent(failure, reserved))
            ctx.spent_exact = True  # a cancel while the failure is recorded adds no cost
            if failure is None:
                raise
            self._write_transcript(ctx, ctx.spent, failure=failure)
            self.failure = await self._keep(failure, ctx)
            raise failure from None
        spent = self.models.charged(self.request, self._reported(reply, ctx))
        ctx.spend(spent)
        # Providers are checked while the reply arrives; a script or a user's own model is not.
        if len(reply.tool_calls) > self.request.max_tool_calls:
            failure = too_many_calls(self.request, len(reply.tool_calls))
            failure.usage, failure.parts = spent, reply.parts
            self._write_transcript(ctx, spent, failure=failure)
            self.failure = await self._keep(failure, ctx)
            raise failure
        # The settings are recorded because retries and failover may differ from the original request.
        data = {**reply.to_json(), "usage": spent.to_json(), "request": self._settings()}
        if self.target:
            data["target"] = self.target
        self._write_transcript(ctx, spent, reply=data)
        return data

    def _reported(self, reply: Reply, ctx: Context) -> Usage:
        """Return the usage of a reply: at least one call, and upper bounds for unreported tokens."""
        usage = reply.usage
        # Without an upper bound, a server that reports no tokens would never reach a limit.
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

    def _spent(self, failure: ModelError, reserved: Usage) -> Usage:
        """Return the cost of a failed request; the reserved amount where the cost is unknown."""
        reported = self.models.charged(self.request, failure.usage or NOTHING)
        if failure.billed == "maybe":
            return reported.settled_at(reserved)
        if failure.billed == "yes":
            return reported or reserved.at_most()
        return NOTHING

    async def _keep(self, failure: ModelError, ctx: Context) -> RecordedFailure:
        """Record the facts for the next decision, before the attempt itself is recorded."""
        facts = {**failure.to_json(), "request": self._settings()}
        # A provider's message may quote a key or the input.
        facts["message"] = ctx.run.error_text(str(facts.get("message", "")))
        policy = self.models.policy
        if self.target:
            facts["target"] = self.target
        if failure.retry_after is not None:
            # The time of the clock is recorded, because a resumed run has to wait for the rest only.
            facts["retry_at"] = ctx.run.clock.wall() + failure.retry_after
            longest = min(policy.longest_told, ctx.remaining(), policy.whole - self.waited)
            facts["too_long"] = failure.retry_after > longest
        number = len(_facts_of(self.outer, self.name, self.number))
        # The name is taken if an earlier process ended after the facts and before the attempt.
        suffix = f"-{number + 1}" if number else ""
        name = f"{_failure_name(self.name, self.number)}{suffix}"
        await self.outer.call(name, _FailureFacts(facts))
        return RecordedFailure(failure, facts.get("retry_at"), facts.get("too_long", False))

    def _write_transcript(
        self, ctx: Context, spent: Usage, *, reply: Json = None, failure: ModelError | None = None
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
            "error": failure.to_json() if failure is not None else None,
        }
        self.models.write_transcript(ctx, record)


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A recorded failure of an attempt.

    `retry_at` is the wall-clock time in seconds before which the endpoint accepts no request. `too_long`
    means that the call could not wait so long when it failed.
    """

    failure: ModelError
    retry_at: float | None = None
    too_long: bool = False


def recorded_failure(ctx: Context, name: str, number: int) -> RecordedFailure | None:
    """Return the failure of a recorded attempt, if the journal has its facts."""
    recorded = _facts_of(ctx, name, number)
    if not recorded:
        return None
    facts = recorded[-1]
    failure = error_from_json(facts, path=ctx.below(name) if name else ctx.path)
    return RecordedFailure(failure, facts.get("retry_at"), facts.get("too_long", False))


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


def _failure_name(name: str, number: int) -> str:
    return f"{name}/fault-{number}" if name else f"fault-{number}"


def _facts_of(ctx: Context, name: str, number: int) -> list[Json]:
    """Return the recorded facts of a failed attempt, the latest last."""
    replay = ctx.run.replay
    path = ctx.below(_failure_name(name, number))
    facts: list[Json] = []
    while replay is not None:
        entry = replay.finished.get(f"{path}-{len(facts) + 1}" if facts else path)
        if entry is None:
            break
        facts.append(entry.value)
    return facts
