"""A model call: attempts in the journal until there is a reply or nothing is left to try.

1. Every attempt is an effect, `name/attempt-1` and so on: reserved, recorded and settled.
2. `decide` (in `errors`) chooses what follows a failed attempt, such as a wait, another request or another endpoint,
   from recorded facts, so that a resumed run makes the same decision and does not wait twice.
3. A pause that an endpoint requests applies to every call of the process.
4. A wait that is too long suspends the run, if its journal outlives the process.

An entry of a failed effect has no fields for the requested wait and the received text, which the next
decision needs. They are recorded as another effect, `fault-1` beside `attempt-1`.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..conditions import Budget
from ..engine.budgets import Account
from ..engine.context import Context
from ..engine.run_record import OnText, model_call, text_listener
from ..engine.step import Leaf, digest_of
from ..errors import ModelError, StepError, Suspended
from ..records import NOTHING, Reason, Stop, Usage, codec
from ..records.codec import Json, error_line
from .errors import OF_ALL, Action, Tally, decide, error_from_json, model_error_of, too_many_calls
from .protocol import (
    DEFAULT_MAX_TOKENS,
    Message,
    Reply,
    Request,
    input_at_most,
    received,
    tokens_at_most,
)
from .registry import Models, models_of
from .reply_text import SpokenText, own_words
from .scripted import ScriptedModel

if TYPE_CHECKING:
    from .cache import ReplyCache

__all__ = [
    "ON_TEXT",
    "FailureFacts",
    "ModelAttempt",
    "RecordedFailure",
    "Recovery",
    "Target",
    "call_model",
    "facts_of",
    "failure_name",
    "recorded_failure",
]

# The fingerprint is in recorded journals: another value makes runs in progress refuse to resume.
_FAULT = "note.model_fault/1"
QUOTED_CHARS = 4_000  # of a rejected answer, so that re-asking costs little more than asking
MIN_TOKENS = 1024  # of a reply that is requested again with a larger limit, before doubling
THINKING_TOKENS = 4096  # for a judge that reached its limit inside its thinking


@dataclass(frozen=True, slots=True)
class Target:
    """Another endpoint for the same request, used when the first one fails.

    Args:
        provider: a name of `PROVIDERS`.
        model: the model's name at that provider.
        base_url: the address of another server; default "": the provider's own.
        api_key_env: the environment variable with the key for `base_url`; default "": no key.

    Example:

    >>> Target("ollama", "llama3.2")
    Target(provider='ollama', model='llama3.2', base_url='', api_key_env='')
    """

    provider: str
    model: str
    base_url: str = ""
    api_key_env: str = ""


class FailureFacts(Leaf):
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


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A recorded failure of an attempt.

    `retry_at` is the wall-clock time in seconds before which the endpoint accepts no request. `too_long`
    means that the call could not wait so long when it failed.
    """

    failure: ModelError
    retry_at: float | None = None
    too_long: bool = False


@dataclass
class Recovery(ABC):
    """A call, and what it does after a failed attempt."""

    ctx: Context
    models: Models
    name: str
    path: str
    request: Request
    targets: tuple[Target, ...]
    judge: bool = False
    tally: Tally = field(default_factory=Tally)
    number: int = 0
    waited: float = 0.0
    escalated: ModelError | None = None
    cutoff: str = "retry"  # what follows a truncated reply
    begun: float = 0.0

    @abstractmethod
    def began(self, number: int) -> bool:
        """Whether an attempt is recorded, at least its start: the wait before it is over."""

    @abstractmethod
    async def move(self) -> None:
        """Continue at the next endpoint, whose price must also be known."""

    async def after(self, error: StepError, live_failure: RecordedFailure | None) -> None:
        """Continue after a failed attempt, or raise its error."""
        recorded = live_failure or recorded_failure(self.ctx, self.name, self.number)
        if recorded is None:
            failure = model_error_of(error)
            if failure is None:
                raise error
            recorded = RecordedFailure(failure)
        # Without a live failure the error was replayed from the journal.
        live = live_failure is not None
        wait = 0.0  # the remaining seconds of the wait that the endpoint requested
        if live:
            wait = recorded.failure.retry_after or 0.0
        elif recorded.retry_at is not None and not self.began(self.number + 1):
            wait = max(0.0, recorded.retry_at - self.ctx.run.clock.wall())
        policy = self.models.policy
        # A re-asked judge would correct the format of a judgement that it does not make again.
        if self.judge:
            policy = replace(policy, re_asks=0)
        if self.cutoff != "retry":
            policy = replace(policy, escalations=0)
        action, self.tally = decide(
            recorded.failure,
            self.tally,
            policy,
            others=self.has_others(
                recorded.failure.kind == "permanent" and recorded.failure.reason in OF_ALL
            ),
            too_long=recorded.too_long,
        )
        if live and wait and recorded.failure.kind == "throttled":
            await self._cool(wait)
        # The run was suspended here and is resumed after the pause.
        if action == "suspend" and not live and not self.is_too_long(wait):
            action = "wait"
        if (
            action not in ("fail", "suspend")
            and self._left() <= 0
            and not self.began(self.number + 1)
        ):
            action = "fail"
        await self._do(action, recorded.failure, wait)

    def is_too_long(self, wait: float) -> bool:
        policy = self.models.policy
        return wait > min(policy.longest_told, self.ctx.remaining(), policy.whole - self.waited)

    def has_others(self, of_all: bool) -> bool:
        """Whether another endpoint may be tried; for a judge only if this one refuses every request."""
        return self.tally.target < len(self.targets) and (of_all or not self.judge)

    def _left(self) -> float:
        """Return the seconds left for the answer."""
        answer = self.request.timeouts.answer
        return (
            math.inf if answer is None else answer - (self.ctx.run.clock.monotonic() - self.begun)
        )

    def in_time(self) -> Request:
        """Return the request with timeouts that end with the time for the answer."""
        # 1 ms instead of 0, because a timer of 0 is not valid.
        left, timers = self._left(), self.request.timeouts
        if left >= timers.whole:
            return self.request
        cut = {
            name: min(getattr(timers, name), max(left, 0.001))
            for name in ("first_byte", "idle", "whole")
        }
        return replace(self.request, timeouts=replace(timers, **cut))

    async def _do(self, action: Action, failure: ModelError, wait: float) -> None:
        if action == "wait":
            await self._wait(failure, wait)
        elif action == "escalate":
            self._escalate(failure)
        elif action == "re_ask":
            self._re_ask(failure)
        elif action == "failover":
            await self.move()
        elif action == "suspend":
            self.suspend(failure, wait)
        elif action == "fail":
            raise self._final(failure)

    async def _wait(self, failure: ModelError, wait: float) -> None:
        if self.began(self.number + 1):
            return  # in a replay this wait is over
        run, policy = self.ctx.run, self.models.policy
        # A random part spreads the retries of many calls ("full jitter").
        seconds = max(wait, policy.backoff(max(1, self.tally.tries), run.random()))
        if self.waited + seconds > policy.whole or seconds >= self._left():
            raise self._final(failure)
        # Without a stated wait, the other calls of the account pause as well.
        if failure.kind == "throttled":
            await self._cool(seconds)
        self.waited += seconds
        await self.ctx.sleep(seconds)

    async def _cool(self, seconds: float) -> None:
        """Pause all calls of the account and model, also those of other workers."""
        run = self.ctx.run
        self.models.cool(self.request, run.clock.monotonic() + seconds)
        if run.permits is not None:
            await run.permits.pause(self.request, seconds)

    def _escalate(self, failure: ModelError) -> None:
        """Double the token limit, if the budget allows it."""
        written = self.request.max_tokens or max(
            (failure.usage or NOTHING).output_tokens, MIN_TOKENS
        )
        cap = 2 * written
        if self.judge and failure.reason == "thinking":
            cap = max(cap, THINKING_TOKENS)
        # The larger limit was not part of the reservation, so the budget must have room for it.
        larger = replace(self.request, max_tokens=cap)
        if not self.began(self.number + 1) and not _has_room(
            self.ctx, self.models.worst_case(larger)
        ):
            raise self._final(failure)
        self.escalated = failure
        self.request = larger

    def _re_ask(self, failure: ModelError) -> None:
        """Ask again, with the answer and its problem in the conversation."""
        messages: list[Message] = list(self.request.messages)
        # Without its thinking, which other models reject and which would be paid for again.
        if own_words(failure.partial).strip():
            messages.append(Message("assistant", own_words(failure.partial)[:QUOTED_CHARS]))
        problem = failure.problem or f"Your answer could not be used: {failure}"
        messages.append(Message("user", problem))
        self.request = replace(self.request, messages=tuple(messages))

    def suspend(self, failure: ModelError, wait: float) -> None:
        """Suspend the run until the endpoint is ready, if its journal outlives this process."""
        run = self.ctx.run
        # A run without a lasting journal cannot be resumed, so it must fail instead.
        if not run.log.keeps_values:
            raise self._final(failure)
        quota = failure.kind == "quota"
        request: dict[str, Json] = {"provider": self.request.provider, "model": self.request.model}
        if wait:
            request["until"] = run.clock.wall() + wait
            detail = f"{failure}; it asked for {wait:.0f} s, resume the run after that"
        else:
            detail = f"{failure}; resume the run when there is quota again"
        stop = Stop(Reason.QUOTA if quota else Reason.THROTTLED, detail)
        raise Suspended(stop, path=self.path, request=request)

    def _final(self, failure: ModelError) -> ModelError:
        """Return the error that ends the call."""
        if self.escalated is not None and failure.kind == "permanent":
            # The endpoint refused the larger limit, so the truncation is the real cause.
            failure = self.escalated
        final = error_from_json(failure.to_json(), path=self.path)
        if self.number > 1:
            final.args = (f"{failure} ({self.number} attempts)",)
        return final


def recorded_failure(ctx: Context, name: str, number: int) -> RecordedFailure | None:
    """Return the failure of a recorded attempt, if the journal has its facts."""
    recorded = facts_of(ctx, name, number)
    if not recorded:
        return None
    facts = recorded[-1]
    failure = error_from_json(facts, path=ctx.below(name) if name else ctx.path)
    return RecordedFailure(failure, facts.get("retry_at"), facts.get("too_long", False))


def failure_name(name: str, number: int) -> str:
    """Return the name of the facts of a failed attempt in the journal."""
    return f"{name}/fault-{number}" if name else f"fault-{number}"


def facts_of(ctx: Context, name: str, number: int) -> list[Json]:
    """Return the recorded facts of a failed attempt, the latest last."""
    replay = ctx.run.replay
    path = ctx.below(failure_name(name, number))
    facts: list[Json] = []
    while replay is not None:
        entry = replay.finished.get(f"{path}-{len(facts) + 1}" if facts else path)
        if entry is None:
            break
        facts.append(entry.value)
    return facts


def _has_room(ctx: Context, amount: Usage) -> bool:
    """Whether every account currently has room for `amount`."""
    account: Account | None = ctx.account
    while account is not None:
        cap, total = account.cap, account.settled + account.reserved + amount
        if cap is not None and (
            (cap.tokens is not None and total.tokens > cap.tokens)
            or (cap.usd is not None and total.usd > cap.usd)
            or (cap.calls is not None and total.calls > cap.calls)
        ):
            return False
        account = account.parent
    return True


# The fingerprint is in recorded journals: another value makes runs in progress refuse to resume.
_ATTEMPT = digest_of("model call", "1")
ON_TEXT = "on_text"  # the resource that receives streamed text: f(path, text); it must not raise


async def call_model(
    ctx: Context,
    name: str,
    request: Request,
    *,
    failover: Sequence[Target] = (),
    judge: bool = False,
    on_text: OnText | None = None,
) -> dict[str, Json]:
    """Call a model, with retries and failover, and record each attempt.

    Args:
        ctx: the context of the calling step.
        name: the name of the call in the journal; "" for the path of the step.
        request: the request; its path and run ID are filled in.
        failover: other endpoints to try, in order; default none.
        judge: use another endpoint only if this one refuses every request, because scores of two models
            are not comparable, and do not re-ask after an unreadable answer. Default False.
        on_text: receives the text of each attempt as it arrives, as `f(text)` or `f(text, call)`, in
            addition to the run's own listener. Default none.

    Returns:
        The reply as JSON (`Reply.to_json`), and `attempts`, the number of attempts.

    Raises:
        ModelError: when nothing is left to try; the message has the number of attempts.
        Suspended: when the endpoint requests a wait that is too long for the run.
        ConfigurationError: if the run has no models, or has a limit in dollars and the price of the
            model is unknown.

    Example:

    >>> import asyncio
    >>> from loopwright import run, step
    >>> from loopwright.models import Message, Models, Request, ScriptedModel
    >>> @step
    ... async def ask(question: str, ctx: Context) -> str:
    ...     request = Request((Message("user", question),), model="any", provider="openai")
    ...     return (await call_model(ctx, "", request))["text"]
    >>> models = Models(ScriptedModel([{"replies": ["Paris"]}]))
    >>> asyncio.run(run(ask, "Capital of France?", resources={"models": models})).output
    'Paris'
    """
    path = ctx.below(name) if name else ctx.path
    models = models_of(ctx)
    models.read_key(request.api_key_env)
    asked = replace(request, path=path, run_id=ctx.run_id)
    # A replay compares the original request, not its changes by retries.
    token = codec.digest(asked.to_json()) if ctx.run.keeps else ""
    caps = ctx.account.caps
    await models.prepare(asked, capped=_in_dollars(caps))
    if asked.max_tokens is None and any(
        cap.tokens is not None or cap.usd is not None for cap in caps
    ):
        # A limit holds only if the cost of each call has an upper bound.
        asked = replace(asked, max_tokens=DEFAULT_MAX_TOKENS)
    targets = tuple(failover)
    # A run may turn the cache off for all calls, or on for those that say nothing.
    cache, of_run = None, ctx.run.resources.get("cache")
    setting = of_run if request.cache is None or of_run == "off" else request.cache
    if setting not in (None, "off"):
        from .cache import ReplyCache  # few calls have one

        cache = ReplyCache.of(ctx, models, asked, setting)
    call = _Call(
        ctx=ctx,
        models=models,
        name=name,
        path=path,
        request=asked,
        targets=targets,
        on_text=on_text,
        judge=judge,
        cutoff=request.cutoff,
        cache=cache,
    )
    return await call.run(token)


def _in_dollars(caps: Sequence[Budget]) -> bool:
    return any(cap.usd is not None for cap in caps)


@dataclass
class _Call(Recovery):
    """One call while its attempts are made."""

    on_text: OnText | None = None
    cache: ReplyCache | None = None

    async def run(self, token: str) -> dict[str, Json]:
        self.begun = self.ctx.run.clock.monotonic()
        while True:
            self.number += 1
            # A replay follows the recorded endpoints, even if another one would be chosen now.
            target = recorded_target(self.ctx, self.name, self.number)
            kept = None
            if target is None:
                kept = None if self.cache is None else await self.cache.find(self.request)
                if kept is None:
                    await self._cool_down()
            elif target != self.tally.target:
                self.tally = replace(self.tally, tries=0, formats=0, target=target)
                self._use_target(target)
            listener = self._listener()
            request = self.request if self.request.timeouts.answer is None else self.in_time()
            attempt = ModelAttempt(
                self.models, request, self.ctx, name=self.name, number=self.number,
                target=self.tally.target, waited=self.waited, on_text=listener, judge=self.judge,
            )  # fmt: skip
            if kept is not None:
                from .cache import CachedReply

                attempt = CachedReply(attempt, kept)
            try:
                name = attempt_name(self.name, self.number)
                reply: dict[str, Json] = await self.ctx.call(name, attempt, token=token)
            except StepError as error:
                await self.after(error, attempt.failure)
            else:
                if self.cache is not None and attempt.whole:
                    await self.cache.keep(self.request, reply)
                return {**reply, "attempts": self.number}
            finally:
                if listener is not None:
                    listener.end()

    def _listener(self) -> SpokenText | None:
        """Return the receiver of streamed text for the caller's function and the run's `on_text` resource.

        They get no thinking and no secret of the run.
        """
        run = self.ctx.run
        path = self.ctx.below(attempt_name(self.name, self.number))
        listeners: list[Callable[[str], object]] = []
        if self.on_text is not None:
            own, call = text_listener(self.on_text), model_call(path)
            listeners.append(lambda text: own(text, call))
        if (of_run := run.resources.get(ON_TEXT)) is not None:
            listeners.append(lambda text: of_run(path, text))
        if not listeners:
            return None

        def receive(text: str) -> None:
            for listener in tuple(listeners):
                try:
                    listener(text)
                except Exception as error:  # a listener never changes a call
                    listeners.remove(listener)
                    sentence = f"a listener to the text failed: {error_line(error, run.redact)}"
                    self.ctx.warn(sentence, code="listener_failed")

        return SpokenText(receive if run.redactor is None else run.redactor.filtered(receive))

    def began(self, number: int) -> bool:
        """Whether an attempt is recorded, at least its start: the wait before it is over."""
        replay = self.ctx.run.replay
        path = self.ctx.below(attempt_name(self.name, number))
        return replay is not None and replay.began(path) is not None

    async def move(self) -> None:
        """Continue at the next endpoint, whose price must also be known."""
        self._use_target(self.tally.target)
        await self.models.prepare(self.request, capped=_in_dollars(self.ctx.account.caps))

    def _use_target(self, number: int) -> None:
        if not 1 <= number <= len(self.targets):
            # The list of endpoints is shorter than when the run was recorded; the record still counts.
            return
        target = self.targets[number - 1]
        self.request = replace(
            self.request, provider=target.provider, model=target.model,
            base_url=target.base_url, api_key_env=target.api_key_env,
        )  # fmt: skip

    async def _cool_down(self) -> None:
        """Wait for the end of the pause that the endpoint requested from all calls of the account."""
        policy, run = self.models.policy, self.ctx.run
        while not self.began(self.number):
            left = self.models.cooling(self.request, run.clock.monotonic())
            if run.permits is not None:
                left = max(left, await run.permits.paused(self.request))
            if not left:
                return
            if not self.is_too_long(left):
                # A random part keeps waiting calls from starting at the same moment.
                seconds = left + run.random() * min(left, policy.longest_delay)
                self.waited += seconds
                await self.ctx.sleep(seconds)
            elif self.has_others(False):
                self.tally = self.tally.moved()
                await self.move()
            else:
                what = f"{self.request.provider}/{self.request.model} asked for a pause"
                failure = ModelError(what, kind="throttled", path=self.path, retry_after=left)
                self.suspend(failure, left)


class ModelAttempt(Leaf):
    """An effect that makes one request; `failure` describes why it failed.

    After a crash during the call it may be repeated.
    """

    fingerprint = _ATTEMPT
    failure: RecordedFailure | None = None
    whole = False  # whether it got a reply that is no error, cut or refusal

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
        judge: bool = False,
    ) -> None:
        self.models = models
        self.request = request
        self.outer = outer
        self.name = name
        self.number = number
        self.target = target
        self.waited = waited
        self.on_text = on_text
        self.judge = judge
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
            # Its evaluator reads a verdict in any form, so only a round with tools needs the form.
            if self.request.tools or not (
                self.judge and failure.kind == "malformed" and failure.partial
            ):
                self._write_transcript(ctx, ctx.spent, failure=failure)
                self.failure = await self._keep(failure, ctx)
                raise failure from None
            # `parts` says which reply of a script it was, for a resume.
            reply, spent = Reply(failure.partial, parts=failure.parts), ctx.spent
        else:
            spent = self.models.charged(self.request, self._reported(reply, ctx))
            ctx.spend(spent)
        # Providers are checked while the reply arrives; a script or a user's own model is not.
        if len(reply.tool_calls) > self.request.max_tool_calls:
            failure = too_many_calls(self.request, len(reply.tool_calls))
            failure.usage, failure.parts = spent, reply.parts
            self._write_transcript(ctx, spent, failure=failure)
            self.failure = await self._keep(failure, ctx)
            raise failure
        self.whole = reply.finish in ("stop", "tool_calls")
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
        number = len(facts_of(self.outer, self.name, self.number))
        # The name is taken if an earlier process ended after the facts and before the attempt.
        suffix = f"-{number + 1}" if number else ""
        name = f"{failure_name(self.name, self.number)}{suffix}"
        await self.outer.call(name, FailureFacts(facts))
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


def recorded_target(ctx: Context, name: str, number: int) -> int | None:
    """Return the number of the endpoint of a recorded attempt, 0 for the first; None without a record."""
    replay = ctx.run.replay
    entry = replay.finished.get(ctx.below(attempt_name(name, number))) if replay else None
    if entry is None:
        return None
    facts = facts_of(ctx, name, number)
    value = facts[-1] if entry.error is not None and facts else entry.value
    return int(value.get("target", 0)) if isinstance(value, dict) else 0


def attempt_name(name: str, number: int) -> str:
    """Return the name of an attempt in the journal."""
    return f"{name}/attempt-{number}" if name else f"attempt-{number}"
